"""The summary that look-ups read instead of all trials.

It has what counts for each configuration, and the number of trials of a problem and of each search.
`ranking.standings` computes it from the trials and their re-timings. It is updated in the transaction that changes
them. What counts for a configuration depends only on its own trials, so only these are read again. Trials of another
tool (with the sampler IMPORTED) are never the best and not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, TextClause, bindparam, text

from autotune.ranking import FAILED, MEASURED, NAN, RETIMED, WRONG, Event, standings
from autotune.store.location import IMPORTED
from autotune.store.records import UNFINISHED, pages

_UNFINISHED = ", ".join(f"'{outcome}'" for outcome in UNFINISHED)
# The + keeps SQLite from reading all trials of a search to find those of a few configurations. Without it the
# statements begin at the problem's searches, with it at the configurations, which other sizes and devices have too.
_TRIALS = f"""
SELECT t.configuration_hash, t.outcome, t.driver, s.generation, t.id, t.time_ns
FROM trials t JOIN searches s ON s.id = {{}}t.search_id
WHERE s.problem_id = :problem AND s.sampler <> '{IMPORTED}' AND t.outcome NOT IN ({_UNFINISHED}, 'stopped')
"""
_RETIMINGS = f"""
SELECT t.configuration_hash, 'retimed', t.driver, s.generation, t.id, r.time_ns, r.id
FROM trials t JOIN searches s ON s.id = {{}}t.search_id JOIN retimings r ON r.trial_id = t.id AND r.driver = t.driver
WHERE s.problem_id = :problem AND s.sampler <> '{IMPORTED}' AND t.outcome = 'ok'
"""
_NAMED = " AND t.configuration_hash IN :names"
_ALL_TRIALS = text(_TRIALS.format(""))
_ALL_RETIMINGS = text(_RETIMINGS.format(""))
_SOME_TRIALS, _SOME_RETIMINGS = (
    text(query.format("+") + _NAMED).bindparams(bindparam("names", expanding=True)) for query in (_TRIALS, _RETIMINGS)
)
# Counts only up to :most, and reads only the index.
_REACHED = text(
    "SELECT COUNT(*) FROM (SELECT 1 FROM trials WHERE configuration_hash IN :names LIMIT :most) AS reached"
).bindparams(bindparam("names", expanding=True))
_FINISHED = text("SELECT trials FROM problems WHERE id = :problem")
# Also locks the problem: otherwise two searches could each miss the other's trials.
_COUNT = text("UPDATE problems SET trials = trials + :finished WHERE id = :problem")
_COUNT_OF = text("UPDATE searches SET trials = trials + :finished WHERE id = :search")
_COUNT_ALL = text(f"""
UPDATE problems SET trials = (
    SELECT COUNT(*) FROM searches s JOIN trials t ON t.search_id = s.id
    WHERE s.problem_id = problems.id AND s.sampler <> '{IMPORTED}' AND t.outcome NOT IN ({_UNFINISHED})
)
""")
_COUNT_EACH = text(f"""
UPDATE searches SET trials = (
    SELECT COUNT(*) FROM trials t WHERE t.search_id = searches.id AND t.outcome NOT IN ({_UNFINISHED})
)
WHERE sampler <> '{IMPORTED}'
""")
_FORGET = text("""
DELETE FROM standings WHERE problem_id = :problem AND configuration_hash = :configuration
AND driver = :driver AND generation = :generation
""")
_ADD = text("""
INSERT INTO standings
    (problem_id, driver, generation, configuration_hash, latest_id, trial_id, retiming_id, time_ns, first_ns)
VALUES (:problem, :driver, :generation, :configuration, :latest, :trial, :retiming, :time_ns, :first_ns)
""")

_KINDS = {"ok": MEASURED, "retimed": RETIMED, "wrong_result": WRONG}  # all other outcomes are failures


def follow(
    connection: Connection, problem: int, configurations: Collection[str], finished: Mapping[int, int] | None = None
) -> None:
    """Update the summary of a problem for some configurations, and its number of trials.

    `finished`: the number of newly finished trials, by search.
    """
    finished = finished or {}
    connection.execute(_COUNT, {"problem": problem, "finished": sum(finished.values())})
    for search, count in sorted(finished.items()):
        connection.execute(_COUNT_OF, {"search": search, "finished": count})
    asked = {"problem": problem}
    if _whole_is_less(connection, problem, configurations):
        whole = _events(connection, _ALL_TRIALS, _ALL_RETIMINGS, asked)
        _replace(connection, problem, [event for event in whole if event.configuration in configurations])
        return
    for names in pages(sorted(configurations)):
        _replace(connection, problem, _events(connection, _SOME_TRIALS, _SOME_RETIMINGS, {**asked, "names": names}))


def _whole_is_less(connection: Connection, problem: int, configurations: Collection[str]) -> bool:
    """Return whether a problem has fewer trials than all problems together have of some configurations."""
    trials = connection.execute(_FINISHED, {"problem": problem}).scalar() or 0
    reached = 0
    for names in pages(sorted(configurations)):
        reached += connection.execute(_REACHED, {"names": names, "most": trials + 1 - reached}).scalar() or 0
        if reached > trials:
            return True
    return False


def _events(connection: Connection, once: TextClause, again: TextClause, asked: dict[str, Any]) -> list[Event]:
    return [
        # NAN, which never ranks, is used if there is no time, or no number in a damaged file.
        Event(_KINDS.get(what, FAILED), name, driver, generation, (trial, *retiming, 0)[:2],
              time if isinstance(time, int | float) else NAN)
        for query in (once, again)
        for name, what, driver, generation, trial, time, *retiming in connection.execute(query, asked)
    ]  # fmt: skip


def build(connection: Connection) -> None:
    """Build the summary of all stored trials."""
    connection.execute(_COUNT_ALL)
    for problem in connection.execute(text("SELECT id FROM problems")).scalars().all():
        _replace(connection, problem, _events(connection, _ALL_TRIALS, _ALL_RETIMINGS, {"problem": problem}))


def count_each(connection: Connection) -> None:
    """Count the trials of each search."""
    connection.execute(_COUNT_EACH)


def _replace(connection: Connection, problem: int, events: Sequence[Event]) -> None:
    """Replace the summary of some configurations; these are all of their events."""
    for keys in pages({(event.driver, event.generation, event.configuration) for event in events}):
        connection.execute(
            _FORGET,
            [
                {"problem": problem, "driver": driver, "generation": generation, "configuration": configuration}
                for driver, generation, configuration in keys
            ],
        )
    for page in pages(standings(events)):
        connection.execute(
            _ADD,
            [
                {
                    "problem": problem,
                    "driver": event.driver,
                    "generation": event.generation,
                    "configuration": event.configuration,
                    "latest": latest,
                    "trial": event.order[0],
                    "retiming": event.order[1],
                    "time_ns": event.time_ns,
                    "first_ns": first_ns,
                }
                for event, first_ns, latest in page
            ],
        )
