"""`autotune.tuned`: returns a kernel for a study's name, a size and a device; the same one for the same question."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from inspect import signature
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, SupportsIndex

from autotune import devices, text
from autotune.api import asked
from autotune.api.kernel import TunedKernel, warn_of_default
from autotune.errors import DeviceError, UsageError
from autotune.lookup import DEFAULT_STUDY, warm
from autotune.model import DeviceInfo
from autotune.study import Study
from autotune.tuner import Budget

_MOST_KERNELS = 512
"""Kernels kept per process: those asked for last."""


@asked.told_as_arguments()
def tuned(
    study: str | Path | Study = DEFAULT_STUDY,
    /,
    *,
    device: object = None,
    size: asked.AnySize | None = None,
    choices: asked.AnyValues | None = None,
    database: str | PathLike[str] | None = None,
    search: float | str | Budget | None = None,
    background: bool = False,
    allow_python: bool = False,
    **sizes: SupportsIndex,
) -> TunedKernel:
    """Return a study's kernel, ready to be called with the best configuration that is stored.

        kernel = autotune.tuned("sgemm", M=4096, N=4096, K=4096)
        kernel(queue, A=a, B=b, C=c)

    `study` is a name, a path or a `Study`. Sizes are given by name, or in `size` if an option has the same name;
    others are the study's. `device` is a selector as for `search`, or a pyopencl queue. Without one it is the best
    device here, and a call on a queue of another model looks up the best for that model. `database` is a path or a URL.

    The kernel is looked up and built once: the same question returns the same kernel, until the process ends. If
    nothing is stored, it warns and has the study's default configuration; `kernel.match` says so. With `search`
    (seconds, `"5m"`, or a `Budget`), a search runs if there is no exact match: before `tuned` returns, or in the
    `background`. The kernel then uses what was found. A search in the background shares the device with the program,
    which makes its times less reliable.

    Raises AutotuneError for bad input, for a machine without a device, and in a child that was forked after drivers
    were loaded.
    """
    devices.require_own_drivers()
    budget = None if search is None else _budget(search)
    background, allow_python = asked.flag("background", background), asked.flag("allow_python", allow_python)
    if background and budget is None:
        raise UsageError("says how to search, but search= is missing", where="background", hint="add search=40")
    _require_sizes(sizes)
    wanted, choices, named = asked.one_size(size, sizes), asked.choices(choices), asked.database(database)
    info = _device(device)
    name = study if isinstance(study, Study) else asked.named(study)
    place = (named or os.environ.get("AUTOTUNE_DB", ""), warm.working_folder())  # paths may be relative
    key = (name, _items(wanted), _items(choices), device is not None, info, place)
    with _lock:
        known = key in _kernels
        if not known:
            _kernels[key] = TunedKernel(_loaded(study), wanted, choices, info, only=device is not None, database=named)
        _kernels.move_to_end(key)
        while len(_kernels) > _MOST_KERNELS:
            _kernels.popitem(last=False)
        kernel = _kernels[key]
    if budget is None and not known:
        warn_of_default(kernel.best)
    if budget is not None:
        kernel.tune(budget, background=background, allow_python=allow_python)
    return kernel


_kernels: OrderedDict[Hashable, TunedKernel] = OrderedDict()
_studies: dict[tuple[str, str], Study] = {}
_lock = threading.RLock()


def _require_sizes(named: Mapping[str, object]) -> None:
    """Raise UsageError for `study` given by name, and for misspelt options: their values are not whole numbers."""
    for name, value in named.items():
        if hasattr(value, "__index__"):
            continue
        if name == "study":
            hint = text.line(f"write autotune.tuned({str(value)!r:.60}, ...)")
            raise UsageError("is given first, without its name", where=name, hint=hint)
        options = [option for option, one in signature(tuned).parameters.items() if one.kind is one.KEYWORD_ONLY]
        if close := text.did_you_mean(name, options):
            raise UsageError(text.line(f"{value!r:.40} is neither a size nor an option{close}"), where=name)


def _loaded(study: str | Path | Study) -> Study:
    if isinstance(study, Study):
        return study
    name = (asked.named(study), warm.working_folder())
    if name not in _studies:
        _studies[name] = Study.load(name[0])
    return _studies[name]


def _items(values: Mapping[str, Any]) -> Hashable:
    try:
        found = tuple(sorted(values.items()))
        hash(found)
    except TypeError as error:
        raise UsageError(f"{values!r:.60} is not a mapping of names to plain values: {error}") from None
    return found


_here: dict[str | None, DeviceInfo] = {}


def _device(device: object) -> DeviceInfo:
    """Return the device of a selector, which is looked up once, or of a queue."""
    if device is not None and not isinstance(device, str):
        try:
            return devices.attach(device).info
        except DeviceError:
            raise
        except UsageError:
            pass  # not a queue
    name = asked.selector(device, also=", or give a pyopencl.CommandQueue")
    if name not in _here:
        _here[name] = devices.find_device(name)
    return _here[name]


def _budget(search: float | str | Budget) -> Budget:
    if isinstance(search, Budget):
        return asked.budget(search)
    if isinstance(search, str):
        return Budget(seconds=text.parse_duration(search, where="search"))
    if isinstance(search, bool) or not isinstance(search, Real) or not 0 < search < float("inf"):
        raise asked.unfit("search", search, "number of seconds above 0", "40, or search='5m'")
    return Budget(seconds=float(search))
