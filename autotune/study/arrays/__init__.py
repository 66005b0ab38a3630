"""The small NumPy language of references: like that of constraints, but on arrays; with similar limits, never `eval`.

It has operators, single comparisons, indexing, `.T` and the functions of `FUNCTIONS`. The shape, bytes and work of
each result are known before it is computed: whole numbers stay within +-2**62, arrays within the free memory, an
expression within some minutes.

    language.py   text -> tree, by an allow-list -> value, or only its shape
    sizes.py      the size and the cost of functions' results
    products.py   the same for products of arrays
    bounds.py     the limits
    habits.py     what NumPy and OpenCL C write differently, and what to write instead
"""

from autotune.study.arrays.bounds import physical
from autotune.study.arrays.language import FUNCTIONS, check_names, evaluate, names_of, shape_of
