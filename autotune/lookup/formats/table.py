"""Plain text for people."""

from __future__ import annotations

from autotune import text
from autotune.lookup.answer import Best
from autotune.lookup.formats import flags
from autotune.ranking import confidence
from autotune.text import line


def render(best: Best) -> str:
    """Return two columns: the question, what was found, and the value of each parameter."""
    rows = [
        ("study", best.study),
        ("device", best.device),
        ("size", text.pairs(best.size)),
        ("choices", text.pairs(best.choices)),
        ("match", best.match.value),
        ("time", _time(best)),
        ("rate", "" if best.time_ns is None else text.rate(best.flops, best.time_ns)),
        ("measured", _measured(best)),
        ("options", " ".join(flags(best))),
    ]
    rows = [row for row in rows if row[1]]
    parameters = [(name, str(value)) for name, value in best.configuration.items()]
    width = max(len(name) for name, _ in rows + parameters)
    found, tuned = ([f"{name:<{width}}  {line(value)}" for name, value in part] for part in (rows, parameters))
    return "\n".join([*found, "", *tuned, ""])


def _time(best: Best) -> str:
    if best.time_ns is None or best.interval_ns is None:
        return ""
    low, high = (text.time(end) for end in best.interval_ns)
    sure = f"{confidence(best.runs)} % " if best.runs else ""  # an older server does not send the number of runs
    return f"{text.time(best.time_ns)} (median; {sure}interval {low} to {high})"


def _measured(best: Best) -> str:
    if best.time_ns is None:
        return ""
    name, size = best.device_name or best.measured_on, best.measured_size
    if best.measured_on not in (best.device, name):  # several models may have the same name
        name += f" ({best.measured_on})"
    where = f" at {text.pairs(size)}" if size and size != best.size else ""
    return f"{best.measured[:10]}{where} on {name}, driver {best.driver}, best of {text.count(best.trials, 'trial')}"
