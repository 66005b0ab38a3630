"""The pydantic models of a study file's tables. study.py gives them meaning, and checks them against each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)

from autotune.identity import STUDY_NAME
from autotune.study.arguments import KINDS
from autotune.study.entries import Dimensions, Name, Sources, Text, Value, Values, WholeNumber, given, refusing


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


def _flag_fault(entry: str) -> str:
    return "" if re.match(r"\s*[-{]", entry) else 'needs a compiler\'s option, such as "-cl-mad-enable"'


class OptionTable(Table):
    """`[[options]]`: one build option."""

    flag: Annotated[StrictStr, refusing(_flag_fault)]
    when: Text = "1"


class FileTable(Table):
    """`{ file = ..., part = ..., type = ... }`: an array of a file beside the study."""

    file: Annotated[StrictStr, Field(min_length=1, max_length=1000)]
    part: StrictStr | None = None
    type: StrictStr | None = None


class SizeTable(FileTable):
    """`NAME = { file = ..., axis = ... }` of `[sizes]`: a size that is read from a file."""

    axis: Annotated[StrictInt, Field(ge=0, le=31)] | None = None


def _form(entry: Any) -> str:
    return "a table" if isinstance(entry, Mapping | FileTable) else "one of them"


WholeOrFile = Annotated[
    Annotated[WholeNumber, Tag("one of them")] | Annotated[SizeTable, Tag("a table")], Discriminator(_form)
]
File = Annotated[Annotated[StrictStr, Tag("one of them")] | Annotated[FileTable, Tag("a table")], Discriminator(_form)]


def _function_fault(entry: str) -> str:
    return "" if re.fullmatch(r"[^:]+\.py:[A-Za-z_]\w*", entry) else 'needs a file and its function, as "FILE.py:NAME"'


def _study_name_fault(entry: str) -> str:
    may = "needs only letters, digits, _, - and ., at most 64, the first not - or ."
    return "" if re.fullmatch(STUDY_NAME, entry) else may


Function = Annotated[StrictStr, refusing(_function_fault)]
"""`FILE.py:NAME`."""


class DataTable(Table):
    """`data = { ... }` of an input buffer: drawn, read from a file, made by Python, or computed."""

    distribution: Literal["uniform", "normal", "integers", "constant", "range", "permutation"] = "uniform"
    low: Text | None = None  # -1
    high: Text | None = None  # 1
    value: Text = 0
    seed: Annotated[StrictInt, Field(ge=0)] = 1
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
        used = {"uniform": {"low", "high"}, "integers": {"low", "high"}, "constant": {"value"}}
        if idle := sorted(stated & {"low", "high", "value"} - used.get(self.distribution, set())):
            cure = "leave it out" if idle != ["value"] else 'write distribution = "constant"'
            raise ValueError(f'{idle[0]} does not apply to distribution = "{self.distribution}": {cure}')
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
            raise ValueError(f'addressing = "{self.addressing}" needs normalized = true: OpenCL has it only for 0 to 1')
        return self


class ArgumentTable(Table):
    """`[arguments.NAME]`: a buffer (`shape`), an image, a sampler, a scalar (`value`) or local memory (`local`)."""

    type: StrictStr = ""
    shape: Annotated[list[Text], Field(min_length=1, max_length=6)] | None = None
    allocate: Annotated[list[Text], Field(min_length=1, max_length=6)] | None = None
    access: Literal["in", "out", "inout", "scratch", "zeroed"] | None = None
    data: DataTable | None = None
    constant: StrictBool | Annotated[StrictStr, Field(min_length=1)] = False
    image: Dimensions | None = None
    channels: Literal["R", "A", "RG", "RA", "RGBA", "BGRA", "ARGB", "INTENSITY", "LUMINANCE"] | None = None
    normalized: bool | None = None
    form: Literal["array", "buffer"] | None = None
    sampler: SamplerTable | None = None
    value: Annotated[Any, AfterValidator(given)] = None
    local: Text | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> ArgumentTable:
        if sum(getattr(self, kind.key) is not None for kind in KINDS) != 1:
            known = ", ".join(f"{kind.key} ({kind.kind})" for kind in KINDS)
            raise ValueError(f"needs exactly one of {known}")
        if (self.type == "") != (self.sampler is not None):
            raise ValueError("a sampler has no type" if self.type else "needs a type")
        stored = self.shape is not None or self.image is not None
        if not stored and (self.allocate or self.access or self.data):
            raise ValueError("allocate, access and data belong to buffers: add shape")
        if self.image is None and (self.channels is not None or self.normalized is not None):
            raise ValueError("channels and normalized belong to images: add image")
        if self.form is not None and len(self.image or ()) != {"array": 3, "buffer": 1}[self.form]:
            extents = 'image = ["N"]' if self.form == "buffer" else 'image = ["LAYERS", "HEIGHT", "WIDTH"]'
            raise ValueError(f'form = "{self.form}" belongs to images such as {extents}')
        if self.image is not None and self.allocate is not None:
            raise ValueError("allocate belongs to buffers: an image has no padding")
        if stored and self.access is None:
            what = "a buffer" if self.shape is not None else "an image"
            raise ValueError(f'{what} needs access = "in", "out", "inout", "scratch" or "zeroed"')
        if self.data is not None and self.access not in ("in", "inout"):
            raise ValueError(f'data does not apply to access = "{self.access}": write "inout" if the kernel adds to it')
        if self.shape is not None and self.allocate is not None and len(self.shape) != len(self.allocate):
            raise ValueError("shape and allocate need equally many dimensions")
        if self.constant and self.shape is None:
            raise ValueError("constant belongs to buffers: add shape")
        if self.constant and self.access != "in":
            raise ValueError('constant memory is read only: access = "in"')
        return self


class LaunchTable(Table):
    """`[[launch]]`: one kernel launch, or a loop: of itself, or of the launches of its `turn`."""

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


REFERENCES = (
    'numpy = { OUT = "..." }, kernel = "FILE.cl", python = "FILE.py:NAME", file = { OUT = "FILE.npy" }, '
    "configuration = { PARAMETER = VALUE }"
)


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
            raise ValueError(f"needs exactly one of {REFERENCES}")
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

    name: Annotated[StrictStr, refusing(_study_name_fault)]
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
