"""Checks that a plan's arguments fit its kernels, argument by argument, as the compiler describes them.

OpenCL notices a wrong count, a pointer for a number, and a number of another size. It does not notice an `int` where
the plan gives a `float`: the kernel then computes with wrong bits. Drivers that do not describe arguments are trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import cast

import numpy as np

from autotune.bench.kernels import ask
from autotune.bench.report import Fault
from autotune.devices import BackendError, Guest, KernelArgument, Session
from autotune.errors import StudyError
from autotune.model import Outcome
from autotune.study import (
    Argument,
    Buffer,
    Image,
    Launch,
    Local,
    Plan,
    Sampler,
    Scalar,
    is_struct,
    numpy_type,
    offsets,
    struct_bodies,
    struct_name,
    without_comments,
)
from autotune.text import did_you_mean

_C_NAMES = {
    "unsigned int": "uint", "unsigned": "uint", "unsigned char": "uchar", "unsigned short": "ushort",
    "unsigned long": "ulong", "signed char": "char", "size_t": "ulong", "ptrdiff_t": "long",
}  # fmt: skip
_BYTES = ("void", "char", "uchar")
_MAX_REORDERED = 6
"""So many arguments are tried in every order."""


def check_signatures(opened: Session | Guest, plan: Plan, *, placed: bool = True) -> list[str]:
    """Return hints at what may be wrong, to be shown if the result is wrong. Raises Fault for what is certainly wrong.

    `placed`: buffers must be in the address space that the study says; a reference's kernel may use another.
    """
    if not hasattr(opened, "signatures"):  # a program's own queue
        return []
    session = cast("Session", opened)
    try:
        known = session.signatures(plan.source, plan.options)
    except BackendError:  # the real build will report it
        return []
    hints: list[str] = []
    for number, launch in enumerate(plan.launches, 1):
        told = known.get(launch.entry)
        if told is None:
            continue
        _require_count(launch, number, told)
        for position, (name, taken) in enumerate(zip(launch.arguments, told, strict=True), 1):
            if said := _mismatch(plan.arguments[name], taken):
                for order in _orders(plan, {launch.entry: told}):
                    raise Fault(Outcome.COMPILE_ERROR, order)
                what, cure = said
                if _fit_in_another_order(plan, launch, told):
                    cure = f"name them in the kernel's order: {', '.join(one.name for one in told)}"
                label = name if name == taken.name else f"{name} (the kernel's {taken.name})"
                cure = f": {cure}" if cure else ""
                raise Fault(Outcome.COMPILE_ERROR, f"{launch.entry}: argument {position}, {label}, {what}{cure}")
        hints += _hints(plan, launch, told)
    hints += _orders(plan, known)
    spaces = _spaces(plan, known) if placed else ()
    for problem in (*spaces, *_layouts(session, plan, known)):
        raise Fault(Outcome.COMPILE_ERROR, problem)
    return [*hints, *_unwritable(plan, known), *_channels(plan, known)]


def _require_count(launch: Launch, number: int, told: Sequence[KernelArgument]) -> None:
    given = launch.arguments
    if len(told) != len(given):
        takes = f"{len(told)} argument{'s' * (len(told) != 1)} ({', '.join(one.name for one in told)})"
        what = f"{launch.entry} takes {takes}, launch {number} gives {len(given)} ({', '.join(given)})"
        raise Fault(Outcome.COMPILE_ERROR, what)


def _fit_in_another_order(plan: Plan, launch: Launch, told: Sequence[KernelArgument]) -> bool:
    """Say whether the arguments that do not fit, a few, would each fit in the place of another."""
    pairs = zip(launch.arguments, told, strict=True)
    wrong = [(plan.arguments[name], taken) for name, taken in pairs if _mismatch(plan.arguments[name], taken)]
    if not 2 <= len(wrong) <= _MAX_REORDERED:
        return False
    fits = [[_mismatch(given, taken) is None for given, _ in wrong] for _, taken in wrong]
    orders = permutations(range(len(wrong)))
    return any(all(row[place] for row, place in zip(fits, order, strict=True)) for order in orders)


def _mismatch(given: Argument, taken: KernelArgument) -> tuple[str, str] | None:
    """Return what is wrong between a study's argument and the kernel's, and its cure, or None if nothing is."""
    kind, place = _declared(taken), f"[arguments.{given.name}]"
    ours = f"{given.kind} of {struct_name(given.type)}" if not isinstance(given, Sampler) else given.kind
    both = f"is `{kind}` in the kernel and {ours} in the study"
    if taken.type_name == "sampler_t":
        return None if isinstance(given, Sampler) else (both, f'write sampler = {{ filter = "nearest" }} in {place}')
    if taken.type_name.startswith("image") and taken.type_name.endswith("_t"):
        return _image_mismatch(given, taken, both, place)
    if taken.address in ("global", "constant"):
        if isinstance(given, Buffer) and not isinstance(given, Image):
            return None
        return both, f'a pointer takes shape = ["..."] and an access in {place}'
    if taken.address == "local":
        return None if isinstance(given, Local) else (both, f'a local pointer takes local = "..." in {place}')
    if not isinstance(given, Scalar):
        return both, f'write value = "..." and type = "{_plain(taken.type_name)}" in {place}'
    return _scalar_mismatch(given, taken, both, place)


def _image_mismatch(given: Argument, taken: KernelArgument, both: str, place: str) -> tuple[str, str] | None:
    found = re.fullmatch(r"image([123])d(?:_((?<=2d_)array|(?<=1d_)buffer))?_t", taken.type_name)
    if found is None:
        return both, "such images are not supported: let the kernel take an image2d_t or a buffer"
    form, dimensions = found[2] or "", int(found[1]) + (found[2] == "array")
    said = f' and form = "{form}"' if form else ""
    if not isinstance(given, Image):
        return both, f"write image = [...]{said} in {place}"
    if len(given.shape) != dimensions:
        return f"{both} of {len(given.shape)} dimensions", f"write image = [...] with {dimensions}{said} in {place}"
    if given.form != form:
        cure = f'write form = "{form}" in {place}' if form else f"leave form out of {place}"
        return f"{both}, {given.called}_t", cure
    wrong = {"read_only": given.writes, "write_only": given.reads}.get(taken.access, False)
    return (f'{both}, with access = "{given.access}"', "make both the same") if wrong else None


def _scalar_mismatch(given: Scalar, taken: KernelArgument, both: str, place: str) -> tuple[str, str] | None:
    wanted = _plain(taken.type_name)
    cure = f'write type = "{wanted}" in {place}'
    try:
        theirs = numpy_type(wanted)
    except StudyError:  # a typedef, whose meaning is not known
        return None
    if is_struct(given.type):
        return both, cure
    ours = numpy_type(given.type)
    alike = ours[0].itemsize == theirs[0].itemsize and (ours[0].kind == "f") == (theirs[0].kind == "f")
    same_width = given.type.lstrip("abcdefghijklmnopqrstuvwxyz") == wanted.lstrip("abcdefghijklmnopqrstuvwxyz")
    if alike and same_width:  # int and uint are the same bits
        return None
    return both, f'{cure}, with value = "{given.name}" if it is a size' if given.type == "int" else cure


def _hints(plan: Plan, launch: Launch, told: Sequence[KernelArgument]) -> Iterator[str]:
    """Yield a hint for each pointer to other elements than the study has, which need not be wrong."""
    for name, taken in zip(launch.arguments, told, strict=True):
        given, element = plan.arguments[name], _plain(taken.type_name.removesuffix("*"))
        if not isinstance(given, Buffer | Local) or isinstance(given, Image) or element in _BYTES:
            continue
        try:
            theirs = numpy_type(element)[0]
        except StudyError:
            continue
        ours, width = numpy_type(given.type)
        short = element.endswith("3") and width < 4  # `float3 *` over floats, of which each takes four, not three
        if is_struct(given.type) or ours != theirs or short:
            yield f"{launch.entry} takes {name} as `{_declared(taken)}`, in the study it is {struct_name(given.type)}"


def _orders(plan: Plan, known: Mapping[str, Sequence[KernelArgument]]) -> Iterator[str]:
    """Yield a line for each kernel whose launches all give its arguments in a wrong order.

    One launch in the right order is enough, since the turns of a loop may swap buffers.
    """
    for entry, told in known.items():
        names = [taken.name for taken in told]
        given = [list(launch.arguments) for launch in plan.launches if launch.entry == entry]
        if given and names not in given and sorted(names) == sorted(given[0]):
            yield f"{entry} takes its arguments in the order {', '.join(names)}"


def _spaces(plan: Plan, known: Mapping[str, Sequence[KernelArgument]]) -> Iterator[str]:
    """Yield a line for each input that is in constant memory only for the kernels, or only for the study.

    A buffer that other launches write cannot be constant in a study. If the source has the word `constant`, another
    configuration may take an input as constant that this one does not.
    """
    written = re.search(r"\b(__)?constant\b", without_comments(plan.source) + " ".join(plan.options)) is not None
    for given in plan.buffers:
        spaces = {
            told.address: f"{entry} takes {name} as `{_declared(told)}`"
            for entry, name, told in _taken(plan, known)
            if name == given.name
        }
        place = f"[arguments.{given.name}]"
        if "constant" in spaces and given.access == "in" and not given.constant:
            cure = f"write constant = true in {place}, or a condition if only some configurations need it"
            yield f"{spaces['constant']}, which must fit into constant memory: {cure}"
        if "global" in spaces and given.constant and not written:
            yield f"{spaces['global']}, which is not in constant memory: leave constant out in {place}"


def _taken(plan: Plan, known: Mapping[str, Sequence[KernelArgument]]) -> Iterator[tuple[str, str, KernelArgument]]:
    """Yield the entry of a launch, the name of an argument that it gives, and how the kernel takes that argument."""
    for launch in plan.launches:
        for name, told in zip(launch.arguments, known.get(launch.entry, ()), strict=False):
            yield launch.entry, name, told


def _unwritable(plan: Plan, known: Mapping[str, Sequence[KernelArgument]]) -> Iterator[str]:
    """Yield a line for each output that every kernel takes as const."""
    for name in plan.outputs:
        taken = [told for _, given, told in _taken(plan, known) if given == name]
        if taken and all(told.const and told.address == "global" for told in taken):
            yield f"{name} is an output, and const in the kernel"


def _channels(plan: Plan, known: Mapping[str, Sequence[KernelArgument]]) -> Iterator[str]:
    """Yield a line for each image whose name in the kernel is read or written as another type of channel.

    The result is then undefined, and no compiler says so.
    """
    calls = re.findall(r"\b((?:read|write)_image)(f|h|ui|i)\s*\(\s*(\w+)", without_comments(plan.source))
    for entry, name, told in _taken(plan, known):
        given = plan.arguments[name]
        if not isinstance(given, Image):
            continue
        kind = numpy_type(given.channel)[0].kind
        fitting = ("f", "h") if kind == "f" or given.normalized else ("i",) if kind == "i" else ("ui",)
        called = {(call, suffix) for call, suffix, image in calls if image == told.name}
        for call in sorted({call for call, _ in called} - {call for call, suffix in called if suffix in fitting}):
            wrong = min(suffix for one, suffix in called if one == call)
            cure = f"write {call}{fitting[0]}"
            if kind != "f" and wrong in "fh" and given.channel not in ("int", "uint"):
                cure += f", or normalized = true in [arguments.{name}]"
            yield f"{entry} calls {call}{wrong} for {name}, an image of {given.channel}: {cure}"


# -- structs --------------------------------------------------------------------------------------


def _layouts(session: Session, plan: Plan, known: Mapping[str, Sequence[KernelArgument]]) -> Iterator[str]:
    """Yield a line for each struct whose layout by the compiler differs from the study's members."""
    pairs = {
        (told.type_name.removesuffix("*").strip(), plan.arguments[name].type)
        for _, name, told in _taken(plan, known)
        if is_struct(plan.arguments[name].type)
    }
    for theirs, ours in sorted(pairs):
        found = _measured(session, plan, theirs, list(offsets(ours)))
        if found is None:
            bare = _measured(session, plan, theirs, [])
            if bare is None:  # a type name that cannot be used in source
                continue
            yield _members_missing(session, plan, theirs, ours)
            return
        name, dtype = struct_name(ours), numpy_type(ours)[0]
        size, *places = found
        for number, (member, ours_at) in enumerate(offsets(ours).items()):
            theirs_at, takes, has = places[2 * number], places[2 * number + 1], dtype[member].itemsize
            if ours_at != theirs_at:
                what = f"structs.{name}: {member} is at byte {theirs_at} in the kernel, at {ours_at} in the study"
                yield f'{what}: list members in the kernel\'s order, after "packed" if the kernel has it'
            if takes != has:
                yield f"structs.{name}: {member} takes {takes} bytes in the kernel, {has} in the study"
        if size != dtype.itemsize:
            what = f"structs.{name}: takes {size} bytes in the kernel, {dtype.itemsize} in the study"
            more = f'write the members that are missing, or "aligned({size & -size})" before them'
            yield f"{what}: {more}" if size > dtype.itemsize else f'{what}: write "packed" before its members'


def _members_missing(session: Session, plan: Plan, theirs: str, ours: str) -> str:
    lacks = [name for name in offsets(ours) if _measured(session, plan, theirs, [name]) is None]
    members = [re.sub(r"\[.*", "", one).split()[-1] for one in struct_bodies(plan.source).get(theirs, [])]
    close = did_you_mean(lacks[0], members) if lacks else ""
    return f"structs.{struct_name(ours)}: the kernel's {theirs} has no member {', '.join(lacks)}{close}"


def _measured(session: Session, plan: Plan, name: str, members: Sequence[str]) -> list[int] | None:
    """Return the size of a type, and the offset and size of each member, in bytes as the device tells them.

    None if that does not compile.
    """
    asked = [f"sizeof({name})"]
    for one in members:
        asked.append(f"(ulong)((private char *)&autotune_one.{one} - (private char *)&autotune_one)")
        asked.append(f"sizeof(autotune_one.{one})")
    lines = "".join(f"    out[{n}] = {text};\n" for n, text in enumerate(asked))
    source = f"{plan.source}\nkernel void autotune_layout(global ulong *out)\n{{\n    {name} autotune_one;\n{lines}}}\n"
    found = np.zeros(len(asked), np.uint64)
    try:
        ask(session, source, plan.options, "autotune_layout", found)
    except BackendError:
        return None
    return [int(number) for number in found]


def _plain(type_name: str) -> str:
    name = type_name.strip()
    return _C_NAMES.get(name, name)


def _declared(taken: KernelArgument) -> str:
    """Return a kernel's argument about as its author wrote it."""
    space = f"{taken.address} " if taken.type_name.endswith("*") and taken.address != "private" else ""
    const = "const " if taken.const and not space.startswith("constant") else ""
    access = f"{taken.access} " if taken.access else ""
    kind = taken.type_name
    return f"{space}{const}{access}{kind[:-1] + ' *' if kind.endswith('*') else kind}"
