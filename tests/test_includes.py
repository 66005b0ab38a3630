"""What the compiler reads is what is hashed: includes are inserted, and what cannot be followed is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import StudyError
from autotune.study import includes, library
from autotune.study.drafting.preprocessing import preprocessed
from autotune.study.includes import inline


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "fac.h").write_text("#define FAC 3\n")
    (tmp_path / "own.h").write_text("#define OWN 1\n")
    return tmp_path


def text_of(kernel: str, *folders: str) -> str:
    Path("k.cl").write_text(kernel)
    return inline("k.cl", folders)


def test_angles_are_found_through_the_folders_only(folder: Path) -> None:
    assert text_of("int a;\n#include <fac.h>\nint b;\n", "inc") == (
        'int a;\n#line 1 "fac.h"\n#define FAC 3\n#line 3 "k.cl"\nint b;\n'
    )
    with pytest.raises(
        StudyError, match=r"^k\.cl:1: includes 'own\.h', which is not there; looked in inc; it lies below \.: -I \. of"
    ):
        text_of("#include <own.h>\n", "inc")
    with pytest.raises(StudyError, match=r"looked in \. and inc; copy it beside the kernel, or name its folder"):
        text_of('#include "none.h"\n', "inc")


def test_a_folder_around_a_kernel_in_which_an_include_lies_is_named(folder: Path) -> None:
    (folder / "src" / "cl").mkdir(parents=True)
    kernel = folder / "src" / "cl" / "k.cl"
    around = {"#include <k.cl>": "src/cl", '#include "inc/fac.h"': r"\.", '#include "/none.h"': "FOLDER"}
    for text, lies in around.items():
        kernel.write_text(text)
        with pytest.raises(StudyError, match=rf"not there;.*(below|name its folder).*: -I {lies} of autotune new"):
            inline("src/cl/k.cl")


def test_quotes_look_beside_the_file_first(folder: Path) -> None:
    (folder / "inc" / "own.h").write_text("#define OWN 2\n")
    assert "OWN 1" in text_of('#include "own.h"\n', "inc")
    (folder / "inc" / "outer.h").write_text('#include "own.h"\n')
    assert "OWN 2" in text_of('#include "outer.h"\n', "inc")


@pytest.mark.parametrize(
    "kernel",
    [
        '  #  include "own.h"',
        '/* a */ #include /* b */ "own.h" // c',
        '/*\n*/ #include "own.h"',
        '#inc\\\nlude "own.h"',
        '#include \\\n"own.h"',
        '%:include "own.h"',
        '??=include "own.h"',
        'int a;\r#include "own.h"',
        '"a \\" /*"\n#include "own.h"\n"*/"',
        '\'"\'\n#include "own.h"',
        '\u00a0#include "own.h"',
    ],
)
def test_an_include_is_seen_as_the_preprocessor_sees_it(folder: Path, kernel: str) -> None:
    found = text_of(f"{kernel}\nint last;\n")
    assert "#define OWN 1" in found
    assert "include" not in found.replace("\\\n", "")


@pytest.mark.parametrize("kernel", ['// #include "no.h"', '/*\n#include "no.h"\n*/', '// a \\\n#include "no.h"'])
def test_what_stands_in_a_comment_is_no_include(folder: Path, kernel: str) -> None:
    assert text_of(kernel) == kernel


def test_lines_are_right_after_an_include_of_several_lines(folder: Path) -> None:
    found = text_of('int a;\n/*\n*/ #include "own.h" /*\n*/\nint line_5;\n')
    assert found.endswith('#line 5 "k.cl"\nint line_5;\n')


def test_a_missing_file_is_left_to_the_compiler_where_an_if_decides(folder: Path) -> None:
    found = text_of('#ifndef __OPENCL_VERSION__\n#include <stdint.h>\n#endif\n#include "own.h"\n')
    assert found.startswith("#ifndef __OPENCL_VERSION__\n#error <stdint.h> is included here and is not there\n")
    assert text_of("#if A\n#else\n#include M2S(A/x.h)\n#endif\n") == (
        '#if A\n#else\n#error #include M2S(A/x.h) cannot be followed\n#line 4 "k.cl"\n#endif\n'
    )
    with pytest.raises(StudyError, match=r"k\.cl:4: includes 'no\.h'"):
        text_of('#if 1\n#include "own.h"\n#endif\n#include "no.h"\n')


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ('#define H "own.h"\n#include H\n', r"k\.cl:2: #include H cannot be followed; write #include \"file\""),
        ('#if __has_include("own.h")\n#endif\n', r"k\.cl:1: __has_include cannot be followed"),
        ('\n#include_next "own.h"\n', r"k\.cl:2: #include_next cannot be followed"),
        ('#embed "own.h"\n', r"k\.cl:1: #embed cannot be followed"),
        ('#include "k.cl"\n', "k.cl: includes itself"),
        ("int a\0;\n", "k.cl: holds a NUL character"),
        (
            '// A file of\n/* a program */\nR"src(\nkernel void f() {}\n)src"\n',
            r"k\.cl: is a string of C\+\+, not OpenCL C",
        ),
        (
            '/* a */ static const char *f_cl = "\nkernel void f() {}\n";\n',
            r"take static const char \*f_cl = \" from",
        ),
        ('const char *f_cl =\n  R"CL(\nkernel void f() {}\n)CL";\n', r"take const char .f_cl = R\"CL\( .* and \)CL\" "),
        (
            "MSTRINGIFY(\n\\n#define N 4\nkernel void f() {}\n)\n",
            r"take MSTRINGIFY\( from its beginning and \) from its end, and \\n from the beginning of lines, in a copy",
        ),
        ('std::string f_cl = R"(\nkernel void f() {}\n)";\n', r"is a string of C\+\+"),
        ('char f_cl[] = "kernel void f()"\n" {}";\n', r"is a string of C\+\+"),
        (
            "STRINGIFY (\nkernel void f() { g(1); }\n// )\n)\n",
            r"the argument .* take STRINGIFY \( from .* and \) ",
        ),
        (
            "#ifndef F\n#define F\nstatic const char* const f_cl = STRING(\nkernel void f() { g(1); }\n);\n\n#endif\n",
            r"take static const char\* const f_cl = STRING\( from .* and \) ",
        ),
        (f'#include "{"x" * 5000}"\n', "which is not there"),
    ],
)
def test_what_cannot_be_followed_is_refused(folder: Path, kernel: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        text_of(kernel)


HELLO = 'const char hello[] = "a kernel";\nkernel void f() {}\n'
"""A kernel in OpenCL C 2.0."""
MADE = ("#define K(n) kernel void f_##n() {}\nK(x)\n", "#define ALL(x) x\nALL(kernel void f() {})\n")


def test_a_file_of_calls_of_macros_is_none_of_cpp(folder: Path) -> None:
    for text in ("KERNEL(add, +)\nKERNEL(sub, -)\n", "INIT(1)\nkernel void f() {}\n", "LIST(a)\n", HELLO, *MADE):
        assert text_of(text) == text
    assert text_of('__attribute__((reqd_work_group_size(8, 1, 1))) kernel void f() {} LAST(")")\n').endswith('(")")\n')


def test_bytes_of_another_encoding_are_read_as_compilers_take_them(folder: Path) -> None:
    (folder / "own.h").write_bytes("// © own\n".encode("latin-1"))
    assert "// \\xa9 own" in text_of('#include "own.h"\n')


@pytest.mark.parametrize("blank", ["\u00a0", "\x1f", "\u2003", "\x85"])
def test_a_backslash_before_what_only_python_calls_a_blank_joins_no_lines(folder: Path, blank: str) -> None:
    """To a compiler the next line is an `#include`, whatever the line above looks like here."""
    assert "own" in text_of(f'// said \\{blank}\n#include "own.h"\n')
    assert '#include "own.h"' in text_of('// said \\ \t\n#include "own.h"\n')


ONCE = "#pragma once\n"
GUARD = "#ifndef {0}\n#define {0}\n{1}#endif\n"


@pytest.mark.parametrize(
    ("files", "kernel", "read"),
    [
        (
            {"a.h": f"{ONCE}int a;\n", "b.h": '#include "a.h"\nint b;\n'},
            '#include "a.h"\n#include "b.h"\n',
            "int a int b",
        ),
        ({"a.h": f"{ONCE}int a;\n"}, '#if 0\n#include "a.h"\n#endif\n#include "a.h"\n', "int a"),
        (
            {"own.h": "int outer;\n", "inc/own.h": "int inner;\n"}
            | dict.fromkeys(("a.h", "inc/a.h"), f'{ONCE}#include "own.h"\n'),
            '#include "a.h"\n#include "inc/a.h"\n',
            "int outer int inner",
        ),
        ({"a.h": f"{ONCE}int a;\n"}, '#include "a.h"\n#include "link.h"\n#include "inc/../a.h"\n', "int a"),
        (
            {"a.h": f"#ifdef ONCE\n{ONCE}#endif\nint a;\n"},
            '#include "a.h"\n#include "a.h"\n#define ONCE\n#include "a.h"\n#include "a.h"\n',
            "int a int a int a",
        ),
        (
            {
                "a.h": GUARD.format("A_H", '#include "inc/b.h"\nint a;\n'),
                "inc/b.h": GUARD.format("B_H", '#include "../a.h"\nint b;\n'),
            },
            '#include "a.h"\n',
            "int b int a",
        ),
        (
            {"a.h": f'{ONCE}#include "b.h"\nint a;\n', "b.h": f'{ONCE}#include "a.h"\nint b;\n'},
            '#include "a.h"\n#include "b.h"\n',
            "int b int a",
        ),
        (
            {
                "a.h": GUARD.format("A_H", '#include "b.h"\nint a;\n'),
                "b.h": GUARD.format("B_H", '#include "a.h"\nint b;\n'),
            },
            '#include "a.h"\n#include "b.h"\n',
            "int b int a",
        ),
        (
            {},
            '#ifndef KIND\n#define KIND 1\n#endif\nint KIND;\n#if KIND == 1\n#define KIND 2\n#include "k.cl"\n#endif\n',
            "int 1 int 2",
        ),
    ],
)
def test_files_that_meet_themselves_are_read_as_a_compiler_reads_them(
    folder: Path, files: dict[str, str], kernel: str, read: str
) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "link.h").symlink_to("a.h")
    assert preprocessed(text_of(kernel), {}, ()) == " ; ".join(["", *re.findall(r"int \w+", read), ""]).split()[1:]


def test_of_headers_that_include_each_other_once_none_is_there_twice(folder: Path) -> None:
    for level in range(15):
        lines = "".join(f'#include "h{other}.h"\n' for other in range(15))
        (folder / f"h{level}.h").write_text(f"{ONCE}{lines}int own{level};\n")
    assert text_of('#include "h0.h"\n').count("int own7;") == 1


def test_a_circle_that_an_if_does_not_end_is_left_to_the_compiler(folder: Path) -> None:
    assert text_of('#ifndef ENDED\n#include "k.cl"\n#endif\n').count('#error "k.cl" is included again and again') == 1


def test_a_long_chain_of_includes_is_no_circle(folder: Path) -> None:
    for level in range(25):
        (folder / f"chain{level}.h").write_text(f'#include "chain{level + 1}.h"\n')
    with pytest.raises(StudyError, match=r"chain19\.h: is included over 20 files deep"):
        text_of('#include "chain0.h"\n')


def test_an_include_bomb_stops_while_it_expands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in range(18):
        (folder / f"bomb{level}.h").write_text(f'#include "bomb{level + 1}.h"\n' * 8)
    (folder / "bomb18.h").write_text("x" * 1000)
    counted: list[int] = []
    directives = includes._directives
    monkeypatch.setattr(includes, "_directives", lambda *given: counted.append(1) or directives(*given))
    with pytest.raises(StudyError, match="larger than 4 MiB"):
        text_of('#include "bomb0.h"\n')
    assert len(counted) < library.MAX_TEXT / 1000 * 1.3  # of 8**18


def options(*entries: dict[str, Any]) -> list[str]:
    return includes.folders_of({"options": list(entries)}, Path("studies/x.toml"))


def test_the_folders_are_those_of_the_options() -> None:
    flags = [{"flag": "-Iinc"}, {"flag": '-I "my inc"'}, {"flag": "-cl-mad-enable", "when": "FAST == 1"}]
    assert options(*flags) == ["studies/inc", "studies/my inc"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"flag": "-I{V}"}, "cannot depend on anything"),
        ({"flag": "-Iinc", "when": "V == 1"}, "cannot depend on anything"),
        ({"flag": "-include own.h"}, "'-include' brings files that cannot be followed"),
        ({"flag": "-imacros own.h"}, "'-imacros' brings files"),
        ({"flag": "-w -isystem inc"}, "'-isystem' brings files"),
        ({"flag": "@own.rsp"}, "'@own.rsp' brings files"),
        ({"flag": "-Xclang -load"}, "'-Xclang' brings files"),
        ({"flag": "-fplugin=x.so"}, "'-fplugin' brings files"),
        ({"flag": "-I'inc"}, "cannot be read: No closing quotation"),
    ],
)
def test_an_option_that_brings_files_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=rf"^studies/x\.toml: options\.1\.flag: .*{message}"):
        options(entry)


def test_a_value_cannot_bring_a_file_either() -> None:
    includes.check_options(["-DT=uint", "-Iinc", "-cl-std=CL1.2"], "here")
    with pytest.raises(StudyError, match="'-include' brings files"):
        includes.check_options(["-DP=1 -include own.h"], "here")


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("-DX=1 -DY=2", "'-DX=1 -DY=2' is not a single -DNAME=VALUE; write one [[options]] for each, as flag = "),
        ("-D X=1", "'-D X=1' is not a single -DNAME=VALUE"),
        ("-w -UX", "'-w -UX' is not a single -DNAME=VALUE"),
        ("-DX='a b'", "is not a single -DNAME=VALUE"),
        ("-DX=$(exit)", ""),
        ("-D$(exit)=1", "'-D$(exit)=1': '$(exit)' is not a C identifier"),
        ("-DPATH=1", "'PATH' is a name that shells or loaders act on"),
        ("-D{P}=1", ""),
        ("-DAT(r,i)=((r)*n+(i))", ""),
        ("-DAT()=1", ""),
        ("-DLOG(...)=", ""),
        ("-DLOG(f,...)=", ""),
        ("-DLOG(...,f)=", "'LOG(...,f)' is not a C identifier"),
        ("-DAT($(exit))=1", "'AT($(exit))' is not a C identifier"),
        ('-DX="a"', "has a quotation mark or a backslash, which drivers take off or keep as they please; write one"),
    ],
)
def test_a_define_is_one_word_with_a_name_and_a_value(flag: str, said: str) -> None:
    """A header and a shell get name and value separately: another form would be another define, or a command."""
    for ask in (
        partial(includes.folders_of, {"options": [{"flag": flag}]}, "a.toml"),
        partial(includes.check_options, [flag.replace("{P}", "P")], "here"),
    ):
        if said:
            with pytest.raises(StudyError, match=re.escape(said)):
                ask()
        else:
            ask()
    with pytest.raises(StudyError, match="'8' is not a C identifier"):
        includes.check_options(["-D8=1"], "here")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_waited_for(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / "pipe.cl")
    with pytest.raises(StudyError, match=r"pipe\.cl: is not a file"):
        library.read_text(folder / "pipe.cl")


def test_a_study_that_is_too_large_is_not_called_a_kernel(folder: Path) -> None:
    (folder / "x.toml").write_text("#" * (library.MAX_TEXT + 1))
    with pytest.raises(StudyError, match=r"x\.toml: is larger than 4 MiB$"):
        library.read_study(folder / "x.toml")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("#define A 1\n# define B(x) x\n", {"A", "B"}),
        ("#ifndef A\n#define A 1\n#endif\n#if !defined(B)\n#define B 1\n#endif\n", set()),
        ("#ifndef OWN_H\n#define OWN_H\n#define A 1\n#ifndef B\n#define B 2\n#endif\n#endif\n", {"A"}),
        ("#if C\n#define A 1\n#else\n#define A 2\n#endif\n#define D\n", {"D"}),
        ("#ifndef A\n#define A 1\n#endif\n#ifdef A\n#undef A\n#endif\n#define A 2\n", {"A"}),
        ("#if A > 1\nint more;\n#endif\n#undef A\n#define A 1\n", set()),
        ("int a = A;\n#undef A\n#define A 1\n", set()),
        ("#define A 1\n#undef A\n", set()),
        ("#define A 1\nint a = A;\n#undef A\n#define A 2\n", {"A"}),
        ("// #define A 1\n/*\n#define B 1\n*/\n#endif\n#define C \\\n 1\n", {"C"}),
    ],
)
def test_what_a_text_defines_whatever_is_given(source: str, found: set[str]) -> None:
    assert includes.defined_anyway(source) == found


def test_a_text_of_many_macros_is_read_once() -> None:
    many = range(20_000)  # each text before an #undef read anew took minutes
    source = "".join(f"int a{n} = A{n};\n#undef A{n}\n#define A{n} 1\n#undef B{n}\n#define B{n} 1\n" for n in many)
    assert includes.defined_anyway(source) == {f"B{n}" for n in many}


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("#ifdef A", False),
        ("#if defined(A) || defined B", False),
        ("#if !defined A && C", False),
        ("#undef A", False),
        ("#if defined(A) && A > 1", True),
        ("#if A", True),
        ("int a = A;", True),
    ],
)
def test_whether_a_macro_is_defined_is_no_question_for_its_value(line: str, asks: bool) -> None:
    assert ("A" in includes.names_asked(f"#ifndef A\n#define A 1\n#endif\n{line}\n")) == asks
