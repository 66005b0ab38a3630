"""The house keeps its order: imports point up the list of docs/architecture.md; heavy libraries have one home."""

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
"""Third-party libraries that one room has to itself."""


@cache
def rooms() -> list[str]:
    """The rooms in the order of docs/architecture.md; a folder is one room."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    block = page[page.index("## Rooms") :]
    return re.findall(r"^    (\w+)(?:\.py|/) ", block[: block.index("\n## ", 4)], re.MULTILINE)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def at_start(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The files of the package that a file imports when it is imported itself."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules.keys()


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def test_the_page_names_every_room_once() -> None:
    named = rooms()
    assert len(named) == len(set(named))
    assert set(named) == {room_of(path) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_up_the_list(path: Path) -> None:
    order = rooms()
    own = room_of(path)
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "autotune" or len(parts) < 2 or parts[1] not in order or parts[1] == own:
            continue
        assert order.index(parts[1]) < order.index(own), f"{own} imports {parts[1]}, which stands below it"


def test_no_file_needs_itself() -> None:
    modules = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    needs = {name: [needed for needed in at_start(path, modules) if needed != name] for name, path in modules.items()}
    list(TopologicalSorter(needs).static_order())  # raises CycleError, which names the files


@pytest.mark.parametrize(
    "path", [path for path in PACKAGE.rglob("__init__.py") if "= lazily(" in path.read_text()], ids=module_of
)
def test_type_checkers_see_the_names_of_a_door_and_no_others(path: Path) -> None:
    """They take any name to be there where they see a module's `__getattr__`."""
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
    inner = {
        node.module.split(".")[1]
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").count(".") >= 2 and node.module
        if node.module.split(".")[1] != room_of(path)
    }
    assert not inner & folders


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_libraries_stay_in_their_rooms(path: Path) -> None:
    used = {name.split(".")[0] for name in imported(path)}
    for library, homes in HOMES.items():
        assert library not in used or room_of(path) in homes


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


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_an_index_of_files_names_all_of_them(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    files = {one.name for one in path.parent.glob("*.py")} - {"__init__.py", "__main__.py", path.name}
    named = {name for name in files if re.search(rf"(?<![\w/]){re.escape(name)}\b", doc)}
    assert len(named) < 4 or named == files


def test_no_file_is_longer_than_360_lines() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: length for name, length in lengths.items() if length > 360}


def test_the_source_distribution_holds_what_its_tests_import() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    left_out = set(settings["tool"]["hatch"]["build"]["targets"]["sdist"]["exclude"])
    used = {name.split(".")[0] for path in (ROOT / "tests").glob("*.py") for name in imported(path)}
    assert {name for name in used if (ROOT / name).is_dir()} >= {"autotune", "benchmarks", "tests"}
    assert not {"kernels", "studies", *used} & left_out


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_path_is_looked_at_in_a_way_that_raises(path: Path) -> None:
    """`os.path.exists` and its kin say no, where those of pathlib raise for what another user's folder hides."""
    calls = [
        node.func
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and not (node.args or node.keywords)
    ]
    looks = {one.attr for one in calls if isinstance(one, ast.Attribute)} & {"exists", "is_dir", "is_file"}
    allowed = {"exists"} if room_of(path) == "store" else set()  # SQL's
    assert not looks - allowed


OF_THREADS = {
    *vars(threading.Thread()), *dir(threading.Thread),
    "_context", "_handle", "_ident", "_is_stopped", "_native_id", "_os_thread_handle", "_tstate_lock",
}  # fmt: skip
"""What `threading.Thread` keeps for itself in this Python, and in any from 3.11 to 3.14."""


def assigned(tree: ast.ClassDef) -> set[str]:
    """The attributes that a class's methods give to `self`."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return {node.attr for node in nodes if ast.unparse(node.value) == "self"}


def test_no_thread_of_ours_takes_a_name_that_pythons_threads_keep() -> None:
    for path in PACKAGE.rglob("*.py"):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.ClassDef) and any("Thread" in ast.unparse(base) for base in one.bases):
                own = assigned(one) | {node.name for node in one.body if isinstance(node, ast.FunctionDef)}
                assert own & OF_THREADS <= {"__init__", "run"}, f"{path}: {one.name}"
