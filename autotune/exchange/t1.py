"""A tuning problem as the AutoTuningAssociation's input schema (T1) describes it, as a study of ours.

What a study cannot express, or what the description does not say, is listed line by line; the study then has a gap
marked TODO.

The schema: https://github.com/odgaard/TuningSchema. Published files go beyond it (`Default`, `GridDivX`, `ProblemSize`,
sizes that are expressions), as Kernel Tuner reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from autotune.errors import UsageError, placed
from autotune.exchange.document import listed, table
from autotune.exchange.t1_space import AXES, Space
from autotune.identity import name_fault, study_name_of
from autotune.text import line

MOST_BYTES = 2**22
_GAP = "TODO"

_MOST = 1e300
"""A whole number below it, of any length, can be a float too."""

_TYPES = {
    "bool": "uchar", "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int",
    "uint32": "uint", "int64": "long", "uint64": "ulong", "int": "int", "uint": "uint", "float": "float",
    "half": "half", "double": "double", "float32": "float", "float64": "double",
}  # fmt: skip
_VECTOR = re.compile(r"(half|float|double)(2|4|8|16)")
_ACCESS = {"ReadOnly": "in", "WriteOnly": "out", "ReadWrite": "inout"}


@dataclass
class Imported:
    """A study's tables in the order of a study file, and what was not carried over, one line each."""

    tables: dict[str, Any]
    lost: list[str] = field(default_factory=list)


def read_t1(data: bytes, where: str) -> Imported:
    """Return the study that a description says. Raises UsageError at `where` if it is no such description."""
    if len(data) > MOST_BYTES:
        raise UsageError(f"is larger than {MOST_BYTES >> 20} MiB", where=where)
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        what = "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON: {error}"
        hint = "give the T1 description of a kernel; a study needs no import: autotune check takes it"
        raise UsageError(line(what)[:200], where=where, hint=hint) from None
    with placed(where, UsageError):
        return _Description(table(document, "the file")).study()


class _Description:
    def __init__(self, document: Mapping[str, Any]) -> None:
        if "ConfigurationSpace" not in document or "KernelSpecification" not in document:
            what = "has no ConfigurationSpace and KernelSpecification: it is no T1 description"
            raise UsageError(what, hint="autotune import takes files of results")
        self._document = document
        space = table(document["ConfigurationSpace"], "ConfigurationSpace")
        self._kernel = table(document["KernelSpecification"], "KernelSpecification")
        self._lost: list[str] = []
        self._space = Space(space, self._kernel.get("ProblemSize", []), self._lose)

    def study(self) -> Imported:
        """Return the tables."""
        parameters = self._space.parameters()
        arguments, names, outputs = self._arguments()
        found = {
            "name": self._name(),
            "about": "imported from a T1 description",
            "kernel": self._kernel_file(),
            "sizes": self._space.sizes,
            "parameters": parameters,
            "constraints": self._space.constraints(),
            "options": self._options(),
            "arguments": arguments,
            "launch": [self._launch(names)],
            "reference": {"numpy": dict.fromkeys(outputs or [_GAP], _GAP)},
            "tolerance": self._tolerance(),
        }
        self._lose(*(f"reference.numpy.{name}: the file has no reference: write what {name} holds" for name in outputs))
        if not outputs:
            self._lose('reference: no argument is written: give one access = "out", and write what it holds')
        self._rest()
        return Imported({name: part for name, part in found.items() if part}, self._lost)

    def _lose(self, *lines: str) -> None:
        self._lost += map(line, lines)

    def _name(self) -> str:
        general = table(self._document.get("General", {}), "General")
        named = general.get("BenchmarkName") or self._kernel.get("BenchmarkName") or self._kernel.get("KernelName")
        return study_name_of(str(named or ""), "imported")

    def _kernel_file(self) -> str:
        language, name = str(self._kernel.get("Language", "")), str(self._kernel.get("KernelFile", ""))
        path = PurePosixPath(name or "kernel.cl")
        if language != "OpenCL":
            port = f"{path.name.partition('.')[0] or 'kernel'}.cl"
            self._lose(f"KernelFile {name}: is {language}: port it to OpenCL C and save it as {port}")
            return port
        if path.is_absolute() or ".." in path.parts:
            self._lose(f"KernelFile {name}: lies outside the file's folder: put {path.name} beside the study")
            return path.name
        return str(path)

    def _options(self) -> list[dict[str, str]]:
        options = self._kernel.get("CompilerOptions") or []
        found = []
        for option in filter(None, map(str, listed(options, "CompilerOptions"))):  # KTT's own files have an empty one
            if re.fullmatch(r"-cl-[\w=.-]+|-D\w+(=\w+)?|-w|-Werror", option) and not option.startswith("-cl-std=C++"):
                found.append({"flag": option})
            else:
                self._lose(f"CompilerOptions: {option} is none of OpenCL's")
        return found

    def _launch(self, names: Sequence[str]) -> dict[str, Any]:
        entry = str(self._kernel.get("KernelName", ""))
        if fault := name_fault(entry):
            raise UsageError(line(fault), where="KernelSpecification.KernelName")
        local = self._sized("LocalSize")
        grouped = any(self._kernel.get(f"GridDiv{axis}") for axis in AXES) and bool(self._space.sizes)
        if grouped:
            whole = self._grid(local)
        else:
            whole = self._sized("GlobalSize")
            if str(self._kernel.get("GlobalSizeType", "OpenCL")) == "CUDA":  # it counts groups
                whole = [f"({count}) * ({one})" for count, one in zip(whole, [*local, "1", "1"], strict=False)]
        if not whole:
            self._lose(f"launch.1.global: the file does not say: write the work-items, in place of {_GAP}")
            whole = [_GAP]
        whole, padded = ([*each, "1", "1", "1"][:3] for each in (whole, local))
        count = 3
        while count > 1 and padded[count - 1] == "1" and self._is_one(whole[count - 1]):
            count -= 1
        found: dict[str, Any] = {"entry": entry, "global": whole[:count]}
        if local:
            found["local"] = padded[:count]
        return {**found, "arguments": list(names)}

    def _is_one(self, extent: str) -> bool:
        return extent == "1" or self._space.sizes.get(extent) == 1

    def _sized(self, name: str) -> list[str]:
        given = table(self._kernel.get(name, {}), name)
        found = []
        for axis in AXES:
            if axis not in given:
                break
            spelt = self._space.expression(given[axis], f"{name}.{axis}")
            if spelt is None:
                return []
            found.append(spelt)
        return found

    def _grid(self, local: Sequence[str]) -> list[str]:
        """Return the work-items as Kernel Tuner counts them: groups are the size over the divisors, rounded up."""
        if self._kernel.get("GlobalSize"):
            self._lose("GlobalSize: ProblemSize and GridDiv are followed instead, as Kernel Tuner does")
        found = []
        for axis, size, one in zip(AXES, self._space.sizes, [*local, "1", "1", "1"], strict=False):
            divisors = [str(part) for part in listed(self._kernel.get(f"GridDiv{axis}") or [], f"GridDiv{axis}")]
            spelt = [self._space.expression(part, f"GridDiv{axis}") for part in divisors]
            if any(part is None for part in spelt):
                return []
            product = " * ".join(_factor(str(part)) for part in spelt)
            groups = f"ceil_div({size}, {product})" if product else size
            found.append(groups if one == "1" else f"{groups} * {_factor(one)}")
        return found

    def _arguments(self) -> tuple[dict[str, Any], list[str], list[str]]:
        """Return the tables of the arguments, their names in order, and the outputs."""
        tables: dict[str, Any] = {}
        outputs = []
        for number, entry in enumerate(listed(self._kernel.get("Arguments", []), "Arguments"), 1):
            entry = table(entry, f"Arguments.{number}")
            name = entry.get("Name") or f"argument_{number}"
            if fault := name_fault(name):
                raise UsageError(line(fault), where=f"Arguments.{number}.Name")
            if name in tables or name in self._space.values or name in self._space.sizes:
                raise UsageError(f"{name!r} names two things", where=f"Arguments.{number}")
            tables[name] = self._argument(name, entry)
            if tables[name].get("access") in ("out", "inout"):
                outputs.append(name)
        if not tables:
            self._lose("arguments: the file has none: write those of the kernel")
        return tables, list(tables), outputs

    def _argument(self, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        kind = str(entry.get("Type", ""))
        type_ = _TYPES.get(kind) or (kind if _VECTOR.fullmatch(kind) else _GAP)
        if type_ == _GAP:
            self._lose(f"arguments.{name}.type: {kind!r} is not a type that a study knows: write OpenCL's or a struct")
        memory, fill = str(entry.get("MemoryType", "")), entry.get("FillValue")
        if memory == "Scalar":
            if not _is_number(fill):
                self._lose(f"arguments.{name}.value: the file has none")
            return {"type": type_, "value": fill if _is_number(fill) else _GAP}
        size = self._space.expression(entry.get("Size", ""), f"arguments.{name}: Size") or _GAP
        if memory == "Local":
            return {"type": type_, "local": size}
        if memory != "Vector":
            self._lose(f"arguments.{name}: MemoryType {memory}: is taken for a buffer")
        access = _ACCESS.get(str(entry.get("AccessType")), "inout")
        found: dict[str, Any] = {"type": type_, "shape": [size], "access": access}
        data = None if access == "out" else self._data(name, entry)
        return found if data is None else {**found, "data": data}

    def _data(self, name: str, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        fill, value = str(entry.get("FillType", "Random")), entry.get("FillValue", 1.0)
        if fill == "Constant" and _is_number(value):
            return {"distribution": "constant", "value": value}
        if fill == "Random" and _is_number(value):
            seed = entry.get("RandomSeed", 1)
            given = {"low": 0.0, "high": value}
            return {**given, "seed": seed} if type(seed) is int and 0 <= seed < 2**62 and seed != 1 else given
        self._lose(
            f"arguments.{name}.data: {fill} {entry.get('DataSource', '')} is not carried: write data = {{ ... }}"
        )
        return None

    def _tolerance(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for entry in listed(self._kernel.get("ReferenceArguments", []), "ReferenceArguments"):
            entry = table(entry, "ReferenceArguments")
            threshold = entry.get("ValidationThreshold")
            key = "relative" if entry.get("ValidationMethod") == "SideBySideRelativeComparison" else "absolute"
            if isinstance(threshold, int | float) and _is_number(threshold) and threshold >= 0:
                found[key] = max(threshold, found.get(key, 0))
            self._lose(f"ReferenceArguments: {entry.get('Name', '?')} of {entry.get('FillType', '?')} is not carried")
        if not found:
            self._lose("tolerance: the file has none: relative 1e-5, absolute 1e-5 is written")
            return {"relative": 1e-5, "absolute": 1e-5}
        return found

    def _rest(self) -> None:
        """List what else the file contains."""
        if self._kernel.get("SharedMemory"):
            self._lose(f'SharedMemory: {self._kernel["SharedMemory"]!r:.40}: write an argument with local = "..."')
        for name in ("Device", "Misc", "SimulationInput", "Profiling"):
            if self._kernel.get(name):
                self._lose(f"{name}: is not carried")
        for name in self._document:
            if name not in ("General", "ConfigurationSpace", "KernelSpecification"):
                self._lose(f"{name}: is not carried")


def _factor(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST
