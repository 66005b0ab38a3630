"""The macros that may be set from outside: parameters, choices, and what else the study makes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from autotune.study.drafting.branches import (
    OF_OPENCL,
    Branches,
    lines_with,
    siblings,
)
from autotune.study.drafting.nouns import TASK_NAME
from autotune.study.drafting.preprocessing import Preprocessed
from autotune.study.drafting.scanning import DEFINE, candidates, number_of, stated_as
from autotune.study.drafting.sketch import Sketch
from autotune.study.drafting.syntax import NAME
from autotune.study.includes import defined_anyway, names_asked, without_comments
from autotune.study.types import is_plain


class Macros:
    """The macros of a text. `given`: those that may be set from outside, with their text."""

    def __init__(self, sketch: Sketch, launched: Sequence[str], given: Mapping[str, str]) -> None:
        self.sketch, self.launched, self.given = sketch, launched, given
        self.text = without_comments(sketch.source)
        self.parameters: dict[str, int] = {}
        self.choices: dict[str, str] = {}
        self.tasks: dict[str, int] = {}
        """Numbers that decide what is computed, with their defaults: choices, not parameters."""
        self.counts: dict[str, int] = {}
        """Numbers that say how much there is to compute, with their defaults: sizes that the kernel has as macros."""
        self.fixed: dict[str, str] = {}
        """Given macros that are none of these; the study has to give them too."""
        self.words: dict[str, list[str]] = {}
        """The words that are a parameter's values, instead of numbers."""
        stated = OF_OPENCL | dict.fromkeys(sketch.extensions, "1")
        stated |= {name: stated_as(text, sketch.macros.get(name, text), given) for name, text in given.items()}
        self.code = Preprocessed(sketch.source, stated)
        """The text as preprocessed with the defaults."""
        branches = Branches(sketch.source, stated, launched, self.code.joined)
        self.values, self.texts = branches.values, branches.texts
        self._constants = {name: value.strip() for name, value in DEFINE.findall(self.text)}
        for name, text in given.items():
            self._sort(name, text)
        self._set_apart_forms()

    def _sort(self, name: str, text: str) -> None:
        """Make a macro a parameter, a choice, a task or fixed."""
        value = self.sketch.macros.get(name, text)
        number = number_of(self._constants.get(value, value))
        if "(" in name:  # with arguments
            self.fixed[name] = text
        elif number is not None and text in self._constants and NAME.fullmatch(text):
            self.words[name], self.parameters[name] = self._words_like(name, text), number
        elif number is not None:
            (self.tasks if TASK_NAME.match(name) or self.is_flag(name) else self.parameters)[name] = number
        elif is_plain(text) or is_plain(value):
            self.choices[name] = value or text
        elif self._defaults.get(name) != text:
            self.fixed[name] = text

    def _words_like(self, name: str, text: str) -> list[str]:
        """Return the words for numbers that a macro may be: it is compared with them, or they are defined together."""
        compared = re.findall(rf"\b{name}\s*[=!<>]=?\s*([A-Za-z_]\w*)", self.text)
        numbers = {word: number_of(value) for word, value in self._constants.items()}
        named = [word for word in compared if numbers.get(word) is not None]
        listed = dict.fromkeys([*named, *siblings(self.text, text), text])
        return sorted(listed, key=lambda word: numbers.get(word) or 0)

    def _set_apart_forms(self) -> None:
        """Remove parameters with one usable value: with other values the launched kernels would not exist."""
        for name in [each for each, default in self.parameters.items() if len(self.values(each, default).numbers) < 2]:
            if name not in self.words:
                self._set_apart(name)

    def _take_for(self, what: dict[str, int], names: set[str]) -> None:
        what |= {name: self.parameters.pop(name) for name in [*self.parameters] if name in names}

    def _set_apart(self, name: str) -> None:
        """Remove a parameter; if its default in the text is not the given text, it becomes fixed."""
        del self.parameters[name]
        self.words.pop(name, None)
        if self._defaults.get(name) != self.given[name]:
            self.fixed[name] = self.given[name]

    @cached_property
    def own(self) -> dict[str, str]:
        """The macros that the kernel always defines as numbers: a study cannot set them."""
        anyway, stated = defined_anyway(self.sketch.source), DEFINE.findall(self.text)
        return {name: value.strip() for name, value in stated if name in anyway and number_of(value) is not None}

    def is_idle(self, name: str) -> bool:
        """Whether nothing in the text uses a macro's value: then only the host program does."""
        return name not in self._asked

    def is_flag(self, name: str) -> bool:
        """Whether the text only tests whether a macro is defined, and gives it no default."""
        return name not in self._defaults and self.is_idle(name) and bool(lines_with(self.text, name))

    @cached_property
    def _defaults(self) -> Mapping[str, str]:
        return candidates(self.sketch.source)

    @cached_property
    def _asked(self) -> set[str]:
        return names_asked("\n".join([self.text, *self.given.values()]))

    def kept(self, *, tuned: bool) -> list[str]:
        """Return the macros that remain names while a kernel is read: its parameters only if it is `tuned`."""
        return [*self.tasks, *self.counts, *(name for name in self.parameters if tuned and name not in self.words)]
