"""The small safe language of constraints and sizes: parsed by `ast`, never run by `eval`.

Arithmetic, comparisons (chained), `and`, `or`, `not`, `a if c else b`, `x in (1, 2)`, text in quotes and
the functions of `operators.FUNCTIONS`, besides `has_extension("cl_khr_fp16")`. `and`, `or` and `not` give
truth values; they, `if` and chained comparisons leave aside what they do not need, row by row in `mask`.

    language.py    Expression: parse, evaluate, mask
    syntax.py      text -> tree, by an allow-list and under bounds
    nodes.py       the tree on scalars and on columns
    scalars.py     what the operators mean
    operators.py   the same on columns, and the table of all operators
    columns.py     the columns of one evaluation, and which rows have failed
    bounds.py      what the tree may give where some names are only known to lie between bounds
    partial.py     the tree with what is known already put in
"""

from autotune.expression.language import Expression, unknown_name
from autotune.expression.operators import FUNCTIONS

__all__ = ["FUNCTIONS", "Expression", "unknown_name"]
