"""What pages and JSON show: functions from the open server to plain data, each used by both.

    home       devices, what runs, what is queued in which order, the problems searched last with their bests
    devices    of this machine, and every stored model
    studies    by name, with what each takes;  study: one of them, whole
    searches   newest first;  search: one, submitted or only stored;  points: its trials as a chart has them
    trials     newest first, by filters;  trial: one, with samples, options and build log
    compare    the best per value, size or device, of what is stored
    tokens     names, roles and times, for admins
All may take a while (they ask the database): call them in a thread. They raise AutotuneError, Refused(404) among them.
"""

from autotune.service.views.results import Json as Json
from autotune.service.views.results import asked_once as asked_once
from autotune.service.views.results import best_of_problem as best_of_problem
from autotune.service.views.results import compare as compare
from autotune.service.views.results import devices as devices
from autotune.service.views.results import home as home
from autotune.service.views.results import row_of_problem as row_of_problem
from autotune.service.views.results import studies as studies
from autotune.service.views.results import study as study
from autotune.service.views.results import tokens as tokens
from autotune.service.views.searches import has_ended as has_ended
from autotune.service.views.searches import listed as listed
from autotune.service.views.searches import points as points
from autotune.service.views.searches import search as search
from autotune.service.views.searches import searches as searches
from autotune.service.views.searches import study_from as study_from
from autotune.service.views.searches import trial as trial
from autotune.service.views.searches import trials as trials
