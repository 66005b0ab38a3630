"""Uploads execute nothing and read no file of the server; correct ones are accepted."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import AutotuneError, StudyError
from autotune.service.sending import upload_of
from autotune.study import find_study
from tests.serving import UPLOAD
from tests.studies import SOURCE

from autotune.service import Limits, uploads  # isort: skip  after tests.serving, which skips where it cannot be imported

SECRET = "LAUNCH_CODE_0000"
STUDY = UPLOAD["study"]
KERNEL = UPLOAD["files"]["blur.cl"]


def read(upload: Mapping[str, Any], *, allow_python: bool = False) -> Any:
    uploads.require_small(upload, Limits())
    with uploads.unpacked(upload) as path:
        return uploads.read(path, allow_python=allow_python)


class Opened:
    """Files that this process opens for reading, and what it would execute, while it watches."""

    def __init__(self) -> None:
        self.watching = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        if event == "open" and given[0] == "upload":  # its folder, while it is removed
            return
        if event == "open" and isinstance(given[0], str | bytes | os.PathLike):
            self.seen.append(os.path.realpath(os.fsdecode(given[0])))
        elif event in (
            "exec",
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.posix_spawn",
            "socket.connect",
        ):
            self.seen.append(f"{event} {given!r:.80}")


OPENED = Opened()


@pytest.fixture
def outside(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder of the server with secrets in it, which is the current folder.

    Uploads unpack into a separate folder, in which no other process leaves anything to be removed meanwhile.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("unpacked")))
    for name in ("secret.cl", "secret.h", "secret.py", "secret.toml"):
        (tmp_path / name).write_text(f"// {SECRET}\n")
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "blur.cl").write_text(f"// {SECRET}\n")
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def test_what_is_right_is_taken_with_its_includes_in_folders() -> None:
    files = {"blur.cl": '#include "inc/a.h"\n' + KERNEL, "inc/a.h": '#include "b.h"\n', "inc/b.h": "#define B 1\n"}
    text = read({"study": STUDY, "files": files})
    assert text.study.name == "blur"
    assert "#define B 1" in text.source


@pytest.mark.parametrize(
    "name",
    ["../x.cl", "/etc/x.cl", "a/../../x.cl", ".hidden", "a//b", "a/", "", "study.toml", "a\0b", "a\nb", "é.cl",
     "a" * 101, "a/b/c/d/e.h", "./a.cl", "..", "C:\\x", "../kernels", "../kernels/", "../kernels/../a.cl",
     "../kernels/a/b/c/d/e.h", "a/../kernels/a.cl", "../studies/a.cl"],
)  # fmt: skip
def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    with pytest.raises(AutotuneError, match=r"is not a file name|file and a folder"):
        read({"study": STUDY, "files": {"blur.cl": KERNEL, name: "x"}})


def test_a_file_cannot_be_a_folder_too() -> None:
    with pytest.raises(AutotuneError, match="file and a folder"):
        read({"study": STUDY, "files": {"blur.cl": KERNEL, "a": "", "a/b": ""}})


@pytest.mark.parametrize(
    "kernel", ["{}/secret.cl", "../secret.cl", "sgemm.cl", "secret.cl", "/etc/passwd", "~/x.cl", "."]
)
def test_a_kernel_is_one_of_the_files_that_came(outside: Path, kernel: str) -> None:
    named = kernel.replace("{}", str(outside))
    with pytest.raises(StudyError) as error:
        read({"study": STUDY.replace("blur.cl", named), "files": {"blur.cl": KERNEL}})
    assert SECRET not in str(error.value) + error.value.detail
    assert tempfile.gettempdir() not in str(error.value).replace(named, "")


@pytest.mark.parametrize(
    "include",
    ['"{}/secret.h"', '"../secret.h"', "<{}/secret.h>", '"secret.h"', '"/etc/passwd"', '"../../../../../etc/passwd"',
     '"inc/../../secret.h"'],
)  # fmt: skip
def test_an_include_is_one_of_the_files_that_came(outside: Path, include: str) -> None:
    line = f"#include {include.replace('{}', str(outside))}\n"
    for files in ({"blur.cl": line + KERNEL}, {"blur.cl": '#include "a.h"\n' + KERNEL, "a.h": line}):
        with pytest.raises(StudyError) as error:
            read({"study": STUDY, "files": files})
        assert SECRET not in str(error.value)


def test_a_folder_of_includes_outside_holds_nothing(outside: Path) -> None:
    study = STUDY + f'\n[[options]]\nflag = "-I{outside}"\n'
    with pytest.raises(StudyError):
        read({"study": study, "files": {"blur.cl": "#include <secret.h>\n" + KERNEL}})


@pytest.mark.parametrize("option", ["-include /etc/passwd", "@/etc/passwd", "-Xclang -load -Xclang x.so", "-B/tmp"])
def test_an_option_that_brings_files_is_refused(option: str) -> None:
    with pytest.raises(StudyError):
        read({"study": STUDY + f'\n[[options]]\nflag = "{option}"\n', "files": {"blur.cl": KERNEL}})


def test_python_of_others_is_not_run_unless_it_may(outside: Path) -> None:
    study = STUDY.replace('numpy = { x = "2 * x" }', 'python = "ref.py:f"')
    files = {"blur.cl": KERNEL, "ref.py": "raise SystemExit('ran')\ndef f(**k): return {}"}
    with pytest.raises(StudyError, match="--allow-python"):
        read({"study": study, "files": files})
    assert read({"study": study, "files": files}, allow_python=True).study.name == "blur"  # named, and not run here
    for name in (f"{outside}/secret.py", "../secret.py", "secret.py"):
        with pytest.raises(StudyError):
            read({"study": study.replace("ref.py", name), "files": files}, allow_python=True)


@pytest.mark.parametrize(
    "study",
    [
        "",
        "x",
        "= 1",
        "a." * 5000 + "a = 1",
        "x = " + "[" * 5000,
        "kernel = 5",
        'kernel = "blur.cl"',
        "x = " + "9" * 5000,
    ],
)
def test_what_is_no_study_is_one_clear_line(study: str) -> None:
    with pytest.raises(StudyError) as error:
        read({"study": study, "files": {"blur.cl": KERNEL}})
    assert "\n" not in str(error.value)


def test_errors_name_the_authors_files_and_lines() -> None:
    with pytest.raises(StudyError, match=r"^study\.toml: not valid TOML.*line 2"):
        read({"study": "a = 1\nb =\nc = 2", "files": {}})


TOKENS = [
    '"/etc/passwd"', '"../../secret.cl"', '"secret.py:f"', '"__import__(\'os\').system(\'true\')"', '"${HOME}"',
    '"{N}"', "-1", "1e308", "9223372036854775807", "nan", "true", "[]", "{}", '""', '"x" * 3', "0x7f",
    '"N // 0"', '"2 ** 2 ** 99"', '"open(\'/etc/passwd\')"', '"x.__class__"', "[[1]]", '"-I/etc"', '"\\u202e"',
]  # fmt: skip
LINES = [
    '#include "/etc/passwd"', "#include <stdio.h>", '#include "../secret.h"', '#embed "/etc/passwd"', "#include X",
    '%:include "/etc/passwd"', '??=include "/etc/passwd"', '#\\\ninclude "/etc/passwd"', "#import <x>", "/*", '"',
    '#if __has_include("/etc/passwd")', "#line 1 \"/etc/passwd\"", "#pragma OPENCL FP_CONTRACT ON", "}" * 50, "\\",
]  # fmt: skip


def mutated(draw: random.Random) -> dict[str, Any]:
    """The study of UPLOAD with a few of its parts replaced, moved, duplicated or removed."""
    study, kernel = STUDY.splitlines(), KERNEL
    for _ in range(draw.randint(1, 2)):
        place = draw.randrange(len(study))
        what = draw.randrange(6)
        if what == 0:
            key = study[place].partition("=")[0]
            study[place] = f"{key}= {draw.choice(TOKENS)}"
        elif what == 1:
            study[place] = ""
        elif what == 2:
            study.insert(
                place, draw.choice(["reference = 1", "[[options]]", f"flag = {draw.choice(TOKENS)}", "x." * 50])
            )
        elif what == 3:
            kernel = draw.choice(LINES) + "\n" + kernel
        elif what == 4:
            line = study[place]
            cut = draw.randint(0, len(line))
            study[place] = line[:cut] + chr(draw.choice([0x20, 0x22, 0x5B, 0x202E, 0x1F600, 0x7F])) + line[cut:]
        else:
            study[place] = study[place].replace(
                "blur", draw.choice(["../secret", "/etc/passwd", "secret", "a/b", "blur.cl"])
            )
    return {"study": "\n".join(study), "files": {"blur.cl": kernel, "secret2.h": "// none\n"}}


def test_500_fuzzed_uploads_execute_nothing_and_read_no_file_of_the_server(outside: Path) -> None:
    read(UPLOAD)  # what is imported when first used is imported now
    draw, taken, refused = random.Random(15), 0, 0
    for number in range(500):
        upload = mutated(draw)
        OPENED.seen.clear()
        OPENED.watching = True
        said = ""
        try:
            said = read(upload).source
            taken += 1
        except AutotuneError as error:
            refused += 1
            said = error.detail + str(error)
        finally:
            OPENED.watching = False
        assert SECRET not in said, number
        strange = [one for one in OPENED.seen if not _is_own(one)]
        assert not strange, (number, strange)
    assert min(taken, refused) > 50  # both are tried


def _is_own(seen: str) -> bool:
    """Whether it is a file of the upload, or one that Python itself reads."""
    here = os.path.realpath(tempfile.gettempdir())
    roots = (f"{here}/autotune-run-", f"{here}/.autotune-", sys.prefix, sys.base_prefix)
    return seen.startswith(roots) or seen.startswith("exec (<code object <module> at")


@pytest.mark.parametrize("kernel", ["x.cl", "../kernels/x.cl", "near.cl"])
def test_what_lies_in_the_kernels_beside_the_studies_is_found_as_it_is_here(tmp_path: Path, kernel: str) -> None:
    """By the kernel's name, by includes of both folders, by a folder of includes."""
    flag = '[[options]]\nflag = "-I../kernels/inc"\n'
    near = '#include "../kernels/a.h"\n'
    files = {
        "studies/blur.toml": STUDY.replace("blur.cl", kernel) + flag,
        "studies/near.cl": f"{near}#include <b.h>\n{KERNEL}",
        "kernels/x.cl": f'#include "a.h"\n#include <b.h>\n{KERNEL}',
        "kernels/a.h": "#define A 1\n",
        "kernels/inc/b.h": "#define B 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    study = tmp_path / "studies" / "blur.toml"
    sent = read(upload_of(study)["upload"])
    here = find_study(str(study))
    assert (sent.kernel_hash, sent.study_hash) == (here.kernel_hash, here.study_hash)


@pytest.mark.parametrize("kernel", ["../kernels/x.cl", "y.cl", "../y.cl"])
def test_a_kernel_that_did_not_come_is_told_to_be_sent_along(kernel: str) -> None:
    with pytest.raises(StudyError, match="did not come with the study: send it along, under that name"):
        read({"study": STUDY.replace("blur.cl", kernel), "files": {"blur.cl": KERNEL}})


def test_a_kernel_of_another_encoding_is_sent_as_it_is_read(tmp_path: Path) -> None:
    study = tmp_path / "saxpy.toml"
    study.write_text('name = "saxpy"\nkernel = "saxpy.cl"\n[parameters.WPT]\nvalues = [1]\n')
    (tmp_path / "saxpy.cl").write_bytes(f'// \xa9\n#include "a.h"\n{SOURCE}'.encode("latin-1"))
    (tmp_path / "a.h").write_bytes(b"// \xfc\n")
    upload = upload_of(study)["upload"]
    assert upload["files"]["a.h"] == "// \\xfc\n"
    with uploads.unpacked(upload) as there:
        assert find_study(str(there)).kernel_hash == find_study(str(study)).kernel_hash
