"""The Python API: what the command line does, as functions; and the best as a kernel that a program calls.

calls.py       search: the same steps as on the command line
stored.py      best
asked.py       checks of the arguments that all functions have: sizes, choices, devices, databases
questions.py   tuned: from a study's name to a kernel, one per process and question
kernel.py      TunedKernel: the object that a program calls; its configuration may change between calls
ready.py       one configuration on one queue: built, with arguments set and scratch memory allocated
arguments.py   a caller's arguments by name; scalars;  memory.py: arrays, buffers and images, by type and extent
binaries.py    built programs, kept on disk
tuning.py      a search beside a program, in a thread
"""

from typing import TYPE_CHECKING

from autotune import lazily

if TYPE_CHECKING:
    from autotune.api.calls import search
    from autotune.api.kernel import TunedKernel
    from autotune.api.questions import tuned
    from autotune.api.stored import best
else:  # a look-up needs neither NumPy nor the modules of a search
    __getattr__ = lazily(__name__, {"calls": "search", "kernel": "TunedKernel", "questions": "tuned", "stored": "best"})

__all__ = ["TunedKernel", "best", "search", "tuned"]
