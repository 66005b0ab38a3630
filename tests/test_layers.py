"""The rooms keep their order: imports point up the list of docs/architecture.md; heavy libraries have one home."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "autotune"

HOMES = {
    "pyopencl": {"devices"},
    "pynvml": {"devices"},
    "optuna": {"samplers", "exchange"},  # and its own databases, out
    "sqlalchemy": {"store"},
    "matplotlib": {"reports"},
    "distributed": {"cluster"},
}
"""Third-party libraries that only one room may import."""


@cache
def rooms() -> list[str]:
    """The rooms in the order of docs/architecture.md; a folder is one room."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    block = page[page.index("## Rooms") :]
    return re.findall(r"^    (\w+)(?:\.py|/) ", block[: block.index("\n## ", 4)], re.MULTILINE)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


class Facts(NamedTuple):
    """What the tests need to know of a file, so that it is parsed and walked once."""

    imported: set[str]
    """Modules, and names with their modules, that the file imports anywhere."""
    modules: set[str]
    """Modules from which the file imports names, anywhere."""
    at_start: set[str]
    """Those that it imports when it is imported itself."""
    looks: set[str]
    """Methods that the file calls without arguments."""
    threads: Mapping[str, set[str]]
    """What thread classes assign to themselves or define, by their names."""
    doc: str


@cache
def facts(path: Path) -> Facts:
    tree = ast.parse(path.read_text())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom | ast.Call | ast.ClassDef)]
    calls = (node.func for node in nodes if isinstance(node, ast.Call) and not (node.args or node.keywords))
    classes = (node for node in nodes if isinstance(node, ast.ClassDef))
    threads = [one for one in classes if any("Thread" in ast.unparse(base) for base in one.bases)]
    defined = {one.name: {node.name for node in one.body if isinstance(node, ast.FunctionDef)} for one in threads}
    return Facts(
        {name for node in nodes for name in names_of(node)},
        {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module},
        {name for node in tree.body for name in names_of(node)},
        {one.attr for one in calls if isinstance(one, ast.Attribute)},
        {one.name: defined[one.name] | assigned(one) for one in threads},
        ast.get_docstring(tree) or "",
    )


def names_of(node: ast.AST) -> set[str]:
    """Return what a statement imports: modules, or names with their modules."""
    if isinstance(node, ast.ImportFrom) and node.module:
        return {f"{node.module}.{alias.name}" for alias in node.names}
    return {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()


def assigned(tree: ast.ClassDef) -> set[str]:
    """Return the attributes that a class's methods assign to `self`."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return {node.attr for node in nodes if ast.unparse(node.value) == "self"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def at_start(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The files of the package that a file imports when it is imported itself."""
    return {name if name in modules else name.rpartition(".")[0] for name in facts(path).at_start} & modules.keys()


ALL = sorted(PACKAGE.rglob("*.py"))
FILES = [path for path in ALL if path != PACKAGE / "__init__.py"]


def test_the_page_names_every_room_once() -> None:
    named = rooms()
    assert len(named) == len(set(named))
    assert set(named) == {room_of(path) for path in FILES}


def test_imports_point_up_the_list() -> None:
    order = rooms()
    used = {
        (path, name.split(".")[1]) for path in FILES for name in facts(path).imported if name.startswith("autotune.")
    }
    ranks = {(path, used): (order.index(room_of(path)), order.index(used)) for path, used in used if used in order}
    assert not {one for one, (own, used) in ranks.items() if used > own}, "they import what stands below them"


def test_no_file_needs_itself() -> None:
    modules = {module_of(path): path for path in ALL}
    needs = {name: [needed for needed in at_start(path, modules) if needed != name] for name, path in modules.items()}
    list(TopologicalSorter(needs).static_order())  # raises CycleError, which names the files


@pytest.mark.parametrize(
    "path", [path for path in ALL if path.name == "__init__.py" and "= lazily(" in path.read_text()], ids=module_of
)
def test_type_checkers_see_the_names_of_a_door_and_no_others(path: Path) -> None:
    """Type checkers accept any name if they see a module's `__getattr__`."""
    door = ast.parse(path.read_text())
    shown = {
        name.name
        for node in ast.walk(door)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for one in node.body
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("autotune.")
        for name in one.names
    }
    (homes,) = (
        node.args[1] for node in ast.walk(door) if isinstance(node, ast.Call) and "lazily" in ast.unparse(node.func)
    )
    assert shown == {name for names in ast.literal_eval(homes).values() for name in names.split()}
    assert not any(isinstance(node, ast.Assign) and "lazily" in ast.unparse(node) for node in door.body)


def test_the_house_has_at_most_22_rooms() -> None:
    assert len(rooms()) <= 22


def test_a_room_is_entered_by_its_door() -> None:
    folders = {room for room in rooms() if (PACKAGE / room).is_dir()}
    inner = {(path, name) for path in FILES for name in facts(path).modules if name.count(".") >= 2}
    assert not {(path, name) for path, name in inner if name.split(".")[1] in folders - {room_of(path)}}


def test_heavy_libraries_stay_in_their_rooms() -> None:
    used = {(room_of(path), name.split(".")[0]) for path in FILES for name in facts(path).imported}
    assert not {(room, library) for room, library in used if room not in HOMES.get(library, {room})}


LOOK_UP = "autotune.lookup, autotune.study.library, autotune.lookup.formats, autotune.api.stored"


@pytest.mark.parametrize(
    ("entered", "left_out"),
    [
        (LOOK_UP, "numpy optuna pyopencl sqlalchemy typer pydantic"),
        ("autotune.bench.serving", "pydantic sqlalchemy optuna autotune.study.study autotune.space"),
    ],
    ids=["a look-up", "a worker"],
)
def test_what_has_to_begin_quickly_leaves_heavy_modules_out(entered: str, left_out: str) -> None:
    code = f"import sys; import {entered}; print([m for m in {left_out.split()} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_index_of_files_names_all_of_them() -> None:
    for path in ALL:
        files = {one.name for one in path.parent.glob("*.py")} - {"__init__.py", "__main__.py", path.name}
        named = {name for name in files if re.search(rf"(?<![\w/]){re.escape(name)}\b", facts(path).doc)}
        assert len(named) < 4 or named == files, f"its docstring says in a line what each file holds: {path}"


def test_no_file_is_longer_than_360_lines() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: length for name, length in lengths.items() if length > 360}


def test_the_source_distribution_holds_what_its_tests_import() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    left_out = set(settings["tool"]["hatch"]["build"]["targets"]["sdist"]["exclude"])
    texts = [path.read_text() for path in (ROOT / "tests").glob("*.py")]
    used = {name for text in texts for name in re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE)}
    assert {name for name in used if (ROOT / name).is_dir()} >= {"autotune", "benchmarks", "tests"}
    assert not {"kernels", "studies", *used} & left_out


def test_no_path_is_looked_at_in_a_way_that_raises() -> None:
    """`os.path.exists` and similar functions return False where those of pathlib raise, as in another user's folder."""
    raising = {(path, name) for path in FILES for name in facts(path).looks & {"exists", "is_dir", "is_file"}}
    assert not {one for one in raising if (room_of(one[0]), one[1]) != ("store", "exists")}  # SQL's


OF_THREADS = {
    *vars(threading.Thread()), *dir(threading.Thread),
    "_context", "_handle", "_ident", "_is_stopped", "_native_id", "_os_thread_handle", "_tstate_lock",
}  # fmt: skip
"""Names that `threading.Thread` uses itself in this Python, and in any from 3.11 to 3.14."""


def test_no_thread_of_ours_takes_a_name_that_pythons_threads_keep() -> None:
    for path in ALL:
        for name, own in facts(path).threads.items():
            assert own & OF_THREADS <= {"__init__", "run"}, f"{path}: {name}"
