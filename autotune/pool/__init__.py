"""Worker processes, and the Evaluator over them: a kernel may crash a worker, but never the search.

    contract.py    Evaluator and its Settings: what a search needs
    evaluator.py   DeviceEvaluator: takes configurations through build and run
    builders.py    the processes that build ahead: how many begin
    keeper.py      a thread that keeps one worker process alive and gives it work
    blame.py       whose fault a failure is: the kernel's, the machine's, or another program's
    process.py     one worker process, as the search sees it;  answers.py: what it may answer
    forkserver.py  a prepared process from which workers are forked
    listing.py     lists the devices in a process of its own
    worker.py      the workers' entry point, which ties them to their parent; their work is in ../bench
    tasks.py       tasks: which wait, which a device works on, which have ended, and how many are in flight
    way.py         interrupts long runs for the sake of tasks that are ready
    retiming.py    finalists: built by all builders, then timed by a device's worker
    visits.py      times finalists of short launches on sessions of other workers
    turns.py       how often Python switches threads
    pause.py       halts builders during a trial, if they share the hardware
    data.py        inputs and expected outputs, and each worker's first message
    caller.py      calls a reference in Python in a process of its own;  alone.py: that process;  guard.py: its parent
    allowance.py   what the system allows: cores, memory, processes
    sizing.py      whether there is room for the data; how many builders
    lock.py        a device for one search at a time
    folder.py      the files of a search's workers

The names below are imported when first used: a worker starts in this package and needs none of them.
"""

from typing import TYPE_CHECKING

from autotune import lazily

if TYPE_CHECKING:
    from autotune.pool.allowance import MORE_PROCESSES, MORE_ROOM, bound_threads, count_cores, limits_memory
    from autotune.pool.contract import Evaluator, Settings
    from autotune.pool.evaluator import DeviceEvaluator
    from autotune.pool.folder import RunFolder
    from autotune.pool.forkserver import Forkserver, can_hold, prepare_and_list, prepared
    from autotune.pool.listing import list_apart, list_when_asked
    from autotune.pool.lock import Stopped, find_holder, lock_folder, lock_key
    from autotune.pool.process import Start, WorkerProcess
    from autotune.pool.sizing import count_builders, require_device_room, require_room
    from autotune.pool.tasks import Delivering
    from autotune.pool.turns import quick_turns
    from autotune.pool.worker import command_of, die_with
else:
    __getattr__ = lazily(
        __name__,
        {
            "allowance": "MORE_PROCESSES MORE_ROOM bound_threads count_cores limits_memory",
            "contract": "Evaluator Settings",
            "evaluator": "DeviceEvaluator",
            "folder": "RunFolder",
            "forkserver": "Forkserver can_hold prepare_and_list prepared",
            "listing": "list_apart list_when_asked",
            "lock": "Stopped find_holder lock_folder lock_key",
            "process": "Start WorkerProcess",
            "sizing": "count_builders require_device_room require_room",
            "tasks": "Delivering",
            "turns": "quick_turns",
            "worker": "command_of die_with",
        },
    )
