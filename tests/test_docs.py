"""What the pages say is true: their Python runs, their lists are the program's, each key is there and no other."""

from __future__ import annotations

import configparser
import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest
import typer

import autotune
from autotune.cli import app
from autotune.cli.options import parse_fix, parse_sizes
from autotune.errors import AutotuneError
from autotune.exchange import READERS, WRITERS
from autotune.lookup import FORMATS
from autotune.model import Outcome
from autotune.samplers import SAMPLERS
from autotune.store.submissions import STATES
from autotune.study import Study, schema
from autotune.study.scope import DEVICE_FACTS
from autotune.text import parse_choices, parse_size, require_known

ROOT = Path(__file__).parent.parent
README, STUDIES, KEYS, PROGRAMS, SERVICE, HOUSE, INTEGRATE = (
    (ROOT / page).read_text()
    for page in (
        "README.md", "docs/studies.md", "docs/studies-reference.md", "docs/programs.md", "docs/service.md",
        "docs/architecture.md", "docs/integrate.md",
    )
)  # fmt: skip

SECTIONS: dict[str, tuple[type[schema.Table], ...]] = {
    "Top level": (schema.StudyTable,),
    "`[parameters.NAME]`": (schema.ParameterTable,),
    "`[[constraints]]`": (schema.ConstraintTable,),
    "`[requires]`": (schema.RequiresTable,),
    "`[defines]` and `[[options]]`": (schema.OptionTable,),
    "`[arguments.NAME]`": (schema.ArgumentTable, schema.DataTable, schema.SizeTable, schema.SamplerTable),
    "`[[launch]]`": (schema.LaunchTable,),
    "`[reference]`": (schema.ReferenceTable,),
    "`[tolerance]`": (schema.ToleranceTable,),
    "`[work]`": (schema.WorkTable,),
    "`[timing]`": (schema.TimingTable,),
}
"""The sections of docs/studies-reference.md that list the keys of a table, or of several."""

UNTOLD = {"function", "given"}  # what Study() writes for an array or a function of Python: a file cannot

OWN_VARIABLES = {"AUTOTUNE_TCC"}  # which the program sets for what it starts


def keys(*tables: type[schema.Table]) -> set[str]:
    return {field.alias or name for table in tables for name, field in table.model_fields.items()} - UNTOLD


def code(text: str) -> str:
    """Return the texts between backquotes."""
    return " ".join(re.findall(r"`([^`]*)`", text))


def sections() -> dict[str, str]:
    """Return the text below each heading of the third level."""
    parts = re.split(r"^###? (.*)$", KEYS, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def pages(*endings: str) -> list[Path]:
    """Return the files of pages and examples with one of these endings."""
    found = [*ROOT.glob("*"), *(ROOT / "docs").rglob("*"), *(ROOT / "examples").rglob("*")]
    return [path.resolve() for path in found if path.is_file() and path.name.endswith(endings)]


def anchor(heading: str) -> str:
    """Return a heading's name in links, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_key_of_a_study_is_on_the_page() -> None:
    assert set(SECTIONS) <= set(sections())
    assert {schema.FileTable}.union(*SECTIONS.values()) >= set(schema.Table.__subclasses__()), "SECTIONS"
    headings = " ".join(sections())
    for heading, tables in SECTIONS.items():
        told = set(re.findall(r"\w+", code(sections()[heading]))) | set(re.findall(r"\w+", headings))
        assert keys(*tables) <= told, heading


def test_every_key_on_the_page_is_one_of_a_study() -> None:
    assert {key for heading in sections() for key in re.findall(r"`\[+(\w+)", heading)} <= keys(schema.StudyTable)
    for heading, text in sections().items():
        listed = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
        assert listed <= keys(*SECTIONS.get(heading, ())), heading


def test_the_study_on_the_page_can_be_read(tmp_path: Path) -> None:
    for name, language in (("saxpy.cl", "c"), ("saxpy.toml", "toml")):
        block, *_ = re.findall(rf"```{language}\n(.*?)```", STUDIES, re.DOTALL)
        (tmp_path / name).write_text(block)
    assert list(Study.load(tmp_path / "saxpy.toml").parameters) == ["WPT", "WG"]


def holds(whole: Any, part: Any) -> bool:
    """Whether a table has everything that a part of it shows: these entries of lists, these keys of tables."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(holds(whole.get(name), value) for name, value in part.items())
    if isinstance(part, list) and part and isinstance(part[0], dict):
        return all(any(holds(one, entry) for one in whole) for entry in part)
    return bool(whole == part)


def test_the_parts_of_studies_on_the_page_are_those_of_the_gallery() -> None:
    shown = re.findall(r"\(\[(\w+\.toml)\]\([^)]*\)\)(?:(?!\]\(\.\.|step).)*?```toml\n(.*?)```", STUDIES, re.DOTALL)
    assert [name for name, _ in shown] == ["csr_spmv.toml", "reduction.toml"]
    for name, block in shown:
        assert holds(tomllib.loads((ROOT / "examples" / "studies" / name).read_text()), tomllib.loads(block)), name


@pytest.mark.device
def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "a.db"))
    block = "".join(re.findall(r"```python\n(.*?)```", README + PROGRAMS, re.DOTALL))
    small = block.replace("4096", "16").replace("trials=100", "trials=1")
    queue = cl.CommandQueue(cl.Context([device for one in cl.get_platforms() for device in one.get_devices()][:1]))
    names: dict[str, Any] = {name: cla.zeros(queue, (16, 16), np.float32) for name in "abc"} | {"queue": queue}
    exec(compile(small, "README.md", "exec"), names)
    assert names["result"].best is not None
    assert autotune.best("sgemm", size={"M": 16, "N": 16, "K": 16}).match == "exact"


def blocks() -> Iterator[tuple[str, str, str]]:
    """Return place, language and text of each block of a page in a language that can be parsed."""
    for page in pages(".md"):
        for language, text in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            yield page.name, language, text


def test_every_block_can_be_read() -> None:
    scripts = ""
    for page, language, text in blocks():
        match language:
            case "python":
                compile(text, page, "exec")
            case "toml":
                tomllib.loads(text)
            case "ini":
                configparser.ConfigParser(strict=False, interpolation=None).read_string(text)
            case "yaml" if find_spec("yaml") is not None:  # distributed brings it
                assert list(import_module("yaml").safe_load_all(text)), page
            case "bash" | "sh":
                scripts += f"(\n{text})\n"
    subprocess.run(["bash", "-n"], input=scripts, text=True, check=True)


def kinds(kind: type[AutotuneError]) -> set[type[AutotuneError]]:
    return {kind}.union(*map(kinds, kind.__subclasses__()))


def test_the_lists_of_the_pages_are_the_programs() -> None:
    codes = {0, 130} | {kind.exit_code for kind in kinds(AutotuneError)}
    assert set(re.findall(r"^\| (\d+) \|", README, re.MULTILINE)) == {str(one) for one in codes}
    (said,) = re.findall(r"`kernel.match` says how it relates to the question: (.*?)where", PROGRAMS, re.DOTALL)
    assert code(said).split("` `") == [" ".join(autotune.Match)]
    (said,) = re.findall(r"\*\*outcome\*\* \((.*?)\)", HOUSE, re.DOTALL)
    assert sorted(code(said).split()) == sorted(Outcome)
    samplers = (ROOT / "docs/search.md").read_text().partition("| `--sampler` |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", samplers, re.MULTILINE)) == set(SAMPLERS), "search.md"
    (said,) = re.findall(r"prints the best stored.*`--format ([a-z ]+)`", README)
    assert said.split() == list(FORMATS), "README.md"
    (said,) = re.findall(r"the device facts (.*?)\n\n", KEYS, re.DOTALL)
    assert set(DEVICE_FACTS) <= set(code(said).split()), "studies-reference.md"
    files = INTEGRATE.partition("out `--format` |")[2].partition("\n\n")[0].splitlines()
    columns = [[set(re.findall(r"^ ?`([\w-]+)`", cell)) for cell in line.split("|")[2:4]] for line in files if line]
    assert [set().union(*cells) for cells in zip(*columns, strict=True)] == [set(READERS), set(WRITERS)], "integrate.md"
    (said,) = re.findall(r"`state` (.*?)[.:]", SERVICE, re.DOTALL)
    assert code(said).split() == list(STATES)


def test_every_page_that_the_program_names_is_there_and_every_variable_on_one() -> None:
    texts = [path.read_text() for path in (ROOT / "autotune").rglob("*.py")]
    read = {name for text in texts for name in re.findall(r"environ(?:\.get\(|\[)\"(AUTOTUNE_\w+)\"", text)}
    told = {
        name
        for page in pages(".md")
        if page.name != "CHANGELOG.md"
        for name in re.findall(r"AUTOTUNE_[A-Z]+", page.read_text())
    }
    assert read - told == OWN_VARIABLES
    assert all((ROOT / page).exists() for text in texts for page in re.findall(r"docs/[\w-]+\.md", text))


def test_the_shell_of_the_readme_ends_where_a_look_up_fails() -> None:
    (line,) = (line.strip() for line in README.splitlines() if "--format shell)" in line)
    for status, said in ((2, ""), (0, "-DX=1 -c blur.cl\n")):
        script = f"autotune() {{ echo AUTOTUNE_OPTIONS=-DX=1; return {status}; }}; clang() {{ echo $*; }}; {line}"
        done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True)
        assert (done.stdout, done.returncode) == (said, status)


def test_the_readme_names_every_command() -> None:
    commands = {command.name or "" for command in app.registered_commands}
    commands |= {group.name or "" for group in app.registered_groups}
    assert commands == set(re.findall(r"`autotune ([a-z-]+)", README))


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    texts = {
        page: re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE) for page in pages(".md")
    }
    anchors = {
        page: {anchor(line) for line in re.findall(r"^#+ (.*)", text, re.MULTILINE)} for page, text in texts.items()
    }
    for page, text in texts.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in link:
                name, _, heading = link.partition("#")
                file = (page.parent / name).resolve() if name else page
                assert file.exists(), f"{page.name}: {link}"
                assert not heading or heading in anchors[file], f"{page.name}: {link}"


def means(study: Study, option: str, value: str) -> None:
    """Raise AutotuneError for an option's value that the study does not have."""
    match option:
        case "--size" if "=" in value or value.isdigit():
            parse_size([value], study.sizes)
        case "--sizes":
            parse_sizes([value], study)
        case "--choice":
            parse_choices([value], study.choices)
        case "--fix":
            parse_fix([value], study)
        case "--by":
            require_known("parameter", [value], [*study.parameters, "size", "device"])


def test_every_command_on_a_page_has_the_options_that_it_is_given() -> None:
    told = [page.read_text() for page in pages(".md", ".sh", ".yml", "Makefile") if page.name != "CHANGELOG.md"]
    commands = dict[str, Any](typer.main.get_group(app).commands)
    told += [command.help or "" for command in commands.values()]
    lines = [line.split() for text in told for line in re.findall(r"\bautotune((?: +[^\s`|;&)<>#]+)+)", text)]
    known = [words for words in lines if words[0] in commands]
    assert len(known) > 100
    bundled = {path.stem: Study.load(path.stem) for path in (ROOT / "studies").glob("*.toml")}
    for name, *words in known:
        command = commands[name]
        command = getattr(command, "commands", {}).get(words[0] if words else "", command)
        options = {option for each in command.params for option in each.opts} | {"--help"}
        given = {match[0] for word in words if (match := re.match(r"--[\w-]+|-\w", word))}
        assert given <= options, f"autotune {name} {' '.join(words)}"
        for study in [bundled[word] for word in words if word in bundled]:
            for option, value in pairwise(words):
                if not value.isupper():
                    means(study, option, value)


def test_no_page_installs_from_an_index_what_is_in_none() -> None:
    texts = pages(".md", ".sh", ".yml", ".yaml")
    assert [path.name for path in texts if re.search(r"pip install '?opencl-autotune", path.read_text())] == []


def test_what_a_contributor_types_does_what_it_says() -> None:
    ((file, word),) = re.findall(r"pytest (tests/\w+\.py) -k (\w+)", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(re.findall(rf"^def test_\w*{word}", (ROOT / file).read_text(), re.MULTILINE)) == 1
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "serve" in extras["dev"][0], "scripts/check has mypy read what imports FastAPI"
