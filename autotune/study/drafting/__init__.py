"""Draft a study to start from: what a kernel's text and its compiler tell, written as TOML with gaps marked TODO.

What the compiler tells (arguments, the values of macros) is taken as it is. The rest is proposed from indices, their
guards and names. Each guess is marked as a guess: nothing here decides a result.

    sketch.py      what is known of a kernel file
    scanning.py    kernels, macros and structs of a text, if no compiler tells; typedefs.py: names of types
    syntax.py      tokens of C; trees.py: expressions; preprocessing.py: macros and branches,
                   functions.py: functions
    terms.py       sums of products of names; byvalue.py: vectors and structs by value
    statements.py  a walk through a kernel, with values.py for its expressions, calls.py for calls, scopes.py for its
                   variables, guarding.py for comparisons and divisions, and touching.py for OpenCL's own functions; its
                   result is a Reading
    reading.py     the Reading: which places of which argument are used, and what bounds the variables; findings.py: the
                   records in it; contents.py: arrays whose contents are places; tiles.py: what indices tell of groups
    shapes.py      extents from a Reading; images.py: those of images; limits.py: bounds of sums; launches.py:
                   work-items; axes.py: what axes count to; indices.py: indices split into rows
    proposal.py    proposals for parameters and choices, from macros.py, with repeats.py, nouns.py, signatures.py, and
                   branches.py for what an #if asks; vectors.py: for their widths; fixed.py: for numbers that no tuner
                   can set yet
    groups.py      proposals for work-groups
    uses.py        proposals for the extents of arguments; inputs.py: for what these hold; accesses.py: how kernels use
                   them; alternatives.py: kernels that do the same; parts.py: what one kernel leaves
                   for the next
    sizes.py       which of a kernel's numbers are sizes, and their first values
    writer.py      the text of the study, by lines.py; naming.py: arguments that no expression can name;
                   divisors.py: constraints on divisors and rows
    missing.py     what is missing in a kernel that does not compile by itself; asking.py: what its #ifs ask for
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune import lazily

if TYPE_CHECKING:
    from autotune.study.drafting.asking import asked_by_error, brought, hiding
    from autotune.study.drafting.branches import undefined
    from autotune.study.drafting.missing import lacking_extension, of_opencl, unknown
    from autotune.study.drafting.scanning import candidates, scanned, struct_bodies
    from autotune.study.drafting.sketch import Sketch
    from autotune.study.drafting.writer import draft
else:  # a worker needs what scanning knows of structs, and none of the rest
    __getattr__ = lazily(
        __name__,
        {
            "asking": "asked_by_error brought hiding",
            "branches": "undefined",
            "missing": "lacking_extension of_opencl unknown",
            "sketch": "Sketch",
            "scanning": "candidates scanned struct_bodies",
            "writer": "draft",
        },
    )
