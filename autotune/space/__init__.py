"""The valid configurations of a study: enumerated once, then counted, indexed, looked up, sampled.

The space is a decision diagram: one level per parameter, a state for everything that the constraints
still want to know of the parameters above it, a transition per value. Partial configurations that leave
the same conditions on the rest share a state, so neither 10^9 combinations nor 10^9 valid configurations
are ever written out.

    space.py       Space: what the other rooms use
    diagram.py     the diagram: row <-> configuration, neighbours
    build.py       constraints -> diagram, a parameter at a time
    order.py       in which order the parameters are bound
    merge.py       equal rows of columns become one
    constraint.py  Constraint
    explain.py     constraints for a reader, and why a value is in no valid configuration
"""

from autotune.space.constraint import Constraint
from autotune.space.explain import Exclusion
from autotune.space.space import MAX_LISTED, Space

__all__ = ["MAX_LISTED", "Constraint", "Exclusion", "Space"]
