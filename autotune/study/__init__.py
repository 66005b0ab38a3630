"""From a study file to the plan of a configuration, with its input and expected data.

The names of library.py are imported at once, the others when they are first used: the cold path
needs none of the others, the workers few.

    library.py     finds and reads studies, and hashes what decides a result (with includes.py and imports.py);
                   finding.py: finds them by their `name`
    schema.py      what a file may contain, made of entries.py; validation.py: what is wrong with one; scope.py: names
                   in expressions
    study.py       Study: reads its tables, with crosschecks.py; checks.py: what its author may not have meant
                   tables.py: its parameters, options, reference
    access.py      which files may be read for a study that others sent, and which were read
    problem.py     Problem: a study at one size, on one device; limits.py: the device's limits
    arguments.py   the kinds of arguments, as a study declares them and as a plan holds them: argument.py, buffers.py,
                   scalars.py
    types.py       their types; structs.py: C's layout; builtins.py: the functions of OpenCL C; functions.py: a
                   kernel's own
    loops.py       launches and the loops around them, as a study declares them; sequence.py: one run, unrolled
    writing.py     a study as TOML; drafting/: one to start from
    plan.py        Plan: what a worker builds and runs; planning.py: a configuration made concrete as one
    inputs.py      input data, with draw.py, and file_data.py and files.py for files beside a study; reads.py: hashes
                   them; places.py: finds them, here or where they came with a study from another machine
    reference.py   expected outputs (with arrays/, their language, and function.py for Python)
"""

from typing import TYPE_CHECKING

from autotune import lazily
from autotune.study.library import (
    StudyText,
    default_choices,
    default_configuration,
    default_size,
    find_study,
    kernel_folders,
    line_mark,
    offered_choices,
    parameter_values,
    problem_key,
    read_study,
    space_hash,
    study_file,
)

if TYPE_CHECKING:
    from autotune.study.access import YOUNG_NS, confined, watched
    from autotune.study.arguments import Argument, Buffer, Image, Local, Sampler, Scalar, filled
    from autotune.study.arrays import evaluate, names_of
    from autotune.study.builtins import is_builtin
    from autotune.study.checks import check_entries, effects, replaced_names
    from autotune.study.drafting import (
        Sketch,
        asked_by_error,
        brought,
        candidates,
        draft,
        hiding,
        lacking_extension,
        of_opencl,
        scanned,
        struct_bodies,
        undefined,
        unknown,
    )
    from autotune.study.entries import Name, Value, refusing
    from autotune.study.finding import study_paths
    from autotune.study.function import call_file
    from autotune.study.imports import files_of
    from autotune.study.includes import defined_anyway, inline, without_comments
    from autotune.study.inputs import PythonCaller, check_inputs, input_data
    from autotune.study.places import data_place, python_place
    from autotune.study.plan import Check, Launch, Plan, Tolerance
    from autotune.study.planning import made_of
    from autotune.study.problem import GENERIC_DEVICE, Problem
    from autotune.study.reads import Read, reads_of
    from autotune.study.reference import check_reference, expected_data, require_numbers
    from autotune.study.sequence import as_begun, ends_of
    from autotune.study.structs import Leaf, is_struct, leaves, member_of, offsets, round_up, struct_name, widened
    from autotune.study.study import Study
    from autotune.study.tables import Option
    from autotune.study.types import numpy_type
    from autotune.study.writing import toml, write_new
else:
    __getattr__ = lazily(
        __name__,
        {
            "arguments": "Argument Buffer Image Local Sampler Scalar filled",
            "arrays": "evaluate names_of",
            "access": "YOUNG_NS confined watched",
            "builtins": "is_builtin",
            "checks": "check_entries effects replaced_names",
            "entries": "Name Value refusing",
            "finding": "study_paths",
            "drafting": (
                "Sketch asked_by_error brought candidates draft hiding lacking_extension of_opencl scanned "
                "struct_bodies undefined unknown"
            ),
            "function": "call_file",
            "imports": "files_of",
            "includes": "defined_anyway inline without_comments",
            "inputs": "PythonCaller check_inputs input_data",
            "places": "data_place python_place",
            "plan": "Check Launch Plan Tolerance",
            "planning": "made_of",
            "problem": "GENERIC_DEVICE Problem",
            "reads": "Read reads_of",
            "reference": "check_reference expected_data require_numbers",
            "sequence": "as_begun ends_of",
            "study": "Study",
            "tables": "Option",
            "structs": "Leaf is_struct leaves member_of offsets round_up struct_name widened",
            "types": "numpy_type",
            "writing": "toml write_new",
        },
    )
