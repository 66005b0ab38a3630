"""Looks up the best stored configuration and says how it matches the question.

An exact match needs only the standard library. Any other answer evaluates the study's expressions, which loads their
rooms.

    asking.py    `autotune best`: from words to an answer
    answer.py    the answer, if it is stored exactly as asked
    alone.py     the answer without the study, for results that were searched here
    nearest.py   the nearest of what is stored, and what differs; architecture.py: devices that are alike
    losses.py    which stored size's best loses least at another size
    records.py   the database, read only
    warm.py      the same question again, from memory
    formats/     the answer as text
    artefacts/   a study's bests of all devices and sizes as one file for programs (loads the study's room)
"""

from typing import TYPE_CHECKING

from autotune import lazily
from autotune.lookup import asking
from autotune.lookup.answer import Best, Launched, Match, best, best_in, launched, stored_device, stored_devices
from autotune.lookup.asking import DEFAULT_STUDY, Asked, Meant, best_of, device_meant
from autotune.lookup.formats import FORMATS, flags, render
from autotune.lookup.records import Records, open_records

if TYPE_CHECKING:
    from autotune.lookup.alone import best_alone
    from autotune.lookup.artefacts import ARTEFACTS, collect
else:
    __getattr__ = lazily(
        __name__,
        {
            "alone": "best_alone",
            "artefacts": "ARTEFACTS collect",
        },
    )
