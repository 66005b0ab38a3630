"""Inlines the `#include`s of a kernel: the text that the compiler reads is what is hashed (standard library only).

Files are found as a C compiler finds them: `"file"` beside the including file, then, like `<file>`, in the folders of
the study's `-I` options. What cannot be followed without compiling (`#include MACRO`, `__has_include`, options that
include other files) is refused, so that all that the compiler reads is in the hash.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from os import path as paths
from typing import Any, NamedTuple

from autotune.errors import StudyError
from autotune.identity import file_name_fault, macro_fault, word_fault
from autotune.study.finding import too_large
from autotune.study.library import MAX_TEXT, File, is_file, line_mark, read_text

_MAX_DEPTH = 20
_MOST_TOLD = 20
"""How many missing files one message lists."""
_SPLICE = re.compile(r"(?:\\|\?\?/)[ \t\v\f\r]*\n")  # other blanks of Python are none for compilers
_HIDDEN = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)\b[ \t]*(.*)$", re.MULTILINE)
"""A directive in a text without comments: its word, and what follows it."""
_ANY_DIRECTIVE = re.compile(r"^[^\S\n]*(?:#|%:|\?\?=)[^\S\n]*(\w+)([^\n]*)", re.MULTILINE)
_FILE = re.compile(r'\s*(?:"([^"\n]+)"|<([^>\n]+)>)\s*')
_CHARS = r"(?:static\s+)?(?:const\s+)?char\b[^=;{}]{0,200}=\s*"
_HELD = re.compile(
    r"(?>\s+|/\*.*?\*/|//[^\n]*|\#[^\n]*)*+(?:(?P<raw>(?:[\w:*&\[\]\s]{1,200}=\s*)?R\"(?P<mark>\w*)\()"
    rf"|(?P<string>{_CHARS}\")|(?P<macro>(?:{_CHARS})?(?!__attribute__)[A-Za-z_]\w*[ \t]*\())",
    re.DOTALL,
)
"""The beginning of a file that C++ programs include as a string, or as the argument of a macro that makes a string."""
_FOREIGN = {
    "include_next": 'write #include "file"',
    "import": 'write #include "file", and a guard in the file',
    "embed": "write the data into the source",
}
_READING = re.compile(
    r"@|-i(?:nclude|macros|system|quote|dirafter|prefix|withprefix|sysroot|framework|vfsoverlay)|-I-"
    r"|--(?:include|imacros|sysroot|config)|-X|-fplugin|-fpass-plugin|-fmodule|-load|-B"
)


class _Line(NamedTuple):
    """A directive: its name and rest without comments, where it begins and ends in the text, its first line."""

    name: str
    rest: str
    start: int
    end: int
    line: int
    last: int


def inline(path: File, folders: Sequence[str] = (), text: str | None = None) -> str:
    """Return the text of a kernel with the text of each file it includes, directly or not, in its place.

    `#line` directives make compiler messages name the author's files. A file with `#pragma once`, by whatever path,
    counts only where the compiler meets it first. A file that includes itself within an `#if` is inserted once more, so
    that the compiler can end that. A missing file is an error unless the `#include` depends on an `#if`: then it
    becomes an `#error`, which the compiler meets or skips. `text` is used instead of the file's own text, if given.
    Raises StudyError, also for more than 4 MiB of text.
    """
    inliner = _Inliner(folders)
    whole = inliner.inline(path, (), text, conditional=False)
    inliner.require_all()
    return whole


def folders_of(table: Mapping[str, Any], study: File) -> list[str]:
    """Return the folders that the `-I` options of a study name, relative to the study's folder.

    Raises StudyError for an option that includes files that cannot be followed.
    """
    options = table.get("options")
    entries = [entry for entry in options if isinstance(entry, Mapping)] if isinstance(options, list) else []
    found = []
    for number, entry in enumerate(entries, 1):
        where = f"{study}: options.{number}.flag"
        flag = str(entry.get("flag", ""))
        for folder in _folders(option_words(flag, where), where):
            if "{" in folder or str(entry.get("when", "1")) != "1":
                raise StudyError(
                    "a folder of includes cannot depend on anything",
                    where=where,
                    hint="name it always, and choose between its files by #if in the kernel",
                )
            found.append(paths.join(paths.dirname(study), folder))
        _require_define(flag, re.sub(r"\{\w+\}", "x", flag), where)
    return found


def check_options(options: Iterable[str], where: str) -> None:
    """Raise StudyError if filled-in build options include files that no hash covers, or define an invalid name."""
    for option in options:
        if len(option.split()) > 1 or _READING.match(option):
            list(_folders(option_words(option, where), where))
        _require_define(option, option, where)


def _require_define(flag: str, option: str, where: str) -> None:
    """Raise StudyError for a `-D` that is not one word: headers and shells get its name and its value separately.

    `option` is the flag with its braces filled in.
    """
    words = option.split()
    if not any(word.startswith(("-D", "-U")) for word in words):
        return
    name, _, value = option[2:].partition("=")
    if words != [option]:
        hint = 'write one [[options]] for each, as flag = "-DNAME=VALUE"'
        raise StudyError(f"{flag!r:.60} is not a single -DNAME=VALUE", where=where, hint=hint)
    if fault := macro_fault(name):
        raise StudyError(f"{flag!r:.60}: {name!r:.60} {fault}", where=where, hint="choose another name")
    if fault := word_fault(value):
        raise StudyError(fault, where=where)


def option_words(option: str, where: str) -> list[str]:
    """Return the words of one build option, as a compiler's command line has them."""
    import shlex

    try:
        return shlex.split(option)
    except ValueError as error:
        raise StudyError(f"{option!r} cannot be read: {error}", where=where, hint="close the quotation") from None


def without_comments(text: str) -> str:
    """Return a C text with blanks for its comments, of the same length; continued lines are left as they are."""
    return _HIDDEN.sub(lambda found: " " * len(found[0]) if found[0].startswith("/") else found[0], text)


def defined_anyway(source: str) -> set[str]:
    """Return the macros that a C text defines whatever options the compiler gets.

    Such a macro is in no condition except an include guard, and not undefined at the end. `#undef P` and then
    `#define P 8` is one of them, unless the text before it uses the value given to the compiler.
    """
    found, reached, conditions = set[str](), set[str](), list[str]()
    asked, read = set[str](), 0  # the names whose values the text uses up to there
    text = without_comments(source).replace("\\\n", "  ")
    for match in DIRECTIVE.finditer(text):
        directive, rest = match.groups()
        name = re.split(r"\W", rest, maxsplit=1)[0]
        if directive in ("if", "ifdef", "ifndef"):
            conditions.append(name if directive == "ifndef" else "")
        elif directive == "endif":
            del conditions[-1:]
        elif directive == "undef":
            asked |= names_asked(text[read : match.start()])
            read = match.end()
            if name not in found and name in asked:
                reached.add(name)
            found.discard(name)
        elif directive == "define" and conditions[-1:] == [name]:
            if not rest[len(name) :].strip():  # an include guard: what follows it is defined anyway
                conditions[-1] = "#"
        elif directive == "define" and all(condition == "#" for condition in conditions):
            found.add(name)
    return found - reached


_NO_QUESTION = re.compile(
    r"^[ \t]*#[ \t]*(?:define|undef|ifdef|ifndef)[ \t]+\w+|\bdefined[ \t]*(?:\([ \t]*\w+[ \t]*\)|\w+)", re.MULTILINE
)


def names_asked(text: str) -> set[str]:
    """Return the names whose values a C text without comments uses, not only whether they are defined."""
    return set(re.findall(r"\b[A-Za-z_]\w*", _NO_QUESTION.sub("", text)))


class _Inliner:
    """Inserts files into each other, and counts the size of the result."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self._texts: dict[File, str] = {}
        self._size = 0
        self._once: dict[Hashable, str] = {}
        """For each file with `#pragma once`, the macro that says that it was read: only a compiler can tell which
        `#include` of it is met first."""
        self._plain: set[Hashable] = set()
        """Files whose `#pragma once` depends on no `#if`: within themselves they are not read again."""
        self._met: set[Hashable] = set()
        """The files of `_plain` that a compiler has read up to here, whatever options it gets."""
        self._missing: dict[str, tuple[str, str, str]] = {}
        """Missing files: where each is first included, where it was looked for, and how to put it beside the kernel."""

    def inline(self, path: File, above: tuple[Hashable, ...], text: str | None, *, conditional: bool) -> str:
        same = _identity(path)
        if same in above and not conditional:
            raise StudyError("includes itself", where=str(path), hint="break the circle of #include lines")
        if len(above) >= _MAX_DEPTH:
            what = f"is included over {_MAX_DEPTH} files deep"
            raise StudyError(what, where=str(path), hint="include it from a file nearer to the kernel")
        if text is None:
            text = self._texts[path] = self._texts.get(path) or read_text(path, code=True)
        self._count(len(text), path)
        if "\0" in text:
            raise StudyError("holds a NUL character", where=str(path), hint="save it as plain text")
        if held := _held(text):
            begin = " ".join((held["raw"] or held["macro"] or held["string"]).split())
            what = f"is {'the argument of a macro' if held['macro'] else 'a string'} of C++, not OpenCL C"
            end = f'){held["mark"]}"' if held["raw"] else ")" if held["macro"] else '"'
            escaped = r", and \n from the beginning of lines" if re.search(r"(?m)^[ \t]*\\n", text) else ""
            hint = f"remove {begin} from its beginning and {end} from its end{escaped}, in a copy"
            raise StudyError(what, where=str(path), hint=hint)
        pieces, done, depth = [], 0, 0
        for line in _directives(text, path):
            if line.name in ("if", "ifdef", "ifndef", "endif"):
                depth += -1 if line.name == "endif" else 1
            if above and line.name == "pragma" and line.rest.split()[:1] == ["once"]:
                once = self._once.setdefault(same, f"AUTOTUNE_ONCE_{len(self._once)}")
                self._plain |= {same} if depth == 0 else set()
                self._met |= {same} if depth == 0 and not conditional else set()
                pieces += [text[done : line.start], f"#define {once}", "\n" * (line.last - line.line)]
                done = line.end
            if line.name != "include":
                continue
            body = self._included(line, path, (*above, same), conditional=conditional or depth > 0)
            pieces += [text[done : line.start], f"{body}\n{line_mark(line.last + 1, path)}"]
            self._count(len(pieces[-1]) - len(body) + 60, path)
            done = line.end
        return "".join([*pieces, text[done:]])

    def require_all(self) -> None:
        """Raise StudyError, naming all missing files, if there are any."""
        if not self._missing:
            return
        first, *others = [repr(name) for name in self._missing]
        more = f"{', '.join(['', *others[: _MOST_TOLD - 1]])}" + (" ..." if len(others) >= _MOST_TOLD else "")
        where, looked, beside = next(iter(self._missing.values()))
        from autotune.study.access import folder_above  # reading a study does not need it

        lies = folder_above(next(iter(self._missing)), where.rpartition(":")[0])
        beside = beside.replace("copy it", "copy them") if others else beside
        cure = f"it lies below {lies}" if lies else f"{beside}name {'their' if others else 'its'} folder"
        raise StudyError(
            f"includes {first}{more}, which {'are' if others else 'is'} not found",
            where=where,
            hint=f'{looked}{cure}: -I {lies or "FOLDER"} of autotune new, [[options]] flag = "-IFOLDER" in a study',
        )

    def _included(self, line: _Line, path: File, above: tuple[Hashable, ...], *, conditional: bool) -> str:
        named = _FILE.fullmatch(line.rest)
        if named is None:
            what = f"#include{line.rest.rstrip()[:60]} cannot be followed"
            if conditional:
                return f"#error {what}"
            raise StudyError(what, where=f"{path}:{line.line}", hint='write #include "file"')
        name, folders = named[1] or named[2], self._folders
        places = [paths.dirname(path), *folders] if named[1] else folders
        found = next((file for place in places if is_file(file := paths.join(place, name))), None)
        if found is not None:
            return self._put(found, above, conditional=conditional)
        if fault := file_name_fault(name):
            raise StudyError(f"includes {name!r}, which cannot be looked for", where=f"{path}:{line.line}", hint=fault)
        looked = f"looked in {' and '.join(dict.fromkeys(place or '.' for place in places))}; " if places else ""
        if conditional:
            return f"#error {line.rest.strip()} is included here and was not found"
        beside = "copy it beside the kernel, or " if named[1] else "<> is not looked for beside the kernel: "
        self._missing.setdefault(name, (f"{path}:{line.line}", looked, beside))
        return ""

    def _put(self, path: File, above: tuple[Hashable, ...], *, conditional: bool) -> str:
        """Return the text for an `#include`; within the file itself, what a compiler would meet there."""
        same = _identity(path)
        if same in self._met or (same in above and same in self._plain):
            return ""
        if above.count(same) > 1:  # an #if that ends this would have done so before
            return f'#error "{paths.basename(path)}" is included again and again'
        body = self.inline(path, above, None, conditional=conditional).rstrip("\n")
        text = f"{line_mark(1, path)}\n{body}"
        return f"#ifndef {self._once[same]}\n{text}\n#endif" if same in self._once else text

    def _count(self, size: int, path: File) -> None:
        self._size += size
        if self._size > MAX_TEXT:
            raise too_large(path)


def _held(text: str) -> re.Match[str] | None:
    """Return the match of a text that begins as a C++ string or a macro's argument; None for OpenCL C."""
    held = _HELD.match(text)
    if held and held["string"] and re.match(r'(?:\\.|[^"\\\n])*"', text[held.end() :]):  # the string ends on its line
        return None if re.search(r"\b(__)?kernel\b", _HIDDEN.sub(" ", text)) else held
    if held and held["macro"]:  # a macro of the text itself may take OpenCL C
        own = re.search(rf"define[ \t]+{re.findall(r'[A-Za-z_][A-Za-z_0-9]*', held['macro'])[-1]}\b", text)
        return held if own is None and _is_one_call(text, held.end()) else None
    return held


def _is_one_call(text: str, at: int) -> bool:
    """Whether the bracket that is open at a place closes at the end of the text, with a kernel in it."""
    depth, plain = 1, without_comments(text).rstrip().removesuffix("#endif").rstrip("\n\t ;")
    for bracket in re.finditer(r"[()]", plain[at:]):
        depth += 1 if bracket[0] == "(" else -1
        if depth == 0:
            return at + bracket.end() == len(plain) and re.search(r"\b(__)?kernel\b", plain[at:]) is not None
    return False


def _identity(path: File) -> Hashable:
    """Return what is the same for all paths to a file, by which compilers tell files apart (not by their text)."""
    try:
        found = os.stat(path)
    except OSError:
        return os.fspath(path)
    return found.st_dev, found.st_ino


def _directives(text: str, path: File) -> Iterator[_Line]:
    """Yield the preprocessor's directives in order, as it sees them: with lines joined and comments blank."""
    splices = list(_SPLICE.finditer(text))
    joined = _SPLICE.sub("", text) if splices else text
    removed = [0, *accumulate(len(splice[0]) for splice in splices)]
    begins = [splice.start() - gone for splice, gone in zip(splices, removed, strict=False)]

    def original(position: int) -> int:
        if not splices:
            return position
        from bisect import bisect_right

        return position + removed[bisect_right(begins, position)]

    plain = without_comments(joined)
    counted, line = 0, 1
    for match in _ANY_DIRECTIVE.finditer(plain):
        start, end = original(match.start()), original(match.end())
        line += text.count("\n", counted, start)
        last = line + text.count("\n", start, end)
        counted = start
        if match[1] in _FOREIGN:
            raise StudyError(f"#{match[1]} cannot be followed", where=f"{path}:{line}", hint=_FOREIGN[match[1]])
        if re.search(r"__has_(include|embed)", match[2]):
            hint = "decide by a parameter or choice"
            raise StudyError("__has_include cannot be followed", where=f"{path}:{line}", hint=hint)
        yield _Line(match[1], match[2], start, end, line, last)


def _folders(words: Sequence[str], where: str) -> Iterator[str]:
    """Yield the folders after `-I`. Raises StudyError for an option that includes files in another way."""
    rest = iter(words)
    for word in rest:
        if _READING.match(word):
            raise StudyError(
                f"the option {word.partition('=')[0]!r:.60} adds files that cannot be followed",
                where=where,
                hint='write #include "file" into the kernel',
            )
        if word.startswith("-I"):
            yield word[2:] or next(rest, "")
