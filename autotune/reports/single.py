"""`autotune report`: how one problem was searched and what that taught, as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from autotune import __version__, text
from autotune.errors import AutotuneError, StudyError, UsageError
from autotune.identity import Configuration, ProblemKey, in_order
from autotune.lookup import Asked
from autotune.reports import learned, page
from autotune.reports.course import course
from autotune.store import Store, listing
from autotune.study import Problem, Study, StudyText, default_size, find_study, offered_choices
from autotune.text import parse_choices, parse_size

_MAPPED = 12
"""How many parameters, the most important, have heat maps of all their pairs."""


class Written(NamedTuple):
    """A report and what it is about."""

    key: ProblemKey
    html: str


def written(store: Store, asked: Asked) -> Written:
    """Return the report of the fitting problem that was searched last; `asked.device` is a fingerprint.

    The study's file may be missing: then the report has no default configuration. Raises UsageError if nothing stored
    fits, StudyError if there is neither such a study nor anything stored of it.
    """
    page.environment()  # before any work: Jinja2 may be missing
    try:
        text_of: StudyText | None = find_study(asked.study)
    except StudyError:
        if not listing.problems(store, study=asked.study, limit=1):
            raise
        text_of = None
    name = asked.study if text_of is None else text_of.name
    fitting = [
        problem
        for problem in listing.problems(store, study=name, device=asked.device or "")
        if _fits(problem, asked, text_of)
    ]
    if not fitting:
        raise UsageError(
            text.nothing_stored(name, " ".join((*asked.sizes, *asked.choices)), asked.device or ""),
            hint=f"{_search(asked)} measures some, autotune history {text.typed([asked.study])} lists what there is",
        )
    order = listing.last_searched(store, [one.number for one in fitting])
    problem = next((one for one in fitting if order[:1] == [one.number]), fitting[0])
    notes = []
    if text_of is None:
        notes.append("The study's file is not here: its default configuration is not known.")
    elif (problem.key.kernel_hash, problem.key.study_hash) != (text_of.kernel_hash, text_of.study_hash):
        notes.append("The kernel or the study has changed since this was measured.")
    if text_of is not None:
        problem = problem._replace(key=problem.key._replace(size=in_order(problem.key.size, default_size(text_of))))
    default = default_of(store, problem, text_of)
    return Written(problem.key, report(store, problem, default, notes))


def _search(asked: Asked) -> str:
    """Return the command that measures what was asked for."""
    given = [("-d", asked.device)] if asked.device else []
    given += [("--size", size) for size in asked.sizes] + [("--choice", choice) for choice in asked.choices]
    return text.typed(["autotune", "search", asked.study, *(word for option in given for word in option)])


def _fits(problem: listing.Problem, asked: Asked, text_of: StudyText | None) -> bool:
    """Whether a stored problem has the sizes and choices that were given; the rest is free."""
    size, choices = problem.key.size, problem.key.choices
    known = size if text_of is None else default_size(text_of)
    if asked.sizes and parse_size(asked.sizes, {**known, **size}) != size:
        return False
    offered = {name: (value,) for name, value in choices.items()} if text_of is None else offered_choices(text_of)
    given = parse_choices(asked.choices, offered)
    named = {part.partition("=")[0].strip() for one in asked.choices for part in one.split(",")}
    return all(choices.get(name) == value for name, value in given.items() if name in named)


NO_STUDY = "the study is not here, so that its default configuration is not known"
"""Why a default is not known if the study is missing."""


def default_of(store: Store, problem: listing.Problem, text_of: StudyText | None) -> Configuration | str:
    """Return the study's default configuration for a problem, moved if it is not valid there, or the reason why not."""
    if text_of is None:
        return NO_STUDY
    device = listing.device(store, problem.key.device)
    try:
        return Problem(Study.from_text(text_of), problem.key.size, problem.key.choices, device).default
    except UsageError as error:  # the study is a different one now
        return not_known(error)


def not_known(error: AutotuneError) -> str:
    """Return why a study's default configuration is not known."""
    return f"the study's default configuration is not known: {text.line(str(error))}"


def report(store: Store, problem: listing.Problem, default: Configuration | str, notes: Sequence[str] = ()) -> str:
    """Return the file. `default` is the study's default configuration, or why it is not known; `notes` come first."""
    searches = listing.answering(store, problem.number)
    known = learned.sample(store, problem.number)
    told = learned.learned(store, problem.number, known, default)
    scripts = [page.static_text(name) for name in ("vendor/uPlot.js", "charts.js")]
    styles = [page.static_text(name) for name in ("vendor/uPlot.css", "style.css")]
    template = page.environment().get_template("report.html")
    return template.render(
        title=f"{problem.key.study} at {text.size(problem.key.size) or 'its only size'}: autotune",
        key=problem.key,
        device_name=next((search.device_name for search in reversed(searches) if search.device_name), ""),
        summary=learned.summary(store, known.best),
        course=course(store, searches),
        course_id="course",
        learned=told,
        maps=learned.heat_maps(known, told["importance"], _MAPPED),
        notes=notes,
        trials_base="",
        version=__version__,
        made=datetime.now(UTC),
        scripts=scripts,
        styles=styles,
    )
