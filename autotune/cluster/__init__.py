"""One search on the GPUs of many machines, through dask.distributed, which schedules, watches and restarts.

    address.py     where the scheduler is, and which one is accepted; the settings of Dask that matter here
    travel.py      what is sent from machine to machine: versions, devices, a problem with all its files
    luggage.py     sends these files and other large contents, by digests, in pieces
    roster.py      which devices a cluster has, and which of them may serve a search
    fleet.py       the search's side: stays connected, and follows which devices there are
    claims.py      the devices that it holds; flights.py: what they run for it, and the answers
    anchor.py      whether devices of one model are alike
    failures.py    an error as an answer; what Dask raises if a connection is gone
    evaluator.py   ClusterEvaluator: the Evaluator over a fleet; `run` starts a search on it
    tasks.py       what Dask runs on its workers
    post.py        a device's side: one search at a time holds it, with a whole evaluator beside the GPU
    worker.py      `autotune worker`: a Dask worker per device

The names below are imported when first used: searches on one machine do not need distributed.
"""

from typing import TYPE_CHECKING

from autotune import lazily

if TYPE_CHECKING:
    from autotune.cluster.address import Address, SchedulerAway, require_distributed
    from autotune.cluster.evaluator import ClusterEvaluator, run
    from autotune.cluster.roster import choose, choose_one, list_devices, list_models
    from autotune.cluster.worker import serve
else:
    __getattr__ = lazily(
        __name__,
        {
            "address": "Address SchedulerAway require_distributed",
            "evaluator": "ClusterEvaluator run",
            "roster": "choose choose_one list_devices list_models",
            "worker": "serve",
        },
    )
