"""A study's `[check]` expressions, evaluated on the outputs and compared with their values for the reference.

They are computed on the host, in 64 bits. They serve outputs that have no single right value, such as partial sums that
another part of the program finishes, or an order that need not be unique: the output is read back, and a condition on
it is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.arena import Guarded
from autotune.bench.readback import compared, contents, element, told_exact
from autotune.devices import Session
from autotune.errors import StudyError
from autotune.study import Check, evaluate, names_of, widened


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found: `reason` is empty if everything is right; `max_error` is a share of the tolerance."""

    reason: str = ""
    max_error: float = 0.0


class Checks:
    """Evaluates checks on one session. `expected` holds the values they must give, `inputs` the data of the buffers."""

    def __init__(
        self, session: Session, expected: Mapping[str, NDArray[Any]], inputs: Mapping[str, NDArray[Any]]
    ) -> None:
        self._session = session
        self._expected = expected
        self._inputs = inputs
        self._wide: dict[str, NDArray[Any]] = {}

    def value(self, buffers: Sequence[Guarded], name: str, check: Check) -> NDArray[Any]:
        """Return the value of a check for the buffers as they are now. Raises StudyError."""
        named = names_of(check.text)
        written = {guarded.buffer.name: guarded for guarded in buffers if guarded.buffer.writes}
        names: dict[str, Any] = dict(check.numbers)
        for each in named - names.keys():
            if each in written:
                names[each] = widened(contents(self._session, written[each]))
            elif each in self._inputs:
                if each not in self._wide:
                    self._wide[each] = widened(np.asarray(self._inputs[each]))
                names[each] = self._wide[each]
        return np.asarray(evaluate(check.text, names, f"check.{name}"))

    def check(self, buffers: Sequence[Guarded], checks: Mapping[str, Check]) -> Verdict:
        """Compare the value of each check with the expected one."""
        reasons, worst = [], 0.0
        for name, check in checks.items():
            if name not in self._expected:
                continue
            try:
                found = self.value(buffers, name, check)
            except StudyError as error:
                reasons.append(str(error))
                continue
            verdict = judged(name, check, found, np.asarray(self._expected[name]))
            worst = max(worst, verdict.max_error)
            reasons += [verdict.reason] if verdict.reason else []
        return Verdict("; ".join(reasons), worst)


def judged(name: str, check: Check, found: NDArray[Any], expected: NDArray[Any]) -> Verdict:
    if found.shape != expected.shape:
        return Verdict(f"check {name} has shape {found.shape}, the reference has {expected.shape}")
    kind = np.result_type(found, expected)
    words = compared(found.astype(kind).reshape(-1), expected.astype(kind).reshape(-1), check.tolerance)
    worst = float(words.view(np.float32)[3])
    if not words[0]:
        return Verdict("", worst)
    text = check.text if len(check.text) <= 60 else f"{check.text[:57]}..."
    index = int(~words[2])
    place = np.unravel_index(index, found.shape)
    exact = told_exact(found[place], expected[place], check.tolerance)
    if not found.shape:
        return Verdict(f"check {name}: {text} = {found[()]}, expected {expected[()]}{exact}", worst)
    return Verdict(
        f"check {name}: {int(words[0])} of {found.size} values of {text} are wrong; "
        f"first {element('', found.shape, index)} = {found[place]}, expected {expected[place]}{exact}",
        worst,
    )
