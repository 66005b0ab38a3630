"""What `autotune new` finds in kernels of strangers: work-groups and launches."""

from __future__ import annotations

import re

import pytest

from autotune.study import Sketch, draft, scanned
from autotune.study.drafting.divisors import zero_for_some
from autotune.study.drafting.terms import Sum, undivided
from tests.drafts import RIM, TILED, drafted, macros, shape_of


def test_macros_that_nothing_asks_for_are_the_work_group() -> None:
    _, lines = drafted(RIM)
    assert any(line.startswith('local = ["TX", "TY"]  # guess: by its name') for line in lines)
    assert 'global = ["round_up(nx - 1, TX)", "round_up(ceil_div(ny - 1, ROWS), TY)"]' in lines
    _, lines = drafted(RIM.replace("kernel void", "#define FLAT (TX * TY)\nkernel void"))
    assert 'local = ["WX", "WY"]' in lines


def test_a_work_group_of_one_is_none() -> None:
    _, lines = drafted(
        "#ifndef GROUP_M\n#define GROUP_M 1\n#endif\n"
        "kernel void f(int n, global int *x) { int i = get_global_id(0); if (i < n) x[i] = GROUP_M; }"
    )
    assert 'local = ["WG"]' in lines


def test_a_kernel_that_was_not_read_leaves_its_launch_to_the_author() -> None:
    sketch = Sketch("a", "a.cl", "kernel void f(global int *x) { }", {"g": scanned("kernel void g(int n) {}")["g"]}, {})
    assert any(line.startswith('global = ["TODO"]') for line in draft(sketch).splitlines())


SUM = (
    macros(GROUPS=16, WG=64)
    + """
kernel void first(global const float *x, global float *part, int n)
{
    local float t[WG];
    float s = 0;
    for (int i = get_global_id(0); i < n; i += GROUPS * WG) s += x[i];
    t[get_local_id(0)] = s;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = WG / 2; k > 0; k /= 2) if (get_local_id(0) < k) t[get_local_id(0)] += t[get_local_id(0) + k];
    if (get_local_id(0) == 0) part[get_group_id(0)] = t[0];
}
float whole(global const float *part) { float s = 0; for (int i = 0; i < GROUPS; ++i) s += part[i]; return s; }
kernel void second(global const float *part, global float *sum) { *sum = whole(part); }
"""
)


def test_local_arrays_tell_the_work_group_and_one_item_is_enough_where_none_is_asked_for() -> None:
    _, lines = drafted(SUM)
    found = [line for line in lines if line.startswith(("global =", "local ="))]
    assert found == ['global = ["GROUPS * WG"]', 'local = ["WG"]', 'global = ["1"]', 'local = ["1"]']


def test_a_launch_counts_the_shortest_row_and_no_rim() -> None:
    sketch, lines = drafted("""
        kernel void blur(const int width, const int height, global const float *from, global float *to)
        {
            const int x = get_global_id(0), y = get_global_id(1);
            float sum = 0;
            for (int v = -2; v <= 2; ++v)
                for (int u = -2; u <= 2; ++u) sum += from[(y + 2 + v) * (width + 4) + x + 2 + u];
            to[y * width + x] = sum;
        }""")
    assert any(line.startswith('global = ["width", "height"]  # guess: ') for line in lines)
    assert 'from_ = { type = "float", shape = ["height + 4", "width + 4"], access = "in" }' in lines
    assert sketch.gaps == []
    _, lines = drafted("""
        kernel void padded(const int width, const int pad, global const float *from, global float *to)
        {
            const int x = get_global_id(0), y = get_global_id(1);
            to[y * (width + 2 * pad) + x + pad] = from[y * width + x];
        }""")
    assert any(line.startswith('global = ["width", "HEIGHT"]  # guess: ') for line in lines)


@pytest.mark.parametrize(
    ("guard", "items"),
    [
        ("if (i == 0)", "WG"),
        ("if (i != 0) return;", "WG"),
        ("if (0 == get_group_id(0))", "WG"),
        ("if (i == n)", "TODO"),
        ("if (i == 0 && x[mine(get_group_id(0), [)] > 0)", "TODO"),  # as far as it was understood
        ("if (i == 0) y[i] = 1; if (i < n)", "round_up(n, WG)"),
    ],
)
def test_where_one_item_does_it_all_one_group_is_enough(guard: str, items: str) -> None:
    _, lines = drafted(
        "kernel void norm(global const float *x, global float *y, const int n) {\n"
        f"const int i = get_global_id(0); float sum = 0; {guard}\n"
        "{ for (int k = 0; k < n; ++k) sum += x[k]; y[0] = sum; } }"
    )
    assert any(line.startswith(f'global = ["{items}"]') for line in lines), lines


def test_tiles_of_groups_fill_rows_and_what_no_other_index_counts() -> None:
    sketch, lines = drafted(TILED)
    assert any(line.startswith('global = ["M", "ceil_div(N, TS) * RTS"]  # guess: ') for line in lines)
    assert 'local = ["TS", "RTS"]' in lines
    for name, shape, access in (("b", '"N", "K"', "in"), ("c", '"N", "M"', "out")):
        assert f'{name} = {{ type = "float", shape = [{shape}], access = "{access}" }}' in lines
    assert any(line.startswith('a = { type = "float", shape = ["K", "M"], access = "in" }') for line in lines)
    assert sketch.gaps == []
    by_quotient = TILED.replace("RTS\n#define RTS 4", "WPT\n#define WPT 4").replace("RTS", "(TS / WPT)")
    _, lines = drafted(by_quotient)
    assert 'local = ["TS", "TS // WPT"]' in lines
    assert any(line.startswith('global = ["M", "ceil_div(N, TS) * (TS // WPT)"]') for line in lines)


@pytest.mark.parametrize(
    ("products", "less"),
    [
        ([(("(n // 8)",), 3)], "3 * (n // 8)"),
        ([(("(n // 8)",), 16)], "2 * n"),
        ([(("(n // T)", "T", "w"), 1), ((), 3)], "n * w + 3"),
        ([(("(n // T)", "T"), -1)], "-(n // T) * T"),
        ([(("(n // T)", "(m // T)", "T"), 2)], "2 * (m // T) * n"),
    ],
)
def test_a_quotient_times_its_divisor_is_no_more_than_what_is_divided(
    products: list[tuple[tuple[str, ...], int]], less: str
) -> None:
    assert str(undivided(Sum(products))) == less


def test_a_rim_in_local_memory_is_no_part_of_the_work_group() -> None:
    _, lines = drafted(
        macros(W=64, RADIUS=2) + "kernel void f(global const float *x, global float *y, const int n) {\n"
        "local float t[W + 2 * RADIUS]; int i = get_global_id(0), l = get_local_id(0);\n"
        "if (i < n) { t[l + RADIUS] = x[i]; barrier(CLK_LOCAL_MEM_FENCE); y[i] = t[l]; } }"
    )
    assert 'local = ["W"]' in lines


def test_the_attribute_before_the_word_kernel_is_read_too() -> None:
    _, lines = drafted(
        macros(WPT=2, SIDE=8) + "__attribute__((reqd_work_group_size(SIDE * 2, SIDE, 1)))\n"
        "kernel void f(global int *x) { x[get_global_id(1) * WPT + get_global_id(0)] = 1; }"
    )
    assert 'local = ["SIDE * 2", "SIDE"]' in lines
    _, lines = drafted(
        "#if defined(cl_intel_subgroups)\n__attribute__((reqd_work_group_size(8, 1, 1)))\n"
        "kernel void f(global int *x) { x[get_global_id(0)] = 1; }\n#endif\n"
    )
    assert 'local = ["8"]' in lines


@pytest.mark.parametrize(
    ("asked", "extent"),
    [
        ("WARPS * WARP", "192"),
        ("(LANES * WARP)", "LANES * (1 * 2 ** 5)"),
        ("(1 << LANES)", "1 * 2 ** LANES"),
        ("LANES / (LANES - 4)", "LANES // (LANES - 4)"),
        ("64U", "64"),
    ],
)
def test_shifts_and_unsigned_numbers_tell_a_work_group_too(asked: str, extent: str) -> None:
    _, lines = drafted(
        macros(LANES=4) + "#define WARPS 6\n#define LOG2_WARP 5U\n#define WARP (1U << LOG2_WARP)\n"
        f"kernel __attribute__((reqd_work_group_size({asked}, 1, 1)))\n"
        "void f(global int *x, global int *y, const int n)\n"
        "{ if (get_global_id(0) < n) x[get_global_id(0)] = LANES; y[get_group_id(0)] = y[3]; }"
    )
    assert f'local = ["{extent}"]' in lines


def test_a_work_group_that_grows_without_end_is_not_read() -> None:
    # Each of the macros is a hundred of the next.
    grows = "".join(f"#define A{level} ({'+'.join([f'A{level + 1}'] * 100)})\n" for level in range(7))
    _, lines = drafted(
        f"{grows}#define A7 1\nkernel __attribute__((reqd_work_group_size(A0, 1, 1)))\n"
        "void f(global int *x) { x[get_global_id(0)] = 1; }"
    )
    assert not any("A0" in line and line.startswith("local") for line in lines)


@pytest.mark.parametrize("name", ["GROUPS", "NUM_BLOCKS", "GROUP_COUNT"])
def test_how_many_groups_there_are_is_no_work_group(name: str) -> None:
    text = "kernel void f(int n, global int *x) { int i = get_global_id(0); if (i < n) x[i] = NAME; }"
    _, lines = drafted(macros(NAME=16).replace("NAME", name) + text.replace("NAME", name))
    assert 'local = ["WG"]' in lines


def test_a_work_group_by_what_only_sounds_like_one_is_a_guess() -> None:
    text = "kernel void f(int n, global int *x) { int i = get_global_id(0); if (i < n) x[i] = LOCAL_WORK; }"
    _, lines = drafted(macros(LOCAL_WORK=64) + text)
    assert any(line.startswith('local = ["LOCAL_WORK"]  # guess: by its name') for line in lines)


def test_default_work_groups_are_among_their_values() -> None:
    _, lines = drafted(
        """kernel void f(const int n, global float *y) { const int i = get_global_id(0); if (i < n) y[i] = 1; }
        kernel void g(const int n, global float *z)
        {
            const int x = get_global_id(0), y = get_global_id(1);
            if (x < n && y < n) z[y * n + x] = 1;
        }"""
    )
    at = {name: lines.index(f"[parameters.{name}]") for name in ("WG", "WX", "WY")}
    assert lines[at["WG"] + 1].startswith("values = [32, 64, 128, 256]")
    assert all(lines[at[name] + 1].startswith("values = [4, 8, 16, 32]") for name in ("WX", "WY"))


def test_local_arrays_whose_extents_the_kernel_defines_itself_tell_the_work_group() -> None:
    source = """
    kernel void turned(global const float *a, global float *b, const int w, const int h)
    {
        local float t[SIDE][SIDE + 1];
        const int u = get_local_id(0), v = get_local_id(1), x = get_global_id(0), y = get_global_id(1);
        if (x < w && y < h) t[v][u] = a[y * w + x];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (x < w && y < h) b[y * w + x] = t[v][SIDE - 1 - u];
    }"""
    _, lines = drafted("#define SIDE 8\n" + source)
    held = "# guess: from the kernel's own numbers: the size of its local arrays, or the steps of its loops"
    assert f'local = ["8", "8"]  {held}' in lines
    assert 'global = ["round_up(w, 8)", "round_up(h, 8)"]' in lines
    _, lines = drafted("#ifndef SIDE\n#define SIDE 8\n#endif\n" + source)
    assert 'local = ["SIDE", "SIDE"]' in lines
    _, lines = drafted(
        "kernel void f(global int *x) { local int t[32]; int l = get_local_id(0); t[l] = x[get_global_id(0)]; }"
    )
    assert f'local = ["32"]  {held}' in lines


BLOCKS = """
    kernel void product(global float *c, global const float *a, local float *t, const int w)
    {
        const int u = get_local_id(0), v = get_local_id(1);
        float sum = 0;
        for (int k = w * SIDE * get_group_id(1); k < w * SIDE * get_group_id(1) + w; k += SIDE) {
            t[v * SIDE + u] = a[k + w * v + u];
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int j = 0; j < SIDE; ++j) sum += t[v * SIDE + j];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        c[get_global_id(1) * w + get_group_id(0) * SIDE + u] = sum;
    }"""


BINS = """
    kernel void bins(global const uint *keys, local uchar *held, global uint *counts)
    {
        const int l = get_local_id(0);
        for (int i = 0; i < 256; ++i) held[l * 256 + keys[get_global_id(0) * 256 + i]]++;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < 256 / SIDE; ++i) counts[get_group_id(0) * 256 + i * SIDE + l] = held[i * SIDE + l];
    }"""


FEWER = re.sub(
    r"for \(int i = 0; i < 256 / SIDE.*", "if (l < SIDE) counts[get_group_id(0) * SIDE + l] = held[l]; }", BINS
)


@pytest.mark.parametrize(
    ("source", "group", "doubt"),
    [
        (BLOCKS, ["8", "8"], "from the places per group"),
        (BINS.replace("SIDE", "GROUP_SIZE"), ["8"], "by its name"),
        (BINS.replace("256 / SIDE", "l").replace("i * SIDE + l", "l"), ["256"], "from the places per group"),
        (FEWER, ["WG"], ""),  # items are left out: there are more of them
    ],
)
def test_numbers_that_the_kernel_fixes_tell_its_work_group(source: str, group: list[str], doubt: str) -> None:
    name = "GROUP_SIZE" if "GROUP_SIZE" in source else "SIDE"
    _, lines = drafted(f"#define {name} 8\n{source}")
    line = next(line for line in lines if line.startswith("local = "))
    assert line.startswith(f"local = [{', '.join(f'{chr(34)}{each}{chr(34)}' for each in group)}]")
    assert line.partition("# guess: ")[2].startswith(doubt)
    if source is BLOCKS:
        assert "per group" in line
        rows = '["8 * ceil_div(HEIGHT, 8)", "w"]'
        assert f"shape = {rows}" in shape_of(lines, "a")  # from where the loop begins on
        assert "others may reach farther" not in shape_of(lines, "a")  # the loop ends with the row
    else:
        assert 'high = "255"' in shape_of(lines, "keys")  # within a row of what it counts in


def test_along_an_axis_of_groups_alone_a_group_is_one_item_wide() -> None:
    _, lines = drafted(
        """kernel void rows(global float *x, const int w)
        {
            for (int i = get_local_id(0); i < w; i += get_local_size(0)) x[get_group_id(1) * w + i] += 1;
        }"""
    )
    assert 'local = ["WX", "1"]' in lines
    assert any(line.startswith('global = ["WX", "GROUPS_Y"]  # guess: ') for line in lines)
    assert not any("WY" in line for line in lines)
    assert "values = [32, 64, 128, 256]  # guess: work-items of a work-group" in lines


@pytest.mark.parametrize(
    ("held", "extents"),
    [
        ("local float t[100];", '["WX", "1"]'),
        ("local float t[64];", '["64", "1"]  # guess: from the kernel'),
        ("", '["WX", "WY"]'),
    ],
)
def test_items_that_would_share_places_of_local_memory_are_not_in_one_group(held: str, extents: str) -> None:
    _, lines = drafted(
        f"""kernel void f(global float *x, const int w, const int h)
        {{
            {held}
            const int l = get_local_id(0), i = get_global_id(0), row = get_global_id(1);
            {"t[l] = x[row * w + i]; barrier(CLK_LOCAL_MEM_FENCE);" if held else ""}
            if (i < w && row < h) x[row * w + i] = l;
        }}"""
    )
    assert any(line.startswith(f"local = {extents}") for line in lines)


LANES_OF_ROWS = """
    kernel void softmax(global const float *x, global float *y, const int w, const int h, const int d)
    {
        const int l = get_local_id(0), row = get_global_id(1), plane = get_global_id(2);
        if (row >= h || plane >= d) return;
        local float t[LANES];
        float sum = 0;
        for (int i = l; i < w; i += LANES) sum += x[(plane * h + row) * w + i];
        t[l] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < LANES; ++i) sum += t[i];
        for (int i = l; i < w; i += LANES) y[(plane * h + row) * w + i] = sum;
    }"""


IN_TURNS = """
    kernel void turned(global const float *x, global float *y, const int w, const int h)
    {
        const int first = get_group_id(1) * TILE;
        const int c = get_group_id(0) * TILE + get_local_id(0);
        for (int r = first + get_local_id(1); r < first + TILE; r += LANES) y[c * h + r] = x[r * w + c];
    }"""


@pytest.mark.parametrize(
    ("source", "group"),
    [
        (LANES_OF_ROWS, ["LANES", "1", "1"]),
        (LANES_OF_ROWS.replace("local float t[LANES];", "local float t[LANES + TILE];"), ["LANES", "1", "1"]),
        (IN_TURNS, ["TILE", "LANES"]),
        (IN_TURNS.replace("r += LANES", "r += LANES * TILE"), ["TILE", "TILE"]),  # perhaps unrolled
    ],
)
def test_items_that_share_loops_or_local_memory_along_one_axis_tell_the_group(source: str, group: list[str]) -> None:
    _, lines = drafted(macros(LANES=8, TILE=16) + source)
    extents = ", ".join(f'"{each}"' for each in group)
    assert any(line.startswith(f"local = [{extents}]") for line in lines), [x for x in lines if x[:5] == "local"]
    assert not any(line.startswith("[parameters.W") for line in lines)


def test_what_a_kernel_fixes_is_told_beside_what_is_tuned_and_nothing_is_made_up_to_tune() -> None:
    kernel = """
        kernel ATTRIBUTE void f(const int n, global int *x)
        { for (int i = get_global_id(0); i < n; i += TILE * RADIUS) x[i] = PI * WIDE; }"""
    numbers = "#define TILE 16\n#define RADIUS 2\n#define PI 3.14\n#define WIDE 1\n"
    more = "#define ON 2\n#define OFF 3\n#define ELSEWHERE 4\nint other(int x) { return x * ELSEWHERE; }\n"
    more += "#if MODE == OFF\n#endif\nint same(int x) { switch (x) { case ON: return 1; } return x == ON; }\n"
    sketch, _ = drafted(numbers + more + kernel.replace("ATTRIBUTE", "").replace("PI * WIDE", "PI * same(WIDE)"))
    assert any("the kernel fixes TILE: #ifndef TILE before its #define" in guess for guess in sketch.guesses)
    fixed = kernel.replace("ATTRIBUTE", "__attribute__((reqd_work_group_size(64, 1, 1)))")
    sketch, lines = drafted("".join(numbers.replace("16", "1")) + fixed)
    assert 'local = ["64"]' in lines
    assert any("what to tune: the kernel uses no macro with a default" in gap for gap in sketch.gaps)


@pytest.mark.parametrize(("group", "first"), [(64, 65_536), (192, 65_664), (0, 65_536), (10**6, 65_536)])
def test_a_size_that_nothing_bounds_begins_with_whole_groups(group: int, first: int) -> None:
    _, lines = drafted(
        macros(WG=group)
        + "kernel void f(global float *x) { local float t[WG]; const int l = get_local_id(0);\n"
        + "t[l] = x[get_global_id(0)]; x[get_global_id(0)] = t[l] + 1; }"
    )
    assert any(line.startswith(f"N = {first}  # guess") for line in lines)


SPREAD = (
    macros(WG=64, LANES=8)
    + """
kernel void spmv(int rows, int width, global const float *vals, global float *y)
{
    local float part[WG];
    int me = get_local_id(0), row = get_group_id(0) * (WG / LANES) + me / LANES;
    float sum = 0;
    if (row < rows)
        for (int k = me % LANES; k < width; k += LANES) sum += vals[row * width + k];
    part[me] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me % LANES == 0 && row < rows) y[row] = part[me];
}
"""
)


def test_what_a_launch_divides_by_is_kept_from_zero() -> None:
    _, lines = drafted(SPREAD)
    assert 'global = ["ceil_div(rows, WG // LANES) * WG"]' in lines
    assert 'require = "WG // LANES > 0"  # guess: an expression below divides by it' in lines
    halo = "(int)(get_group_id(0) * (WG - 2 * RADIUS) + get_local_id(0)) - RADIUS"
    _, lines = drafted(
        macros(WG=16, RADIUS=2)
        + f"kernel void a(int n, global int *o) {{ int x = {halo}; if (x >= 0 && x < n) o[x] = 1; }}"
    )
    assert 'global = ["ceil_div(RADIUS + n, WG - 2 * RADIUS) * WG"]' in lines
    assert 'require = "WG - 2 * RADIUS > 0"  # guess: an expression below divides by it' in lines
    _, lines = drafted(SPREAD.replace("WG=64", "WG=512").replace("#define WG 64", "#define WG 4096"))
    assert "[[constraints]]" not in lines


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["ceil_div(n, A // B) * A", "round_up(n, A % B)"], ["A // B", "A % B"]),
        (["n // (A - B) + n % (A - B)"], ["A - B"]),
        (["n // (B - 3)"], ["B - 3"]),
        (["n // A", "n // (A + B)", "n / B", "TODO", "n // m", "1 +"], []),
        (["n // (A // (B - 1))"], ["B - 1"]),
    ],
)
def test_divisors_are_those_that_are_zero_for_some_values(texts: list[str], found: list[str]) -> None:
    assert zero_for_some(texts, {"A": [1, 2, 4], "B": [1, 2]}) == found


COUNTED = (
    macros(WG=128, PER=4)
    + """
kernel void tally(int n, int k, global const int *label, global int *size)
{
    local int own[64];
    int me = get_local_id(0);
    if (me < 64) own[me] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int t = 0; t < PER; ++t) {
        int i = (get_group_id(0) * PER + t) * WG + me;
        if (i < n) atomic_inc(own + label[i]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me < k) atomic_add(size + me, own[me]);
}
"""
)


def test_an_array_that_some_items_of_a_group_stay_away_from_does_not_tell_how_many_there_are() -> None:
    _, lines = drafted(COUNTED)
    assert 'local = ["WG"]' in lines
    assert 'global = ["ceil_div(n, PER * WG) * WG"]' in lines
    _, lines = drafted(COUNTED.replace("if (me < 64) ", "").replace("if (me < k) ", ""))
    assert any(line.startswith('local = ["64"]') for line in lines)


def test_rows_in_local_memory_tell_how_wide_a_group_is() -> None:
    _, lines = drafted(
        "#define W 16\n#define H 8\nkernel void f(global float *x, local float *t, local float *s) {\n"
        "int y = get_group_id(1), i = get_local_id(0), j = get_local_id(1); t[j * W + i] = s[j] = x[H * y + j];\n"
        "barrier(CLK_LOCAL_MEM_FENCE); x[H * y + j] = t[i * W + j]; }"
    )
    assert any(line.startswith('local = ["16", "8"]  # guess') for line in lines)
    assert not any(line.startswith("[parameters.W") for line in lines)


SCAN = """
kernel void blocks(global const uint *x, global uint *y, global uint *sums, const uint n)
{
    local uint t[LEN];
    const uint l = get_local_id(0), i = get_global_id(0);
    t[l] = i < n ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint o = 1; o < LEN; o <<= 1) {
        const uint v = l >= o ? t[l - o] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        t[l] += v;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i < n) y[i] = t[l];
    if (l == LEN - 1) sums[get_group_id(0)] = t[l];
}
kernel void before(global uint *sums, const uint count)
{
    uint s = 0;
    for (uint i = 0; i < count; i++) { const uint v = sums[i]; sums[i] = s; s += v; }
}
kernel void add(global uint *y, global const uint *sums, const uint n)
{
    const uint i = get_global_id(0);
    if (i < n) y[i] += sums[get_group_id(0)];
}
"""


@pytest.mark.parametrize(
    ("defined", "wide"), [("#define LEN 256", "256"), ("#ifndef LEN\n#define LEN 256\n#endif", "LEN")]
)
def test_groups_that_take_a_part_of_each_group_are_as_wide(defined: str, wide: str) -> None:
    _, lines = drafted(defined + SCAN)
    assert lines.count(f'global = ["round_up(n, {wide})"]') == 2
    said = "guess: as wide as groups of blocks, as it takes a part of each"
    assert f'local = ["{wide}"]  # {said}' in lines
    assert f'count = {{ type = "uint", value = "ceil_div(n, {wide})" }}  # guess: its value' in lines
    assert "WG" not in "".join(line for line in lines if line.startswith("local = "))


ROWS = """
kernel void rows(const int m, const int n, global const float *a, global const float *x, global float *y,
                 local float *w)
{
    const int i = get_global_id(0), j = get_local_id(1), r = get_local_id(0), all = get_local_size(0);
    float sum = 0;
    for (int k = get_global_id(1); k < n; k += get_global_size(1)) sum += a[i + m * k] * x[k];
    w[r + all * j] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j == 0) {
        for (int k = 1; k < get_local_size(1); k++) sum += w[r + all * k];
        STORE;
    }
}
"""


@pytest.mark.parametrize(
    ("store", "items"),
    [
        ("y[i] = sum", '"m", "WY"'),
        ("y[i * get_num_groups(1) + get_group_id(1)] = sum", '"m", "round_up(n, WY)"'),
        ("atomic_add(&y[i], sum)", '"m", "round_up(n, WY)"'),
    ],
)
def test_what_a_group_sums_up_in_one_place_takes_one_group(store: str, items: str) -> None:
    _, lines = drafted(ROWS.replace("STORE", store))
    assert any(line.startswith(f"global = [{items}]") for line in lines), lines


PAIRS = """
    kernel void pairs(global const float *x, global float *y, const int n, const int groups)
    {
        local float t[WIDE];
        const int l = get_local_id(0), first = get_group_id(0) * LENGTH;
        if (get_group_id(0) >= groups) return;
        t[l] = x[first + l];
        t[l + HALF] = x[first + l + HALF];
        barrier(CLK_LOCAL_MEM_FENCE);
        y[first + l] = t[l] + t[l + HALF];
        y[first + l + HALF] = t[l] - t[l + HALF];
    }"""


@pytest.mark.parametrize(
    ("names", "extent"),
    [
        ({"WIDE": "512", "LENGTH": "512", "HALF": "256"}, "256"),
        ({"WIDE": "512", "LENGTH": "WIDE", "HALF": "(WIDE / 2)"}, "256"),
        ({"WIDE": "n", "LENGTH": "n", "HALF": "(n >> 1)"}, "n // 2"),
        ({"WIDE": "512", "LENGTH": "512", "HALF": "3"}, "512"),  # places that overlap
    ],
)
def test_a_group_of_whose_places_each_item_takes_several_has_fewer_items(names: dict[str, str], extent: str) -> None:
    text = PAIRS.replace("LENGTH", names["LENGTH"]).replace("HALF", names["HALF"])
    if names["WIDE"] == "n":
        text = text.replace("local float t[WIDE];", "").replace("const int groups", "const int groups, local float *t")
    _, lines = drafted(f"#define WIDE {names['WIDE']}\n{text}")
    assert any(line.startswith(f'local = ["{extent}"]  # guess') for line in lines), lines
    items = f"({extent})" if "/" in extent else extent
    assert f'global = ["groups * {items}"]' in lines


@pytest.mark.parametrize(
    ("places", "index", "local"),
    [
        ("TX * TY", "y * TX + x", '"TX", "TY"'),
        ("TX * TY", "x * TY + y", '"TX", "TY"'),
        ("TX * (TX + 1)", "y * (TX + 1) + x", '"TX", "TX"'),
        ("(TX + 2) * (TY + 2)", "(y + 1) * (TX + 2) + x + 1", '"TX", "TY"'),
        ("TX * TY", "(y + x) * TX", '"WX", "WY"'),
    ],
)
def test_a_local_array_that_is_indexed_row_by_row_tells_the_work_group(places: str, index: str, local: str) -> None:
    _, lines = drafted(
        macros(TX=16, TY=8)
        + f"""
        kernel void f(global const float *a, global float *b, const int n)
        {{
            local float t[{places}];
            const int x = get_local_id(0), y = get_local_id(1);
            t[{index}] = a[get_global_id(1) * n + get_global_id(0)];
            barrier(CLK_LOCAL_MEM_FENCE);
            b[get_global_id(0) * n + get_global_id(1)] = t[TX + TY];
        }}"""
    )
    assert f"local = [{local}]" in lines


def test_a_group_of_whose_places_each_item_takes_several_in_a_loop_has_fewer_items() -> None:
    text = """
    void get(float2 *d, global float2 *from, int step) { for (int k = 0; k < 8; k++) d[k] = from[k * step]; }
    kernel void f(global float2 *work)
    {
        float2 d[8];
        work += get_group_id(0) * 512 + get_local_id(0);
        get(d, work, 64);
        for (int k = 0; k <= 7; ++k) work[64 * k] = d[7 - k];
    }"""
    _, lines = drafted(text)
    assert 'work = { type = "float2", shape = ["512 * GROUPS"], access = "inout" }' in lines
    assert any(line.startswith('global = ["64 * GROUPS"]  # guess') for line in lines)
    assert any(line.startswith("GROUPS = 32768") for line in lines)  # of 512 places, no 32 million
    _, lines = drafted(text.replace("k <= 7", "k <= 5").replace("k < 8", "k < 6"))
    assert any(line.startswith('local = ["512"]') for line in lines)


def test_a_loop_that_a_statement_of_its_own_steps_tells_the_work_group() -> None:
    text = """
    #define ITEMS 128
    kernel void f(global const float *x, global float *y, const int n)
    {
        local float t[100];
        int k = get_local_id(0);
        for (int turn = 0; turn < n; ++turn) {
            while (k < 100) { t[k] = x[get_group_id(0) * 100 + k]; k = k + ITEMS; }
            k = get_local_id(0);
            barrier(CLK_LOCAL_MEM_FENCE);
            while (k < 100) { y[get_group_id(0) * 100 + k] = t[99 - k]; k = k + ITEMS; }
            k = get_local_id(0);
        }
    }"""
    assert any(line.startswith('local = ["128"]') for line in drafted(text)[1])


def test_items_of_the_only_group_along_an_axis_are_no_parameter() -> None:
    text = """kernel void f(global const float *x, global float *y, const int w)
    {
        const int u = get_local_id(0), v = get_local_id(1), at = (get_group_id(1) * 16 + v) * w + u;
        GUARD y[at] = x[at];
    }"""
    _, lines = drafted(text.replace("GUARD", ""))
    assert 'local = ["16", "16"]  # guess: the number of items decides what is computed' in lines
    _, lines = drafted(text.replace("GUARD", "if (u < w)"))
    assert any(line.startswith('local = ["WX", "16"]') for line in lines)


def test_how_many_numbers_each_point_has_is_neither_a_group_nor_tuned() -> None:
    _, lines = drafted(
        macros(DIM=3, LX=32)
        + "kernel void f(const int n, const int m, global const float *p, global const float *q, global float *least)\n"
        "{ const int i = get_global_id(0); if (i >= n) return; float best = INFINITY;\n"
        "  for (int j = 0; j < m; ++j) { float d = 0;\n"
        "    for (int c = 0; c < DIM; ++c) { const float t = p[i * DIM + c] - q[j * DIM + c]; d += t * t; }\n"
        "    best = fmin(best, d); }\n"
        "  least[i] = best; }"
    )
    assert 'shape = ["DIM * n"]' in shape_of(lines, "p")
    assert any(line.startswith("DIM = [3]") for line in lines[lines.index("[choices]") :])
    assert 'local = ["LX"]' in lines


@pytest.mark.parametrize("told", [{}, {"WG": "32", "EACH": "4", "SPAN": "((32) * (4))", "T": "float4"}])
def test_a_launch_shares_out_by_the_parameters_that_a_macro_is_computed_from(told: dict[str, str]) -> None:
    """Whether or not a compiler has told what the macro stands for by default."""
    source = (
        macros(WG=32, EACH=4) + "#ifndef SPAN\n#define SPAN ((WG) * (EACH))\n#endif\n"
        "#ifndef T\n#define T float4\n#endif\n"
        "kernel void f(global T *y, const int n) { const int i = get_group_id(0) * SPAN + get_local_id(0);"
        "for (int k = 0; k < EACH; ++k) if (i + k * WG < n) y[i + k * WG] = 1; }"
    )
    lines = draft(Sketch("a", "a.cl", source, scanned(source), told)).splitlines()
    assert 'global = ["ceil_div(n, EACH * WG) * WG"]' in lines
    assert 'local = ["WG"]' in lines
    assert 'y = { type = "T", shape = ["n"], access = "out" }' in lines


@pytest.mark.parametrize(
    ("item", "items", "local"),
    [
        ("get_group_id(0) * 256 + get_local_id(0);", "round_up(n, 256)", "256"),
        ("get_local_id(0) + SPAN * get_group_id(0);", "round_up(n, 128)", "128"),
        ("get_group_id(0) * 256 + get_local_id(0); if (get_local_id(0) < m)", "ceil_div(n, 256) * WG", "WG"),
    ],
)
def test_groups_that_count_places_in_numbers_are_as_wide_though_a_guard_ends_them(
    item: str, items: str, local: str
) -> None:
    _, lines = drafted(
        "#define SPAN 128\nkernel void f(global float *y, const int n, const int m)"
        f"{{ const int i = {item} if (i < n) y[i] = 1; }}"
    )
    assert f'global = ["{items}"]' in lines
    assert any(line.startswith(f'local = ["{local}"]') for line in lines)


def test_a_group_is_as_wide_as_it_is_along_the_axis_that_its_items_count() -> None:
    """Not as wide as where items count along rows and groups count the rows."""
    _, lines = drafted(
        "kernel void f(global const float *x, global float *y, local float *t, const int w, const int b) {"
        "const int i = get_local_id(0), j = get_local_id(1), gx = get_group_id(0) * b, gy = get_group_id(1) * b;"
        "float s = 0; for (int k = 0; k < b; ++k) s += x[(gy + k) * w + gx + j]; t[j * b + i] = s;"
        "barrier(CLK_LOCAL_MEM_FENCE); y[(gy + j) * w + gx + i] = t[i * b + j]; }"
    )
    assert any(line.startswith('local = ["b", "b"]') for line in lines)
    assert 't = { type = "float", local = "b * b" }' in lines


@pytest.mark.parametrize(
    ("item", "place", "local"),
    [
        ("l & (LANES - 1)", "lane", "32"),
        ("l % LANES", "lane", "32"),
        ("l & 31", "lane", "32"),
        ("l & (LANES - 1)", "l / LANES * LANES + lane", "64"),
    ],
)
def test_items_whose_places_come_again_are_in_several_groups(item: str, place: str, local: str) -> None:
    _, lines = drafted(
        f"""#define LANES 32
        kernel void csr(const int n, global const int *ends, global const float *x, global float *y)
        {{
            const int l = get_local_id(0), row = get_group_id(0);
            const int lane = {item};
            local float part[64];
            part[{place}] = row < n ? x[ends[row] + lane] : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane < 16) part[{place}] += part[({place}) + 16];
            if (lane == 0 && row < n) y[row] += part[{place}];
        }}"""
    )
    assert any(line.startswith(f'local = ["{local}"]') for line in lines)


def test_a_group_is_no_wider_than_what_is_between_it_and_the_next_along_another_axis() -> None:
    _, lines = drafted(
        """kernel void f(const int w, const int h, global const float *x, global float *y)
        {
            const int l = get_local_id(1), block = get_group_id(1) * w + get_group_id(0);
            y[(block * 4 + l) * 32 + get_local_id(0)] = x[(block * 4 + (l & 1) + (l >> 1) * 2) * 32 + get_local_id(0)];
        }"""
    )
    assert any(line.startswith('local = ["32", "4"]') for line in lines)
    assert any(line.startswith('global = ["32 * w", "4 * h"]') for line in lines)
    assert 'shape = ["h", "w", "128"]' in shape_of(lines, "y")


@pytest.mark.parametrize(
    ("row", "lane", "held", "required"),
    [
        ("i / 64", "i & 63", "part[l]", "WG % 64 == 0"),
        ("i >> 5", "i % 32", "part[l]", "WG % 32 == 0"),
        ("i / 64", "i & 63", "sum", ""),
        ("i / w", "i % w", "part[l]", ""),
    ],
)
def test_items_of_a_row_that_share_local_memory_are_in_one_group(row: str, lane: str, held: str, required: str) -> None:
    part = ", local float *part" if held != "sum" else ""
    _, lines = drafted(
        f"""kernel void csr(const int n, const int w, global const int *ends, global const float *x,
                          global float *y{part})
        {{
            const int i = get_global_id(0), l = get_local_id(0), row = {row}, lane = {lane};
            float sum = 0;
            if (row >= n) return;
            {held} = x[ends[row] + lane];
            if (lane == 0) y[row] = {held};
        }}"""
    )
    assert [line for line in lines if line.startswith("require = ")] == [f'require = "{required}"'] * bool(required)
