"""One search on the GPUs of many machines, through dask.distributed, which schedules, watches and restarts.

    address.py     where the scheduler is, whom it may be; what of Dask's own settings matter here
    travel.py      what goes from machine to machine: versions, devices, a problem with all its files
    roster.py      which devices a cluster has, and which of them may serve a search
    fleet.py       the search's side: claims devices, sends trials, takes in what comes back
    evaluator.py   ClusterEvaluator: the Evaluator over a fleet; `run` starts a search on it
    tasks.py       what Dask runs on its workers
    post.py        a device's side: one search at a time holds it, with a whole evaluator beside the GPU
    worker.py      `autotune worker`: a Dask worker per device

The names below are imported when first used: whoever has one machine needs no distributed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.cluster.address import Address as Address
    from autotune.cluster.address import SchedulerAway as SchedulerAway
    from autotune.cluster.address import require_distributed as require_distributed
    from autotune.cluster.evaluator import ClusterEvaluator as ClusterEvaluator
    from autotune.cluster.evaluator import run as run
    from autotune.cluster.roster import Found as Found
    from autotune.cluster.roster import choose as choose
    from autotune.cluster.roster import choose_one as choose_one
    from autotune.cluster.roster import list_devices as list_devices
    from autotune.cluster.roster import list_models as list_models
    from autotune.cluster.worker import serve as serve

_HOMES = {
    "Address": "address",
    "ClusterEvaluator": "evaluator",
    "Found": "roster",
    "SchedulerAway": "address",
    "choose": "roster",
    "choose_one": "roster",
    "list_devices": "roster",
    "list_models": "roster",
    "require_distributed": "address",
    "run": "evaluator",
    "serve": "worker",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
