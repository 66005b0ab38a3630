"""`autotune new`: what it writes, and that filling in the gaps it names makes a study that passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.devices import KernelArgument
from autotune.errors import StudyError
from autotune.study import Problem, Sketch, Study, candidates, draft, scanned

ROOT = Path(__file__).parent.parent
KERNELS = ROOT / "kernels"
GALLERY = ROOT / "examples" / "studies"

CSR = """
#ifndef WG
#define WG 64
#endif
kernel void spmv(const int rows, global const int *row_ptr, global const int *cols, global const float *vals,
                 global const float *x, global float *y)
{
    const int row = get_global_id(0);
    if (row >= rows) return;
    float sum = 0;
    for (int k = row_ptr[row]; k < row_ptr[row + 1]; ++k) sum += vals[k] * x[cols[k]];
    y[row] = sum;
}
"""

JACOBI = """
#ifndef BX
#define BX 16
#endif
#ifndef BY
#define BY 4
#endif
kernel void jacobi(const int width, const int height, global const float *a, global float *b)
{
    const int x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height) return;
    const int i = y * width + x;
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) b[i] = a[i];
    else b[i] = 0.25f * (a[i - 1] + a[i + 1] + a[i - width] + a[i + width]);
}
"""

MOVED = (
    "(particles.velocity + world.step * (world.gravity - world.drag / particles.mass[:, None] * particles.velocity))"
)
A = 'A = { type = "KIND", shape = ["M", "K"], access = "in" }'
B = 'B = { type = "KIND", shape = ["K", "N"], access = "in" }'
C = 'C = { type = "KIND", shape = ["M", "N"], access = "out" }'

FILLS: dict[str, list[str]] = {
    "csr": [
        'row_ptr = { type = "int", shape = ["rows + 1"], access = "in", data = { distribution = "range" } }',
        'cols = { type = "int", shape = ["rows"], access = "in", data = { low = 0, high = 65535 } }',
        'y = "vals * x[cols]"',
    ],
    "jacobi": ["b = \"where(pad(zeros((height - 2, width - 2)), 1, 'constant', constant_values=1) > 0, a, "
               '(roll(a, 1, 0) + roll(a, -1, 0) + roll(a, 1, 1) + roll(a, -1, 1)) / 4)"'],
    "blur": [
        'source = { type = "float", image = ["HEIGHT", "160"], access = "in", '
        'data = { distribution = "constant", value = 3 } }',
        'target = { type = "float", image = ["HEIGHT", "160"], access = "out" }',
        'weights = { type = "float", shape = ["3"], access = "in", data = { distribution = "constant", value = 0.5 } }',
        'global = ["round_up(160, WX)", "round_up(ceil_div(HEIGHT, ROWS), WY)"]',
        'target = "source * 2.25"',
    ],
    "particles": [
        'world = { type = "World", value = { gravity = ["0", "0", "-9.81"], step = "0.01", drag = "0.1", wall = "9" } }',  # noqa: E501
        f'particles = {{ position = "particles.position + world.step * {MOVED}", velocity = "{MOVED}", hits = '
        f"\"particles.hits + stack(((particles.position + world.step * {MOVED})[:, 2] < 0, "
        'zeros((N,))), -1)" }',
        'particles = { type = "Particle", shape = ["N"], access = "inout", data = { low = 1, high = 2 } }',
    ],
    "element_mult": [
        'factor = { type = "float", value = "2.5" }',
        'vector = { type = "float", shape = ["K"], access = "in" }',
        'result = { type = "float", shape = ["Y"], access = "out" }',
        "absolute = 1e-3",
        'result = "factor * (matrix * matrix2) @ vector"',
    ],
    "product_sum": [
        'A = { type = "float", shape = ["X"], access = "in" }',
        'B = { type = "float", shape = ["Y"], access = "in" }',
        'C = { type = "float", shape = ["X"], access = "out" }',
        'C = "A * sum(B)"',
        "absolute = 1e-3",
    ],
    "matmul": [A, B, C, 'global = ["N // WPT_N", "M // WPT_M"]', 'C = "A @ B"'],
    "matmul_rect": [A, B, C, 'global = ["N // WPT_N", "M // WPT_M"]', 'C = "A @ B"'],
    "sgemm": [A, B, C, 'global = ["M * N // (WPT_M * WPT_N)", "1"]', 'C = "A @ B"'],
}  # fmt: skip
"""The lines that an author puts in the place of those that begin alike, for each kernel: at most five."""


def started(name: str, folder: Path) -> tuple[Path, str]:
    """Let `autotune new` write a study beside a copy of a kernel; return its path and what was said."""
    kernel = folder / f"{name}.cl"
    own = {"csr": CSR, "jacobi": JACOBI}
    place = GALLERY if name in ("blur", "particles") else KERNELS
    kernel.write_text(own[name] if name in own else (place / kernel.name).read_text())
    for other in KERNELS.glob("sgemm_*.cl") if name == "sgemm" else ():
        (folder / other.name).write_text(other.read_text())
    entry = ["--entry", name] if name in ("sgemm", "matmul_rect") else []
    result = CliRunner().invoke(app, ["new", str(kernel), *entry])
    assert result.exit_code == 0, result.output
    return kernel.with_suffix(".toml"), result.output


def filled(path: Path, lines: list[str]) -> None:
    text = path.read_text()
    kind = "T" if '"T"' in text else "float"
    for line in lines:
        prefix, given = line.partition(" = ")[0], line.replace("KIND", kind)
        # Two lines may begin alike: an argument stands before the reference, and is a table with a type or an image.
        table = r"\{ (?:type|image)" if re.match(r"\w+ = \{ (?:type|image)", given) else r'(?:"TODO|\[|\d)'
        text, count = re.subn(rf"^{prefix} = {table}.*$", lambda _, g=given: g, text, count=1, flags=re.MULTILINE)  # type: ignore[misc]
        assert count == 1, f"{prefix} is no line of the study"
    path.write_text(text)


@pytest.mark.device
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "particles" else pytest.mark.gallery) for name in FILLS]
)
def test_a_study_passes_once_its_gaps_are_filled(name: str, tmp_path: Path) -> None:
    path, said = started(name, tmp_path)
    assert len(FILLS[name]) <= 5
    assert int(re.search(r"(\d+) lines? wants? a look", said).group(1)) <= 7  # type: ignore[union-attr]
    early = CliRunner().invoke(app, ["check", str(path), "--no-run"])
    assert early.exit_code == 2
    assert "unknown name 'TODO'" in early.output
    filled(path, FILLS[name])
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 0, done.output
    assert "verified against the reference" in done.output


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.cl").write_text(CSR)
    (tmp_path / "a.toml").write_text("mine")
    result = CliRunner().invoke(app, ["new", str(tmp_path / "a.cl")])
    assert result.exit_code == 2
    assert "is there already" in result.output
    assert (tmp_path / "a.toml").read_text() == "mine"


@pytest.mark.device
def test_a_kernel_that_needs_definitions_says_so(tmp_path: Path) -> None:
    kernel = tmp_path / "a.cl"
    kernel.write_text("kernel void f(global int *x) { x[get_global_id(0)] = STEP; }")
    result = CliRunner().invoke(app, ["new", str(kernel)])
    assert result.exit_code == 2
    assert "does not compile by itself" in result.output
    assert not kernel.with_suffix(".toml").exists()
    assert CliRunner().invoke(app, ["new", str(kernel), "-D", "STEP=4"]).exit_code == 0
    assert "[parameters.STEP]\nvalues = [1, 2, 4, 8, 16]" in kernel.with_suffix(".toml").read_text()
    wrong = CliRunner().invoke(app, ["new", str(kernel), str(tmp_path / "b.toml"), "-D", "STEP"])
    assert "'STEP' is no definition" in wrong.output


def sketch(source: str) -> Sketch:
    return Sketch("a", "a.cl", source, scanned(source), {}, guessed=True)


def test_what_is_read_from_a_text() -> None:
    found = scanned(
        "__kernel __attribute__((reqd_work_group_size(8, 8, 1))) void f(const unsigned int n, __global const float4 "
        "*restrict x, __local int *l, __read_only image2d_t i, struct P p) {} kernel void none(void) {}"
    )
    assert found["f"] == (
        KernelArgument("n", "uint", "private", "", True),
        KernelArgument("x", "float4*", "global", "", True),
        KernelArgument("l", "int*", "local", "", False),
        KernelArgument("i", "image2d_t", "private", "read_only", False),
        KernelArgument("p", "P", "private", "", False),
    )
    assert found["none"] == ()
    assert candidates(
        "#ifndef A // why\n#define A 4 /* how */\n#endif\n#ifndef B\n#define C 1\n#endif\n#define D 2"
    ) == {"A": "4"}
    assert candidates("#if !defined(A)\n#define A (8)\n#endif") == {"A": "(8)"}


def test_a_draft_reads_as_a_study_but_for_its_gaps(tmp_path: Path) -> None:
    source = """
    #define NAIVE 0
    #define TILED 1
    #ifndef VARIANT
    #define VARIANT TILED
    #endif
    #ifndef T
    #define T float
    #endif
    #ifndef TILE
    #define TILE 8
    #endif
    #define SIDE (TILE / 2)
    struct In { float a, b; int c[3]; };
    typedef struct { struct In in; float4 d; } Out;
    __kernel __attribute__((reqd_work_group_size(SIDE, TILE, 1)))
    void f(const int rows, const int cols, const long big, const Out p, global const T *x, global T *y) {
        y[get_global_id(1) * cols + get_global_id(0)] = x[0];
    }
    """
    made = sketch(source)
    text = draft(made)
    (tmp_path / "a.cl").write_text(source)
    path = tmp_path / "a.toml"
    path.write_text(text.replace('"TODO"', '"x"'))
    study = Study.load(str(path))
    assert study.parameters["VARIANT"].values == ("NAIVE", "TILED")
    assert study.parameters["TILE"].values == (2, 4, 8, 16, 32)
    assert study.choices == {"T": ("float",)}
    assert list(study.sizes) == ["rows", "cols"]
    assert 'local = ["TILE // 2", "TILE"]' in text
    assert 'In = ["float a", "float b", "int c[3]"]' in text
    assert Problem(study).plan({"VARIANT": "TILED", "TILE": 8}).launches[0].local_size == (4, 8)
    assert [gap.partition(":")[0] for gap in made.gaps] == [
        f"line {n}" for n, line in enumerate(text.splitlines(), 1) if "# TODO" in line
    ]


def test_a_kernel_is_picked_by_name() -> None:
    two = "kernel void f(global int *x) { } kernel void g(global int *x) { }"
    assert draft(sketch(two)).count("[[launch]]") == 2
    assert draft(sketch(two), "g").count("[[launch]]") == 1
    with pytest.raises(StudyError, match="has no kernel 'h'; it has f, g"):
        draft(sketch(two), "h")
    with pytest.raises(StudyError, match="has no kernel"):
        draft(sketch("int x;"))
