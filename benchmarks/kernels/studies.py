"""Which studies run at which sizes, and against what: a function per study that yields rows as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from autotune.errors import AutotuneError, UsageError
from autotune.model import Choices, DeviceInfo, Size, Value
from autotune.study import Problem, Study

from .accuracy import Arrays
from .contest import Contest, Entrant, Say, search
from .limits import Limit
from .peers import Peer, available
from .queued import QueuedSession
from .report import Row

_LARGE = ("1024", "2048", "4096", "8192", "1600x1600x1007")

SIZES: dict[str, dict[str, tuple[str, ...]]] = {
    "gpu": {
        "sgemm": _LARGE,
        "sgemm-tensor": _LARGE[1:],
        "product_sum": ("4194304x16384",),
        "element_mult": ("16384",),
        "matmul": ("2048", "4096"),
    },
    "cpu": {
        "sgemm": ("512",),
        "sgemm-tensor": (),
        "product_sum": ("65536x4096",),
        "element_mult": ("4096",),
        "matmul": ("512",),
    },
}
"""The sizes that run if none are given."""

LADDER = ("NAIVE", "TILED", "WPT")


@dataclass(frozen=True)
class Bench:
    """The data that all rows of a run share."""

    device: DeviceInfo
    session: QueuedSession
    limits: Mapping[str, Limit]
    seeds: Sequence[int]
    trials: int
    tuning: Path | None
    say: Say
    found: dict[str, Entrant] = field(default_factory=dict)

    def search(
        self, kind: str, label: str, size: Size, choices: Choices, fix: Mapping[str, Sequence[Value]] | None = None
    ) -> Entrant:
        """Search the study that begins the name of a kind; once in a run."""
        key = f"{label} {size}"
        if key not in self.found:
            self.found[key] = self._search(kind, label, size, choices, fix)
        return self.found[key]

    def _search(
        self, kind: str, label: str, size: Size, choices: Choices, fix: Mapping[str, Sequence[Value]] | None
    ) -> Entrant:
        study = Study.load(kind.partition("-")[0].partition(" ")[0])
        problem = Problem(study, size, choices, self.device, fix=fix)
        return search(kind, label, problem, self.seeds, self.trials, self.say)

    def peers(self, inputs: Arrays) -> Mapping[str, Peer]:
        """The peers of a product in float."""
        return available(self.session, inputs["A"], inputs["B"], self.tuning, self.say)


def rows(bench: Bench, name: str, sizes: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of one study at these sizes (none given: the defaults). Reports what cannot run here."""
    family = "cpu" if bench.device.kind == "cpu" else "gpu"
    study = Study.load(name.partition("-")[0])
    for text in sizes or SIZES[family][name]:
        try:
            yield from STUDIES[name](bench, text, parse_size(text, study))
        except AutotuneError as error:
            bench.say(f"{name} at {text} left out: {error}")


def parse_size(text: str, study: Study) -> dict[str, int]:
    """Return a study's size: `4096` for all its names, or as many numbers as it has names: `1600x1600x1007`."""
    numbers = [int(part) for part in text.split("x") if part.isdigit()]
    if len(numbers) == len(text.split("x")) and len(numbers) in (1, len(study.sizes)) and min(numbers) > 0:
        return dict(zip(study.sizes, numbers * (len(study.sizes) // len(numbers)), strict=True))
    names = "x".join(study.sizes)
    raise UsageError(
        f"{text!r} is not a size of {study.name}", where="--sizes", hint=f"write 1024, or {names} in numbers"
    )


def _product(size: Size) -> float:
    return 2e-12 * size["M"] * size["N"] * size["K"]


def _sgemm(bench: Bench, text: str, size: Size) -> Iterator[Row]:
    entrants = [bench.search("sgemm", "sgemm", size, {})]
    if bench.device.kind == "cpu":
        entrants.append(bench.search("matmul naive", "matmul float NAIVE", size, {}, {"VARIANT": ("NAIVE",)}))
    against = {"sgemm": {"naive": "matmul float NAIVE"}} if len(entrants) > 1 else {}
    contest = Contest(text, entrants, "TFLOPS", _product(size), bench.limits["fma"], against)
    yield from contest.run(bench.session, bench.peers)


def _sgemm_tensor(bench: Bench, text: str, size: Size) -> Iterator[Row]:
    """What the study's choices offer beyond plain multiply-adds; the limit of the FMA units does not apply to it."""
    if bench.device.vendor_name != "nvidia":
        bench.say("sgemm-tensor left out: its tensor cores are NVIDIA's")
        return
    offered = [(name, value) for name, values in Study.load("sgemm").choices.items() for value in values[1:]]
    if not offered:
        bench.say("sgemm-tensor left out: the study offers no choice")
    for name, value in offered:
        entrant = bench.search("sgemm-tensor", f"sgemm {name}={value}", size, {name: value})
        contest = Contest(text, [entrant], "TFLOPS", _product(size), None, {})
        yield from contest.run(bench.session, bench.peers)


def _product_sum(bench: Bench, text: str, size: Size) -> Iterator[Row]:
    entrant = bench.search("product_sum", "product_sum", size, {})
    work = 2e-12 * size["X"] * size["Y"]
    yield from Contest(text, [entrant], "TFLOPS", work, bench.limits["fma"], {}).run(bench.session, _nobody)


def _element_mult(bench: Bench, text: str, size: Size) -> Iterator[Row]:
    entrant = bench.search("element_mult", "element_mult", size, {})
    work = 4e-9 * (2 * size["Y"] * size["K"] + size["K"] + size["Y"])
    yield from Contest(text, [entrant], "GB/s", work, bench.limits["read"], {}).run(bench.session, _nobody)


def _matmul(bench: Bench, text: str, size: Size) -> Iterator[Row]:
    """The ladder in both types; in float, beside sgemm and its peers."""
    for choice in ("float", "int"):
        labels = [f"matmul {choice} {step}" for step in LADDER]
        entrants = [
            bench.search(f"matmul {step}", label, size, {"T": choice}, {"VARIANT": (step,)})
            for step, label in zip(LADDER, labels, strict=True)
        ]
        against = {later: {"step before": before} for before, later in pairwise(labels)}
        if choice == "float":
            entrants.append(bench.search("sgemm", "sgemm", size, {}))
            against = {label: {**others, "sgemm": "sgemm"} for label, others in against.items()}
        is_float = choice == "float"
        limit, peers = (bench.limits["fma"], bench.peers) if is_float else (None, _nobody)
        unit = "TFLOPS" if is_float else "TOPS"
        yield from Contest(text, entrants, unit, _product(size), limit, against).run(bench.session, peers)


def _nobody(inputs: Arrays) -> Mapping[str, Peer]:
    return {}


STUDIES: dict[str, Callable[[Bench, str, Size], Iterator[Row]]] = {
    "sgemm": _sgemm,
    "sgemm-tensor": _sgemm_tensor,
    "product_sum": _product_sum,
    "element_mult": _element_mult,
    "matmul": _matmul,
}
"""The studies by the names that --studies takes."""
