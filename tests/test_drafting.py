"""What `autotune new` finds in kernels of strangers: parameters, choices, arguments, types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.devices import KernelArgument
from autotune.errors import StudyError
from autotune.study import Sketch, draft, scanned
from autotune.study.drafting import branches
from autotune.study.drafting.preprocessing import Macro, _Expander, preprocessed
from autotune.study.drafting.reading import Reading
from autotune.study.drafting.repeats import codes, repeats
from autotune.study.drafting.syntax import NotRead, tokens_of
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.typedefs import in_structs
from tests.drafts import BODIES, LANES, POINTED, RIM, TILED, drafted, macros, shape_of, sketched

BLUR = """
#ifndef RADIUS
#define RADIUS 2
#endif
#ifndef PX
#define PX 1
#endif
kernel void blur(read_only image2d_t from, write_only image2d_t to, sampler_t how, global float *weights)
{
    const int w = get_image_width(from), h = get_image_height(from), y = get_global_id(1);
    for (int p = 0; p < PX; ++p) {
        const int x = get_global_id(0) * PX + p;
        if (x >= w || y >= h) return;
        float4 sum = 0.0f;
        for (int d = 0; d < 2 * RADIUS + 1; ++d) sum += weights[d] * read_imagef(from, how, (int2)(x + d - RADIUS, y));
        write_imagef(to, (int2)(x, y), sum);
    }
}
"""

KERNELS = {"lanes": LANES, "rim": RIM, "bodies": BODIES, "blur": BLUR, "tiled": TILED, "pointed": POINTED}


@pytest.mark.device
@pytest.mark.gallery
@pytest.mark.usefixtures("one_compiler")
@pytest.mark.parametrize("name", KERNELS)
def test_a_strangers_kernel_passes_as_it_is_proposed(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.cl").write_text(KERNELS[name])
    made = CliRunner().invoke(app, ["new", str(tmp_path / f"{name}.cl")])
    assert made.exit_code == 0, made.output
    assert "0 lines to be written" in made.output
    size = {"lanes": "rows=256,ENTRIES=2048", "bodies": "256", "pointed": "256"}.get(name, "64")
    done = CliRunner().invoke(app, ["check", str(tmp_path / f"{name}.toml"), "--size", size])
    assert done.exit_code == 0, done.output


def test_what_the_result_depends_on_is_no_parameter() -> None:
    _, lines = drafted(BLUR)
    assert any(line.startswith("RADIUS = [2]  # guess: the result depends on it") for line in lines)
    assert any(line.startswith("weights = ") and 'shape = ["2 * RADIUS + 1"]' in line for line in lines)
    assert "[parameters.RADIUS]" not in lines


def test_a_kernel_that_a_builtin_hides_is_refused() -> None:
    argument = KernelArgument("x", "int*", "global", "", False)
    hidden = Sketch("a", "a.cl", "kernel void step(global int *x) { }", {"_cl_step": (argument,)}, {})
    with pytest.raises(
        StudyError, match="no kernel 'step': OpenCL C has a function of that name, which hides it; rename"
    ):
        draft(hidden)


SPLIT = """
kernel void product(const int n, global const float *x, global float *part) { body(part); }
kernel void total(const int n, global const float *part, global float *x) {
    const int i = get_global_id(0); if (i < n) x[i] = part[i];
}
"""


STEPS = """
kernel void zero(const int n, global float *y) { const int i = get_global_id(0); if (i < n) y[i] = 0; }
kernel void add(const int n, global float *y, global const float *x) {
    const int i = get_global_id(0); if (i < n) y[i] += x[i];
}
kernel void twice(const int n, global float *y, global const float *x) {
    const int i = get_global_id(0); if (i < n) y[i] = 2 * x[i];
}
"""


def test_a_launch_that_overwrites_what_another_wrote_is_a_gap() -> None:
    made = sketched(STEPS)
    text = draft(made)
    gap = 'when = "TODO"  # TODO: add has written y, which twice overwrites: a condition, or "1" if both run'
    assert text.count("when = ") == 3
    assert text.index(gap) > text.index('entry = "twice"')
    assert len(made.gaps) == 1
    assert draft(sketched(SPLIT)).count('when = "TODO"') == 0  # x is read between
    named = SPLIT.replace("const float *x", "float *x").replace("body(part)", "body(part, x)")
    assert "product has written x, which total" in draft(sketched(named))
    assert draft(sketched(named.replace(", x)", ")"))).count('when = "TODO"') == 0  # product does not name x


def test_an_argument_that_no_study_can_name_gets_another() -> None:
    source = """
    kernel void f(const int n, const float lambda, const float α, global const float *in, global float *größe) {
        const int i = get_global_id(0); if (i < n) größe[i] = lambda * α * in[i];
    }
    """
    text = draft(sketched(source))
    assert 'in_ = { type = "float", shape = ["n"], access = "in" }' in text
    assert 'gr__e = { type = "float", shape = ["n"], access = "out" }' in text
    assert 'arguments = ["n", "lambda_", "_", "in_", "gr__e"]' in text


def test_a_constant_pointer_is_drafted_as_one() -> None:
    text = draft(sketched(SWEPT))
    assert 'w = { type = "float", shape = ["n"], access = "in", constant = true }' in text


def test_a_macro_that_only_branches_ask_for_is_a_switch() -> None:
    names = ("TILED", "DEEP", "KIND", "USE")
    defaults = "".join(f"#ifndef {name}\n#define {name} 1\n#endif\n" for name in names)
    source = (
        defaults
        + """
#if TILED && KIND == 2
#define STEP 1
#elif !defined(USE) || USE == 1
#define STEP DEEP
#endif
kernel void f(global float *y) { y[get_global_id(0)] = STEP; }
"""
    )
    lines = draft(sketched(source)).splitlines()
    found = {name: lines[lines.index(f"[parameters.{name}]") + 1].partition("  #")[0] for name in names}
    switch, number = "values = [0, 1]", "values = [1, 2, 4, 8]"
    assert found == {"TILED": switch, "DEEP": number, "KIND": "values = [1, 2]", "USE": switch}


def chain(*numbers: int, end: str = "") -> str:
    words = ("if", *["elif"] * len(numbers))
    lines = (f"#{word} V == {number}\n#define T {number}\n" for word, number in zip(words, numbers, strict=False))
    return "".join(lines) + end + "#endif\n"


@pytest.mark.parametrize(
    ("branches", "value", "default", "values"),
    [
        (chain(1, 2, 4, 16), "T ^ V", "1", "1, 2, 4, 16"),
        (chain(1, 2, 4, end="#else\n#define T 0\n"), "T ^ V", "4", "1, 2, 4, 8, 16"),
        (chain(1, 2, end="#else\n#define T 0\n"), "T", "1", "0, 1, 2"),
        (chain(4) + "#if V == 8\n#pragma unroll V\n#endif\n", "V", "8", "4, 8"),
        (chain(4) + "#if V > 1\n#endif\n", "V", "8", "2, 4, 8, 16, 32"),
        ("#ifdef V\n#endif\n", "V == 1 ? 3 : 4 == V ? 2 : 1", "1", "0, 1, 4"),
        ("", "V == 1.5f", "8", "2, 4, 8, 16, 32"),
        ("#define T 1 \\\n  + 1\n#if (V==3) || \\\n V != 5\n#endif\n", "T", "5", "3, 5"),
    ],
)
def test_what_branches_compare_a_macro_with_are_its_values(
    branches: str, value: str, default: str, values: str
) -> None:
    kernel = f"kernel void f(global int *y, int n) {{ int i = get_global_id(0); if (i < n) y[i] = ({value}); }}"
    _, lines = drafted(f"#ifndef V\n#define V {default}\n#endif\n{branches}{kernel}")
    assert lines[lines.index("[parameters.V]") + 1].startswith(f"values = [{values}]  # guess: ")


def test_a_macro_that_is_given_and_undefined_may_be_zero() -> None:
    source = f"{chain(1, 2)}kernel void f(global int *y) {{ y[get_global_id(0)] = T; }}"
    text = draft(Sketch("a", "a.cl", source, scanned(source), {"V": "1"}), None, {"V": "1"})
    assert "values = [0, 1, 2]  # guess: what the kernel's branches compare it with" in text


@pytest.mark.parametrize("condition", ["F(" * 300 + ")" * 300, "P(" * 900, "P || " * 5000 + "P"])
def test_a_condition_that_is_too_deep_or_too_long_is_not_decided(condition: str) -> None:
    source = f"#define F(x) x\n#if {condition}\nint one;\n#else\nint other;\n#endif\n"
    assert {"one", "other"} <= {*preprocessed(source, {"P": "1"}, ())}


def test_blanks_behind_defined_are_passed_once() -> None:
    source = f"#if defined{' ' * 400_000}! && defined ( A ) && defined B\n#endif\n"
    assert branches.undefined(source) == ["defined"]
    assert branches.asked_by_directives(source) == {"defined"}


def test_what_many_macros_are_compared_with_is_read_once() -> None:
    many = range(10_000)  # a text read anew for each took minutes
    source = "".join(f"#if M{n} == {n}\n#endif\n" for n in many)
    assert all(branches.values(source, f"M{n}", 8)[0] == sorted({0, 8, n}) for n in many)


def test_of_very_many_values_no_more_are_tried_than_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "".join(f"#if {name} == {n}\n#endif\n" for name in "PQR" for n in range(9))
    source += "kernel void k(global float *y) { y[0] = 1; }\n"
    tried: list[int] = []
    monkeypatch.setattr(branches, "preprocessed", lambda text, *given: tried.append(len(text)) or ["k"])
    monkeypatch.setattr(branches, "MOST_TRIED", len(source) * 20)
    found = branches.Branches(source, {}, ["k"], {})
    assert [found.values(name, 1)[0] for name in "PQRP"] == [[*range(9)]] * 4
    assert len(tried) == 18


def test_a_macro_that_decides_which_kernels_there_are_is_not_tuned() -> None:
    kernel = "kernel void {}(global int *y, int n) {{ int i = get_global_id(0); if (i < n) y[i] = {}; }}\n"
    source = "#if KIND == 1\n" + kernel.format("f", 1) + "#elif KIND == 2\n" + kernel.format("g", "S") + "#else\n"
    source += kernel.format("f", 3) + "#endif\n"

    def text_of(entry: str, kind: str) -> str:
        return draft(sketched(source), entry, {"KIND": kind, "S": "2"})

    assert 'flag = "-DKIND=2"' in text_of("g", "2")
    assert "[parameters.KIND]" not in text_of("g", "2")
    assert "values = [0, 1]  # guess: what the kernel's branches" in text_of("f", "1")
    default = f"#ifndef KIND\n#define KIND 2\n#endif\n{source}"
    assert "KIND" not in draft(sketched(default), "g")


@pytest.mark.parametrize(
    ("branches", "tuned"),
    [
        ("#if MODE == 2\ntypedef double real;\n#else\ntypedef float real;\n#endif", False),
        ("#if MODE\n#define real double\n#else\n#define real float\n#endif", False),
        ("#if MODE == 1\n#define real float\n#elif MODE == 2\n#define real float2\n#endif", True),
        ("#if MODE\n#define T double\n#else\n#define T float\n#endif\ntypedef struct { T x; } real;\n#define s", False),
        ("#define real float\n#if MODE == 2\n#define MORE , global const float *z\n#endif", False),
        ("#define real float\n#if MODE == 2\n#define sum double\n#else\n#define sum float\n#endif", True),
    ],
)
def test_a_macro_that_decides_what_a_kernel_takes_is_a_choice(branches: str, tuned: bool) -> None:
    source = f"#ifndef MODE\n#define MODE 1\n#endif\n{branches}\n#ifndef MORE\n#define MORE\n#endif\n#ifndef sum\n"
    source += "#define sum float\n#endif\nkernel void k(global const real *x, global real *y MORE) {\n"
    text = draft(sketched(source + "int i = get_global_id(0); sum s = x[i]; y[i] = s * s; }\n"))
    assert ("\n[parameters.MODE]" in text, "\nMODE = [1]" in text) == (tuned, not tuned)


@pytest.mark.parametrize(
    ("branch", "shape", "said"),
    [
        ("#if 0", '"1"', "its shape, since no kernel touches it"),
        ("#ifdef WIDE", '"1"', "its shape, since no kernel touches it"),
        ("#if TILE > 8", '"TODO"', "its shape, row by row"),
        ("#if 1", '"n"', ""),
    ],
)
def test_a_buffer_that_no_kernel_touches_has_one_element(branch: str, shape: str, said: str) -> None:
    _, lines = drafted(
        macros(TILE=8) + "kernel void f(global float *x, global float *extra, int n) {\n"
        f"int i = get_global_id(0) * TILE; if (i < n) x[i] = 1;\n{branch}\nif (i < n) extra[i] = 1;\n#endif\n}}"
    )
    (line,) = [line for line in lines if line.startswith("extra = ")]
    assert f"shape = [{shape}]" in line
    assert line.endswith(said)
    assert ('access = "in"' in line) == (shape == '"1"')
    _, lines = drafted("kernel void f(global float *x, int n) { REST }")
    assert any(line.startswith('x = { type = "float", shape = ["TODO"], access = "inout" }') for line in lines)


def test_macros_of_other_kernels_are_not_tuned() -> None:
    source = """
    #define JOINED(a) TEXT_##a
    #define PUT(x) out[x ^ SHARED] = JOINED(IN_NAMES)
    #pragma unroll UNROLL
    int helper(int i) { return i ^ CALLED; }
    int other(int i) { return i ^ ELSEWHERE; }
    __attribute__((reqd_work_group_size(GX, 1, 1)))
    kernel void f(global int *out, int n) { int i = get_global_id(0); if (i < n) PUT(helper(i)); }
    __attribute__((reqd_work_group_size(GY, 1, 1)))
    kernel void g(global int *out, int n) { int i = get_global_id(0); if (i < n) out[other(i) ^ OTHER] = i; }
    """
    names = ("SHARED", "CALLED", "GX", "IN_NAMES", "ELSEWHERE", "GY", "OTHER", "UNROLL")

    def tuned(entry: str | None) -> set[str]:
        text = draft(sketched(source), entry, dict.fromkeys(names, "8"))
        left_out = {name for name in names if f'flag = "-D{name}=8"' in text}
        assert {name for name in names if f"[parameters.{name}]" in text} == {*names} - left_out
        return {*names} - left_out

    assert tuned(None) == {*names}
    assert tuned("f") == {"SHARED", "CALLED", "GX", "IN_NAMES", "UNROLL"}
    assert tuned("g") == {"ELSEWHERE", "GY", "OTHER", "UNROLL"}


def test_macros_that_branches_ask_for_and_nothing_defines_are_told() -> None:
    source = """
    #define BOTH(x) ((x) > 0 && (PADDED > 1))
    #if defined(GUARDED) || __OPENCL_VERSION__ >= 200 || __has_feature(x) || cl_khr_fp64 || BOTH(VECTOR)
    #elif SOA == 1 && LOCAL
    #endif
    #ifdef FLAG
    #endif
    kernel void f(global int *y) { y[get_global_id(0)] = 1; }"""
    sketch, _ = drafted(source)
    told = "an #if uses PADDED, VECTOR, SOA, LOCAL, which nothing defines, so 0: autotune new ... -D PADDED=0 makes"
    assert any(told in guess for guess in sketch.guesses), sketch.guesses
    sketch, _ = drafted(source.replace("#ifdef FLAG", "#define LOCAL 1\n#ifdef FLAG"))
    assert any("uses PADDED, VECTOR, SOA, which nothing" in guess for guess in sketch.guesses), sketch.guesses
    told = "the kernel asks whether GUARDED, FLAG are defined, which nothing does: autotune new ... -D GUARDED drafts"
    assert any(told in guess for guess in sketch.guesses), sketch.guesses
    draft(sketch := sketched(source), None, {"GUARDED": "1"})
    assert any("whether FLAG is defined" in guess for guess in sketch.guesses), sketch.guesses


def test_macros_of_branches_behind_one_that_is_taken_are_not_told() -> None:
    source = """
    #ifdef SINGLE
    #define T float
    #elif WIDE
    #define T double
    #endif
    #ifdef NESTED
    #if DEPTH > 2
    #endif
    #endif
    kernel void f(global T *y) { y[get_global_id(0)] = 1; }"""
    for given, told in (({"SINGLE": "1"}, []), ({"SINGLE": "1", "NESTED": "1"}, ["DEPTH"]), ({"T": "int"}, ["WIDE"])):
        sketch = sketched(source)
        draft(sketch, None, given)
        asked = [guess.split("#if uses ")[1].split(",")[0] for guess in sketch.guesses if "#if uses" in guess]
        assert asked == told, given


SWEPT = """
kernel void f(const int n, constant float *w, global float *y) {
    const int i = get_global_id(0); if (i < n) y[i] = w[i];
}
"""


def test_a_macro_of_which_only_is_asked_whether_it_is_defined_is_no_parameter() -> None:
    source = """
#if defined(SINGLE) || defined(HALF)
#define T float
#endif
kernel void f(int n, global T *x) { int i = get_global_id(0); if (i < n) x[i] = 0; }
"""
    given = sketched(source)
    assert "SINGLE = [1]  # guess: the kernel tests only whether it is defined, not its value" in (
        draft(given, defined={"SINGLE": "1"}).splitlines()
    )
    _, lines = drafted(macros(SINGLE=1) + source)  # its default is there whatever the study says
    assert not any("SINGLE" in line for line in lines)


@pytest.mark.parametrize(
    ("loop", "choice"),
    [
        ("for (int r = 0; r < COUNT; ++r) { h ^= h >> 15; h *= 3; }", True),
        ("for (int r = 0; r < COUNT; r++) if (h > 1) h = h & 1 ? 3 * h + 1 : h / 2;", True),
        ("uint t[2]; t[at & 1] = h; for (int r = 0; r < COUNT; ++r) t[at & 1] += h; h = t[0];", True),
        ("local uint t[2]; t[at & 1] = h; for (int r = 0; r < COUNT; ++r) t[at & 1] += h; h = t[0];", False),
        ("for (int r = 0; r < COUNT; ++r) h += r;", False),
        ("for (int r = 0; r < COUNT; ++r) { h += x[at]; at += 64; }", False),
        ("global const uint *p = x; for (int r = 0; r < COUNT; ++r) h += *p++;", False),
        ("for (int r = 0; r < COUNT; ++r) { h += vload2(at, x).x; at += 64; }", False),
        ("for (int k = 0; k < 64; k += COUNT) for (int r = 0; r < COUNT; ++r) h = 3 * h + 1;", False),
        ("for (int r = 0; r < COUNT; r += 2) h = 3 * h + 1;", True),
        ("for (int r = 0; r < COUNT; r += STEP) h = 3 * h + 1;", False),
    ],
)
def test_how_often_a_value_is_taken_on_from_itself_is_a_choice(loop: str, choice: bool) -> None:
    _, lines = drafted(
        macros(COUNT=8) + "kernel void f(global const uint *x, global uint *y, const int n) {\n"
        f"int i = get_global_id(0), at = i; uint h = x[i]; {loop} if (i < n) y[i] = h; }}"
    )
    assert any(line.startswith("COUNT = [8]  # guess: the result depends on it") for line in lines) == choice
    assert ("[parameters.COUNT]" in lines) != choice


def test_how_often_an_iteration_turns_at_most_is_a_choice() -> None:
    _, lines = drafted(
        macros(MAX_ITER=200) + "kernel void f(global const float *x, global uchar *y, const int n) {\n"
        "int i = get_global_id(0), k = 0; if (i >= n) return; float z = x[i];\n"
        "for (; k < MAX_ITER && z < 4; ++k) z = z * z + x[i];\ny[i] = k == MAX_ITER ? 0 : k; }"
    )
    assert any(line.startswith("MAX_ITER = [200]  # guess: the result depends on it") for line in lines)


def test_a_macro_that_nothing_asks_for_is_left_out() -> None:
    text = "kernel void f(int n, global int *x) { int i = get_global_id(0); if (i < n) x[i] = 1; }"
    _, lines = drafted(macros(WPT=2) + text)
    assert 'local = ["WG"]' in lines
    assert "[parameters.WPT]" not in lines


def test_what_the_kernel_defines_itself_is_no_parameter() -> None:
    sketch, lines = drafted(
        """#define WG 64
        kernel void f(const int n, global const float *x, global float *y)
        {
            local float t[WG];
            const int i = get_global_id(0), l = get_local_id(0);
            t[l] = i < n ? x[i] : 0;
            if (i < n) y[i] = t[l ^ 1];
        }"""
    )
    assert 'local = ["64"]' in lines
    assert "[parameters.WG]" not in lines
    assert any("write #ifndef WG before the kernel's #define" in gap for gap in sketch.gaps)
    _, lines = drafted(macros(A=1, WG=64) + "#undef A\n#define A 2\nkernel void f(global int *x) { x[A * WG] = 0; }")
    assert "[parameters.A]" not in lines
    assert "[parameters.WG]" in lines


@pytest.mark.parametrize(
    ("stored", "choice"),
    [
        ("y[i] = SCALE * x[i]", True),
        ("y[i] += (x[i] - SCALE) / 2", True),
        ("y[i] = x[i * SCALE + 1]", False),
        ("y[i] = SCALE == 2 ? x[i] : x[n - i]", False),
        ("y[i * SCALE] = x[i]", False),
        ("z = SCALE * x[i]; y[i] = z", False),  # not followed
    ],
)
def test_a_number_that_is_stored_with_the_result_is_a_choice(stored: str, choice: bool) -> None:
    _, lines = drafted(
        f"""#ifndef SCALE
        #define SCALE 3
        #endif
        kernel void f(const int n, global const float *x, global float *y)
        {{
            const int i = get_global_id(0);
            float z;
            if (i < n) {{ {stored}; }}
        }}"""
    )
    assert ("[parameters.SCALE]" in lines) is not choice
    assert any(line.startswith("SCALE = [3]  # guess: the result depends on it") for line in lines) is choice


def test_a_type_that_nobody_tells_is_left_to_be_written() -> None:
    sketch, lines = drafted(
        """typedef ELEMENT vector;
        typedef enum { FORTH, BACK } way;
        enum place { HERE, THERE };
        kernel void f(const int n, const way w, const enum place p, global const vector *x, global vector *y)
        {
            if (get_global_id(0) < n) y[get_global_id(0)] = w == BACK ? -x[get_global_id(0)] : x[get_global_id(0)];
        }"""
    )
    assert [gap.partition(": ")[2] for gap in sketch.gaps] == ["its type: the meaning of vector is not known"] * 2
    assert any(line.startswith('w = { type = "int", value = ') for line in lines)
    assert any(line.startswith('p = { type = "int", value = ') for line in lines)


def test_arguments_without_a_name_are_called_by_their_place() -> None:
    _, lines = drafted(
        """kernel void f(global float *, const unsigned int, global float *y, image2d_t, unsigned n)
        { if (get_global_id(0) < n) y[get_global_id(0)] = 1; }"""
    )
    assert 'arguments = ["unnamed_0", "unnamed_1", "y", "unnamed_3", "n"]' in lines
    assert 'unnamed_0 = { type = "float", shape = ["1"], access = "in" }' in shape_of(lines, "unnamed_0")
    assert 'unnamed_1 = { type = "uint", value = "1" }' in shape_of(lines, "unnamed_1")


def test_a_kernels_own_names_are_proposed_where_the_compiler_tells_others() -> None:
    source = """kernel void f(const int length, global float *y)
    { const int i = get_global_id(0); if (i < length) y[i] = 1; }"""
    length, y = scanned(source)["f"]
    signatures = {"f": [replace(length, name="_cl_length"), y]}  # as PoCL's headers rename it
    text = draft(Sketch("a", "a.cl", source, signatures, {}))
    assert "length = 65536" in text.splitlines()
    assert "_cl_" not in text


def test_a_name_for_a_type_stands_for_what_it_is() -> None:
    _, lines = drafted(
        """#ifndef REAL
        #define REAL float
        #endif
        #define REAL_SIZE 4
        #ifdef WIDE
        typedef float4 element;
        #else
        typedef float2 element;
        #endif
        typedef REAL real;
        typedef real scalar;
        typedef unsigned int u32;
        typedef float4 quad;
        #ifdef HALF
        typedef half net;
        #elif REAL_SIZE > 4
        typedef double net;
        #else
        typedef float net;
        #endif
        typedef net weight;
        #define SHORT unsigned short
        kernel void f(global const scalar *a, global quad *b, const u32 n, const real alpha, global SHORT *c,
                      global element *d, global const weight *e)
        {
            const int i = get_global_id(0);
            if (i < n) { b[i] = alpha * a[i]; c[i] = 0; d[i] = e[i]; }
        }"""
    )
    assert 'REAL = ["float"]' in lines
    assert 'a = { type = "REAL", shape = ["n"], access = "in" }' in lines
    assert 'b = { type = "float4", shape = ["n"], access = "out" }' in lines
    assert 'c = { type = "ushort", shape = ["n"], access = "out" }' in lines
    assert 'type = "REAL", value = "0.5"' in shape_of(lines, "alpha")
    assert "n = 65536" in lines
    assert 'type = "REAL", shape = ["2 * n"], ' in shape_of(lines, "d")  # of several: its components
    assert 'type = "float"' in shape_of(lines, "e")  # of several, by another name: that of the branch that is taken


def test_of_choices_for_one_type_each_argument_has_its_own() -> None:
    _, lines = drafted(
        macros(In="float", Out="float")
        + """
        kernel void f(const int n, const float by, global const In *in, global Out *restrict out, global const float *w)
        { int i = get_global_id(0); if (i < n) out[i] = by * in[i] + w[i]; }"""
    )
    kinds = {name: shape_of(lines, name).split('"')[1] for name in ("by", "in_", "out", "w")}
    assert kinds == {"by": "float", "in_": "In", "out": "Out", "w": "float"}


QUEENS = """
kernel void queens(global uint *found)
{
    const int id = get_global_id(0);
    if (id >= NAME * NAME) return;
    uint columns[NAME];
    found[id] = count(columns, id % NAME, id / NAME);
}
"""


@pytest.mark.parametrize("name", ["N", "BOARD_SIZE", "WHATEVER"])  # by its name, and as the ids end there
def test_a_macro_that_says_how_much_there_is_is_a_size(name: str) -> None:
    sketch, lines = drafted(macros(**{name: 12}) + QUEENS.replace("NAME", name))
    assert f"{name} = 12  # guess: how much there is to compute; if not, make it [parameters.{name}]" in lines
    assert lines[lines.index("[defines]") + 1] == f'{name} = "{name}"'
    assert f"[parameters.{name}]" not in lines
    assert f'global = ["round_up({name} * {name}, WG)"]' in lines
    assert sketch.gaps == []


def test_ids_counted_group_by_group_end_at_sizes_too_and_sizes_that_are_fixed_are_told() -> None:
    body = """kernel void f(global float *a, global const float *b) {
        const int x = get_group_id(0) * BX + get_local_id(0), y = get_group_id(1) * BY + get_local_id(1);
        if (x > 0 && x < ACROSS - 1 && y > 0 && y < DOWN - 1) a[y * ACROSS + x] = b[y * ACROSS + x - 1]; }"""
    _, lines = drafted(macros(ACROSS=4096, DOWN=2048, BX=32, BY=8) + body)
    assert lines[lines.index("[defines]") + 1] == 'ACROSS = "ACROSS"'
    assert 'global = ["round_up(ACROSS - 1, BX)", "round_up(DOWN - 1, BY)"]' in lines
    sketch, _ = drafted(
        macros(BX=32, BY=8) + f"#define WIDTH 8192\n#define DOWN 2048\n{body.replace('ACROSS', 'WIDTH')}"
    )
    assert [guess.partition(" and ")[2] for guess in sketch.guesses if "the kernel fixes" in guess] == [
        "#endif after it make one tunable, or a size", "#endif after it make one a size",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "guard",
    ["get_local_id(0) < PART", "id % PART < 1", "id < n / PART", "get_group_id(0) < PART", "id < WG * NUM_GROUPS"],
)
def test_a_macro_that_shares_work_out_is_none(guard: str) -> None:
    body = "kernel void f(int n, global int *x) { int id = get_global_id(0); if (GUARD && id < n) x[id] = 0; }"
    _, lines = drafted(macros(PART=4, WG=64, NUM_GROUPS=16) + body.replace("GUARD", guard))
    assert "[defines]" not in lines


def test_a_pointer_that_is_const_itself_may_be_written_to() -> None:
    told = scanned("kernel void f(global int * const to, global int const *from, const int n) {}")["f"]
    assert [one.const for one in told] == [False, True, True]


def test_members_of_structs_are_of_types_that_a_study_knows_or_a_gap() -> None:
    source = """
#define REAL float
#define DIM 3
#ifdef WIDE
#define other double
#else
#define other half
#endif
typedef struct { REAL v[DIM]; unsigned int n, id[2 * (DIM + 1)][DIM]; } Inner;
typedef struct { Inner in; other w; } P;
kernel void f(const int n, global P *p) { int i = get_global_id(0); if (i < n) p[i].in.n = 0; }
"""
    sketch, lines = drafted(source)
    assert 'Inner = ["float v[3]", "uint n", "uint id[8][3]"]' in lines
    unread, _ = drafted(source.replace("(DIM + 1)", "(NONE + 1)"))
    assert unread.gaps[0] == "line 23: its members: the meaning of uint id[2 * (NONE + 1)][3] is not known"
    long, _ = drafted(source.replace("(DIM + 1)", "+".join(["2"] * 5000)))
    assert long.gaps[0].startswith("line 23: its members: the meaning of uint id[2 * 2+2+")
    assert 'P = ["Inner in", "half w"]' in lines  # as in the branch that is taken
    assert sketch.gaps == []
    assert 'P = ["Inner in", "double w"]' in drafted(source.replace("#define other half\n", ""))[1]
    unknown, _ = drafted(source.replace("#define other", "#define another"))
    assert unknown.gaps == ["line 24: its members: the meaning of other w is not known"]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("struct __attribute__((packed)) S { uchar a; float b; };", 'S = ["packed", "uchar a", "float b"]'),
        ("typedef struct { int a; } __attribute__((aligned(32))) S;", 'S = ["aligned(32)", "int a"]'),
        ("typedef struct { int a; } S __attribute__((__packed__, aligned(2)));",
         'S = ["packed", "aligned(2)", "int a"]'),
        ("struct S {\nint a;\n#ifndef __OPENCL_VERSION__\nint first() { return a; }\n#else\nint b[2 * N];\n#endif\n};",
         'S = ["int a", "int b[6]"]'),
        ("struct S { uint a, b[(N + 4) / 4 * 40 / sizeof(unsigned int)]; };", 'S = ["uint a", "uint b[10]"]'),
        ("typedef struct { unsigned short int a, b[3]; long int c; short d; } S;",
         'S = ["ushort a", "ushort b[3]", "long c", "short d"]'),
        ("#ifdef __cplusplus\n#define REAL4 Vector\n#else\ntypedef float4 REAL4;\n#endif\n"
         "struct S { REAL4 v; int a; };", 'S = ["float4 v", "int a"]'),
    ],
)  # fmt: skip
def test_structs_are_as_their_attributes_and_branches_have_them(text: str, row: str) -> None:
    kind = "S" if "typedef struct" in text else "struct S"
    sketch, lines = drafted(
        f"#define N 3\n{text}\nkernel void f(global const {kind} *s, global int *to, const int n)\n"
        "{ int i = get_global_id(0); if (i < n) to[i] = s[i].a; }"
    )
    assert row in lines
    assert not any("members" in gap or "type" in gap for gap in sketch.gaps)


SEVERAL = """
kernel void fill(global float *to, const float value) { to[get_global_id(0)] = value; }
kernel void fill4(global float4 *to, const float4 value) { to[get_global_id(0)] += value; }
kernel void mark(global uchar *to, const int value) { to[get_global_id(0)] = value; }
"""


def test_one_name_for_several_arguments_is_told_apart() -> None:
    sketch, lines = drafted(SEVERAL)
    assert shape_of(lines, "to") == (
        'to = { type = "float", shape = ["4 * N"], access = "inout" }  # guess: fill4 takes it as float4'
    )
    assert 'to_char = { type = "uchar", shape = ["N"], access = "out" }' in lines
    assert [line for line in lines if line.startswith("arguments = ")] == [
        'arguments = ["to", "value"]', 'arguments = ["to", "value_float4"]', 'arguments = ["to_char", "value_int"]',
    ]  # fmt: skip
    assert shape_of(lines, "value_float4") == 'value_float4 = { type = "float4", value = "0.75" }  # guess: its value'
    assert draft(sketch, "mark").count("to_char") == 0


JOINED = """#ifndef REAL
#define REAL float
#endif
#ifndef VEC
#define VEC 4
#endif
#ifndef EDGE
#define EDGE 32
#endif
#define JOIN_(a, b) a ## b
#define JOIN(a, b) JOIN_(a, b)
#define KERNEL(name) kernel __attribute__((reqd_work_group_size(EDGE, 1, 1))) void JOIN(k_, name)
#define GIVEN(first, ...) (first, __VA_ARGS__)
KERNEL(scale)GIVEN(const int n,
                   global const REAL *x, global REAL *y)
{
    const int i = get_global_id(0) * VEC;
    if (i < n) JOIN(vstore, VEC)(JOIN(JOIN(vload, VEC),)(0, x + i) * (REAL)2, 0, y + i);
}
"""


def test_what_macros_put_together_and_take_over_lines_is_read() -> None:
    signature = scanned("kernel void k_scale(const int n, global const float *x, global float *y) {}")
    given = {"REAL": "float", "VEC": "4", "EDGE": "32"}
    lines = draft(Sketch("a", "a.cl", JOINED, signature, given)).splitlines()
    assert {"[parameters.VEC]", "[parameters.EDGE]", 'local = ["EDGE"]'} <= {*lines}
    assert lines[lines.index("[parameters.VEC]") + 1].startswith("values = [2, 4, 8, 16]")
    assert 'global = ["round_up(ceil_div(n, VEC), EDGE)"]' in lines
    assert 'shape = ["round_up(n, 16)"], access = "out"' in shape_of(lines, "y")  # as the widest vectors have it


@pytest.mark.parametrize(
    ("body", "launched", "shape"),
    [
        ("int i = get_global_id(0); if (i < n / W) y[i] = x[i];", "round_up(n // W, WG)", "n"),
        (
            "int i = get_global_id(0); if (i * W < n) y[i] = x[i];",
            "round_up(ceil_div(n, W), WG)",
            "round_up(n, 16)",
        ),
        ("y[get_global_id(0)] = x[get_global_id(0)];", "n // W", "n"),
        ("float v = 1; REP(W, v *= 2;) y[get_global_id(0)] = x[get_global_id(0)] * v;", "n // W", "n"),
        ("vec v = VLD(get_global_id(0), (global float *)x); y[get_global_id(0)] = v;", "n // W", "n"),
    ],
)
def test_vectors_whose_width_a_macro_decides_are_counted_by_components(body: str, launched: str, shape: str) -> None:
    sketch, lines = drafted(
        macros(W=4)
        + f"""
        #define CAT_(a, b) a##b
        #define CAT(a, b) CAT_(a, b)
        #define REP_4(statement) statement
        #define REP(n, statement) CAT(REP_, n)(statement)
        #define VLD CAT(vload, W)
        typedef CAT(float, W) vec;
        kernel void f(global const vec *x, global vec *y, int n) {{ {body} }}"""
    )
    assert sketch.gaps == []
    assert any(line.startswith(f'global = ["{launched}"]') for line in lines)
    assert f'y = {{ type = "float", shape = ["{shape}"], access = "out" }}' in shape_of(lines, "y")
    assert lines[lines.index("[parameters.W]") + 1].startswith("values = [2, 4, 8, 16]")


def test_the_width_of_vectors_is_no_size_of_the_problem() -> None:
    _, lines = drafted(
        macros(WIDTH=4)
        + """
        #define CAT_(a, b) a##b
        #define CAT(a, b) CAT_(a, b)
        kernel void f(global float *y, int n)
        { if (get_global_id(0) < n / WIDTH) CAT(vstore, WIDTH)(1, get_global_id(0), y); }"""
    )
    assert "[parameters.WIDTH]" in lines
    assert 'shape = ["n"], access = "out"' in shape_of(lines, "y")


def test_what_macros_put_together_may_be_a_macro() -> None:
    _, lines = drafted(
        macros(UNROLL=4)
        + """
        #define REP_4(statement) statement
        #define CAT_(a, b) a##b
        #define CAT(a, b) CAT_(a, b)
        #define REP(n, statement) CAT(REP_, n)(statement)
        kernel void f(global float *x)
        { float v = x[get_global_id(0)]; REP(UNROLL, v = v * v;) x[get_global_id(0)] = v; }"""
    )
    assert "[parameters.UNROLL]" in lines
    assert 'shape = ["N"], access = "inout"' in shape_of(lines, "x")


def test_rows_of_vectors_are_as_long_as_their_components_are_many() -> None:
    sketch, lines = drafted(
        macros(W=4)
        + """
        #define CAT_(a, b) a##b
        #define CAT(a, b) CAT_(a, b)
        typedef CAT(float, W) vec;
        kernel void f(global const vec *x, global vec *y, int m, int k)
        {
            const int at = get_global_id(1) * (m / W) + get_global_id(0);
            if (get_global_id(0) < m / W && get_global_id(1) < k) y[at] = x[at];
        }"""
    )
    assert sketch.gaps == []
    assert 'y = { type = "float", shape = ["k", "m"], access = "out" }' in shape_of(lines, "y")
    assert 'global = ["round_up(m // W, WX)", "round_up(k, WY)"]' in lines


def test_a_row_is_shared_out_as_parameters_say() -> None:
    _, lines = drafted(
        macros(W=4)
        + """kernel void f(global float *y, int width)
        { for (int k = 0; k < W; ++k) y[get_global_id(1) * width + get_global_id(0) * W + k] = k; }"""
    )
    assert 'global = ["width // W", "HEIGHT"]' in "\n".join(lines)


def test_places_that_nothing_bounds_are_shared_out_as_parameters_say() -> None:
    _, lines = drafted(
        macros(WPT=4)
        + "kernel void f(global float *y) { for (int k = 0; k < WPT; ++k) y[get_global_id(0) * WPT + k] = k; }"
    )
    assert 'shape = ["N"], access = "out"' in shape_of(lines, "y")
    assert any(line.startswith('global = ["N // WPT"]') for line in lines)


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        ("i * 4 + 3", '"round_up(n, 4)"'),
        ("i * 4 + 1", '"round_up(n, 4) - 2"'),
        ("i * 4 + 4", '"n + 4"'),
    ],
)
def test_what_counts_fours_ends_with_the_last_of_a_four(index: str, shape: str) -> None:
    _, lines = drafted(
        f"kernel void f(global float *y, const int n) {{ int i = get_global_id(0); if (i * 4 < n) y[{index}] = 1; }}"
    )
    assert f"shape = [{shape}]" in shape_of(lines, "y")


def test_a_rim_that_nothing_guards_is_left_out_by_the_launch() -> None:
    _, lines = drafted(
        """kernel void f(global const float *x, global float *y, const int nx, const int ny)
        {
            const int i = get_global_id(0) + 1, j = get_global_id(1) + 1;
            y[j * nx + i] = x[j * nx + i - 1] + x[j * nx + i + 1] + x[(j - 1) * nx + i] + x[(j + 1) * nx + i];
        }"""
    )
    assert any(line.startswith('global = ["nx - 2", "ny"]') for line in lines)
    assert 'shape = ["ny + 2", "nx"]' in shape_of(lines, "x")
    assert {"nx = 514", "ny = 512"} <= {*lines}


def test_a_launch_without_a_rim_that_a_number_says_takes_whole_work_groups_at_first() -> None:
    _, lines = drafted(
        """kernel void f(global const float *x, global float *y, const int width, const int height, const int radius)
        {
            const int i = get_global_id(0) + radius, j = get_global_id(1);
            y[j * (width - radius) + i - radius] = x[j * width + i];
        }"""
    )
    assert any(line.startswith('global = ["width - radius", "') for line in lines), lines
    assert {"width = 513", "radius = 1  # guess: its value"} <= {*lines}, lines


def test_groups_may_count_places_along_one_axis_alone() -> None:
    _, lines = drafted(
        macros(TX=8)
        + """kernel void f(global float *y, const int nx, const int ny)
        { y[get_global_id(1) * nx + get_group_id(0) * TX + get_local_id(0)] = 1; }"""
    )
    assert any(line.startswith('local = ["TX", "WY"]  # guess: from the places per') for line in lines)
    assert lines[lines.index("[parameters.WY]") + 2] == "default = 16"
    _, lines = drafted(
        """kernel void f(global float *y, const int nx, const int ny)
        { y[(get_global_id(2) * ny + get_global_id(1)) * nx + get_global_id(0)] = 1; }"""
    )
    assert [line[12:14] for line in lines if line.startswith("[parameters.")] == ["WX", "WY", "WZ"]


def test_a_mask_beyond_the_end_of_rows_is_left_out_by_the_launch() -> None:
    _, lines = drafted(
        """kernel void f(global const float *x, constant float *mask, global float *y, const int width, int maskWidth)
        {
            const int i = get_global_id(0), j = get_global_id(1);
            float sum = 0;
            for (int r = 0; r < maskWidth; ++r)
                for (int c = 0; c < maskWidth; ++c) sum += mask[r * maskWidth + c] * x[(j + r) * width + i + c];
            y[j * get_global_size(0) + i] = sum;
        }"""
    )
    assert any(line.startswith('global = ["width - maskWidth + 1", "HEIGHT"]') for line in lines)
    assert 'shape = ["HEIGHT", "width - maskWidth + 1"]' in shape_of(lines, "y")
    assert any(line.startswith("maskWidth = 3 ") for line in lines)
    assert "width = 514" in lines  # whole work-groups are left


def test_a_line_of_items_over_a_matrix_has_the_sizes_of_a_matrix() -> None:
    _, lines = drafted(
        """kernel void f(const int n, global const float *x, global float *y)
        {
            const int i = get_global_id(0);
            if (i < n) for (int j = 0; j < n; ++j) y[i * n + j] = x[j * n + i];
        }"""
    )
    assert "n = 512" in lines


@pytest.mark.parametrize(("test", "told"), [("if (way)", True), ("if (way && i)", True), ("if (way < 3 && i)", False)])
def test_what_is_only_asked_whether_it_is_true_is_no_size(test: str, told: bool) -> None:
    assert (codes(tokens_of(f"int i = 3; {test} y[i] = 1;"), ["way"]) == {"way"}) is told


@pytest.mark.parametrize(
    "text", ["F(" * 30000, "F(" * 1000 + ")" * 1000, "F(a\n)\n" * 10000, "D(" * 50 + "a" + ")" * 50]
)
def test_calls_of_macros_are_read_or_given_up_in_no_time(text: str) -> None:
    try:
        assert preprocessed(f"#define F(x) x\n#define D(x) x x\n{text}", {}, ())
    except NotRead:
        assert "D" in text or ")" in text


@pytest.mark.parametrize(
    ("end", "shape"), [("a < first + w", '"8 * ceil_div(w, 8)", "n"'), ("a < last(first)", '"8", "n"')]
)
def test_what_a_loop_steps_beside_its_counter_is_bounded_by_how_often_it_turns(end: str, shape: str) -> None:
    _, lines = drafted(
        f"""kernel __attribute__((reqd_work_group_size(8, 8, 1)))
        void f(global const float *x, global float *y, local float *t, const int w, const int n)
        {{
            const int u = get_local_id(0), v = get_local_id(1), first = w * 8 * get_group_id(1);
            float sum = 0;
            for (int a = first, b = 8 * get_group_id(0); {end}; a += 8, b += 8 * n) {{
                t[v * 8 + u] = x[b + n * v + u];
                sum += t[v * 8];
            }}
            y[get_global_id(1) * n + get_group_id(0) * 8 + u] = sum;
        }}"""
    )
    assert f"shape = [{shape}]" in shape_of(lines, "x")
    assert ("others may reach farther" in shape_of(lines, "x")) == ("last" in end)


def test_a_text_is_read_as_often_for_many_kernels_as_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(side_effect=preprocessed)
    monkeypatch.setattr("autotune.study.drafting.preprocessing.preprocessed", read)
    counts = []
    for many in (1, 30):
        read.reset_mock()
        drafted("".join(f"kernel void f{n}(global int *x) {{ x[get_global_id(0)] = {n}; }}\n" for n in range(many)))
        counts.append(read.call_count)
    assert counts[0] == counts[1] > 0


def test_a_macro_is_put_in_once_until_one_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    filled, given = _Expander._filled, list[Macro]()
    monkeypatch.setattr(_Expander, "_filled", lambda own, *asked: given.append(asked[0]) or filled(own, *asked))
    text = "#define A 1\n#define B (A+A)\n" + "x = B;\n" * 50 + "#undef A\n#define A 2\ny = B;\n#define B A\nz = B;"
    assert preprocessed(text, {}, ()) == [*"x=(1+1);" * 50, *"y=(2+2);z=2;"]
    assert len(given) == 6


def test_what_repeats_is_found_in_a_long_text_in_no_time() -> None:
    tokens = tokens_of("a[0]+" * 400_000 + "; for (int i = 0; i < N; ++i) v = v * v;")
    assert repeats(tokens, ["N"], []) == {"N"}  # minutes, where each place looks back at all before it


@pytest.mark.parametrize(("owner", "name", "times"), [(Reading, "of", 1), (Sum, "__sub__", 2)])
def test_what_a_kernel_does_is_compared_with_its_guards_once(
    owner: type, name: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    real = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given: calls.append(given) or real(*given))

    def asked(statements: int) -> int:
        body = "".join(f"if (i < {k} + t[0]) a[i] ^= t[a[i + {k}] & 255];" for k in range(statements))
        calls.clear()
        drafted(f"kernel void mix(global int *a, global const int *t) {{ int i = get_global_id(0); {body} }}")
        return len(calls)

    assert 0 < asked(20) <= times * asked(10)


NODES = """
struct node {
    int where; int keys[ORDER + 1]; bool leaf;
    union { float4 lo; float e[4]; int i[3]; };
    union { int a; } u;
};
typedef struct node Node;
kernel void f(global const Node *nodes, global int *path, const int n)
{
    int i = get_global_id(0);
    if (i < n) path[i] = nodes[i].where + nodes[i].leaf + nodes[i].keys[ORDER] + nodes[i].i[0];
}
"""


def test_structs_are_read_with_macros_that_are_given_and_of_unions_the_widest_member() -> None:
    sketch = sketched(NODES)
    lines = draft(sketch, None, {"ORDER": "8"}).splitlines()
    assert not sketch.gaps
    told = '"int where", "int keys[9]", "uchar leaf", "float4 lo", "int u"'
    assert any(line.startswith(f"Node = [{told}]  # guess: the largest member") for line in lines)
    assert "ORDER = [8]  # guess: the result depends on it; if not, make it [parameters.ORDER]" in lines
    sketch = sketched(NODES.replace("int i[3]", "other i"))
    draft(sketch, None, {"ORDER": "8"})
    assert sketch.gaps  # how large it is nobody tells
    _, lines = drafted(
        "typedef union { uchar4 v; uint w; uchar b[4]; } Pixel; typedef struct { Pixel p; float n; } Cell;"
        "kernel void f(global Pixel *x, global Cell *c) { int i = get_global_id(0); x[i].w = c[i].p.b[0]; }"
    )
    assert 'Cell = ["uint p", "float n"]' in lines
    assert any(line.startswith('x = { type = "uint", ') for line in lines)


def test_macros_are_taken_for_given_by_the_structs_that_arguments_are_of_alone() -> None:
    text = "struct A { float x[N]; }; typedef struct { struct A a[M]; } B; typedef struct { float z[L]; } C;"
    argument = KernelArgument("b", "B*", "global", "", False)
    assert in_structs(text, ("N", "M", "L"), [argument]) == {"N", "M"}


def test_an_argument_that_shells_act_on_has_another_name() -> None:
    _, lines = drafted(NODES.replace("ORDER", "8"))
    assert 'path_ = { type = "int", shape = ["n"], access = "out" }' in lines
    assert 'arguments = ["nodes", "path_", "n"]' in lines


def test_a_launch_fills_a_work_group_however_many_sizes_there_are() -> None:
    taken = "global const float *w, global float *g, const int a, const int b, const int c, const int d"
    loops = " ".join(
        f"for (int {turn} = 0; {turn} < {size}; ++{turn})" for turn, size in zip("pqrt", "abcd", strict=True)
    )
    body = f"float s = 0; {loops} s += w[((p * b + q) * c + r) * d + t]; g[get_global_id(0)] = s;"
    _, lines = drafted(f"kernel void f({taken})\n{{ {body} }}")
    assert {"a = 32", "d = 32"} <= {*lines}
    assert any(line.startswith("N = 64 ") for line in lines)
    assert "default = 64" in lines


def test_an_image_of_many_sizes_is_no_longer_than_images_are() -> None:
    taken = "read_only image2d_t w, write_only image2d_t o, const int a, const int b, const int c"
    read = "for (int k = 0; k < a * b * c; ++k) s += read_imagef(w, (int2)(k, y));"
    body = f"const int y = get_global_id(0); float4 s = 0; {read} write_imagef(o, (int2)(y, get_global_id(1)), s);"
    _, lines = drafted(f"kernel void f({taken})\n{{ {body} }}")
    assert "a = 16" in lines


def test_a_number_by_which_a_loop_steps_is_not_0() -> None:
    taken = "global const float *f, global uchar *y, const int off, const int step, const int rows, const int cols"
    body = "const int c = get_global_id(0), r = get_global_id(1); if (c < cols && r < rows) { float s = 0; LOOP FILL }"
    fill = "*(global float *)(y + mad24(r, step, mad24(c, (int)sizeof(float), off))) = s;"
    for loop, value in (("", "0"), ("for (int k = c; k >= 0; k -= off) s += f[k];", "1")):
        _, lines = drafted(f"kernel void f({taken})\n{{ {body.replace('LOOP', loop).replace('FILL', fill)} }}")
        assert any(line.startswith(f'off = {{ type = "int", value = "{value}" }}') for line in lines), (loop, lines)
