"""`autotune new`: a study to start from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from autotune import devices, text
from autotune.cli.compiled import Compiler, compiled
from autotune.cli.options import DeviceOption
from autotune.cli.output import say, write
from autotune.errors import AutotuneError, StudyError, UsageError
from autotune.identity import study_name_of
from autotune.reports import Inspector
from autotune.study import Sketch, candidates, defined_anyway, draft, inline, scanned, write_new


def new_study(
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL", help="An OpenCL C file.")],
    file: Annotated[
        Path | None, typer.Argument(metavar="STUDY", help="The file to write. Default: beside the kernel.")
    ] = None,
    entry: Annotated[
        str | None, typer.Option("--entry", metavar="NAME", help="The kernel to launch, if the file has several.")
    ] = None,
    define: Annotated[
        list[str] | None,
        typer.Option("--define", "-D", metavar="NAME[=V]", help="Define a macro that has no default. Repeatable."),
    ] = None,
    include: Annotated[
        list[Path] | None,
        typer.Option("--include", "-I", metavar="FOLDER", help="Look for included files here too. Repeatable."),
    ] = None,
    device: DeviceOption = None,
) -> None:
    """Draft a study from a kernel.

    The draft has the kernel's arguments, parameters with defaults and ranges around them, and a launch. The kernel is
    compiled once, which tells its arguments and what its macros stand for. Without a device only its text is read, and
    the draft is less certain. Shapes and launch come from the kernel's indices and their bounds. The file marks what
    you have to write as TODO, and says what is guessed; stderr lists both, except ranges and most sizes, which are
    always guesses. Until you write a reference, results are compared with those of the default configuration. No file
    is overwritten.

    \b
    Examples:
      autotune new blur.cl
      autotune new kernels/sgemm.cl mine.toml --entry sgemm
    """
    folders = _folders(include or [])
    source = _source(kernel, folders)  # reports an unreadable file or a folder before a name is made from it
    path = _target(kernel, file)
    if not source.strip():
        raise StudyError("the file is empty", where=str(kernel), hint="write kernel void name(...)")
    defined = _defined(define or [])
    _require_undefined(defined, source)
    options = tuple(f"-D{name}={value}" for name, value in defined.items())
    found = {**candidates(source), **defined}
    sketch = Sketch(study_name_of(path.stem, "study"), _relative(kernel, path), source, {}, {})
    sketch.typed = str(kernel)
    sketch.flags = [f"-I{os.path.relpath(Path(folder).resolve(), path.parent.resolve())}" for folder in folders]
    try:
        info = devices.find_device(device)
    except AutotuneError as error:
        if device is not None:
            raise
        say(f"no device here, so the arguments are guessed from the text: {error}")
        sketch.guessed, sketch.extensions = True, re.findall(r"\bcl_khr_\w+", source)
    if not sketch.guessed:
        words = ["autotune", "new", *map(str, filter(None, (kernel, file))), *(["--entry", entry] if entry else [])]
        words += [word for folder in folders for word in ("-I", folder)]
        asked = [name for name in found if name.isidentifier()]
        with Inspector(info) as inspector:
            told, standard = compiled(kernel, source, asked, Compiler(inspector, options, words))
        sketch.flags += standard
        sketch.signatures, sketch.macros, sketch.extensions = told.signatures, told.macros, info.extensions
        sketch.guessed = not told.signatures
    if sketch.guessed:
        sketch.signatures = scanned(source)
    write_new(path, draft(sketch, entry, found))
    write(str(path))
    for lines, what in ((sketch.gaps, "to be written (TODO)"), (sketch.guesses, "guessed, worth a look")):
        say(f"{text.count(len(lines), 'line')} {what}{':' if lines else ''}")
        for one in lines:
            say(f"  {path}: {one}")
    say(f"then: {text.command('check', str(path) if '/' in str(path) else f'./{path}')}")


def _folders(included: list[Path]) -> list[str]:
    for folder in included:
        if not os.path.isdir(folder):
            raise UsageError(f"{str(folder)!r} is not a folder", where="--include", hint="write -I FOLDER")
        if re.search(r"[\s'\"{}\\]", str(folder)):
            what = f"{str(folder)!r} has characters that compilers take for the end of an option"
            raise UsageError(what, where="--include", hint="give it another name, or a link to it")
    return [os.fspath(folder) for folder in included]


def _target(kernel: Path, file: Path | None) -> Path:
    """Return the file to write. Raises UsageError for the kernel itself, StudyError for a file that is there."""
    path = file or kernel.with_suffix(".toml")
    if path == kernel:
        what, hint = "is the kernel itself, and the study would overwrite it", "give the .cl file"
        raise UsageError(what, where=str(path), hint=f"{hint}, or name the study: autotune new KERNEL.cl STUDY.toml")
    if os.path.lexists(path):
        raise StudyError("exists already", where=str(path), hint="name another file")
    return path


def _require_undefined(names: Iterable[str], source: str) -> None:
    """Raise UsageError for a macro, `NAME` or `NAME(a,b)`, that the kernel defines whatever -D says."""
    own = defined_anyway(source)
    for name in (each.partition("(")[0] for each in names):
        if name in own:
            hint = f"leave it out, or write #ifndef {name} before that #define, and #endif after it"
            raise UsageError(f"{name}: the kernel defines it itself, so -D has no effect", where="--define", hint=hint)


def _defined(given: list[str]) -> dict[str, str]:
    """Return the given macros, `NAME` or `NAME(a,b)`, with their texts; without a text it is 1, as for compilers."""
    found = dict[str, str]()
    for each in given:
        parts = re.fullmatch(r"([A-Za-z_]\w*(?:\([\w,]*\))?)(?:=([^\s\"'\\{}]*))?", each)
        if parts is None:
            hint = "write -D WPT=4, without spaces, quotes and braces"
            raise UsageError(f"{each!r} is not a definition", where="--define", hint=hint)
        found[parts[1]] = "1" if parts[2] is None else parts[2]
    return found


def _source(kernel: Path, folders: Sequence[str]) -> str:
    """Return the text of a kernel with its includes. Raises StudyError, which for a missing file says what to type."""
    try:
        return inline(kernel, folders)
    except StudyError as error:
        if isinstance(error.__cause__, OSError) and error.where == str(kernel):
            error.hint = text.to_open(str(kernel), error.__cause__)
        raise


def _relative(kernel: Path, study: Path) -> str:
    """Return the kernel's path as the study names it: its name if beside the study, else the relative path."""
    if kernel.parent.resolve() == study.parent.resolve():
        return kernel.name
    return os.path.relpath(kernel.resolve(), study.parent.resolve())
