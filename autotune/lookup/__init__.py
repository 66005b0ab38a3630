"""Looks up the best stored configuration and says how it matches the question.

Standard library only for what is stored exactly as asked. Anything else is evaluated by the study's expressions,
which loads the rooms for it.

    asking.py    `autotune best`: from words to an answer
    answer.py    the answer, where it is stored exactly as asked
    nearest.py   the nearest of what is stored, and what differs
    records.py   the database, read only
    formats/     the answer as text
"""

from autotune.lookup import asking
from autotune.lookup.answer import Best, Match, best, stored_devices
from autotune.lookup.asking import Meant, device_meant
from autotune.lookup.formats import FORMATS

__all__ = ["FORMATS", "Best", "Match", "Meant", "asking", "best", "device_meant", "stored_devices"]
