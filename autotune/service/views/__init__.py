"""What pages and JSON show: functions from the open server to plain data, each used by both.

    home       devices, what runs, what is queued in which order, the problems searched last with their bests
    devices    of this machine, and every stored model
    studies    by name, with what each takes;  study: one of them, whole
    searches   newest first;  search: one, submitted or only stored;  points: its trials for a chart
    trials     newest first, by filters;  trial: one, with samples, options and build log
    compare    the best per value, size or device, of what is stored
    history    the newest trials, as on the command line
    tokens     names, roles and times, for admins
All may take a while (they ask the database): call them in a thread. They raise AutotuneError, such as Refused(404).
"""

from autotune.service.views.results import (
    asked_once,
    best_of_problem,
    compare,
    devices,
    history,
    home,
    row_of_problem,
    studies,
    study,
    tokens,
)
from autotune.service.views.searches import Json, has_ended, listed, points, search, searches, study_from, trial, trials
