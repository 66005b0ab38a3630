"""autotune: finds the fastest verified parameters of OpenCL kernels and keeps them for every tool to look up.

    import autotune
    result = autotune.search("sgemm", size={"M": 4096, "N": 4096, "K": 4096}, trials=100)
    autotune.best("sgemm", size={"M": 4096, "N": 4096, "K": 4096}).configuration
    autotune.tuned("sgemm", M=4096, N=4096, K=4096)(queue, A=a, B=b, C=c)

The names below are imported when first used: `autotune best` must start without NumPy, OpenCL and Optuna.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from autotune.api import TunedKernel, best, search, tuned
    from autotune.errors import AutotuneError
    from autotune.lookup import Best, Match
    from autotune.service import connect
    from autotune.study import Study
    from autotune.tuner import Budget, Progress, Result

__all__ = [
    "AutotuneError", "Best", "Budget", "Match", "Progress", "Result", "Study", "TunedKernel", "__version__", "best",
    "connect", "search", "tuned",
]  # fmt: skip

__version__ = "0.2.0"


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports its names when first used.

    `homes` gives, for each module of the package, the names that it defines, separated by spaces. Type checkers must
    see the imports instead of this function, because with it they accept any name.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return load


if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "api": "TunedKernel best search tuned",
            "errors": "AutotuneError",
            "lookup": "Best Match",
            "service": "connect",
            "study": "Study",
            "tuner": "Budget Progress Result",
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
