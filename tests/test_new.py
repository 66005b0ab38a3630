"""`autotune new`: what it writes, and that a study passes once the gaps that it names are filled in."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from autotune.bench import Inspected
from autotune.cli import app
from autotune.cli.compiled import Compiler, compiled
from autotune.devices import KernelArgument
from autotune.errors import StudyError, UsageError, WorkerError
from autotune.study import (
    Buffer,
    Problem,
    Sketch,
    Study,
    asked_by_error,
    brought,
    candidates,
    draft,
    inline,
    lacking_extension,
    scanned,
    unknown,
)
from tests.drafts import sketched

pytestmark = pytest.mark.usefixtures("one_compiler")

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


def told(name: str, kind: str, shape: str, access: str, more: str = "") -> str:
    """Return the line of a buffer."""
    extents = ", ".join(f'"{extent}"' for extent in shape.split(", "))
    return f'{name} = {{ type = "{kind}", shape = [{extents}], access = "{access}"{more} }}'


def matrix(part: str) -> str:
    return f'{{ file = "mesh.mtx", part = "{part}" }}'


CONSTANT = ', data = { distribution = "constant", value = 0.5 }'
ITEMS = "ceil_div(M, TILE_M) * ceil_div(N, TILE_N) * (TILE_M // WPT_M * (TILE_N // WPT_N))"
HITS = f"particles.hits + stack(((particles.position + world.step * {MOVED})[:, 2] < 0, zeros((N,))), -1)"

FILLS: dict[str, list[str]] = {
    "csr": [  # on a matrix of the MatrixMarket
        f"rows = {matrix('rows')}",
        f"ENTRIES = {matrix('entries')}",
        told("row_ptr", "int", "rows + 1", "in", f", data = {matrix('indptr')}"),
        told("cols", "int", "ENTRIES", "in", f", data = {matrix('indices')}"),
        told("vals", "float", "ENTRIES", "in", f", data = {matrix('values')}"),
    ],
    "jacobi": [  # a thousand turns between two buffers
        told("a", "float", "height, width", "inout"),
        told("b", "float", "height, width", "scratch"),
        'repeat = "1000"',
        'swap = [["a", "b"]]',
    ],
    "blur": [
        told("weights", "float", "2 * R + 1", "in", CONSTANT + ", constant = true"),
        'source = { type = "float", image = ["HEIGHT", "WIDTH"], access = "in"' + CONSTANT + " }",
        'numpy = { target = "source * 2.25" }',
    ],
    "particles": [
        'world = { type = "World", value = { gravity = ["0", "0", "-9"], step = "0.01", drag = "0.1", wall = "9" } }',
        told("particles", "Particle", "N", "inout", ", data = { low = 1, high = 2 }"),
        f'numpy = {{ particles = {{ position = "particles.position + world.step * {MOVED}", velocity = "{MOVED}", '
        f'hits = "{HITS}" }} }}',
    ],
    "element_mult": ["absolute = 1e-3", 'numpy = { result = "factor * (matrix * matrix2) @ vector" }'],
    "product_sum": ["absolute = 1e-3", 'numpy = { C = "A * sum(B)" }'],
    "matmul": ['numpy = { C = "A @ B" }'],
    "matmul_rect": ['numpy = { C = "A @ B" }'],
    "sgemm": [
        told("A", "float", "M, K", "in"),
        told("B", "float", "K, N", "in"),
        told("C", "float", "M, N", "out"),
        f'global = ["{ITEMS}", "1"]',
        'numpy = { C = "A @ B" }',
    ],
}
"""The lines with which an author replaces those that begin alike, for each kernel: at most five."""


def started(name: str, folder: Path) -> tuple[Path, str]:
    """Let `autotune new` write a study beside a copy of a kernel; return its path and the output."""
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
    for line in lines:
        prefix = line.partition(" = ")[0]
        replaced = "configuration" if prefix == "numpy" else rf"(?:# )?{prefix}"
        text, count = re.subn(rf"^{replaced} = .*$", lambda _, given=line: given, text, count=1, flags=re.MULTILINE)  # type: ignore[misc]
        assert count == 1, f"{prefix} is not a line of the study"
    path.write_text(text)


@pytest.mark.device
@pytest.mark.gallery
@pytest.mark.parametrize("name", FILLS)
def test_a_study_passes_once_its_gaps_are_filled(name: str, tmp_path: Path) -> None:
    assert len(FILLS[name]) <= 5
    path, said = started(name, tmp_path)
    gaps = int(re.search(r"(\d+) lines? to be written", said).group(1))  # type: ignore[union-attr]
    assert gaps == path.read_text().count("# TODO") == (4 if name == "sgemm" else 0)
    early = CliRunner().invoke(app, ["check", str(path), "--no-run"])
    assert (early.exit_code, "has a TODO" in early.output) == ((2, True) if gaps else (0, False)), early.output
    (tmp_path / "mesh.mtx").write_text((GALLERY / "mesh.mtx").read_text())
    filled(path, FILLS[name])
    size = {"jacobi": ["--size", "width=64,height=48"], "blur": ["--size", "HEIGHT=64,WIDTH=64"]}.get(name, [])
    done = CliRunner().invoke(app, ["check", str(path), *size])
    assert done.exit_code == 0, done.output
    assert "verified against the reference" in done.output


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.cl").write_text(CSR)
    (tmp_path / "a.toml").write_text("mine")
    result = CliRunner().invoke(app, ["new", str(tmp_path / "a.cl")])
    assert result.exit_code == 2
    assert "exists already" in result.output
    assert (tmp_path / "a.toml").read_text() == "mine"


def test_what_is_no_kernel_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", "..", "/"):
        result = CliRunner().invoke(app, ["new", folder])
        assert (result.exit_code, result.output) == (
            2,
            f"error: {folder}: cannot be read: Is a directory; name a file in it: ls {folder}\n",
        )
    Path("a.toml").write_text("mine")
    result = CliRunner().invoke(app, ["new", "a.toml"])
    assert result.exit_code == 2
    assert result.output.startswith("error: a.toml: is the kernel itself, and the study would overwrite it; give")


@pytest.mark.device
@pytest.mark.parametrize("here", [True, False])
def test_a_kernel_within_an_ifdef_of_an_extension_is_read(
    here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = "kernel void f(global float *x, int n) { int i = get_global_id(0); if (i < n) x[i] = i; }"
    (tmp_path / "a.cl").write_text(f"#if defined(cl_khr_byte_addressable_store)\n{kernel}\n#endif\n")
    if not here:
        monkeypatch.setattr("autotune.devices.find_device", Mock(side_effect=UsageError("none")))
    result = CliRunner().invoke(app, ["new", str(tmp_path / "a.cl")])
    assert "0 lines to be written (TODO)" in result.stderr, result.output
    assert 'x = { type = "float", shape = ["n"], access = "out" }' in (tmp_path / "a.toml").read_text()


@pytest.mark.device
def test_a_kernel_that_needs_definitions_says_so(tmp_path: Path) -> None:
    kernel = tmp_path / "my own.cl"
    kernel.write_text("kernel void f(global int *x) { x[get_global_id(0)] = STEP; }")
    result = CliRunner().invoke(app, ["new", str(kernel)])
    assert result.exit_code == 2
    assert "does not compile by itself" in result.output
    assert not kernel.with_suffix(".toml").exists()
    done = CliRunner().invoke(app, ["new", str(kernel), "-D", "STEP=4"])
    assert done.exit_code == 0
    assert f"then: autotune check '{kernel.with_suffix('.toml')}'\n" in done.stderr
    assert "[parameters.STEP]\nvalues = [1, 2, 4, 8, 16]" in kernel.with_suffix(".toml").read_text()
    for wrong in ("4STEP=4", "STEP=a b", "STEP='4'", "STEP(=4"):
        result = CliRunner().invoke(app, ["new", str(kernel), str(tmp_path / "b.toml"), "-D", wrong])
        assert f"{wrong!r} is not a definition; write -D WPT=4" in result.output
    kernel.write_text("#define STEP 4\nkernel void f(global int *x) { x[get_global_id(0)] = STEP; }")
    result = CliRunner().invoke(app, ["new", str(kernel), str(tmp_path / "b.toml"), "-D", "STEP=8"])
    assert result.exit_code == 2
    assert "STEP: the kernel defines it itself, so -D has no effect; leave it out" in " ".join(result.output.split())


@pytest.mark.device
def test_definitions_are_those_that_compilers_take(tmp_path: Path) -> None:
    kernel = tmp_path / "a.cl"
    kernel.write_text("""
        kernel void f(global const float *x, global float *y, const int n, const int rows)
        {
            const int r = get_global_id(0);
            if (r >= rows) return;
            float sum = 0;
            for (int i = 0; i < n; ++i) sum = OPERATE(sum, x[AT(r, i)]);
        #ifdef RELU
            sum = fmax(sum, 0.0f);
        #endif
            y[r] = RESULT NOTHING;
        }
        #ifndef SHARE
        #define SHARE 1
        #endif
        #ifdef SHARE
        kernel void g(global float *y) { y[get_global_id(0)] += 1 + SHARE 0.5f; }
        #endif
        """)
    missing = CliRunner().invoke(app, ["new", str(kernel)])
    assert "it calls OPERATE and AT, not defined there: include it; -I FOLDER names its folder, or" in missing.output
    assert "or define it by -D OPERATE=FUNCTION" in missing.output
    given = ["OPERATE=fmax", "AT(r,i)=((r)*n+(i))", "RELU", "RESULT=2*(sum)", "NOTHING=", "SHARE=(2)*"]
    made = CliRunner().invoke(app, ["new", str(kernel), *(word for one in given for word in ("-D", one))])
    assert made.exit_code == 0, made.output
    text = kernel.with_suffix(".toml").read_text()
    assert 'flag = "-DAT(r,i)=((r)*n+(i))"' in text
    assert 'flag = "-DNOTHING="' in text
    assert 'flag = "-DSHARE=(2)*"' in text  # whatever the text has in its place
    assert 'x = { type = "float", shape = ["rows", "n"], access = "in" }' in text
    assert "RELU = [1]" in text
    done = CliRunner().invoke(app, ["check", str(kernel.with_suffix(".toml")), "--size", "64"])
    assert done.exit_code == 0, done.output


@pytest.mark.device
@pytest.mark.parametrize(
    ("body", "cure"),
    [
        ("x[get_global_id(0)] = STEP;", "a parameter needs a default .*or give it with -D STEP=1"),
        ("const T y = 0; x[get_global_id(0)] = y;", "a type needs a default .*or give it with -D T=float"),
        (
            "x[0] = CONVERT_OUT_INT4((float4)(1)).x;",
            "a function needs a default .*with -D CONVERT_OUT_INT4=convert_int4$",
        ),
        ("x[0] = (IN_TYPE4)(1).x + ROWS_BLOCKDIM_X;", " -D IN_TYPE4=float4 -D ROWS_BLOCKDIM_X=16$"),
        ("x[get_global_id(0)] = 1", "expected ';' after expression; fix the kernel there"),
        pytest.param(
            "x[0] = order;",
            "with -D order=1; then the compiler says: .* also used in OpenCL's own headers: rename it",
            marks=pytest.mark.processor,
        ),
        (
            "} WIDE WIDER kernel void g(global int *x) { x[0] = 1;",
            r"2 names .* default \(#ifndef WIDE, #define WIDE, #endif\), .* -D WIDE= -D WIDER=$",
        ),
        (
            '}\n#ifndef K_CL\n#define K_CL\n#include "a.h"\n#include "b.h"\n#endif\nkernel void g(global int *x) {',
            '; copy "a.h" and "b.h" beside the kernel, or name their folder: -I FOLDER of autotune new',
        ),
        ("x[0] = 1;\n#error No precision defined.\n", "; give what the kernel asks for there with -D NAME=1"),
        (
            "\n#if MODE == 2\n#define T float\n#define OP(a) a\n#endif\nconst T y = 0; x[0] = OP(y);",
            "its #if defines T and OP if MODE is defined; give it with -D MODE=2$",
        ),
        (
            "\n#if defined(A) && 1\n#define T float\n#elif B\n#define T int\n#endif\nconst T y = 0; x[0] = y + STEP;",
            "if A is defined; a parameter needs a default .* stand for: autotune new .* -D STEP=1 -D A=1$",
        ),
        (
            "\n#if A\n#define T uchar\n#elif B\n#define T float\n#endif\nconst T y = 0; x[0] = y;",
            "its #if defines T if B is defined; give it with -D B=1$",
        ),
        (
            "}\n#if A || C\ntypedef char T;\n#elif B\ntypedef float T;\n#endif\nkernel void g(global T *x) { x[0] = 1;",
            "its #if defines T if B is defined; give it with -D B=1$",
        ),
        ("x[0] = 1;\n#define SHARE (64 / LANES)\n#if SHARE % ROWS\n#endif\n", r"2 names .* -D LANES=1 -D ROWS=1$"),
        (
            "x[0] = 1;\n#if WIDTH == 1\n#elif WIDTH == 2\n#else\n#error\n#endif\n",
            ": #error; .*it depends on WIDTH$",
        ),
        ("x[0] = 1;\n#ifndef cl_khr_none\n#error none\n#endif\n", "; it needs cl_khr_none, which .* lacks: fix it, or"),
        ("x[0] = W;\n#if W % 4\n#error of fours\n#endif\n", "it depends on W: give another value than -D W=1$"),
        ("} int op(int a); kernel void g(global int *x) { x[0] = op(1);", "it calls op, not defined there: include it"),
        (
            "} template <class T> kernel void g(global T *x) { x[0] = 1;",
            "; template: this is C.., not OpenCL C",
        ),
        (
            "x[blockIdx.x * blockDim.x] = 1;",
            "; blockIdx and blockDim: this is CUDA, not OpenCL C; write kernel void",
        ),
        pytest.param(
            'asm("add.s32 %0, %0, 1;" : "+r"(x[0]));',
            "; asm: this is one vendor's assembly, not OpenCL C; draft it",
            marks=pytest.mark.processor,
        ),
        ("x[0] = memory_scope_of_no_device;", "fix it, or choose a device that has it"),
        ("x[0] = work_group_reduce_ad(x[1]);", "fix it, or choose a device that has it"),
        (
            "x[0] = mul24(get_local_id(0), get_group_id(0));",
            r"call to 'mul24' is ambiguous; mul24 takes .*: cast what it is given, as in \(int\)get_global_id",
        ),
        ("x[0] = sub_group_reduce_ad(x[1]);", "fix it, or choose a device that has it with --device"),
        pytest.param(  # NVIDIA's converts a number
            "x[0] = convert_int4(round(0.5f)).x;",
            r"convert_int4 takes a vector of 4, and \(int4\)\(x\) makes one of a ",
            marks=pytest.mark.processor,
        ),
        ("int w = x[0] % {{size}}; x[1] = w;", "; {{size}} is filled in by a program before it compiles this"),
    ],
)
def test_each_kernel_that_does_not_compile_has_its_cure(body: str, cure: str, tmp_path: Path) -> None:
    kernel = tmp_path / "a.cl"
    kernel.write_text(f"kernel void f(global int *x) {{ {body} }}")
    result = CliRunner().invoke(app, ["new", str(kernel)])
    assert result.exit_code == 2
    assert re.search(cure, " ".join(result.output.split())), result.output


def test_a_macro_that_stands_for_nothing_is_told(tmp_path: Path) -> None:
    kernel = tmp_path / "a.cl"
    kernel.write_text("kernel void f(global int *x) { x[0] = STEP(x[1]); }")
    result = CliRunner().invoke(app, ["new", str(kernel), "-D", "STEP=FUNCTION"])
    assert "; -D STEP=FUNCTION is nothing that the kernel or OpenCL C defines: give what STEP" in result.output


LACKING = """
kernel void f(global real4 *x, const uint8_t n)
{
    real4 near = x[0], far;
    for (int i = 0; i < ROUNDS; ++i) far = near + step_of(far) * SCALE;
    x[get_global_id(0)] = far;
}
"""


@pytest.mark.device
def test_all_that_a_kernel_lacks_is_told_at_once(tmp_path: Path) -> None:
    kernel = tmp_path / "a.cl"
    kernel.write_text(LACKING)
    said = " ".join(CliRunner().invoke(app, ["new", str(kernel)]).output.split())
    given = ["-D", "real4=float4", "-D", "uint8_t=uchar", "-D", "ROUNDS=1", "-D", "SCALE=1"]
    assert "4 names are not defined there and need a default (#ifndef real4, #define real4 float4, #endif)" in said
    assert (
        f"give what they stand for: autotune new {kernel} {' '.join(given)}; it calls step_of, not defined there: "
        in said
    )
    kernel.write_text(f"kernel void f(global int *x) {{ x[0] = {' + '.join(f'N{n}' for n in range(70))}; }}")
    many = " ".join(CliRunner().invoke(app, ["new", str(kernel)]).output.split())
    assert re.search(
        r"; \d\d names are not defined there \((N\d+, ){5}\.\.\.\): include the files that define them", many
    )
    kernel.write_text("inline float4 step_of(float4 x) { return x; }\n" + LACKING.replace("uint8_t", "uchar"))
    done = CliRunner().invoke(app, ["new", str(kernel), *given])
    assert done.exit_code == 0, done.output


@pytest.mark.device
def test_a_file_is_named_as_it_was_typed(tmp_path: Path) -> None:
    kernel, study = tmp_path / "a.cl", tmp_path / "deep" / "b.toml"
    kernel.write_text("int own(int x) { return x; }")
    said = " ".join(CliRunner().invoke(app, ["new", str(kernel), str(study)]).output.split())
    assert f"error: {kernel}: has no kernel; write kernel void name(...)" in said


@pytest.mark.device
def test_kernels_that_the_preprocessor_leaves_out_are_told_with_what_brings_them_back(tmp_path: Path) -> None:
    kernel = tmp_path / "a.cl"
    kernel.write_text("#ifdef FIRST\nkernel void f(global int *x) { x[get_global_id(0)] = 1; }\n#endif\n")
    result = CliRunner().invoke(app, ["new", str(kernel)])
    assert (result.exit_code, kernel.with_suffix(".toml").exists()) == (2, False)
    assert "its #if leaves out every kernel: f; it depends on FIRST: -D FIRST=1" in " ".join(result.output.split())
    assert CliRunner().invoke(app, ["new", str(kernel), "-D", "FIRST=1"]).exit_code == 0


@pytest.mark.device
def test_included_files_are_found_where_the_command_says(tmp_path: Path) -> None:
    kernel, folder = tmp_path / "a.cl", tmp_path / "🙂"
    kernel.write_text(
        '#include "one.h"\n#include "two.h"\nkernel void f(global int *x) { x[get_global_id(0)] = ONE; }\n'
    )
    result = CliRunner().invoke(app, ["new", str(kernel)])
    told = " ".join(result.output.split())
    assert "includes 'one.h', 'two.h', which are not found" in told
    assert "; copy them beside the kernel" in told
    folder.mkdir()
    (folder / "one.h").write_text("#define ONE 1\n")
    (folder / "two.h").write_text("")
    done = CliRunner().invoke(app, ["new", str(kernel), "-I", str(folder)])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(app, ["check", str(kernel.with_suffix(".toml")), "--no-run"]).exit_code == 0
    (tmp_path / "three.h").write_text("")
    kernel.write_text(kernel.read_text() + "#include <three.h>\n")
    done = CliRunner().invoke(
        app, ["new", str(kernel), str(tmp_path / "c.toml"), "-I", str(folder), "-I", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(app, ["check", str(tmp_path / "c.toml")]).exit_code == 0
    for wrong in (tmp_path / "none", folder.rename(tmp_path / "in c")):
        result = CliRunner().invoke(app, ["new", str(kernel), str(tmp_path / "b.toml"), "-I", str(wrong)])
        assert (result.exit_code, "error: --include: " in result.output) == (2, True)


def test_what_a_declaration_declares_is_not_lacking() -> None:
    names = ("real", "a", "b", "p", "q", "how", "N", "M")
    log = "\n".join(f"error: use of undeclared identifier '{name}'" for name in names)
    source = """#define ONE(c) \\
        a.c
    kernel void f(const global real *restrict q, read_only image2d_t i)
    { local int t[M * M]; const real a = N * M, b[2], *p; return a * b + read_imagef(i, how, (int2)(0)).x; }"""
    assert unknown(log, source) == ({"real": "float", "N": "1", "M": "1"}, [], [], {}, ["how"])


def test_what_lacks_a_declaration_is_told_by_its_use() -> None:
    names = ("Info", "pair", "step", "STEP", "as_half2", "Mine")
    log = "\n".join(f"error: unknown type name '{name}'" for name in ("Info", "pair", "Mine"))
    log += "\n".join(f"error: use of undeclared identifier '{name}'" for name in names)
    source = """typedef half2 Mine;
    kernel void f(const Info a, global pair *p) { Mine m; p[0].x = step(a.dims[0]) + STEP + p->y + as_half2(m).x; }"""
    assert unknown(log, source) == ({"pair": "float", "STEP": "1"}, ["Info"], ["step"], {}, [])


@pytest.mark.parametrize(
    "log",
    [
        "Cannot find symbol op",
        "JIT session error: Symbols not found: [ op ]",
        "Unresolved extern function 'op'",
        'index=0): Unresolved external reference to "op".',
    ],
)
def test_what_no_linker_finds_is_a_function_that_is_not_there(log: str) -> None:
    assert unknown(log, "int op(int a); kernel void f(global int *x) { x[0] = op(1); }").functions == ["op"]


def test_an_extent_of_a_work_group_is_no_single_item() -> None:
    log = "use of undeclared identifier 'BLOCK_SIZE'\nuse of undeclared identifier 'BLOCKS'"
    assert unknown(log, "int f() { return BLOCK_SIZE + BLOCKS; }").names == {"BLOCK_SIZE": "16", "BLOCKS": "1"}


@pytest.mark.parametrize(("many", "found"), [(15, ("LAST", "1")), (16, ("", ""))])
def test_what_has_a_name_defined_is_looked_for_among_so_many(many: int, found: tuple[str, str]) -> None:
    opened, ended = "".join(f"#ifdef A{each}\n" for each in range(many)), "#endif\n" * many
    assert brought(f"{opened}#define X 1\n{ended}#ifdef LAST\n#define X 2\n#endif\nint a = X;", "X") == found


@pytest.mark.parametrize("guard", ["#ifndef A_H", "#if !defined(A_H)", "#ifndef A_H\n#line 1"])
def test_what_keeps_a_file_from_being_included_twice_brings_nothing(guard: str) -> None:
    assert brought(f"{guard}\n#define A_H\n#ifdef B\n#define X 1\n#endif\nint a = X;\n#endif", "X") == ("B", "1")


def test_what_is_called_on_an_image_reads_or_writes_it() -> None:
    source = "kernel void f(__read_only image2d_t a, __write_only image2d_t b, int2 p) { W(b, p, R(a, p)); F(p); }"
    told = unknown("".join(f"implicit declaration of function '{name}'\n" for name in "WRF"), source)
    assert (told.names, told.functions) == ({"W": "write_imagef", "R": "read_imagef"}, ["F"])


def test_what_is_put_together_lacks_what_it_is_made_of() -> None:
    log = "implicit declaration of function 'read_imageKIND'\nuse of undeclared identifier 'REAL4'\n"
    log += "implicit declaration of function 'read_image1'\nunknown type name 'REAL'"
    source = """#define JOINED(a, b) a##b
    #define READ(i) JOINED(read_image, KIND)(i)
    #define REAL4 JOINED(REAL, 4)
    kernel void f(read_only image2d_t i, global REAL *x) { REAL4 y = READ(i); x[0] = y.x; }"""
    assert unknown(log, source) == ({"KIND": "f", "REAL": "float"}, [], [], {}, [])
    alone = source.replace("global REAL *x", "global float *x")  # a macro's own name is what it is put together to
    assert unknown("use of undeclared identifier 'REAL4'", alone).names == {"REAL": "float"}


@pytest.mark.parametrize("log", ["unknown type name 'floatVEC'", "implicit declaration of function 'vloadVEC'"])
def test_what_is_put_together_may_lack_the_width_of_a_vector(log: str) -> None:
    source = """#define JOINED(a, b) a##b
    #define LOAD JOINED(vload, VEC)
    kernel void f(global float *x) { JOINED(float, VEC) y = LOAD(0, x); }"""
    assert unknown(log, source).names == {"VEC": "4"}


@pytest.mark.parametrize(
    ("log", "source", "lacking"),
    [
        ("unknown type name 'half8'", "half8 h;", "cl_khr_fp16"),
        ("call to 'fabs' is ambiguous", "x = fabs(h[0]); // of half\nhalf h[2];", "cl_khr_fp16"),
        ("call to 'fabs' is ambiguous", "x = fabs(h[0]); // half", ""),
        ("implicit declaration of function 'sub_group_reduce_max'", "sub_group_reduce_max(1)", "cl_khr_subgroups"),
        ("use of type 'double' requires cl_khr_fp64", "double x;", ""),
    ],
)
def test_an_extension_that_a_device_lacks_is_named(log: str, source: str, lacking: str) -> None:
    assert lacking_extension(log, source, ["cl_khr_fp64"]) == lacking


def test_what_an_error_of_the_text_asks_for() -> None:
    one = '#if !defined(WIDTH)\n#error "WIDTH is needed"\n#endif'
    assert asked_by_error(one, 'error: "WIDTH is needed"') == (["WIDTH"], True)
    two = "#if A == 1\nint x;\n#elif B\n#else\n#error choose\n#endif"
    assert asked_by_error(two, "error: choose") == (["A", "B"], False)


@pytest.mark.parametrize(
    ("question", "alone"),
    [("ifndef W", True), ("if !defined ( W )", True), ("if !defined W", True), ("ifdef W", False), ("if W", False),
     ("if !defined(W) && 1", False), ("if !defined" + " " * 200_000 + "W !", False)],
    ids=lambda one: str(one)[:20],
)  # fmt: skip
def test_an_error_asks_for_a_name_alone_however_that_is_spelt(question: str, alone: bool) -> None:
    """The last one is so long that a regular expression with backtracking would not end."""
    assert asked_by_error(f"#{question}\n#error W is needed\n#endif\n", "error: W is needed") == (["W"], alone)


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    kernel = tmp_path / "a.cl"
    kernel.write_text("\n")
    result = CliRunner().invoke(app, ["new", str(kernel)])
    assert result.exit_code == 2
    assert "a.cl: the file is empty; write kernel void name(...)" in result.output


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
    both = "#ifndef T\n#define T float\n#define T4 float4\n#endif\n"
    assert candidates(both) == {"T": "float"}, "nobody asks for the other"
    assert candidates(f"{both} T4 x;") == {}, "a T that is given leaves none"
    assert candidates(both.replace("#endif", "#else\n#define T4 int4\n#endif") + "T4 x;") == {"T": "float"}


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
    #if VARIANT == TILED
        y[get_global_id(1) * cols + get_global_id(0)] = x[0];
    #endif
    }
    """
    made = sketched(source, guessed=True)
    text = draft(made)
    (tmp_path / "a.cl").write_text(source)
    path = tmp_path / "a.toml"
    path.write_text(text.replace('"TODO"', '"x"'))
    study = Study.load(str(path))
    assert study.parameters["VARIANT"].values == ("NAIVE", "TILED")
    assert study.parameters["TILE"].values == (2, 4, 8, 16, 32)
    assert study.choices == {"T": ("float",)}
    assert list(study.sizes) == ["rows", "cols"]
    assert 'big = { type = "long", value = "1" }  # guess: its value' in text
    assert 'y = { type = "T", shape = ["rows", "cols"], access = "out" }' in text
    assert 'local = ["TILE // 2", "TILE"]' in text
    assert 'In = ["float a", "float b", "int c[3]"]' in text
    assert Problem(study).plan({"VARIANT": "TILED", "TILE": 8}).launches[0].local_size == (4, 8)
    assert [gap.partition(":")[0] for gap in made.gaps] == [
        f"line {n}" for n, line in enumerate(text.splitlines(), 1) if "# TODO" in line
    ]
    assert [guess.partition(":")[0] for guess in made.guesses] == [
        f"line {n}" for n, line in enumerate(text.splitlines(), 1) if "# guess:" in line and "values = [" not in line
    ]


def test_a_kernel_is_picked_by_name() -> None:
    two = "kernel void f(global int *x) { } kernel void g(global int *x) { }"
    assert draft(sketched(two, guessed=True)).count("[[launch]]") == 2
    assert draft(sketched(two, guessed=True), "g").count("[[launch]]") == 1
    with pytest.raises(StudyError, match="has no kernel 'h'; it has f, g"):
        draft(sketched(two, guessed=True), "h")
    with pytest.raises(StudyError, match="has no kernel"):
        draft(sketched("int x;", guessed=True))


@pytest.mark.parametrize("name", ["element_mult", "matmul", "matmul_rect", "product_sum"])
def test_what_is_read_of_a_bundled_kernel_is_what_its_study_says(name: str, tmp_path: Path) -> None:
    made, theirs = drafted(KERNELS / f"{name}.cl", name, tmp_path), Study.load(name)
    size = dict.fromkeys(theirs.sizes, 96)
    ours, wanted = Problem(made, size), Problem(theirs, size)
    plan, other = ours.plan(ours.default), wanted.plan(wanted.default)
    for argument in plan.buffers:
        told = other.arguments[argument.name]
        assert isinstance(told, Buffer)
        assert (argument.shape, argument.access) == (told.shape, told.access), argument.name
    if name != "element_mult":  # whose number of work-groups is free
        assert plan.launches[-1].global_size == other.launches[-1].global_size
    assert plan.launches[-1].local_size == other.launches[-1].local_size


@pytest.mark.parametrize(
    "name", ["csr_spmv", "histogram", "jacobi", "particles", "prefix_sum", "reduction", "stencil_3d"]
)
def test_what_is_read_of_the_gallery_is_what_its_studies_say(name: str, tmp_path: Path) -> None:
    made, theirs = drafted(GALLERY / f"{name}.cl", None, tmp_path), Study.load(str(GALLERY / f"{name}.toml"))
    size = {one: theirs.sizes.get(one, 5) for one in made.sizes}
    problem = Problem(made, size)
    plan, other = problem.plan(problem.default), Problem(theirs, {}).plan(Problem(theirs, {}).default)
    for argument in plan.buffers:
        told = other.arguments[argument.name]
        assert isinstance(told, Buffer)
        if (name, argument.name) not in (("csr_spmv", "x"), ("prefix_sum", "ends")):  # a square matrix; a rim of one
            assert argument.shape == told.shape, argument.name


def drafted(kernel: Path, entry: str | None, folder: Path) -> Study:
    source = inline(kernel)
    signatures = dict(scanned(source))
    if kernel.stem == "product_sum":  # an argument of one variant only, which the compiler leaves out
        signatures = {name: told[:-1] for name, told in signatures.items()}
    made = Sketch(kernel.stem, kernel.name, source, signatures, {})
    (folder / kernel.name).write_text(source)
    path = folder / f"{kernel.stem}.toml"
    path.write_text(draft(made, entry))
    assert made.gaps == []
    return Study.load(str(path))


@given(st.text(alphabet="ab#if()[]{}*+-/<=;,? 01\n\\", max_size=80))
def test_any_text_is_read_or_left(text: str) -> None:
    source = f"#define b 2\nkernel void f(global int *a, int n) {{ {text} }}"
    assert "[reference" in draft(sketched(source, guessed=True))


@pytest.mark.device
def test_what_is_given_is_in_the_study(tmp_path: Path) -> None:
    kernel = tmp_path / "a.cl"
    kernel.write_text(
        "#ifdef FAST\nkernel void f(global vec *x, const int n) "
        "{ const int i = get_global_id(0); if (i < n) x[i] = (float4)(STEP * 0.5f + i, 0, 0, 1); }\n#endif\n"
    )
    given = [word for one in ("vec=float4", "STEP=1.5f", "FAST=1") for word in ("-D", one)]
    assert CliRunner().invoke(app, ["new", str(kernel), *given]).exit_code == 0
    text = kernel.with_suffix(".toml").read_text()
    assert 'flag = "-DSTEP=1.5f"' in text
    assert 'vec = ["float4"]' in text
    done = CliRunner().invoke(app, ["check", str(kernel.with_suffix(".toml")), "--size", "64"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("name", ['k"x.cl', "k\nx.cl", "k\\"], ids=["quote", "line break", "backslash"])
def test_a_kernel_file_of_any_name_gives_a_study_that_can_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("kernel void f(global float *x) { x[get_global_id(0)] = 1.0f; }")
    made = CliRunner().invoke(app, ["new", str(tmp_path / name), str(tmp_path / "a.toml")])
    assert made.exit_code == 0, made.output
    checked = CliRunner().invoke(app, ["check", str(tmp_path / "a.toml"), "--no-run"])
    assert checked.exit_code == 0, checked.output


def test_a_kernel_of_a_newer_opencl_c_is_compiled_by_that() -> None:
    told, inspector = Inspected({"k": ()}, {}), Mock()

    def inspect(source: str, options: list[str], names: list[str]) -> Inspected:
        if "-cl-std=CL2.0" not in options:
            raise WorkerError("program scope variable must reside in constant address space")
        return told

    inspector.inspect = inspect
    source = "global int n = 0; kernel void k(global int *x) { x[0] = n; }"
    assert compiled(Path("k.cl"), source, (), Compiler(inspector, (), ())) == (told, ["-cl-std=CL2.0"])


def test_no_name_stands_for_a_type_that_opencl_has() -> None:
    source = "kernel void k(queue_t q, real x) { }"
    assert unknown("unknown type name 'queue_t'\nunknown type name 'real'", source).names == {"real": "float"}


def test_the_options_that_a_kernel_takes_are_the_studys() -> None:
    sketch = sketched("kernel void k(global int *x) { x[get_global_id(0)] = 1; }")
    sketch.flags = ["-cl-std=CL2.0"]
    assert 'flag = "-cl-std=CL2.0"' in draft(sketch).splitlines()
