"""The small NumPy language of references: the sibling of constraints on arrays, bounded alike; never `eval`.

Operators, single comparisons, indexing, `.T` and the functions of `FUNCTIONS`. Before anything is computed, its
shape, its bytes and its work are known: whole numbers stay within +-2**62, arrays within the memory that is free, an
expression within some minutes.

    language.py   text -> tree, by an allow-list -> value, or only its shape
    sizes.py      what functions give and cost
    products.py   the same for products of arrays
    bounds.py     the limits
"""

from autotune.study.arrays.bounds import physical
from autotune.study.arrays.language import FUNCTIONS, check_names, evaluate, names_of, shape_of
