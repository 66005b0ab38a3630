"""What is told of results, one file each, used as modules: `from autotune.reports import charts`.

    compare.py, sides.py   values and devices side by side;  charts.py, drawing.py: as charts
    baselines.py           what NumPy needs for the same
    cover.py               few configurations for many sizes
    verify.py              is the stored best still what it was
    course.py, learned.py  how a search went, and what it taught
    told.py                what was found and what is stored, as programs read it
    fresh.py               a worker with empty build caches: one use end to end, a build kept, texts inspected
    single.py, page.py     a report in one file, and what pages of a server share with it

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
