"""autotune: finds the fastest verified parameters of OpenCL kernels and keeps them for every tool to look up.

    import autotune
    result = autotune.search("sgemm", size={"M": 4096, "N": 4096, "K": 4096}, trials=100)
    autotune.best("sgemm", size={"M": 4096, "N": 4096, "K": 4096}).configuration
    autotune.tuned("sgemm", M=4096, N=4096, K=4096)(queue, A=a, B=b, C=c)

The names below are imported when first used: `autotune best` must start without NumPy, OpenCL and Optuna.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.api import best, search, tuned
    from autotune.errors import AutotuneError
    from autotune.service import connect
    from autotune.study import Study

__all__ = ["AutotuneError", "Study", "__version__", "best", "connect", "search", "tuned"]

__version__ = "0.2.0"

_HOMES = {
    "search": "api",
    "best": "api",
    "connect": "service",
    "tuned": "api",
    "Study": "study.study",
    "AutotuneError": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"autotune.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
