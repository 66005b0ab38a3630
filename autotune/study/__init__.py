"""From a study file to the plan of a configuration, with its input and expected data.

The names below are imported when first used: the cold path and the workers need few of them.

    library.py     finds and reads study files, and hashes what decides a result (with includes.py and imports.py)
    schema.py      what a file may say
    study.py       Study: its tables read and cross-checked
    problem.py     Problem: a study at one size, on one device
    arguments.py   Buffer, Scalar, Local, as a study declares them and as a plan holds them; types.py: their types
    plan.py        Plan: what a worker builds and runs
    reference.py   input data and expected outputs (with arrays/, their language, and function.py for Python)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.study.arguments import Argument, Buffer, Local, Scalar
    from autotune.study.imports import files_of
    from autotune.study.library import (
        StudyText,
        confined,
        default_choices,
        default_configuration,
        default_size,
        find_study,
        offered_choices,
        parameter_values,
        problem_key,
        read_study,
        recorded,
        space_hash,
        study_paths,
    )
    from autotune.study.plan import Launch, Plan, Tolerance
    from autotune.study.problem import GENERIC_DEVICE, Problem, made_of
    from autotune.study.reference import PythonCaller, check_reference, expected_data, input_data
    from autotune.study.study import Parameter, Study, check_entries, effects
    from autotune.study.types import numpy_type

__all__ = [
    "GENERIC_DEVICE", "Argument", "Buffer", "Launch", "Local", "Parameter", "Plan", "Problem", "PythonCaller",
    "Scalar", "Study", "StudyText", "Tolerance", "check_entries", "check_reference", "confined", "default_choices",
    "default_configuration", "default_size", "effects", "expected_data", "files_of", "find_study", "input_data",
    "made_of", "numpy_type", "offered_choices", "parameter_values", "problem_key", "read_study", "recorded",
    "space_hash", "study_paths",
]  # fmt: skip

_HOMES = {
    "arguments": "Argument Buffer Local Scalar",
    "imports": "files_of",
    "library": "StudyText confined default_choices default_configuration default_size find_study offered_choices "
    "parameter_values problem_key read_study recorded space_hash study_paths",
    "plan": "Launch Plan Tolerance",
    "problem": "GENERIC_DEVICE Problem made_of",
    "reference": "PythonCaller check_reference expected_data input_data",
    "study": "Parameter Study check_entries effects",
    "types": "numpy_type",
}


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
