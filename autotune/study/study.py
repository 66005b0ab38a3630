"""A study: what is tuned, how it is launched and what a right answer is. Parsed from TOML, cross-checked."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autotune.errors import StudyError, UsageError
from autotune.expression import FUNCTIONS, Expression
from autotune.space import Constraint
from autotune.study import includes, library, schema
from autotune.study.library import StudyText, did_you_mean
from autotune.study.plan import SCALAR_TYPES, numpy_type
from autotune.study.rules import DEVICE_FACTS, Argument, LaunchRule, Option, Parameter, Reference, ReferenceFunction

_BRACES = re.compile(r"\{(\w+)\}")


class Study:
    """A validated study.

    `Study.load("sgemm")` or `Study.load("./blur.toml")` reads a file. From Python, give the same tables as
    keywords; `source` may replace the kernel file and `reference` may be a function:

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
        tables["reference"] = _function_table(function) if function else reference
        tables.setdefault("kernel", f"{tables.get('name', 'study')}.cl")
        path = Path(f"{tables.get('name', 'study')}.toml")
        kernel = Path(tables["kernel"]) if source is not None else library.find_kernel(tables["kernel"], path)
        library.require_plain(tables, str(path))
        text = includes.inline(kernel, includes.folders_of(tables, path), source)
        self._build(StudyText(str(tables.get("name", "")), path, tables, kernel, text), function)

    @classmethod
    def load(cls, name_or_path: str) -> Study:
        """Return the study of that name or at that path. Raises StudyError."""
        return cls.from_text(library.find_study(name_or_path))

    @classmethod
    def from_text(cls, text: StudyText) -> Study:
        """Return the study of a text that library.py read. Raises StudyError."""
        study = cls.__new__(cls)
        study._build(text, None)
        return study

    @property
    def unused(self) -> list[str]:
        """Parameters that neither the kernel nor a launch, argument, define or option mentions: misspelt, or idle."""
        tables = {name: self.text.table.get(name) for name in ("arguments", "defines", "launch", "options")}
        words = set(re.findall(r"\w+", self.text.source + repr(tables)))
        return [name for name in self.parameters if name not in words]

    def _build(self, text: StudyText, function: ReferenceFunction | None) -> None:
        table = schema.validate(text.table, str(text.path))
        self.text = text
        self.name = table.name
        self.about = table.about
        self.sizes = dict(table.sizes)
        self.size_lists = {name: [dict(size) for size in sizes] for name, sizes in table.size_lists.items()}
        self.choices = {name: tuple(values) for name, values in table.choices.items()}
        self.requires = table.requires
        self.timing = table.timing
        try:
            self.parameters = {name: _parameter(name, entry) for name, entry in table.parameters.items()}
            self._check_names()
            self._build_rules(table, function)
            self._check_arguments()
        except UsageError as error:  # an expression's error too
            raise error.at(str(text.path)) from None

    def _build_rules(self, table: schema.StudyTable, function: ReferenceFunction | None) -> None:
        given = {*self.sizes, *self.choices, *DEVICE_FACTS}
        tuned = given | set(self.parameters)
        self.device = {
            name: _expression(text, f"device.{name}", set(DEVICE_FACTS) | set(self.choices))
            for name, text in table.device.items()
        }
        self.constraints = tuple(
            Constraint(
                _expression(entry.require, f"constraints.{n}.require", tuned), entry.reason or str(entry.require)
            )
            for n, entry in enumerate(table.constraints, 1)
        )
        self.defines = {name: _expression(text, f"defines.{name}", tuned) for name, text in table.defines.items()}
        self.options = tuple(
            Option(_flag(entry.flag, n, tuned), _expression(entry.when, f"options.{n}.when", tuned))
            for n, entry in enumerate(table.options, 1)
        )
        self.arguments = {name: _argument(name, entry, given, tuned) for name, entry in table.arguments.items()}
        self.launches = self._launches(table.launch, "launch", tuned)
        self.reference = self._reference(table.reference, function, given)
        self.tolerance = (
            _expression(table.tolerance.relative, "tolerance.relative", given),
            _expression(table.tolerance.absolute, "tolerance.absolute", given),
        )
        self.flops = _optional(table.work.flops, "work.flops", given)
        self.bytes = _optional(table.work.bytes, "work.bytes", given)

    def _launches(self, tables: Iterable[schema.LaunchTable], where: str, known: set[str]) -> tuple[LaunchRule, ...]:
        rules = []
        for n, entry in enumerate(tables, 1):
            place = f"{where}.{n}"
            for name in entry.arguments:
                if name not in self.arguments and name not in self.sizes:
                    raise StudyError(
                        f"no argument or size named {name!r}{did_you_mean(name, self.arguments)}",
                        where=f"{place}.arguments",
                        hint=f"add [arguments.{name}]",
                    )
            local = entry.local_size
            if local is not None and len(local) != len(entry.global_size):
                raise StudyError("global and local need equally many dimensions", where=place)
            rules.append(
                LaunchRule(
                    entry.entry,
                    _expressions(entry.global_size, f"{place}.global", known),
                    _expressions(local, f"{place}.local", known) if local is not None else None,
                    tuple(entry.arguments),
                    _expression(entry.when, f"{place}.when", known),
                )
            )
        return tuple(rules)

    def _reference(
        self, table: schema.ReferenceTable, function: ReferenceFunction | None, given: set[str]
    ) -> Reference:
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
            return Reference(function=(library.find_kernel(name, self.text.path, "reference.python"), attribute))
        path = library.find_kernel(table.kernel or "", self.text.path, "reference.kernel")
        source = includes.inline(path, includes.folders_of(self.text.table, self.text.path))
        return Reference(source=source, launches=self._launches(table.launch or (), "reference.launch", given))

    def _check_names(self) -> None:
        seen: dict[str, str] = dict.fromkeys(DEVICE_FACTS, "a device fact")
        seen |= dict.fromkeys(FUNCTIONS, "a function of expressions")
        seen |= dict.fromkeys(SCALAR_TYPES, "an OpenCL type")
        for table in ("sizes", "choices", "parameters"):
            for name in getattr(self, table):
                if name in seen:
                    raise StudyError(f"{name!r} is already {seen[name]}", where=table, hint="choose another name")
                seen[name] = f"in [{table}]"
        for list_name, sizes in self.size_lists.items():
            for name in {name for size in sizes for name in size} - set(self.sizes):
                raise StudyError(f"no size named {name!r}", where=f"size_lists.{list_name}", hint="add it to [sizes]")
        for name in self.text.table.get("device", {}):
            if name not in DEVICE_FACTS:
                raise StudyError(f"no device fact {name!r}{did_you_mean(name, DEVICE_FACTS)}", where="device")

    def _check_arguments(self) -> None:
        outputs = {name for name, argument in self.arguments.items() if argument.access in ("out", "inout")}
        if not outputs:
            raise StudyError(
                'no argument has access = "out" or "inout"',
                where="arguments",
                hint='an output that starts at zero is "inout" with data = { distribution = "constant", value = 0 }',
            )
        launched = {name for rule in self.launches for name in rule.arguments}
        for name in sorted(outputs - launched):
            raise StudyError(
                "is an output that no launch takes", where=f"arguments.{name}", hint="name it in a launch's arguments"
            )
        if self.reference.numpy is not None and set(self.reference.numpy) != outputs:
            raise StudyError(
                f"must give every output and nothing else: {', '.join(sorted(outputs))}", where="reference.numpy"
            )


def _parameter(name: str, table: schema.ParameterTable) -> Parameter:
    values = tuple(table.values)
    twice = [text for text, count in Counter(map(str, values)).items() if count > 1]
    if twice or len(set(values)) != len(values):
        raise StudyError(f"has a value twice: {', '.join(twice)}", where=f"parameters.{name}.values")
    default = table.default if table.default is not None else values[0]
    if default not in values:
        raise StudyError(
            f"{default!r} is none of the values",
            where=f"parameters.{name}.default",
            hint="they are " + ", ".join(map(str, values)),
        )
    return Parameter(name, values, default, table.about)


def _argument(name: str, table: schema.ArgumentTable, given: set[str], tuned: set[str]) -> Argument:
    where = f"arguments.{name}"
    data = table.access in ("in", "out", "inout")
    if data:
        _require_no_parameter(table, where, tuned - given)
    shape = _expressions(table.shape or (), f"{where}.shape", given if data else tuned)
    type_text = table.type if "{" in table.type or table.type not in tuned else f"{{{table.type}}}"
    if "{" not in type_text:
        _check_type(type_text, f"{where}.type")
    for used in _BRACES.findall(type_text):
        _known(used, given if data else tuned, f"{where}.type")
    return Argument(
        name,
        type_text,
        shape,
        _expressions(table.allocate, f"{where}.allocate", tuned) if table.allocate is not None else shape,
        table.access or "",
        table.data or schema.DataTable(),
        _optional(table.value, f"{where}.value", tuned),
        _optional(table.local, f"{where}.local", tuned),
    )


def _require_no_parameter(table: schema.ArgumentTable, where: str, parameters: set[str]) -> None:
    """Every configuration solves the same problem: no parameter shapes its data."""
    used = [(name, "shape") for text in table.shape or () for name in Expression.parse(text, where=where).names]
    used += [(name, "type") for name in (_BRACES.findall(table.type) or [table.type])]
    for name, key in sorted(used):
        if name in parameters:
            raise StudyError(
                f"{name} is a parameter, which cannot shape data that every configuration has in common",
                where=f"{where}.{key}",
                hint="pad with allocate, which may use parameters"
                if key == "shape"
                else "make it a choice, or cast in the kernel",
            )


def _check_type(text: str, where: str) -> None:
    try:
        numpy_type(text)
    except StudyError as error:
        raise error.at(where) from None


def _flag(flag: str, number: int, known: set[str]) -> str:
    for name in _BRACES.findall(flag):
        _known(name, known, f"options.{number}.flag")
    return flag


def _expression(text: str | int | float, where: str, known: set[str]) -> Expression:
    expression = Expression.parse(text, where=where)
    for name in sorted(expression.names):
        _known(name, known, where)
    return expression


def _optional(text: str | int | float | None, where: str, known: set[str]) -> Expression | None:
    return None if text is None else _expression(text, where, known)


def _expressions(texts: Iterable[str | int | float], where: str, known: set[str]) -> tuple[Expression, ...]:
    return tuple(_expression(text, where, known) for text in texts)


def _known(name: str, known: set[str], where: str) -> None:
    if name not in known:
        raise StudyError(
            f"names {name!r}, which is no parameter, size, choice or device fact that may stand here"
            f"{did_you_mean(name, known)}",
            where=where,
            hint="known here: " + ", ".join(sorted(known)),
        )


def _function_table(function: ReferenceFunction) -> dict[str, str]:
    """Stand-in for a Python function in the canonical form: a change of its code changes the study's hash."""
    code = function.__code__
    return {"function": hashlib.sha256(code.co_code + repr(code.co_consts).encode()).hexdigest()[:32]}
