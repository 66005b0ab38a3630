"""A study: what is tuned, how it is launched and what a right answer is. Parsed from TOML, cross-checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import StudyError, UsageError, placed
from autotune.identity import require_plain
from autotune.model import Choices, Value
from autotune.space import Constraint
from autotune.study import library, schema
from autotune.study.arguments import KINDS, Argument, Buffer, Data, Scalar
from autotune.study.arrays import names_of
from autotune.study.crosschecks import (
    check_checks,
    check_flags,
    check_macros,
    check_names,
    check_outputs,
    check_steps,
    check_values,
)
from autotune.study.imports import digest_of
from autotune.study.includes import folders_of, inline, names_asked, without_comments
from autotune.study.library import StudyText, default_size
from autotune.study.loops import Declared, launches_of, loops_of, steps_of
from autotune.study.scope import DEVICE_FACTS, Scope, definitions
from autotune.study.structs import struct_texts
from autotune.study.tables import (
    Reference,
    ReferenceFunction,
    option,
    parameter,
    reference_configuration,
)
from autotune.study.validation import validate
from autotune.study.writing import toml, write_new


class Study:
    """A validated study.

    `Study.load("sgemm")` or `Study.load("./blur.toml")` reads a file. From Python, give the same tables as keywords;
    they may contain NumPy's numbers. `source` may replace the kernel file, `reference` may be a function, and the
    `data` of an argument an array or a function of sizes and scalars:

        Study(name="scale", source=CL, sizes={"N": 1024}, parameters={"WG": {"values": [64, 128]}},
              arguments={"x": {"type": "float", "shape": ["N"], "access": "inout"}},
              launch=[{"entry": "scale", "global": ["N"], "local": ["WG"], "arguments": ["x"]}],
              reference=lambda x, N: {"x": 2 * x})

    Raises StudyError, naming file and key, for anything that does not fit together.
    """

    def __init__(
        self,
        *,
        source: str | None = None,
        reference: Mapping[str, Any] | ReferenceFunction,
        **tables: Any,
    ) -> None:
        function = reference if callable(reference) else None
        arguments = tables.get("arguments", {})
        self.given, tables["arguments"] = _given(arguments) if isinstance(arguments, Mapping) else ({}, arguments)
        tables["reference"] = {"function": digest_of(function)} if function else reference
        tables.setdefault("kernel", f"{tables.get('name', 'study')}.cl")
        path = f"{tables.get('name', 'study')}.toml"
        require_plain(tables, path)
        tables = _without_numpy(tables)
        if source is None and "\n" in str(tables["kernel"]):
            raise StudyError("is text, not the name of a file", where=f"{path}: kernel", hint="source= takes the text")
        if source is None:
            kernel, text = library.sources_of(tables["kernel"], tables, path, "kernel")
        elif not isinstance(source, str):
            hint = 'write source=Path("mine.cl").read_text()'
            raise StudyError(f"{type(source).__name__} is not text of a kernel", where=f"{path}: source", hint=hint)
        else:
            kernel = str(tables["kernel"])
            text = inline(kernel, folders_of(tables, path), source)
        self._build(StudyText(str(tables.get("name", "")), path, tables, kernel, text), function)
        self.text.made = self

    def __repr__(self) -> str:
        """Return what a notebook shows."""
        return f"<study {self.name}, which tunes {', '.join(self.parameters) or 'nothing'}>"

    @classmethod
    def load(cls, name_or_path: str | Path) -> Study:
        """Return the study of that name or at that path. Raises StudyError."""
        return cls.from_text(library.find_study(str(name_or_path)))

    @classmethod
    def from_text(cls, text: StudyText) -> Study:
        """Return the study of a text that library.py read; the same Study if one made the text. Raises StudyError."""
        if isinstance(text.made, cls):
            return text.made
        study = cls.__new__(cls)
        study.given = {}
        study._build(text, None)
        return study

    def to_toml(self) -> str:
        """Return the text of a TOML file, which reads back as the same study with the same hash.

        The kernel is a file of its own, which `save` writes too. Raises StudyError for what a file cannot hold: a
        function as the reference, an array as data.
        """
        if callable(self.reference.function):
            hint = 'put the function into a file and name it: python = "FILE.py:NAME"'
            raise StudyError("a function cannot be written to a file", where=f"{self.path}: reference", hint=hint)
        for name in self.given:
            hint = 'np.save it beside the study, and name it: data = { file = "FILE.npy" }'
            raise StudyError("an array or a function cannot be written to a file", where=f"arguments.{name}", hint=hint)
        with placed(self.path):
            return toml(self.text.table)

    def save(self, path: str | Path) -> list[Path]:
        """Write the study to a TOML file, and a kernel that was given as text beside it; return the files written.

        Overwrites nothing. Raises StudyError if a file exists already or cannot be written, and as `to_toml` does.
        """
        path, text = Path(path), self.to_toml()
        files = {path: text}
        if not library.is_file(self.text.kernel_path):  # given as text
            files = {path.parent / self.text.table["kernel"]: self.text.source, path: text}
        if there := [each for each in files if os.path.lexists(each)]:
            raise StudyError("exists already", where=str(there[0]), hint="choose another name")
        for each, content in files.items():
            write_new(each, content)
        return list(files)

    @property
    def chose_default(self) -> bool:
        """Whether the author named a default, or there is nothing to choose: mere first values are no baseline."""
        tables = self.text.table["parameters"].values()
        several = [entry for entry in tables if len(entry["values"]) > 1]
        return not several or any(entry.get("default") is not None for entry in several)

    @property
    def inputs(self) -> list[Buffer]:
        """The buffers that have input data."""
        return [buffer for buffer in self.arguments.values() if isinstance(buffer, Buffer) and buffer.reads]

    @property
    def outputs(self) -> list[Buffer]:
        """The buffers that are compared, directly or by a check."""
        return [buffer for buffer in self.arguments.values() if isinstance(buffer, Buffer) and buffer.writes]

    @property
    def entries(self) -> list[str]:
        """The kernel functions that its launches name, in order."""
        return list(dict.fromkeys(launch.entry for _, launch, _ in launches_of(self.launches)))

    @property
    def checked(self) -> frozenset[str]:
        """The names of the outputs that checks compare, so that they are not compared directly."""
        named = frozenset[str]().union(*(names_of(text) for text in self.checks.values()))
        return named & {buffer.name for buffer in self.outputs}

    @property
    def launched(self) -> set[str]:
        """The names of the arguments and sizes that any launch takes."""
        return {name for _, launch, _ in launches_of(self.launches) for name in launch.arguments}

    @property
    def swapped(self) -> set[str]:
        """The names of the buffers that change places after the turns of a loop."""
        return {name for loop in loops_of(self.launches) for group in loop.swap for name in group}

    @property
    def unused(self) -> list[str]:
        """Parameters whose values no kernel, launch, argument, check, define or option uses: misspelt, or idle.

        A comment or an `#ifdef` does not use the value (every value is defined), nor does the `#define` of a default.
        A parameter that a constraint equates with others (`TILE == WIDTH * HEIGHT`) counts as used.
        """
        words = words_of("", self.text, "arguments", "check", "defines", "launch", "options")
        asked = names_asked(without_comments(self.text.source))
        sides = [[side.strip() for side in one.require.text.split("==")] for one in self.constraints]
        equated = {side for both in sides if len(both) == 2 for side in both}
        return [name for name in self.parameters if name not in words | asked | equated]

    def chosen(self, choices: Choices) -> dict[str, Value]:
        """Return the given choices that are not the study's defaults."""
        return {name: value for name, value in choices.items() if value != self.choices[name][0]}

    def _build(self, text: StudyText, function: ReferenceFunction | None) -> None:
        table = validate(text.table, str(text.file))
        self.text, self.path = text, str(text.file)
        self.source = _named(text.kernel_path, text.source)
        self.name = table.name
        self.about = table.about
        self.sizes = default_size(text)
        self.fixed = {name: entry.file for name, entry in table.sizes.items() if not isinstance(entry, int)}
        self.size_lists = {name: [dict(size) for size in sizes] for name, sizes in table.size_lists.items()}
        self.choices = {name: tuple(values) for name, values in table.choices.items()}
        self.requires = table.requires
        self.timing = table.timing
        with placed(self.path, UsageError):  # an expression's error too
            self.parameters = {name: parameter(name, entry) for name, entry in table.parameters.items()}
            check_names(self)
            check_values(self)
            self._build_rules(table, function)
            check_macros(self)
            check_flags(self)
            check_outputs(self)

    def _build_rules(self, table: schema.StudyTable, function: ReferenceFunction | None) -> None:
        names = {*self.sizes, *self.choices, *DEVICE_FACTS}
        defined = definitions(table.defines, names | set(self.parameters))
        structs = struct_texts(table.structs, self.choices)
        given, tuned = Scope(names, defined, structs), Scope(names | set(self.parameters), defined, structs)
        facts = Scope({*DEVICE_FACTS, *self.choices})
        self.definitions = given.definitions  # those that no configuration decides
        self.steps = frozenset(steps_of([*table.launch, *(table.reference.launch or ())]))
        check_steps(self, defined)
        self.device = {name: facts.expression(text, f"device.{name}") for name, text in table.device.items()}
        self.constraints = tuple(
            Constraint(tuned.expression(entry.require, f"constraints.{n}.require"), entry.reason or str(entry.require))
            for n, entry in enumerate(table.constraints, 1)
        )
        self.defines = {name: tuned.expression(text, f"defines.{name}") for name, text in table.defines.items()}
        self.options = tuple(option(entry, f"options.{n}", tuned) for n, entry in enumerate(table.options, 1))
        self.arguments: dict[str, Argument] = {}
        self.checks = dict(table.check)
        check_checks(self)
        checked = {name for key, text in self.checks.items() for name in names_of(text, f"check.{key}")}
        for name, entry in table.arguments.items():
            if entry.data is not None and entry.data.given is not None and name not in self.given:
                hint = 'use file = "FILE.npy"'
                raise StudyError("a file cannot hold an array", where=f"arguments.{name}.data.given", hint=hint)
            kind = next(kind for kind in KINDS if getattr(entry, kind.key) is not None)
            shaped = tuned if name in checked and entry.access == "out" else given
            # A scalar may use the step of a loop around its launch.
            scope = tuned.with_names(self.steps) if kind is Scalar else tuned
            self.arguments[name] = kind.declare(name, entry, shaped, scope)
        self.launches = Declared(self.arguments, self.sizes, self.steps).launches(table.launch, "launch", tuned)
        self.reference = self._reference(table.reference, function, given)
        limits, work = table.tolerance, table.work
        self.tolerance = (
            given.expression(limits.relative, "tolerance.relative"),
            given.expression(limits.absolute, "tolerance.absolute"),
        )
        self.flops = None if work.flops is None else given.expression(work.flops, "work.flops")
        self.bytes = None if work.bytes is None else given.expression(work.bytes, "work.bytes")

    def _reference(self, table: schema.ReferenceTable, function: ReferenceFunction | None, given: Scope) -> Reference:
        if function is not None:
            return Reference(function=function)
        if table.function is not None:
            raise StudyError(
                "a file cannot hold a function", where="reference.function", hint='use python = "FILE.py:NAME"'
            )
        if table.numpy is not None:
            return Reference(numpy=table.numpy)
        if table.python is not None:
            name, _, attribute = table.python.partition(":")
            return Reference(function=(Path(library.find_kernel(name, self.text.file, "reference.python")), attribute))
        if table.file is not None:
            entries = table.file.items()
            stated = {name: {"file": entry} if isinstance(entry, str) else dict(entry) for name, entry in entries}
            return Reference(files={name: Data(**entry) for name, entry in stated.items()})
        if table.configuration is not None:
            return Reference(configuration=reference_configuration(table.configuration, self.parameters))
        file, source = library.sources_of(table.kernel, self.text.table, self.text.file, "reference.kernel")
        declared = Declared(self.arguments, self.sizes, self.steps)
        own = _named(Path(file), source)
        return Reference(source=own, launches=declared.launches(table.launch or (), "reference.launch", given))


def _named(file: Path, source: str) -> str:
    """Return a kernel's text with a `#line` mark, so that compilers name the author's file in messages."""
    return f"{library.line_mark(1, file)}\n{source}"


def _without_numpy(part: Any) -> Any:
    """Return tables with plain numbers and lists instead of NumPy's."""
    if isinstance(part, np.generic | np.ndarray):
        return part.tolist()
    if isinstance(part, Mapping):
        return {name: _without_numpy(inner) for name, inner in part.items()}
    return [*map(_without_numpy, part)] if isinstance(part, list | tuple) else part


def _given(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays and functions given as data, by argument, and the arguments with digests in their place."""
    given, plain = dict[str, Any](), dict(arguments)
    for name, entry in arguments.items():
        data = entry.get("data") if isinstance(entry, Mapping) else None
        if data is not None and not isinstance(data, Mapping):
            given[name] = data if callable(data) else np.array(data)  # a copy: the caller may change it later
            plain[name] = {**entry, "data": {"given": digest_of(given[name])}}
    return given, plain


def words_of(source: str, text: StudyText, *tables: str) -> set[str]:
    """Return the words of a source and of tables of a study."""
    return set(re.findall(r"\w+", source + repr([text.table.get(name) for name in tables])))
