"""Reports on results, one file each, used as modules: `from autotune.reports import charts`.

    compare.py, sides.py   values and devices side by side;  charts.py, drawing.py: as charts
    baselines.py           what NumPy needs for the same
    cover.py               few configurations for many sizes
    verify.py              whether the stored best is still what it was
    course.py, learned.py  how a search went, and what it taught
    told.py                results and stored trials, as programs read them
    fresh.py               a worker with empty build caches: one use end to end, a saved build, inspected texts
    single.py, page.py     a report in one file, and what it shares with the pages of a server

The functions below are imported when first used.
"""

from typing import TYPE_CHECKING

from autotune import lazily

if TYPE_CHECKING:
    from autotune.reports.fresh import BUILD_FILES, Inspector, end_to_end, save_build
    from autotune.reports.told import problem_json, result_json, row_json, trial_json
else:
    __getattr__ = lazily(
        __name__,
        {
            "fresh": "BUILD_FILES Inspector end_to_end save_build",
            "told": "problem_json result_json row_json trial_json",
        },
    )
