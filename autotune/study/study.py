"""A study: what is tuned, how it is launched and what a right answer is. Parsed from TOML, cross-checked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import StudyError, UsageError
from autotune.expression import FUNCTIONS, Expression
from autotune.model import Value
from autotune.space import Constraint
from autotune.study import library, schema
from autotune.study.arguments import BRACES, KINDS, Argument, Buffer, buffers_of
from autotune.study.imports import function_digest
from autotune.study.includes import folders_of, inline, without_comments
from autotune.study.library import StudyText
from autotune.study.plan import Launch
from autotune.study.schema import Scope
from autotune.study.types import SCALAR_TYPES
from autotune.text import did_you_mean

DEVICE_FACTS = (
    "local_memory", "max_work_group_size", "compute_units", "vendor", "device_kind", "compute_capability", "extensions",
)  # fmt: skip
"""Names of device facts in expressions: bytes, work-items, count, one word, `gpu` or `cpu`, NVIDIA's number, names."""

ReferenceFunction = Callable[..., Mapping[str, Any]]
"""Called with every input array, scalar and size by name; returns the expected array of each output."""

_DEFINE = re.compile(r"^[^\S\n]*#[^\S\n]*define[^\S\n]+(\w+)", re.MULTILINE)
_KERNEL = re.compile(r"kernel\b[^;{}]*?\bvoid\s+(\w+)\s*\(")


@dataclass(frozen=True)
class Parameter:
    """A tunable `#define`: a finite, ordered tuple of values."""

    name: str
    values: tuple[Value, ...]
    default: Value
    about: str = ""


@dataclass(frozen=True)
class Option:
    """A build option; `{NAME}` in the flag stands for a value."""

    flag: str
    when: Expression


@dataclass(frozen=True)
class Reference:
    """Where expected outputs come from: exactly one of the three is set.

    `numpy` maps an output to a NumPy expression; `source` with `launches` is another kernel; `function` is
    Python, either given directly or named as `file.py:name`, which is loaded only when the user allows it.
    """

    numpy: Mapping[str, str] | None = None
    source: str | None = None
    launches: tuple[Launch, ...] = ()
    function: ReferenceFunction | tuple[Path, str] | None = None


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
        tables["reference"] = {"function": function_digest(function)} if function else reference
        tables.setdefault("kernel", f"{tables.get('name', 'study')}.cl")
        path = f"{tables.get('name', 'study')}.toml"
        kernel = tables["kernel"] if source is not None else library.find_kernel(tables["kernel"], path)
        library.require_plain(tables, path)
        text = inline(kernel, folders_of(tables, path), source)
        self._build(StudyText(str(tables.get("name", "")), path, tables, kernel, text), function)
        self.text.made = self

    @classmethod
    def load(cls, name_or_path: str) -> Study:
        """Return the study of that name or at that path. Raises StudyError."""
        return cls.from_text(library.find_study(name_or_path))

    @classmethod
    def from_text(cls, text: StudyText) -> Study:
        """Return the study of a text that library.py read, or that one was made with. Raises StudyError."""
        if isinstance(text.made, cls):
            return text.made
        study = cls.__new__(cls)
        study._build(text, None)
        return study

    @property
    def inputs(self) -> list[Buffer]:
        """The buffers whose contents are drawn."""
        return [buffer for buffer in buffers_of(self.arguments.values()) if buffer.reads]

    @property
    def outputs(self) -> list[Buffer]:
        """The buffers that are compared."""
        return [buffer for buffer in buffers_of(self.arguments.values()) if buffer.writes]

    @property
    def unused(self) -> list[str]:
        """Parameters that neither the kernel nor a launch, argument, define or option mentions: misspelt, or idle."""
        words = _words(self.text.source, self.text, "arguments", "defines", "launch", "options")
        return [name for name in self.parameters if name not in words]

    def _build(self, text: StudyText, function: ReferenceFunction | None) -> None:
        table = schema.validate(text.table, str(text.file))
        self.text, self.path = text, str(text.file)
        # The compiler's messages then name the author's file, as they do for its includes.
        self.source = f'#line 1 "{text.kernel_path.name}"\n{text.source}'
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
            self._check_outputs()
        except UsageError as error:  # an expression's error too
            raise error.at(self.path) from None

    def _build_rules(self, table: schema.StudyTable, function: ReferenceFunction | None) -> None:
        given = Scope({*self.sizes, *self.choices, *DEVICE_FACTS})
        tuned, facts = Scope(given.known | set(self.parameters)), Scope({*DEVICE_FACTS, *self.choices})
        self.device = {name: facts.expression(text, f"device.{name}") for name, text in table.device.items()}
        self.constraints = tuple(
            Constraint(tuned.expression(entry.require, f"constraints.{n}.require"), entry.reason or str(entry.require))
            for n, entry in enumerate(table.constraints, 1)
        )
        self.defines = {name: tuned.expression(text, f"defines.{name}") for name, text in table.defines.items()}
        self.options = tuple(_option(entry, f"options.{n}", tuned) for n, entry in enumerate(table.options, 1))
        self.arguments: dict[str, Argument] = {}
        for name, entry in table.arguments.items():
            kind = next(kind for kind in KINDS if getattr(entry, kind.key) is not None)
            self.arguments[name] = kind.declare(name, entry, given, tuned)
        self.launches = self._launches(table.launch, "launch", tuned)
        self.reference = self._reference(table.reference, function, given)
        limits, work = table.tolerance, table.work
        self.tolerance = (
            given.expression(limits.relative, "tolerance.relative"),
            given.expression(limits.absolute, "tolerance.absolute"),
        )
        self.flops = None if work.flops is None else given.expression(work.flops, "work.flops")
        self.bytes = None if work.bytes is None else given.expression(work.bytes, "work.bytes")

    def _launches(self, tables: Iterable[schema.LaunchTable], where: str, scope: Scope) -> tuple[Launch, ...]:
        launches = []
        for n, entry in enumerate(tables, 1):
            place, local = f"{where}.{n}", entry.local_size
            for name in entry.arguments:
                if name not in self.arguments and name not in self.sizes:
                    raise StudyError(
                        f"no argument or size named {name!r}{did_you_mean(name, self.arguments)}",
                        where=f"{place}.arguments",
                        hint=f"add [arguments.{name}]",
                    )
            if local is not None and len(local) != len(entry.global_size):
                raise StudyError("global and local need equally many dimensions", where=place)
            launches.append(
                Launch(
                    entry.entry,
                    scope.expressions(entry.global_size, f"{place}.global"),
                    None if local is None else scope.expressions(local, f"{place}.local"),
                    tuple(entry.arguments),
                    scope.expression(entry.when, f"{place}.when"),
                )
            )
        return tuple(launches)

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
        path = library.find_kernel(table.kernel or "", self.text.file, "reference.kernel")
        source = library.source_of(path, self.text.table, self.text.file)
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

    def _check_outputs(self) -> None:
        outputs = sorted(buffer.name for buffer in self.outputs)
        if not outputs:
            raise StudyError(
                'no argument has access = "out" or "inout"',
                where="arguments",
                hint='an output that starts at zero is "inout" with data = { distribution = "constant", value = 0 }',
            )
        launched = {name for launch in self.launches for name in launch.arguments}
        for name in outputs:
            if name not in launched:
                what, hint = "is an output that no launch takes", "name it in a launch's arguments"
                raise StudyError(what, where=f"arguments.{name}", hint=hint)
        if self.reference.numpy is not None and sorted(self.reference.numpy) != outputs:
            raise StudyError(f"must give every output and nothing else: {', '.join(outputs)}", where="reference.numpy")


def check_entries(study: Study) -> None:
    """Raise StudyError where a launch names a kernel function whose name the source does not hold."""
    source = without_comments(study.text.source)
    if "##" in source:  # a macro may put the name together
        return
    words, kernels = _words(source, study.text, "options", "defines", "choices", "parameters"), _KERNEL.findall(source)
    for number, launch in enumerate(study.launches, 1):
        if launch.entry not in words:
            raise StudyError(
                f"the kernel has no function {launch.entry!r}{did_you_mean(launch.entry, kernels)}",
                where=f"{study.path}: launch.{number}.entry",
                hint=f"it has {', '.join(kernels)}" if kernels else "",
            )


def effects(study: Study) -> Iterator[str]:
    """Yield a line for each thing that the author may not have meant."""
    defined = set(_DEFINE.findall(without_comments(study.text.source)))
    for name in study.sizes:
        if name in defined and name not in study.defines:
            yield f"the kernel defines {name} itself: what --size gives reaches it as an argument at most"
    yield from filter(None, (argument.effect for argument in study.arguments.values()))


def _words(source: str, text: StudyText, *tables: str) -> set[str]:
    """Return the words of a source and of tables of a study."""
    return set(re.findall(r"\w+", source + repr([text.table.get(name) for name in tables])))


def _parameter(name: str, table: schema.ParameterTable) -> Parameter:
    values = tuple(table.values)
    twice = [text for text, count in Counter(map(str, values)).items() if count > 1]
    if twice or len(set(values)) != len(values):
        raise StudyError(f"has a value twice: {', '.join(twice)}", where=f"parameters.{name}.values")
    default = table.default if table.default is not None else values[0]
    if default not in values:
        hint = "they are " + ", ".join(map(str, values))
        raise StudyError(f"{default!r} is none of the values", where=f"parameters.{name}.default", hint=hint)
    return Parameter(name, values, default, table.about)


def _option(table: schema.OptionTable, where: str, scope: Scope) -> Option:
    for name in BRACES.findall(table.flag):
        scope.require(name, f"{where}.flag")
    return Option(table.flag, scope.expression(table.when, f"{where}.when"))
