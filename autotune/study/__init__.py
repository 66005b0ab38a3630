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
    from autotune.study.arguments import Argument as Argument
    from autotune.study.arguments import Buffer as Buffer
    from autotune.study.arguments import Local as Local
    from autotune.study.arguments import Scalar as Scalar
    from autotune.study.imports import files_of as files_of
    from autotune.study.library import StudyText as StudyText
    from autotune.study.library import default_choices as default_choices
    from autotune.study.library import default_configuration as default_configuration
    from autotune.study.library import default_size as default_size
    from autotune.study.library import find_study as find_study
    from autotune.study.library import offered_choices as offered_choices
    from autotune.study.library import parameter_values as parameter_values
    from autotune.study.library import problem_key as problem_key
    from autotune.study.library import space_hash as space_hash
    from autotune.study.library import study_paths as study_paths
    from autotune.study.plan import Launch as Launch
    from autotune.study.plan import Plan as Plan
    from autotune.study.plan import Tolerance as Tolerance
    from autotune.study.problem import GENERIC_DEVICE as GENERIC_DEVICE
    from autotune.study.problem import Problem as Problem
    from autotune.study.reference import PythonCaller as PythonCaller
    from autotune.study.reference import check_reference as check_reference
    from autotune.study.reference import expected_data as expected_data
    from autotune.study.reference import input_data as input_data
    from autotune.study.study import Parameter as Parameter
    from autotune.study.study import Study as Study
    from autotune.study.study import check_entries as check_entries
    from autotune.study.study import effects as effects
    from autotune.study.types import numpy_type as numpy_type

_EXPORTS = {
    "arguments": "Argument Buffer Local Scalar",
    "imports": "files_of",
    "library": "StudyText default_choices default_configuration default_size find_study offered_choices "
    "parameter_values problem_key space_hash study_paths",
    "plan": "Launch Plan Tolerance",
    "problem": "GENERIC_DEVICE Problem",
    "reference": "PythonCaller check_reference expected_data input_data",
    "study": "Parameter Study check_entries effects",
    "types": "numpy_type",
}
_HOMES = {name: home for home, names in _EXPORTS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
