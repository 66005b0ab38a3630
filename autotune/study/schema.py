"""What a study file may say: the pydantic models of its tables, and the names that its expressions may use.

Meaning and cross-checks are study.py's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    ValidationError,
    model_validator,
)

from autotune.errors import StudyError
from autotune.expression import Expression
from autotune.identity import STUDY_NAME, name_fault, value_fault
from autotune.text import did_you_mean, line


def _checked(fault: Callable[[Any], str]) -> AfterValidator:
    """Return a validator that refuses what `fault` finds fault with."""

    def check(entry: Any) -> Any:
        if found := fault(entry):
            raise ValueError(found)
        return entry

    return AfterValidator(check)


Value = Annotated[StrictInt | StrictFloat | StrictStr, _checked(value_fault)]
Text = StrictInt | StrictFloat | Annotated[StrictStr, Field(min_length=1)]
"""An expression, or a number that stands for itself."""
Name = Annotated[StrictStr, _checked(name_fault)]
Values = Annotated[list[Value], Field(min_length=1, max_length=4096)]
WholeNumber = Annotated[StrictInt, Field(ge=1, le=2**31 - 1)]


def _given(entry: Any, depth: int = 0) -> Any:
    """Let a value pass: an expression, a list for a vector or an array, a table for a struct."""
    inner = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list | tuple) else ()
    if entry is None and depth == 0:
        return None
    if depth > 8 or (not isinstance(entry, int | float | str | dict | list | tuple) or isinstance(entry, bool)):
        raise ValueError("is no expression, list or table of them")
    if isinstance(entry, str | dict | list | tuple) and not entry:
        raise ValueError("is empty")
    for part in inner:
        _given(part, depth + 1)
    for name in entry if isinstance(entry, dict) else ():
        if fault := name_fault(name):
            raise ValueError(fault)
    return entry


GAP = "TODO"
"""What a draft has where its author is to write."""

Dimensions = Annotated[list[Text], Field(min_length=1, max_length=3)]
Sources = Annotated[
    Annotated[StrictStr, Tag("one of them")]
    | Annotated[list[StrictStr], Field(min_length=1, max_length=100), Tag("several")],
    Discriminator(lambda entry: "several" if isinstance(entry, list | tuple) else "one of them"),
]
"""Files of OpenCL C: one, or several that are compiled as one text."""


class Table(BaseModel):
    """Base of all tables: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ParameterTable(Table):
    """`[parameters.NAME]`."""

    values: Values
    default: Value | None = None
    about: str = ""


class ConstraintTable(Table):
    """`[[constraints]]`."""

    require: Text
    reason: str = ""


class RequiresTable(Table):
    """`[requires]`: what a device must have for the study to run at all."""

    extensions: list[str] = []
    vendor: str = ""


class OptionTable(Table):
    """`[[options]]`: one build option."""

    flag: Annotated[StrictStr, Field(min_length=1)]
    when: Text = "1"


class FileTable(Table):
    """`{ file = ..., part = ..., type = ... }`: an array of a file beside the study."""

    file: Annotated[StrictStr, Field(min_length=1, max_length=1000)]
    part: StrictStr | None = None
    type: StrictStr | None = None


class SizeTable(FileTable):
    """`NAME = { file = ..., axis = ... }` of `[sizes]`: an extent that a file has."""

    axis: Annotated[StrictInt, Field(ge=0, le=31)] | None = None


def _form(entry: Any) -> str:
    return "a table" if isinstance(entry, Mapping | FileTable) else "one of them"


WholeOrFile = Annotated[
    Annotated[WholeNumber, Tag("one of them")] | Annotated[SizeTable, Tag("a table")], Discriminator(_form)
]
File = Annotated[Annotated[StrictStr, Tag("one of them")] | Annotated[FileTable, Tag("a table")], Discriminator(_form)]

Function = Annotated[StrictStr, Field(pattern=r"^[^:]+\.py:[A-Za-z_]\w*$")]
"""`FILE.py:NAME`."""


class DataTable(Table):
    """`data = { ... }` of an input buffer: drawn, read from a file, made by Python, or computed."""

    distribution: Literal["uniform", "normal", "integers", "constant", "range", "permutation"] = "uniform"
    low: Text = -1.0
    high: Text = 1.0
    value: Text = 0
    seed: int = 1
    file: Annotated[StrictStr, Field(min_length=1, max_length=1000)] | None = None
    part: StrictStr | None = None
    type: StrictStr | None = None
    numpy: StrictStr | None = None
    python: Function | None = None
    given: str | None = None  # hash of an array or a function that a Python caller gave to Study()
    fields: dict[Name, DataTable] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> DataTable:
        stated = self.model_fields_set
        sources = [key for key in ("file", "python", "given") if key in stated]
        drawn = sorted(stated & {"distribution", "low", "high", "value", "seed", "fields"})
        if len(sources) + bool(drawn) > 1:
            raise ValueError(f"{sources[0]} and {(sources[1:] + drawn)[0]} exclude each other")
        if self.file is None and (self.part is not None or self.type is not None):
            raise ValueError("part and type belong to a file: add file")
        if self.fields is not None and self.numpy is not None:
            raise ValueError("numpy and fields exclude each other")
        return self


class SamplerTable(Table):
    """`sampler = { ... }`: how a kernel reads images."""

    addressing: Literal["none", "clamp_to_edge", "clamp", "repeat", "mirrored_repeat"] = "clamp_to_edge"
    filter: Literal["nearest", "linear"] = "nearest"
    normalized: bool = False

    @model_validator(mode="after")
    def _wraps_normalized(self) -> SamplerTable:
        if self.addressing in ("repeat", "mirrored_repeat") and not self.normalized:
            raise ValueError(f'addressing = "{self.addressing}" needs normalized = true: OpenCL has it for 0 to 1 only')
        return self


class ArgumentTable(Table):
    """`[arguments.NAME]`: a buffer (`shape`), an image, a sampler, a scalar (`value`) or local memory (`local`)."""

    type: StrictStr = ""
    shape: Annotated[list[Text], Field(min_length=1, max_length=6)] | None = None
    allocate: Annotated[list[Text], Field(min_length=1, max_length=6)] | None = None
    access: Literal["in", "out", "inout", "scratch", "zeroed"] | None = None
    data: DataTable | None = None
    constant: bool = False
    image: Dimensions | None = None
    channels: Literal["R", "A", "RG", "RA", "RGBA", "BGRA", "ARGB", "INTENSITY", "LUMINANCE"] | None = None
    normalized: bool | None = None
    sampler: SamplerTable | None = None
    value: Annotated[Any, AfterValidator(_given)] = None
    local: Text | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> ArgumentTable:
        kinds = (self.shape, self.image, self.sampler, self.value, self.local)
        if sum(part is not None for part in kinds) != 1:
            raise ValueError(
                "needs exactly one of shape (a buffer), value (a scalar), local (local memory), image, sampler"
            )
        if (self.type == "") != (self.sampler is not None):
            raise ValueError("a sampler has no type" if self.type else "needs a type")
        stored = self.shape is not None or self.image is not None
        if not stored and (self.allocate or self.access or self.data):
            raise ValueError("allocate, access and data belong to buffers: add shape")
        if self.image is None and (self.channels is not None or self.normalized is not None):
            raise ValueError("channels and normalized belong to images: add image")
        if self.image is not None and self.allocate is not None:
            raise ValueError("allocate belongs to buffers: an image has no padding")
        if stored and self.access is None:
            what = "a buffer" if self.shape is not None else "an image"
            raise ValueError(f'{what} needs access = "in", "out", "inout", "scratch" or "zeroed"')
        if self.shape is not None and self.allocate is not None and len(self.shape) != len(self.allocate):
            raise ValueError("shape and allocate need equally many dimensions")
        if self.constant and self.access != "in":
            raise ValueError('constant memory is read only: access = "in"')
        return self


class LaunchTable(Table):
    """`[[launch]]`: one kernel launch, or a loop: of itself, or of the launches of its `turn`."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    entry: Name | None = None
    global_size: Dimensions | None = Field(default=None, alias="global")
    local_size: Dimensions | None = Field(default=None, alias="local")
    offset: Dimensions | None = None
    arguments: list[Name] | None = None
    when: Text = "1"
    repeat: Text | None = None
    step: Name | None = None
    swap: list[Annotated[list[Name], Field(min_length=2, max_length=16)]] = []
    turn: Annotated[list[LaunchTable], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> LaunchTable:
        own = (self.entry, self.global_size, self.arguments)
        if self.turn is not None and any(part is not None for part in (*own, self.local_size, self.offset)):
            raise ValueError(
                "turn holds the launches of a loop: entry, global, local, offset, arguments belong to them"
            )
        if self.turn is None:
            missing = [key for key, part in zip(("entry", "global", "arguments"), own, strict=True) if part is None]
            if missing:
                raise ValueError(f"a launch needs {' and '.join(missing)}")
        if self.repeat is None and (self.turn is not None or self.step is not None or self.swap):
            raise ValueError("turn, step and swap belong to a loop: add repeat")
        return self


class ReferenceTable(Table):
    """`[reference]`: where the expected outputs come from."""

    file: Annotated[dict[Name, File], Field(min_length=1)] | None = None
    numpy: Annotated[dict[Name, StrictStr | dict[Name, StrictStr]], Field(min_length=1)] | None = None
    kernel: Sources | None = None
    launch: list[LaunchTable] | None = None
    configuration: Annotated[dict[Name, Value], Field(min_length=1)] | None = None
    python: Function | None = None
    function: str | None = None  # hash of a function that a Python caller gave to Study()

    @model_validator(mode="after")
    def _one_kind(self) -> ReferenceTable:
        kinds = (self.file, self.numpy, self.kernel, self.configuration, self.python, self.function)
        if sum(part is not None for part in kinds) != 1:
            raise ValueError(
                'needs exactly one of numpy = { OUT = "..." }, kernel = "FILE.cl", python = "FILE.py:NAME", '
                'file = { OUT = "FILE.npy" }, configuration = { PARAMETER = VALUE }'
            )
        if (self.kernel is None) != (self.launch is None):
            raise ValueError("a reference kernel needs [[reference.launch]], and only it has one")
        return self


class ToleranceTable(Table):
    """`[tolerance]`: an output element may differ by `absolute + relative * |expected|`."""

    relative: Text = 0
    absolute: Text = 0


class WorkTable(Table):
    """`[work]`: operations and bytes of one run, for GFLOPS and GB/s."""

    flops: Text | None = None
    bytes: Text | None = None


class TimingTable(Table):
    """`[timing]`."""

    cache: Literal["warm", "cold"] = "warm"


class StudyTable(Table):
    """The whole file."""

    name: Annotated[StrictStr, Field(pattern=f"^{STUDY_NAME}$")]
    about: str = ""
    kernel: Sources
    sizes: dict[Name, WholeOrFile] = {}
    size_lists: dict[str, Annotated[list[dict[Name, WholeNumber]], Field(min_length=1)]] = {}
    choices: dict[Name, Values] = {}
    parameters: Annotated[dict[Name, ParameterTable], Field(min_length=1)]
    constraints: list[ConstraintTable] = []
    requires: RequiresTable = RequiresTable()
    device: dict[Name, Text] = {}
    defines: dict[Name, Text] = {}
    structs: dict[Name, Annotated[list[StrictStr], Field(min_length=1, max_length=128)]] = {}
    options: list[OptionTable] = []
    arguments: dict[Name, ArgumentTable]
    launch: Annotated[list[LaunchTable], Field(min_length=1)]
    reference: ReferenceTable
    check: dict[Name, StrictStr] = {}
    tolerance: ToleranceTable = ToleranceTable()
    work: WorkTable = WorkTable()
    timing: TimingTable = TimingTable()


def validate(table: Mapping[str, Any], where: str) -> StudyTable:
    """Return the validated table. Raises StudyError: the first error in one line, all of them as its detail."""
    try:
        return StudyTable.model_validate(table)
    except ValidationError as error:
        lines = list(dict.fromkeys(line(_told(item)) for item in error.errors(include_url=False)))
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        detail = "\n".join(lines) if more else ""
        raise StudyError(
            lines[0] + more, where=where, hint="docs/studies-reference.md has every key", detail=detail
        ) from error


def _told(item: Any) -> str:
    """One pydantic error as `table.key: what is wrong`."""
    path = [part for part in item["loc"] if not _is_branch(part)]
    place = ".".join(str(part + 1) if isinstance(part, int) else part for part in path)
    if item["type"] == "extra_forbidden":
        return f"{place}: unknown key{did_you_mean(str(path[-1]), _keys_beside(path))}"
    if item["type"] == "missing":
        return f"{place}: missing"
    found, message = item["input"], item["msg"].removeprefix("Value error, ")
    message = _PLAINLY.get(item["type"], message.replace(" after validation", ""))
    message = f"{message[0].lower()}{message[1:]}"
    if isinstance(found, Mapping):  # of a whole table: the message names the key
        return f"{place}: {message}" if path else message
    if item["type"] == "literal_error" and isinstance(found, str):
        known = re.findall(r"'([^']*)'", item["ctx"]["expected"])
        return f"{place}: {message}, got {found!r:.60}{did_you_mean(found, known)}"
    return f"{place}: {message}, got {found!r:.60}" if path else message


_PLAINLY = {
    "list_type": 'needs a list, such as ["N"]',
    "string_type": "needs text in quotes",
    "int_type": "needs a whole number",
    "bool_type": "needs true or false",
    "dict_type": "needs a table",
    "model_type": "needs a table",
    "model_attributes_type": "needs a table",
}
"""What pydantic says in its own words, by its kinds of errors."""

_BRANCHES = frozenset(
    {"int", "float", "str", "constrained-str", "function-after", "list", "one of them", "several", "a table"}
)


def _is_branch(part: str | int) -> bool:
    """Pydantic names the branch of a union in the path; a reader of the file has no use for it."""
    return isinstance(part, str) and part.partition("[")[0] in _BRANCHES


def _keys_beside(path: list[str | int]) -> list[str]:
    """Return the keys allowed where an unknown key stands, for a suggestion."""
    tables: dict[str, type[Table]] = {
        "parameters": ParameterTable, "constraints": ConstraintTable, "requires": RequiresTable,
        "options": OptionTable, "arguments": ArgumentTable, "launch": LaunchTable, "reference": ReferenceTable,
        "tolerance": ToleranceTable, "work": WorkTable, "timing": TimingTable, "sizes": SizeTable,
        "data": DataTable, "fields": DataTable, "sampler": SamplerTable, "turn": LaunchTable, "file": FileTable,
    }  # fmt: skip
    around = [part for part in path[:-1] if isinstance(part, str) and part in tables]
    table = tables[around[-1]] if around else StudyTable
    return [field.alias or name for name, field in table.model_fields.items()]


class Scope:
    """The names that may stand somewhere in a study; reads expressions there. Its errors are StudyErrors.

    `definitions` are the computed names, with the expressions that they stand for; those that name what may not stand
    here may not either, and a name that is known already keeps its meaning.
    """

    def __init__(
        self,
        known: Iterable[str],
        definitions: Mapping[str, Expression] | None = None,
        structs: Mapping[str, str] | None = None,
    ) -> None:
        self.known = frozenset(known)
        self.structs = structs or {}
        """Names that may stand for a type: the text of each struct."""
        self._all = definitions or {}
        self.definitions = {
            name: expression
            for name, expression in self._all.items()
            if name not in self.known and expression.names <= self.known
        }

    def with_names(self, names: Iterable[str]) -> Scope:
        """Return a scope of more names."""
        return Scope(self.known | set(names), self._all, self.structs)

    def require(self, name: str, where: str) -> None:
        """Raise StudyError for a name that may not stand here."""
        if name not in self.known:
            if name == GAP:
                raise StudyError(f"has a {GAP}: write what belongs there", where=where)
            raise StudyError(
                f"names {name!r}, which is no parameter, size, choice or device fact that may stand here"
                f"{did_you_mean(name, sorted(self.known))}",
                where=where,
                hint="known here: " + ", ".join(sorted(self.known)),
            )

    def expression(self, text: str | int | float, where: str) -> Expression:
        """Return an expression of known names only; computed ones are put in."""
        expression = Expression.parse(text, where=where)
        for name in sorted(expression.names - self.definitions.keys()):
            self.require(name, where)
        return expression.with_parts(self.definitions)

    def expressions(self, texts: Iterable[str | int | float], where: str) -> tuple[Expression, ...]:
        """Return several."""
        return tuple(self.expression(text, where) for text in texts)


def definitions(texts: Mapping[str, str | int | float], known: Iterable[str]) -> dict[str, Expression]:
    """Return the expressions of `[defines]`, each with those in it that it names. Raises StudyError for a circle."""
    own = {name: Expression.parse(text, where=f"defines.{name}") for name, text in texts.items()}
    apart = frozenset(known)
    needs = {name: (expression.names & own.keys()) - apart for name, expression in own.items()}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        circle = " <- ".join(error.args[1])
        raise StudyError(f"is computed from itself: {circle}", where=f"defines.{error.args[1][0]}") from None
    found: dict[str, Expression] = {}
    for name in order:
        found[name] = own[name].with_parts({other: found[other] for other in needs[name]})
    return found
