"""The lines of a draft, and which of them have gaps or guesses."""

from __future__ import annotations

from autotune.study.drafting.sketch import Sketch
from autotune.study.scope import GAP

GUESS = "guess"


class Lines:
    """The lines of a study, whose gaps and guesses are also added to a sketch."""

    def __init__(self, sketch: Sketch) -> None:
        self._sketch = sketch
        self._lines: list[str] = []

    def _add(self, *lines: str) -> None:
        self._lines += lines

    def _told(self, line: str, doubt: str) -> None:
        """Add a line, marked as a guess if there is a doubt."""
        if doubt:
            self._guess(line, doubt)
        else:
            self._add(line)

    def _gap(self, line: str, what: str) -> None:
        """Add a line that the user has to complete."""
        self._lines.append(f"{line}  # {GAP}: {what}")
        self._sketch.gaps.append(f"line {len(self._lines)}: {what}")

    def _guess(self, line: str, what: str) -> None:
        """Add a line that the user should look at."""
        self._lines.append(f"{line}  # {GUESS}: {what}")
        self._sketch.guesses.append(f"line {len(self._lines)}: {what}")

    def _hint(self, what: str) -> None:
        """Add a comment line about something that the study does not have."""
        self._lines += ["", f"# {GUESS}: {what}"]
        self._sketch.guesses.append(f"line {len(self._lines)}: {what}")
