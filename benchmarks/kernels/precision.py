"""The errors of sgemm's methods beside cuBLAS's in fp32, over families of inputs and depths."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from autotune.bench.prepare import Compiled, build, compile_plan
from autotune.devices import Program
from autotune.errors import SpaceError
from autotune.model import DeviceInfo
from autotune.study import Plan, Problem, Study

from .accuracy import product
from .families import FAMILIES, inputs
from .peers import Cublas
from .queued import Planned, QueuedSession, Table

DEPTHS = (1, 2, 3, 5, 7, 8, 9, 12, 16, 24, 31, 48, 63, 64, 65, 100, 255, 256, 257, 512, 1007, 2048, 8192)
SHAPES = {(131, 260): DEPTHS, (512, 512): DEPTHS, (2048, 2048): (512, 2048, 8192)}
"""Rows and columns of C, and the depths at which they are multiplied."""

LEAST = 1e-12
"""An error below this counts as this one."""


@dataclass(frozen=True)
class Found:
    """The errors of one product, max |C - C64| / (|A| |B|), and the ratio."""

    method: str
    family: str
    rows: int
    columns: int
    depth: int
    error: float
    peer: float

    @property
    def ratio(self) -> float:
        """How many times larger the error is than cuBLAS's."""
        return max(self.error, LEAST) / max(self.peer, LEAST)


class Builds:
    """Compiles plans. The sizes are arguments of these kernels, so one program serves many sizes."""

    def __init__(self, session: QueuedSession) -> None:
        self._session = session
        self._programs: dict[tuple[str, ...], Program] = {}

    def __call__(self, plan: Plan) -> Compiled:
        """Return a plan's program and its kernels."""
        if plan.options not in self._programs:
            self._programs[plan.options] = build(self._session, plan)
        program = self._programs[plan.options]
        return compile_plan(self._session, plan, program)


def measure(session: QueuedSession, say: Callable[[str], None]) -> list[Found]:
    """Multiply every family at every depth and shape by every method that the study offers there."""
    found: list[Found] = []
    builds = Builds(session)
    for (rows, columns), depths in SHAPES.items():
        for depth in depths:
            problems = _methods(session.info, {"M": rows, "N": columns, "K": depth})
            for family in FAMILIES:
                data = inputs(family, rows, columns, depth)
                peer = product(data, Cublas(session, data["A"], data["B"]).product())
                table = Table(session, data)
                for method, problem in problems:
                    plan = problem.plan(problem.default)
                    error = product(data, Planned(table, plan, builds(plan)).output("C"))
                    found.append(Found(method, family, rows, columns, depth, error, peer))
        say(f"{rows} x {columns}: worst ratio so far {max(one.ratio for one in found):.2f}")
    return found


def _methods(device: DeviceInfo, size: dict[str, int]) -> list[tuple[str, Problem]]:
    """Plain multiply-adds, and each method on tensor cores that the study offers, in slices of each depth."""
    study = Study.load("sgemm")
    found = [("FMA", Problem(study, size, {}, device))]
    for method in ("MMA", "WGMMA"):
        for tile_k in (16, 32):
            fix = {"METHOD": [method], "TILE_K": [tile_k]}
            problem = Problem(study, size, {"TENSOR_CORES": "ON"}, device, fix=fix)
            with suppress(SpaceError):
                if len(problem.space):
                    found.append((f"{method}, TILE_K={tile_k}", problem))
    return found


def markdown(found: Sequence[Found]) -> str:
    """A table per method: the worst ratio over the shapes, a row per family, a column per depth."""
    lines = []
    for method in dict.fromkeys(one.method for one in found):
        mine = [one for one in found if one.method == method]
        depths = sorted({one.depth for one in mine})
        lines += [f"{method}: error over cuBLAS fp32's; the worst is {max(one.ratio for one in mine):.2f}", ""]
        lines += ["| inputs \\ K | " + " | ".join(map(str, depths)) + " |", "| --- " * (1 + len(depths)) + "|"]
        for family in FAMILIES:
            cells = [max(one.ratio for one in mine if (one.family, one.depth) == (family, depth)) for depth in depths]
            lines.append(f"| {family} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def write(found: Sequence[Found], json_path: Path | None, markdown_path: Path | None) -> None:
    """Write the errors and the tables."""
    if json_path:
        json_path.write_text(json.dumps([asdict(one) for one in found], indent=1))
    if markdown_path:
        markdown_path.write_text(markdown(found))
