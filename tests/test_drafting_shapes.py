"""What `autotune new` finds in kernels of strangers: extents, from guards, places and pointers."""

from __future__ import annotations

import pytest

from autotune.study import Sketch, draft, scanned
from autotune.study.drafting.typedefs import enumerators
from tests.drafts import BODIES, LANES, POINTED, RIM, drafted, macros, shape_of, sketched


def test_a_guard_of_a_quotient_bounds_what_is_divided() -> None:
    sketch, lines = drafted(LANES)
    assert 'global = ["round_up(LANES * rows, WG)"]' in lines
    assert any(line.startswith('x = { type = "float", shape = ["rows"], access = "in" }  # guess') for line in lines)
    assert any(line.startswith("cols = ") and 'high = "rows - 1"' in line for line in lines)
    assert sketch.gaps == []


def test_grids_of_one_width_are_as_high_as_the_highest() -> None:
    _, lines = drafted(RIM)
    for name, access in (("u", "in"), ("v", "out"), ("f", "in")):
        assert f'{name} = {{ type = "float", shape = ["ny", "nx"], access = "{access}" }}' in lines
    assert '# access = "inout" for u, for v too with data = { numpy = "u" }: u is compared at the end.' in lines
    halves = "kernel void other(global int *w, const int nx) { w[get_global_id(1) * nx + get_global_id(0)] = nx; }"
    _, lines = drafted(
        RIM.replace("v[i] =", "e[i] = 1; v[i] =").replace("float *v,", "float *v, global int *e,") + halves
    )
    assert [line for line in lines if line.startswith("# swap")] == ['# swap = [["u", "v"]]']  # others are not like it


def test_members_of_structs_are_sizes_where_they_bound_something() -> None:
    _, lines = drafted(BODIES)
    assert "count = 4096" in lines  # each with each
    assert any(line.startswith("world = ") and 'count = "count", WG = "1"' in line for line in lines)
    assert 'in_ = { type = "Body", shape = ["count"], access = "in" }' in lines
    assert 'global = ["round_up(count, BLOCK)"]' in lines
    _, lines = drafted(BODIES.replace("int count", "float count"))
    assert not any(line.startswith("count = ") for line in lines)


def test_components_and_elements_by_value_are_sizes_where_they_bound_something() -> None:
    text = """kernel void blurred(global const float *u, global float *v, uint2 dims, const float2 how, uint8 rest)
    {
        const uint2 at = (uint2){get_global_id(0), get_global_id(1)}, padded = dims + 2 * (uint2)(1);
        if (any(at >= dims)) return;
        uint2 near;
        near.x = at.x + 1;
        near.y = at.y + 2;
        v[at.y * dims.s0 + at.x] = how.x * u[near.y * padded.x + near.x] + rest.s7;
    }"""
    sketch, lines = drafted(text)
    assert 'dims = { type = "uint2", value = ["dims_x", "dims_y"] }' in shape_of(lines, "dims")
    assert 'how = { type = "float2", value = "0.5" }' in shape_of(lines, "how")
    assert 'rest = { type = "uint8", value = "1" }' in shape_of(lines, "rest")
    assert 'shape = ["dims_y", "dims_x"]' in shape_of(lines, "v")
    assert 'shape = ["dims_y + 2", "dims_x + 2"]' in shape_of(lines, "u")
    assert 'global = ["round_up(dims_x, WX)", "round_up(dims_y, WY)"]' in lines
    assert sketch.gaps == []
    _, lines = drafted(text.replace("near.y =", "if (dims.x > 9) near.y ="))
    assert "TODO" in shape_of(lines, "u")  # nobody knows which of the two it is
    text = """typedef struct { int dims[4]; int2 rim; int offset; } Grid;
    kernel void copied(global float *to, const Grid out, global const float *in, const Grid src)
    {
        const int x = get_global_id(0), y = get_global_id(1);
        if (x < out.dims[0] && y < out.dims[1])
            to[y * out.dims[0] + x] = in[src.offset + y * src.dims[0] + x];
    }"""
    _, lines = drafted(text)
    assert 'value = { dims = ["out_dims_0", "out_dims_1", "1", "1"], rim = "1"' in shape_of(lines, "out")
    assert 'shape = ["out_dims_1", "src_dims_0"]' in shape_of(lines, "in_")


def test_values_by_value_change_what_they_multiply() -> None:
    _, lines = drafted("kernel void f(global float *x, float a, half4 b, int c) { x[get_global_id(0)] *= a; }")
    assert 'value = "0.5"' in shape_of(lines, "a")
    assert 'value = "0.75"' in shape_of(lines, "b")  # two that change places show
    assert 'value = "1"' in shape_of(lines, "c")


def test_what_is_left_of_a_quotient_taken_off_is_a_remainder() -> None:
    _, lines = drafted(
        "__attribute__((reqd_work_group_size(64, 1, 1)))\n"
        "kernel void f(global float *u, const int blocks) { const int b = get_group_id(0) / blocks;\n"
        "u[(get_group_id(0) - b * blocks) * 64 + get_local_id(0)] = b; }"
    )
    assert 'shape = ["64 * blocks"]' in shape_of(lines, "u")
    assert any(line.startswith('global = ["TODO"]') for line in lines)  # of how many times blocks groups nobody tells


def test_what_ids_are_divided_by_is_no_size_of_a_grid() -> None:
    _, lines = drafted(
        "kernel void board(global int *out, const int square_width) {\n"
        "int x = get_global_id(0), y = get_global_id(1);\n"
        "out[y * get_global_size(0) + x] = (x / square_width + y / square_width) & 1; }"
    )
    assert 'shape = ["HEIGHT", "WIDTH"]' in shape_of(lines, "out")


def test_where_global_ids_begin_is_said_where_a_kernel_asks() -> None:
    text = """kernel void f(global float4 *out) {
        size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1);
        out[y * get_global_size(0) + x] = (float4)(get_global_id(0), get_global_id(1), 0, 1);
    }"""
    sketch, lines = drafted(text)
    assert 'shape = ["HEIGHT", "WIDTH"]' in shape_of(lines, "out")
    assert 'offset = ["0", "0"]  # guess: the kernel reads where its global ids begin' in lines
    assert sketch.gaps == []
    _, lines = drafted(text.replace("get_global_offset", "0 * get_global_id"))
    assert not any(line.startswith("offset") for line in lines)


@pytest.mark.parametrize("use", ["sin((float)y)", "f * y", "(float2)(x, y).y * f"])
def test_items_whose_ids_are_used_apart_are_not_counted_through(use: str) -> None:
    head = "kernel void f(global float *out, float f) { size_t x = get_global_id(0), y = get_global_id(1);\n"
    _, lines = drafted(f"{head}out[y * get_global_size(0) + x] = {use}; }}")
    assert 'shape = ["HEIGHT", "WIDTH"]' in shape_of(lines, "out")
    _, lines = drafted(f"{head}out[y * get_global_size(0) + x] = f; }}")
    assert 'shape = ["N"]' in shape_of(lines, "out")


def test_an_index_that_a_guard_ends_as_a_whole_has_no_rows() -> None:
    text = (
        "kernel void f(const uint count, const uint each, global const float *from, global float *to) {\n"
        "for (uint k = 0; k < each; k++) { size_t at = get_global_id(0) * each + k;\n"
        "if (at < count) to[at] = 2 * from[at]; } }"
    )
    _, lines = drafted(text)
    assert 'shape = ["count"]' in shape_of(lines, "from_")
    assert 'shape = ["count"]' in shape_of(lines, "to")
    _, lines = drafted(text.replace("at < count", "at < count * each"))
    assert 'shape = ["count", "each"]' in shape_of(lines, "to")
    halo = "int at = (int)get_group_id(0) * (64 - 2 * reach) + get_local_id(0) - reach;"
    _, lines = drafted(
        f"kernel void f(int n, int reach, global int *to) {{ {halo} if (at >= 0 && at < n) to[at] = 1; }}"
    )
    assert 'shape = ["n"]' in shape_of(lines, "to")


TURNED = (
    macros(TILE=16, ROWS=8)
    + """
kernel void turned(global const float *a, global float *b, const int H, const int V)
{
    local float t[TILE][TILE + 1];
    int x = get_group_id(0) * TILE + get_local_id(0), y = get_group_id(1) * TILE + get_local_id(1);
    for (int k = 0; k < TILE; k += ROWS)
        if (x < V && y + k < H) t[get_local_id(1) + k][get_local_id(0)] = a[(y + k) * V + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    x = get_group_id(1) * TILE + get_local_id(0);
    y = get_group_id(0) * TILE + get_local_id(1);
    for (int k = 0; k < TILE; k += ROWS)
        if (x < H && y + k < V) b[(y + k) * H + x] = t[get_local_id(0)][get_local_id(1) + k];
}
"""
)


def test_rows_that_items_take_in_turn_tell_the_work_group_and_the_shape() -> None:
    sketch, lines = drafted(TURNED)
    assert 'local = ["TILE", "ROWS"]' in lines
    assert 'global = ["round_up(V, TILE)", "ceil_div(H, TILE) * ROWS"]' in lines
    assert 'a = { type = "float", shape = ["H", "V"], access = "in" }' in lines
    assert sketch.gaps == []


def test_places_that_are_stored_to_are_a_permutation() -> None:
    text = (
        "kernel void f(global const uint *perm, global const uint *src, global const float *v, global float *out, "
        "int n) { int i = get_global_id(0); if (i < n) out[perm[i]] = v[src[i]]; }"
    )
    _, lines = drafted(text)
    assert any(
        line.startswith("perm = ") and 'data = { distribution = "permutation" } }  # guess' in line for line in lines
    )
    assert any(line.startswith("src = ") and 'data = { low = 0, high = "n - 1" }' in line for line in lines)


def test_what_vectors_and_halves_are_stored_to_has_its_extent() -> None:
    sketch, lines = drafted(
        "kernel void f(global const half *x, global half *y, global float *z, int n) { int i = get_global_id(0);\n"
        "if (i < n) { vstore_half(vload_half(i, x) * 2, i, y); vstore4(vload4(i, z) + i, i, z); } }"
    )
    assert 'y = { type = "half", shape = ["n"], access = "out" }' in lines
    assert 'z = { type = "float", shape = ["4 * n"], access = "inout" }' in lines
    assert sketch.gaps == []


def test_rows_that_are_skipped_count_rows_and_what_is_taken_off_an_extent_is_less_than_it() -> None:
    _, lines = drafted(
        "kernel void step(global float *a, int N, int k) { int j = k + 1 + get_global_id(0);\n"
        "int i = k + 1 + get_global_id(1); if (i < N && j < N) a[i * N + j] -= a[i * N + k] * a[k * N + j]; }"
    )
    assert 'a = { type = "float", shape = ["N", "N"], access = "inout" }' in lines
    assert any(line.startswith("k = 1  # guess") for line in lines)
    assert any(line.startswith('global = ["round_up(N - k - 1, ') for line in lines)


def test_of_places_that_go_equally_far_apart_the_farthest_counts() -> None:
    _, lines = drafted(
        "kernel void pair(global const float *x, global float *y, int N) { int t = N / 4, i = get_global_id(0);\n"
        "if (i < t) y[i] = x[i] + x[i + t] + x[i + 2 * t] + x[i + 3 * t]; }"
    )
    assert 'x = { type = "float", shape = ["4 * (N // 4)"], access = "in" }' in lines
    assert 'y = { type = "float", shape = ["N // 4"], access = "out" }' in lines


@pytest.mark.parametrize(
    ("diagonal", "rows"),
    [("A[i * n + i]", '"n", "n"'), ("A[i * (n + 1)]", '"n", "n + 1"'), ("A[n * i + n]", '"n + 1", "n"')],
)
def test_a_diagonal_makes_no_rows_longer(diagonal: str, rows: str) -> None:
    body = f"int i = get_global_id(0); if (i < n) y[i] = {diagonal};"
    _, lines = drafted(f"kernel void f(const int n, global const float *A, global float *y) {{ {body} }}")
    assert f"shape = [{rows}]" in shape_of(lines, "A")


@pytest.mark.parametrize(
    ("start", "body", "x", "y"),
    [
        (
            "i * WPT",
            "if (i < n) for (int k = 0; k < WPT; ++k) y[i + k] = x[i + k];",
            "round_up(n, 8)",
            "round_up(n, 8)",
        ),
        ("i * WPT", "for (int k = 0; k < WPT; ++k) if (i + k < n) y[i + k] = x[i + k];", "n", "n"),
        ("i * 4", "if (i < n) for (int k = 0; k < 4; ++k) y[i + k] = x[i + k];", "round_up(n, 4)", "round_up(n, 4)"),
        ("i", "if (i < n) { float s = 0; for (int k = 0; k < WPT; ++k) s += x[i + k]; y[i] = s; }", "n + 1", "n"),
    ],
)
def test_whole_shares_reach_as_far_as_the_last_and_windows_slide(start: str, body: str, x: str, y: str) -> None:
    start = start.replace("i", "get_global_id(0)")
    text = f"kernel void f(const int n, global const float *x, global float *y) {{ const int i = {start}; {body} }}"
    _, lines = drafted(macros(WPT=2) + text)
    assert f'shape = ["{x}"]' in shape_of(lines, "x")
    assert f'shape = ["{y}"]' in shape_of(lines, "y")
    assert ("as WPT has it by default" in shape_of(lines, "x")) == (start == "get_global_id(0)")


MOVED = """
kernel void f(const int n, const int turns, global const float *x, global float *y, global float *z)
{
    const int i = get_global_id(0), t = get_global_size(0);
    if (i >= n) return;
    x += i;
    y += 2 * i;
    float sum = 0;
    for (int k = 0; k < turns; ++k) { sum += *z; z += n; }
    y[0] = x[0] + sum;
    y[1] = x[n];
}
"""


def test_pointers_that_move_are_followed_and_those_that_a_loop_moves_now_and_then_are_a_gap() -> None:
    sketch, lines = drafted(MOVED)
    assert shape_of(lines, "z") == 'z = { type = "float", shape = ["turns", "n"], access = "in" }'
    sketch, lines = drafted(MOVED.replace("z += n;", "if (k & 1) z += n;"))
    assert 'shape = ["2 * n"], access = "in"' in shape_of(lines, "x")
    assert 'shape = ["2 * n"], access = "out"' in shape_of(lines, "y")
    assert "TODO: its shape" in shape_of(lines, "z")
    assert any(gap.endswith("its shape, row by row") for gap in sketch.gaps)


COLUMN = """
kernel void f(const int nx, const int ny, const int nz, global const float *old, global float *new)
{
    const int area = nx * ny;
    int c = get_global_id(1) * nx + get_global_id(0), ahead = c + area;
    new[c] = old[c];
    c += area;
    for (int k = 1; k < nz; ++k) {
        new[c] = old[c] + new[ahead];
        ahead += area;
        c += area;
    }
}
"""


def test_variables_that_a_loop_steps_get_as_far_as_it_turns() -> None:
    _, lines = drafted(COLUMN)
    assert shape_of(lines, "old") == 'old = { type = "float", shape = ["nz", "ny", "nx"], access = "in" }'
    assert shape_of(lines, "new") == 'new = { type = "float", shape = ["nz", "ny", "nx"], access = "inout" }'
    assert any(line.startswith('global = ["nx", "ny"]') for line in lines)
    _, lines = drafted(COLUMN.replace("c += area;\n    }", "c += area; c++; }"))
    assert "indices that were understood" in shape_of(lines, "old")


def test_what_is_cast_to_vectors_has_as_many_elements() -> None:
    _, lines = drafted(
        """typedef uchar4 pixel;
        kernel void f(const int n, global const float *a, global float *b, global const uchar *c, global const int *d)
        {
            const int i = get_global_id(0);
            if (i >= n) return;
            global float4 *to = (global float4 *)b;
            to[i] = ((global const float4 *)a)[i] + ((global const pixel *)c)[i].x + ((global const float *)d)[i];
        }"""
    )
    assert 'shape = ["4 * n"], access = "in" }' in shape_of(lines, "a")
    assert 'shape = ["4 * n"], access = "out" }' in shape_of(lines, "b")
    assert 'shape = ["n"], access = "in"' in shape_of(lines, "d")  # as many bytes
    assert "TODO: its shape" in shape_of(lines, "c")  # of a type that is not read: nothing is said


def test_local_memory_holds_the_farthest_place() -> None:
    _, lines = drafted(
        """kernel void f(const int n, global const float *a, global float *b, local float *both, local float *back)
        {
            const int i = get_global_id(0), l = get_local_id(0);
            both[l] = a[i];
            both[l + get_local_size(0)] = a[i];
            back[get_local_size(0) - 1 - l] = a[i];
            barrier(CLK_LOCAL_MEM_FENCE);
            if (i < n) b[i] = both[l] + back[l];
        }"""
    )
    assert 'both = { type = "float", local = "2 * WG" }' in lines
    assert 'back = { type = "float", local = "WG" }' in lines


@pytest.mark.parametrize("use", ["x[i] += 1", "x[i]++", "--x[i]", "(*(x + i))++", "int before = x[i]++"])
def test_an_element_that_is_counted_up_is_read_and_written(use: str) -> None:
    _, lines = drafted(f"kernel void f(const int n, global int *x) {{ int i = get_global_id(0); if (i < n) {use}; }}")
    assert 'shape = ["n"], access = "inout"' in shape_of(lines, "x")


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("y[i * i] = x[i];", "guess: its shape, by the indices that were understood; others may reach farther"),
        ("y[i + stranger(n)] = x[i];", "guess: its shape, by the indices that were understood"),
        ("helper(y, i);", "guess: its shape, by the indices that were understood"),
        ("y[i] = 1 2;", "guess: its shape, by the indices that were understood"),
        ("y[i] = x[i] * 2;", 'access = "out" }'),
    ],
)
def test_a_use_that_was_not_understood_makes_a_shape_a_guess(use: str, said: str) -> None:
    body = f"const int i = get_global_id(0); if (i >= n) return; y[i] = x[i]; {use}"
    _, lines = drafted(f"kernel void f(const int n, global const float *x, global float *y) {{ {body} }}")
    assert said in shape_of(lines, "y")
    assert 'shape = ["n"]' in shape_of(lines, "y")


HISTOGRAM = """
#ifndef BINS
#define BINS 256
#endif
kernel void f(const int n, global const int *x, global int *hist, global const float *start)
{
    local int bins[BINS];
    for (int b = get_local_id(0); b < BINS; b += get_local_size(0)) bins[b] = start[b];
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) atomic_inc(&bins[x[i]]);
    for (int b = get_local_id(0); b < BINS; b += get_local_size(0)) atomic_add(&hist[b], bins[b]);
}"""


@pytest.mark.parametrize("whole", ["get_global_size(0)", "(get_num_groups(0) * get_local_size(0))"])
def test_items_that_step_by_the_whole_launch_write_as_many_places_each_as_the_loop_turns(whole: str) -> None:
    head = macros(WPT=1) + "kernel void f(const int n, const float a, global const float *x, global float *y) {"
    loop = f"for (int w = 0; w < WPT; ++w) {{ const int i = w * {whole} + get_global_id(0); y[i] += a * x[i]; }} }}"
    sketch, lines = drafted(head + loop)
    assert not sketch.gaps
    assert 'shape = ["n"]' in shape_of(lines, "x")
    assert 'shape = ["n"]' in shape_of(lines, "y")
    assert any(line.startswith('global = ["n // WPT"]') for line in lines)


def test_items_that_step_by_the_whole_launch_behind_a_guard_write_every_so_many_th_place() -> None:
    head = macros(WPT=1) + "kernel void f(const int n, const int inc, global const float *x, global float *y) {"
    loop = "for (int w = 0; w < WPT; ++w) { const int i = w * get_global_size(0) + get_global_id(0);"
    _, lines = drafted(head + loop + "if (i < n) y[i * inc] = x[i * inc]; } }")
    assert 'shape = ["n", "inc"]' in shape_of(lines, "y")
    assert any(line.startswith('global = ["round_up(ceil_div(n, WPT), ') for line in lines)


@pytest.mark.parametrize("size", ["BLOCK", "get_local_size(0)"])
def test_items_that_step_by_a_stated_number_of_groups_are_as_many(size: str) -> None:
    head = macros(BLOCK=64, GROUPS=4) + "kernel void f(const int n, global const float *x, global float *part) {"
    loop = f"local float l[BLOCK]; const int step = GROUPS * BLOCK, at = get_group_id(0) * {size} + get_local_id(0);"
    loop += "float sum = 0; for (int i = at; i < n; i += step) sum += x[i]; l[get_local_id(0)] = sum;"
    loop += "barrier(1); if (get_local_id(0) == 0) part[get_group_id(0)] = l[0] + l[1]; }"
    _, lines = drafted(head + loop)
    assert 'global = ["BLOCK * GROUPS"]' in lines
    assert "round_up" not in shape_of(lines, "part")


def test_a_launch_counts_the_tiles_of_what_is_stored_before_those_of_what_is_read() -> None:
    text = (
        macros(BX=16, BY=16, TX=2)
        + """kernel void f(const int w, const int rim, global const float *x, global float *y)
    {
        int at = get_group_id(0) * BX * TX + get_local_id(0), row = get_group_id(1) * BY + get_local_id(1);
        for (int t = 0; t < TX; ++t) y[row * w + at + t * BX] = x[row * (w + rim) + at + t * BX + rim];
    }"""
    )
    _, lines = drafted(text)
    assert any(line.startswith('global = ["ceil_div(w, BX * TX) * BX"') for line in lines)


def test_an_extent_that_a_default_decides_says_so() -> None:
    _, lines = drafted(HISTOGRAM.replace("start[b]", "start[b * n]"))
    assert shape_of(lines, "hist").endswith('# TODO: its shape, row by row: "256" as BINS has it by default')
    assert 'shape = ["256", "n"]' in shape_of(lines, "start")
    assert shape_of(lines, "start").endswith("as BINS has it by default: it may not depend on a parameter")
    _, lines = drafted(
        macros(WG=64)
        + """kernel void f(const int n, global const float *x, global float *part)
        {
            local float all[WG];
            const int i = get_global_id(0), l = get_local_id(0);
            all[l] = i < n ? x[i] : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (l == 0) { for (int k = 1; k < WG; ++k) all[0] += all[k]; part[get_group_id(0)] = all[0]; }
        }"""
    )
    said = "as WG has it by default; with a [check] that adds the parts, sum(...), it may"
    assert shape_of(lines, "part").endswith(said)


def test_what_alone_says_how_long_an_input_is_is_no_parameter() -> None:
    _, lines = drafted(HISTOGRAM)
    assert any(line.startswith("BINS = [256]  # guess: the result depends on it") for line in lines)
    assert 'shape = ["BINS"]' in shape_of(lines, "start")
    assert 'shape = ["BINS"]' in shape_of(lines, "hist")
    _, lines = drafted(HISTOGRAM.replace("BINS", "WG"))  # each item of a group has one
    assert "[parameters.WG]" in lines


def test_what_finds_the_rim_bounds_no_launch() -> None:
    _, lines = drafted(
        """kernel void f(const int n, const int rim, global const float *x, global float *y)
        {
            const int i = get_global_id(0) - rim;
            const int first = i < 0 ? -i : 0;
            if (i >= 0 && i < n) y[i] = x[i] + first;
        }"""
    )
    assert 'global = ["round_up(n + rim, WG)"]' in lines


def test_a_variable_that_is_called_as_an_axis_is_none() -> None:
    _, lines = drafted(
        """kernel void f(const int n, const int m, global float *y)
        {
            const int x = get_global_id(0), row = get_global_id(1);
            int gid = 0;
            for (gid = 0; gid < m; ++gid) if (x < n) y[gid * n + x] = row;
        }"""
    )
    assert 'shape = ["m", "n"], access = "out"' in shape_of(lines, "y")


def test_rows_as_long_as_an_image_is_wide_and_coordinates_that_change_places() -> None:
    _, lines = drafted(
        """kernel void f(read_only image3d_t in, global float *out, const int each, write_only image2d_t turned)
        {
            const int4 p = {get_global_id(0), get_global_id(1), get_global_id(2), 0};
            const int w = get_image_width(in), h = get_image_height(in);
            out[(p.x + p.y * w + p.z * w * h) * each] = read_imagef(in, p).x;
            if (each > 1) out[(p.x + p.y * w + p.z * w * h) * each + 1] = 0;
            write_imagef(turned, p.yx, read_imagef(in, p));
        }"""
    )
    assert 'shape = ["DEPTH", "HEIGHT", "WIDTH", "each"]' in shape_of(lines, "out")
    assert 'image = ["DEPTH", "HEIGHT", "WIDTH"]' in shape_of(lines, "in_")
    assert 'image = ["WIDTH", "HEIGHT"]' in shape_of(lines, "turned")
    items = '["WIDTH", "HEIGHT", "DEPTH"]'
    assert any(line.startswith(f"global = {items}") for line in lines)


def test_a_place_that_is_stored_to_behind_the_launched_ones_is_within_the_shape() -> None:
    _, lines = drafted(
        """kernel void sw(global const uchar *a, global const uchar *b, global int *H, int la, int lb, int d)
        {
            int i = get_global_id(0) + 1, j = d - i, w = lb + 1;
            if (i > la || j < 1 || j > lb) return;
            int s = a[i - 1] == b[j - 1] ? 3 : -3;
            H[i * w + j] = max(H[(i - 1) * w + j - 1] + s, H[(i - 1) * w + j]);
        }"""
    )
    assert 'shape = ["la + 1", "lb + 1"], access = "inout"' in shape_of(lines, "H")
    _, lines = drafted(
        """kernel void f(const int n, global float *x)
        {
            const int i = get_global_id(0);
            if (i < n) x[i + 1] += x[i];
        }"""
    )
    assert 'shape = ["n + 1"], access = "inout"' in shape_of(lines, "x")


def test_the_components_of_a_vector_in_braces_are_places() -> None:
    sketch, lines = drafted(
        "kernel void f(read_only image2d_t from, sampler_t how, write_only image2d_t to) {\n"
        "const int2 at = { get_global_id(0), get_global_id(1) };\n"
        "write_imagef(to, at, read_imagef(from, how, at + (int2)(1, 0))); }"
    )
    assert 'global = ["WIDTH", "HEIGHT"]' in [line.partition("  #")[0] for line in lines]
    assert all('image = ["HEIGHT", "WIDTH"]' in shape_of(lines, name) for name in ("from_", "to"))
    assert sketch.gaps == []


@pytest.mark.parametrize("kind", ["image2d_t", "image3d_t"])
def test_the_extents_of_an_image_bound_items_as_a_vector_too(kind: str) -> None:
    volume = kind == "image3d_t"
    at, beyond = ("at", " || at.z >= size.z") if volume else ("at.xy", "")
    _, lines = drafted(
        f"kernel void f(write_only {kind} to) {{ const {'int4' if volume else 'int2'} size = get_image_dim(to);\n"
        f"const int4 at = {{ get_global_id(0), get_global_id(1), {'get_global_id(2)' if volume else 0}, 0 }};\n"
        f"if (at.x >= size.x || at.y >= size.y{beyond}) return; write_imagef(to, {at}, (float4)(1)); }}"
    )
    along = ['"round_up(WIDTH, WX)"', '"round_up(HEIGHT, WY)"', '"round_up(DEPTH, WZ)"'][: 2 + volume]
    assert f"global = [{', '.join(along)}]" in lines


@pytest.mark.parametrize("place", ["({ get_global_id(0); })", "get_global_id(which(0))"])
def test_an_id_that_was_not_read_leaves_the_launch_to_the_author(place: str) -> None:
    _, lines = drafted(f"kernel void f(global int *x) {{ int i; i = {place}; x[i] = 0; }}")
    assert any(line.startswith('global = ["TODO"]') for line in lines)


def test_indices_in_a_buffer_leave_room_for_what_is_behind_their_places() -> None:
    _, lines = drafted(
        "kernel void f(const int n, global const int *next, global const float *v, global float *out)\n"
        "{ const int i = get_global_id(0); if (i >= n) return; float s = 0;\n"
        "for (int k = 0; k < 4; ++k) { const int at = next[i + k * n]; s += v[at] + v[at + n] + v[at + 2 * n]; }\n"
        "out[i] = s + v[i + 2 * n]; }"
    )
    assert 'shape = ["3 * n"]' in shape_of(lines, "v")
    assert 'shape = ["4", "n"], access = "in", data = { low = 0, high = "n - 1" }' in shape_of(lines, "next")


FRAMED = """
kernel void edges(global const float *in, global float *out, const int strong, const int border)
{
    const int x = get_global_id(0), y = get_global_id(1), wide = get_global_size(0) + 2, high = get_global_size(1) + 2;
    float sum = 0;
    for (int d = -1; d <= 1; ++d) {
        int u = x + d, v = y + d;
        u = u < 0 ? 0 : (u < wide ? u : wide - 1);
        v = v < 0 ? 0 : (v < high ? v : high - 1);
        sum += in[v * wide + u];
    }
    out[y * get_global_size(0) + x] = strong ? sum : 1 - sum;
}
"""


def test_a_frame_around_what_is_launched_is_in_the_rows_and_a_switch_is_no_extent() -> None:
    _, lines = drafted(FRAMED)
    assert 'in_ = { type = "float", shape = ["HEIGHT + 2", "WIDTH + 2"], access = "in" }' in lines
    assert 'out = { type = "float", shape = ["HEIGHT", "WIDTH"], access = "out" }' in lines
    assert shape_of(lines, "strong").endswith("# guess: its value")
    _, lines = drafted(FRAMED.replace("+ 2", "+ 2 * border").replace("(y + 1)", "(y + border)"))
    assert 'shape = ["HEIGHT + 2 * border", "WIDTH + 2 * border"]' in shape_of(lines, "in_")


def test_a_value_that_replaces_another_counts_from_there_on() -> None:
    loose = "int i = (int)floor(step * get_global_id(0)); {} y[get_global_id(0)] = x[i];"
    kernel = "kernel void f(const int n, const float step, global const float *x, global float *y) { BODY }"
    _, lines = drafted(kernel.replace("BODY", loose.replace("{}", "i = clamp(i, 0, n - 1);")))
    assert 'x = { type = "float", shape = ["n"], access = "in" }' in lines
    for doubtful in ("if (step < 0) i = clamp(i, 0, n - 1);", "do { i = clamp(i, 0, n - 1); i += 2; } while (step);"):
        _, lines = drafted(kernel.replace("BODY", loose.replace("{}", doubtful)))
        assert "TODO" in shape_of(lines, "x"), doubtful


SHIFTED = """
kernel void rows(global float *from, const ulong skipped, global void *to, const ulong to_skipped, const int width,
                 const ulong stride, local void *held)
{
    from = (global float *)((global char *)from + skipped);
    global float *line = (global float *)((global char *)to + to_skipped + get_group_id(0) * stride);
    local float *own = (local float *)held;
    for (int x = get_local_id(0); x < width; x += get_local_size(0)) {
        own[x] = from[get_group_id(0) * width + x];
        line[x] = 2 * own[x];
    }
}
"""


def test_places_counted_in_bytes_are_elements_and_what_is_void_is_what_it_is_cast_to() -> None:
    sketch, lines = drafted(SHIFTED)
    assert sketch.gaps == []
    assert 'from_ = { type = "float", shape = ["GROUPS", "width"], access = "in" }' in lines
    assert 'skipped = { type = "ulong", value = "0" }  # guess: bytes before what is used' in lines
    assert 'type = "float", shape = ["GROUPS", "stride // 4"]' in shape_of(lines, "to")
    assert shape_of(lines, "to").endswith("# guess: its type: void in the kernel, which casts it")
    assert 'held = { type = "float", local = "width" }' in lines
    assert any(line.startswith('global = ["GROUPS * WG"]  # guess: ') for line in lines)
    _, lines = drafted("kernel void f(global void *x) { ((global int *)x)[0] = 1; ((global float *)x)[1] = 1; }")
    assert "does not cast it to one type" in shape_of(lines, "x")


def test_ids_by_hand_are_ids_and_what_a_variable_is_before_it_changes_counts() -> None:
    _, lines = drafted(
        """kernel void f(const int w, const int h, global const float *x, global float *y)
        {
            const int u = get_group_id(0) * get_local_size(0) + get_local_id(0);
            const int v = get_local_id(1) + get_group_id(1) * get_local_size(1);
            if (u >= w || v >= h) return;
            int i = 2 * (v * w + u);
            y[i + 1] = x[i];
            i = v;
            y[i] = 1;
        }"""
    )
    assert 'x = { type = "float", shape = ["h", "w", "2"], access = "in" }' in lines
    assert 'y = { type = "float", shape = ["h", "w", "2"], access = "out" }' in lines
    assert 'global = ["round_up(w, WX)", "round_up(h, WY)"]' in lines


HALO = """
kernel void life(global const char *now, global char *next, const int w, const int h, local char *block,
                 local int *seen)
{
    const int x = get_local_id(0), y = get_local_id(1), i = get_global_id(1) * w + get_global_id(0);
    const int at = (y + 1) * (get_local_size(0) + 2) + x + 1;
    block[at] = now[i];
    block[x + 1] = 0;
    block[(get_local_size(0) + 2) * (get_local_size(1) + 2) - 1] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_inc(&seen[now[i]]);
    if (get_global_id(0) < w && get_global_id(1) < h) next[i] = block[at - 1] + block[at + 1];
}
"""


def test_local_memory_is_as_large_as_all_of_a_group_takes() -> None:
    _, lines = drafted(HALO)
    assert 'block = { type = "char", local = "(WX + 2) * WY + 2 * WX + 4" }' in lines
    assert shape_of(lines, "seen").startswith(
        'seen = { type = "int", local = "TODO" }'
    )  # no matter how much is launched


def test_what_says_how_far_along_rows_a_kernel_goes_is_a_size() -> None:
    _, lines = drafted(
        """kernel void mul(const int p, const int n, const int radius, global const float *a, global float *c)
        {
            const int i = get_global_id(0);
            if (i < n)
                for (int j = 0; j < p; j++)
                    for (int k = 0; k < radius; k++) c[i * n + j] = a[i * n + j + k];
        }"""
    )
    _, told = drafted(
        "kernel void f(const int n, const int kind, const int other, global float *c, global float *d)\n"
        "{ if (get_global_id(0) < n && kind == 2 && !kind) c[get_global_id(0)] = d[other]; }"
    )
    assert 'kind = { type = "int", value = "1" }  # guess: its value' in told  # it only tells one thing from another
    assert "p = 512  # guess: its value; no extent was found to depend on it" in lines
    assert shape_of(lines, "radius").startswith('radius = { type = "int", value = "1" }')


def test_the_length_of_rows_of_which_a_kernel_goes_along_a_part_is_no_small_number() -> None:
    _, lines = drafted(
        "kernel void f(global const float *a, global float *b, const int w, const int h, const int stride)\n"
        "{ int x = get_global_id(0), y = get_global_id(1); if (x < w && y < h) b[y * stride + x] = a[y * stride + x]; }"
    )
    assert shape_of(lines, "b") == 'b = { type = "float", shape = ["h", "stride"], access = "out" }'
    assert {"w = 128", "h = 128", "stride = 128"} <= {*lines}
    _, lines = drafted(  # a filter's taps are few
        "kernel void f(global const float *a, global float *b, const int n, const int taps)\n"
        "{ int i = get_global_id(0); if (i < n) for (int k = 0; k < taps; k++) b[i] += a[i * taps + k]; }"
    )
    assert "taps = 1  # guess: its value" in lines


@pytest.mark.parametrize(
    "guard",
    [
        "if (x >= x_min + 1 && x <= x_max + 1)",
        "if (x_min + 1 <= x && x < x_max + 2)",
        "if (n > 3 && (x_max + 2 > x && x > x_min))",
        "if (x < x_min || x >= x_max + 2) return;",
        "if (x <= x_max + 1)",
    ],
)
def test_where_what_is_let_pass_begins_is_not_where_it_ends(guard: str) -> None:
    _, lines = drafted(
        macros(x_min=1, x_max=256) + "kernel void f(global const float *a, global float *b, const int n)\n"
        f"{{ const int x = get_global_id(0); {guard} b[x] = n * a[x]; }}"
    )
    assert 'b = { type = "float", shape = ["x_max + 2"], access = "out" }' in lines
    assert 'global = ["round_up(x_max + 2, WG)"]' in lines
    assert any(line.startswith("x_min = 1  # guess: how much there is") for line in lines) == ("x_min" in guard)


def test_a_macro_that_only_another_which_is_given_asks_for_is_asked_for() -> None:
    source = (
        "kernel void f(global float *a, const int n) { local float t[BLOCK]; const int y = get_local_id(1);\n"
        "t[y * BX + get_local_id(0)] = n; a[get_global_id(1) * n + get_global_id(0)] = t[0]; }"
    )
    sketch = sketched(source, guessed=True)
    lines = draft(sketch, None, {"BX": "16", "BY": "4", "BLOCK": "(BX*BY)"}).splitlines()
    assert {"[parameters.BX]", "[parameters.BY]", 'flag = "-DBLOCK=(BX*BY)"', 'local = ["BX", "BY"]'} <= {*lines}


@pytest.mark.parametrize(
    ("body", "items"),
    [
        ("b[y * stride + x] = a[y * stride + x];", "stride"),
        ("b[y * stride + 4 * x + 3] = a[y * stride + x];", "stride // 4"),  # each item writes so many
        ("b[y * stride + x] = a[y * stride + 4 * x];", "stride"),
    ],
)
def test_a_launch_counts_along_a_row_whatever_its_length_is_called(body: str, items: str) -> None:
    _, lines = drafted(
        "kernel void f(global const float *a, global float *b, const int stride)\n"
        f"{{ const int x = get_global_id(0), y = get_global_id(1); {body} }}"
    )
    assert "stride = 512" in lines
    assert any(line.startswith(f'global = ["{items}", "HEIGHT"]  # guess') for line in lines)


def test_an_image_of_which_each_item_reads_several_pixels_is_as_much_larger() -> None:
    _, lines = drafted(
        """kernel void half_of(read_only image2d_t from, write_only image2d_t to, sampler_t how)
        {
            const int x = get_global_id(0), y = get_global_id(1);
            float4 sum = read_imagef(from, how, (int2)(2 * x, y)) + read_imagef(from, how, (int2)(2 * x + 1, y));
            write_imagef(to, (int2)(x, y), sum);
        }"""
    )
    assert 'from_ = { type = "float", image = ["HEIGHT", "2 * WIDTH"]' in shape_of(lines, "from_")
    assert 'to = { type = "float", image = ["HEIGHT", "WIDTH"]' in shape_of(lines, "to")
    assert "others may reach farther" not in shape_of(lines, "to")
    _, lines = drafted(
        "kernel void f(write_only image2d_t to, const int4 shape, const int w, const int h)\n"
        "{ const int x = get_global_id(0), y = get_global_id(1); if (x >= w || y >= h) return;\n"
        "for (int i = 0; i < shape.z; ++i) write_imagef(to, (int2)(x, y * shape.z + i), (float4)(i)); }"
    )
    assert 'image = ["h * shape_z", "w"]' in shape_of(lines, "to")
    assert 'value = ["1", "1", "shape_z", "1"]' in shape_of(lines, "shape")


@pytest.mark.parametrize(
    "item",
    [
        "get_global_id(1) * get_global_size(0) + get_global_id(0)",
        "(get_group_id(0) + get_group_id(1) * get_num_groups(0)) * get_local_size(0) + get_local_id(0)",
        "get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * get_global_id(2))",
    ],
)
def test_items_that_are_counted_through_all_axes_lie_along_the_first(item: str) -> None:
    sketch, lines = drafted(f"kernel void f(global float *x, const int n) {{ int i = {item}; if (i < n) x[i] = 1; }}")
    more = item.count("get_global_id(2)") * ', "1"'
    assert f'global = ["round_up(n, WX)", "1"{more}]' in lines
    assert f'local = ["WX", "1"{more}]' in lines
    assert len(sketch.guesses) == 1


def test_items_of_which_each_axis_is_bounded_are_not_counted_through() -> None:
    _, lines = drafted(
        "kernel void f(global float *x, const int w, const int h) { int x0 = get_global_id(0), y = get_global_id(1);\n"
        "if (x0 < w && y < h) x[y * get_global_size(0) + x0] = 1; }"
    )
    assert 'global = ["round_up(w, WX)", "round_up(h, WY)"]' in lines


def test_an_item_that_is_taken_apart_is_bounded_as_it_is() -> None:
    _, lines = drafted(
        "kernel void f(global const float *x, global float *y, int n, int w, int h, int c)\n"
        "{ int i = get_global_id(0); if (i >= n) return;\n"
        "int left = i % w; i /= w; int row = i % h; i = i / h; int k = i % c; int b = i / c;\n"
        "y[((b * c + k) * h + row) * w + left] = x[b * w + left]; }"
    )
    assert 'y = { type = "float", shape = ["n"], access = "out" }' in lines
    assert 'shape = ["ceil_div(ceil_div(ceil_div(n, w), h), c)", "w"], access = "in"' in shape_of(lines, "x")
    _, alone = drafted(
        "kernel void f(global float *y, int n, int m) { int i = get_global_id(0), b = i / m;\n"
        "if (i < n) y[b * m + i % m] = b; }"
    )
    assert any(line.startswith("m = 512  # guess: its value; no extent") for line in alone)
    assert 'global = ["round_up(n, WG)"]' in lines


def test_what_is_divided_perhaps_is_not_known() -> None:
    sketch, _ = drafted("kernel void f(global float *x, int n) { int s = n; if (n > 3) s /= 2; x[s] = 1; }")
    assert sketch.gaps[1].endswith("its shape, row by row")


@pytest.mark.parametrize("step", ["s--", "s -= 2", "s /= 2", "s >>= 1"])
def test_what_a_loop_makes_smaller_is_largest_where_it_begins(step: str) -> None:
    _, lines = drafted(f"kernel void f(global float *x, int n) {{ for (int s = n - 1; s >= 0; {step}) x[s] = 1; }}")
    assert shape_of(lines, "x") == 'x = { type = "float", shape = ["n"], access = "out" }'
    _, lines = drafted(
        "kernel void f(global float *x, int n, int m) { int s = n; while (m) { s--; s += 2; x[s] = m; }}"
    )
    assert shape_of(lines, "x").endswith("TODO: its shape, row by row")


def test_what_is_multiplied_again_and_again_is_read_in_no_time() -> None:
    """Written out, it would be a name with more characters than fit into memory."""
    body = "int a = get_global_id(0) * m; " + "a = (a + 1) * (a + n); a %= a + 7; " * 40
    _, lines = drafted(f"kernel void f(global int *x, int n, int m) {{ {body} x[a] = 1; }}")
    assert shape_of(lines, "x").endswith("TODO: its shape, row by row")


@pytest.mark.parametrize(
    ("place", "shape"),
    [
        ("*(global float *)(x + mad24(r, step, mad24(c, (int)sizeof(float), off)))", '"rows", "step"'),
        ("((global float *)(x + r * step + off))[c]", '"rows", "step"'),
        ("f[r * (step / sizeof(float)) + c + off]", '"rows", "step // 4"'),
    ],
)
def test_rows_that_are_counted_in_bytes_are_as_long_as_that_takes(place: str, shape: str) -> None:
    _, lines = drafted(
        f"kernel void g({'global float *f' if place[0] == 'f' else 'global uchar *x'}, const int step, const int off,\n"
        "const int rows, const int cols)\n"
        "{ const int c = get_global_id(0), r = get_global_id(1); if (c < cols && r < rows) " + place + " = 1; }"
    )
    first = {line.split()[0]: int(line.split()[2]) for line in lines if line.startswith(("step = ", "cols = "))}
    assert first["step"] == 4 * first["cols"]
    assert f"shape = [{shape}]" in shape_of(lines, "f" if place[0] == "f" else "x")
    assert 'off = { type = "int", value = "0" }  # guess: places before what is used' in lines


def test_places_relative_to_an_item_stay_within_what_it_leaves() -> None:
    _, lines = drafted(
        "kernel void f(global const float *x, global float *y, global const int *near, int n, int rim, int off)\n"
        "{ int i = get_global_id(0); if (i >= n) return; float s = x[i + rim + off];\n"
        "for (int k = 0; k < 9; ++k) s += x[off + i + near[k]]; y[i] = s; }"
    )
    assert 'shape = ["9"]' in shape_of(lines, "near")
    assert 'data = { low = 0, high = "rim" }' in shape_of(lines, "near")


@pytest.mark.parametrize(
    "halves",
    [
        "if ({0}) b[y * w + x] = {1}; else b[y * w + x] = 0;",
        "if (!({0})) b[y * w + x] = 0; else {{ b[y * w + x] = {1}; }}",
    ],
)
def test_a_rim_that_is_set_to_something_else_is_part_of_the_launch(halves: str) -> None:
    body = halves.format("x > 0 && x < w - 1 && y > 0 && y < h - 1", "a[(y - 1) * w + x] - a[(y + 1) * w + x]")
    _, lines = drafted(
        "kernel void edges(global const float *a, global float *b, int w, int h)\n"
        f"{{ int x = get_global_id(0), y = get_global_id(1); {body} }}"
    )
    assert any(
        line.startswith('global = ["w", "h"]  # guess: as many work-items as there are places') for line in lines
    )
    assert 'shape = ["h", "w"]' in shape_of(lines, "a")
    assert 'shape = ["h", "w"]' in shape_of(lines, "b")


def test_how_many_an_item_takes_is_a_small_number() -> None:
    _, lines = drafted(
        "kernel void scale(global float *x, uint count, uint items) { uint first = get_global_id(0) * items;"
        "for (uint k = 0; k < items; ++k) if (first + k < count) x[first + k] *= 2; }"
    )
    assert "items = 1  # guess: its value" in lines
    assert "count = 65536" in lines


BARRED = 'n"]  # guess: as many work-items as there are places to write: all must reach a barrier'


@pytest.mark.parametrize(
    ("body", "items"),
    [
        (
            "float s = 0; for (int k = -r; k <= r; k++) if (i + k >= 0 && i + k < n) s += x[i + k]; y[i] = s;",
            'n"]  # guess',
        ),
        ("y[i] = x[i < n - 1 ? i + 1 : i];", "n"),
        ("float next = 0; if (i < n - 1) next = x[i + 1]; y[i] = next;", "n"),
        ("if (i < n) y[i] = x[i]; else y[i] = 0;", "n"),
        ("if (i >= n) return; y[i] = i < n - 1 ? x[i + 1] : x[i];", "round_up(n, WG)"),
        ("int last = n - 1; if (i < last) y[i] = x[i + 1]; else if (i == last) y[i] = x[i];", "n"),
        ("bool in = true; if (i >= n) in = false; if (in) y[i] = x[i];", "round_up(n, WG)"),
        ("if (i >= n) i = n - 1; y[i] = x[i];", "round_up(n, WG)"),
        ("for (int k = i; k < n; k += get_global_size(0)) y[k] = x[k];", "round_up(n, WG)"),
        ("if (i == 0) y[i] = 0; else if (i < n) y[i] = x[i - 1];", "round_up(n, WG)"),
        ("if (i >= n) return; barrier(1); y[i] = x[i];", BARRED),
        ("if (i < n) { y[i] = x[i]; barrier(1); }", BARRED),
        ("float own = at(x, i, n); barrier(1); if (i < n) y[i] = own;", "round_up(n, WG)"),
        ("bool in = i < n; float own = in ? x[i] : 0; barrier(1); if (in) y[i] = own;", "round_up(n, WG)"),
        ("if (get_group_id(0) >= 99) return; barrier(1); if (i < n) y[i] = x[i];", "round_up(n, WG)"),
    ],
)
def test_a_guard_that_keeps_nobody_from_what_is_written_turns_nobody_away(body: str, items: str) -> None:
    head = "kernel void f(global const float *x, global float *y, int n, int r) { int i = get_global_id(0);"
    helper = "float at(global const float *x, int i, int n) { if (i >= n) return 0; return x[i]; }"
    _, lines = drafted(f"{helper} {head} {body} }}")
    assert any(line.startswith(f'global = ["{items}') for line in lines)


def test_a_window_around_a_share_reaches_beyond_the_widest() -> None:
    _, lines = drafted(
        macros(WPT=4)
        + """kernel void f(global const float *x, global float *y, const int n)
        {
            const int first = get_global_id(0) * WPT;
            if (first >= n) return;
            float w[WPT + 4];
            for (int k = 0; k < WPT + 4; ++k) w[k] = x[first + k];
            for (int k = 0; k < WPT; ++k) y[first + k] = w[k] + w[k + 4];
        }"""
    )
    assert 'shape = ["round_up(n, 16) + 4"]' in shape_of(lines, "x")
    assert 'shape = ["round_up(n, 16)"]' in shape_of(lines, "y")


def test_a_place_that_is_read_only_with_a_default_is_a_guess() -> None:
    source = (
        macros(R=4, WX=32, WY=8)
        + """
    kernel void f(global float *y, global const float *x, const int w, const int depth)
    {
        const int rows = get_local_size(1), stride = w + 2 * R;
        int from = 0, at = 0;
        at += get_global_id(1) * stride + get_global_id(0);
        for (int z = 0; z < depth; ++z) { from = at; at += 4 * stride; y[z] += x[from + rows * stride]; }
    }
    """
    )
    found = {"R": "4", "WX": "32", "WY": "8"}
    lines = draft(Sketch("a", "a.cl", source, scanned(source), found), None, found).splitlines()
    assert "others may reach farther" in shape_of(lines, "x")


def test_pointers_to_arrays_are_buffers_of_their_elements() -> None:
    sketch, lines = drafted(POINTED)
    assert not sketch.gaps
    assert shape_of(lines, "a") == 'a = { type = "float", shape = ["16 * n"], access = "in" }'
    assert shape_of(lines, "b") == 'b = { type = "float", shape = ["16 * n"], access = "out" }'
    assert shape_of(lines, "p") == 'p = { type = "float", shape = ["64 * n"], access = "inout" }'


def test_a_sum_that_is_a_stride_stays_one_whatever_it_is_multiplied_by() -> None:
    _, lines = drafted(
        "kernel void f(global float *x, int n) { int i = (n + 1) * 16 * get_group_id(1) + (n + 1) * get_local_id(1);\n"
        "x[i + get_local_id(0) + 1 + n + 1] = 1; }"
    )
    assert 'shape = ["16 * GROUPS_Y + 1", "n + 1"]' in shape_of(lines, "x")


NARROW = """
typedef struct { ushort rows; uchar cols, colour; } Dim;
kernel void f(global const uchar *x, global uchar *y, const short width, const ushort height, const uchar radius,
              const uchar threshold, const Dim dim, global float *z)
{
    const int i = get_global_id(0), j = get_global_id(1);
    if (i >= width || j >= height) return;
    int sum = 0;
    for (int d = -radius; d <= radius; d++) sum += x[j * width + min(max(i + d, 0), width - 1)];
    y[j * width + i] = sum > threshold ? sum : dim.colour;
    if (i < dim.cols) z[j * dim.cols + i] = sum;
}
"""


def test_sizes_may_be_of_types_that_hold_few_numbers() -> None:
    sketch, lines = drafted(NARROW)
    assert not sketch.gaps
    assert lines[lines.index("[sizes]") + 1 : lines.index("[parameters.WX]") - 1] == [
        "width = 128", "height = 128", "cols = 128"
    ]  # fmt: skip
    assert 'width = { type = "short", value = "width" }' in lines
    assert any(line.startswith('threshold = { type = "uchar", value = "1" }  # guess') for line in lines)
    assert any(line.startswith('dim = { type = "Dim", value = { rows = "1", cols = "cols",') for line in lines)
    _, lines = drafted("kernel void f(global char *x, char n) { int i = get_global_id(0); if (i < n) x[i] = 1; }")
    assert "n = 64" in lines
    assert 'global = ["round_up(n, WG)"]' in lines


WITHIN = """
kernel void f(global const float *x, global float *y, const int rows, const int cols, const int border, const int turns)
{
    const int step = 16 - 2 * turns;
    const int row = step * get_group_id(1) - border + get_local_id(1);
    const int col = step * get_group_id(0) - border + get_local_id(0);
    local float t[16][16];
    if (row >= 0 && row <= rows - 1 && col >= 0 && col <= cols - 1) {
        t[get_local_id(1)][get_local_id(0)] = x[row * cols + col];
        y[row * cols + col] = t[get_local_id(1)][get_local_id(0)];
    }
}
"""


def test_places_that_guards_bound_as_a_whole_are_taken_apart_by_these() -> None:
    _, lines = drafted(WITHIN)
    assert shape_of(lines, "x") == 'x = { type = "float", shape = ["rows", "cols"], access = "in" }'
    assert shape_of(lines, "y") == 'y = { type = "float", shape = ["rows", "cols"], access = "out" }'
    assert "border = 1  # guess: its value" in lines
    assert (
        'global = ["ceil_div(border + cols, 2 * (-turns + 8)) * 16", "ceil_div(border + rows, 2 * (-turns + 8)) * 16"]'
        in lines
    )


PARTS = """
#ifndef WG
#define WG 128
#endif
kernel void parts(global const float *x, global float *part, const int n)
{
    local float t[WG];
    const int l = get_local_id(0), i = get_global_id(0);
    t[l] = i < n ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l == 0) { float s = 0; for (int k = 0; k < WG; k++) s += t[k]; part[get_group_id(0)] = s; }
}
kernel void total(global const float *part, global float *sum, const int count)
{
    float s = 0;
    for (int i = 0; i < count; i++) s += part[i];
    sum[0] = s;
}
"""


def test_how_many_parts_groups_leave_is_no_size() -> None:
    _, lines = drafted(PARTS)
    assert 'part = { type = "float", shape = ["ceil_div(n, WG)"], access = "scratch" }' in lines
    assert any(line.startswith('count = { type = "int", value = "ceil_div(n, WG)" }') for line in lines)
    assert not any(line.startswith(("count = 5", "count = 6")) for line in lines)
    told = PARTS.replace("const int n)", "const int n, const int count)").replace("i < n ?", "i < n && i < count ?")
    assert not any("value =" in line for line in drafted(told)[1]), "who leaves them is told as well"


def test_what_a_loop_behind_a_guard_steps_goes_as_far_as_the_loop_turns() -> None:
    """Of box-blur of GEGL: a column is summed behind a guard, from a place that stands before it."""
    text = """kernel void f(global const float *in, global float *out, int width, int height, int radius)
    {
        int i, at = get_global_id(1) * width + get_global_id(0);
        const int to = at;
        float sum = 0;
        if (get_global_id(0) < width && get_global_id(1) < height) {
            for (i = -radius; i <= radius; i++) { sum += in[at]; at += width; }
            out[to] = sum;
        }
    }"""
    _, lines = drafted(text)
    assert shape_of(lines, "in_") == 'in_ = { type = "float", shape = ["height + 2 * radius", "width"], access = "in" }'
    for other in ("if (radius) { } else if", "while"):  # these may step it once more, or often
        _, lines = drafted(text.replace("if (", f"{other} (", 1))
        assert "others may reach farther" in shape_of(lines, "in_"), other


def test_a_size_is_at_first_no_more_than_a_fixed_array_holds() -> None:
    text = """#define MOST 100
    typedef struct { float best; float v[MOST]; } One;
    kernel void f(global One *all, global const int *x, global const int *w, global int *y,
        const int count, const int bins, const int rows)
    {
        int seen[2][300], i = get_global_id(0);
        for (int r = 0; r < 2; ++r) for (int b = 0; b < bins; ++b) seen[r][b] = x[b];
        if (i >= count) return;
        float sum = 0;
        for (int k = 0; k < rows; ++k) sum += all[i].v[k] * w[k];
        all[i].best = sum;
        y[i] = seen[1][i % bins];
    }"""
    _, lines = drafted(text)
    assert {"bins = 128", "rows = 64"} <= {*lines}, lines
    _, lines = drafted(text.replace("300]", "100]").replace("MOST 100", "MOST 3"))
    assert {"bins = 64", "rows = 2"} <= {*lines}, lines


@pytest.mark.parametrize("name", ["x", "src", "in0", "keys", "data", "image", "values", "a"])
def test_what_contents_of_an_array_index_is_the_same_each_time(name: str) -> None:
    """Two indices in one place are looked at in an order that does not depend on hashes of names."""
    text = f"""kernel void f(global const uchar *{name}, global int *hist, const int bins, const int n)
    {{
        int i = get_global_id(0);
        if (i < bins) hist[i] = 0;
        if (i < n) hist[{name}[i] + 64 * {name}[i + n]] += 1;
    }}"""
    assert 'high = "min(63, 255)"' in shape_of(drafted(text)[1], name)
    alone = text.replace(f"{name}[i] + 64", "64")  # of so few bins that none is left, the first
    assert 'high = "min(max(bins // 64 - 1, 0), 255)"' in shape_of(drafted(alone)[1], name)


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("int best = -1; for (int k = 0; k < n; ++k) if (x[k] > 0) best = k; y[i] = w[best];", "n"),
        (
            "int best = 0, k; for (k = 0; k < n; k++) { if (x[k] > 0) { best = k; break; } } y[i] = w[best + 1];",
            "n + 1",
        ),
        ("int best = i; if (x[i] > 0) best = m - 1; y[i] = w[best];", "TODO"),  # n or m: whichever is the larger
    ],
)
def test_what_a_branch_sets_is_that_or_what_it_was(body: str, shape: str) -> None:
    text = f"""kernel void f(global const float *x, global const float *w, global int *y, const int n, const int m)
    {{
        int i = get_global_id(0);
        if (i >= n) return;
        {body}
    }}"""
    assert f'shape = ["{shape}"]' in shape_of(drafted(text)[1], "w")


@pytest.mark.parametrize("use", ["y[i] = 'a';", 'printf("%d %f", i, x[i]); y[i] = x[i];', "y[i] = x[i] > '\\n';"])
def test_letters_and_texts_in_quotes_leave_no_gap(use: str) -> None:
    text = f"""kernel void f(global const float *x, global char *y, const int n)
    {{ int i = get_global_id(0); if (i < n) {{ {use} }} }}"""
    line = shape_of(drafted(text)[1], "y")
    assert 'shape = ["n"]' in line
    assert "guess" not in line


@pytest.mark.parametrize(
    ("at", "image"),
    [
        ("i / w, 0", '["1", "ceil_div(n, w)"]'),  # of a quotient of ids
        ("select(i, -1, i < 2), 0", '["1", "n"]'),
        ("select(i, INT_MIN, i < 2), 0", '["1", "n"]'),
        ("select(k * w, -1, x < 0), i", '["n", "deep * w - w + 1"]'),
        ("i + 0.5f, 0.25f + k", '["deep", "n"]'),  # within a pixel
        ("i + REAL(0.5), REAL(25.e-2) + k", '["deep", "n"]'),  # the same, with a suffix that ## joins
        ("(i + .5f) / n, (float)k / deep", '["deep", "n"]'),  # from 0 to 1
    ],
)
def test_images_are_as_large_as_what_is_read_of_them_and_never_empty(at: str, image: str) -> None:
    text = f"""#define REAL(number) number ## f
    kernel void f(read_only image2d_t in, global float *y, const int n, const int w, const int deep, const int x)
    {{
        const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
        const int i = get_global_id(0);
        if (i >= n) return;
        float sum = 0;
        for (int k = 0; k < deep; ++k) sum += read_imagef(in, s, (float2)({at})).x;
        y[i] = sum;
    }}"""
    line = shape_of(drafted(text)[1], "in_")
    assert f"image = {image}" in line
    assert "not read" not in line


@pytest.mark.parametrize(
    ("at", "normalized"),
    [("convert_float2(p) / convert_float2(size)", "true"), ("convert_float2(p) + (float2)(0.5f, 0.5f)", "false")],
)
def test_how_an_image_is_read_follows_from_its_coordinates(at: str, normalized: str) -> None:
    _, lines = drafted(
        "kernel void f(read_only image2d_t in, sampler_t how, write_only image2d_t out, const int2 size) {"
        "const int2 p = (int2)(get_global_id(0), get_global_id(1)); if (p.x >= size.x || p.y >= size.y) return;"
        f"write_imagef(out, p, read_imagef(in, how, {at})); }}"
    )
    assert 'image = ["size_y", "size_x"]' in shape_of(lines, "in_")
    assert f"normalized = {normalized} }}" in shape_of(lines, "how")


@pytest.mark.parametrize(
    ("kind", "at", "image"),
    [
        ("image2d_t", "p", '["h", "w"]'),
        ("image3d_t", "(float4)(p, 0.5f, 0)", '["128", "128", "128"]'),
        ("image2d_array_t", "(float4)(p, 1, 0)", '["128", "128", "128"], form = "array"'),
    ],
)
def test_an_image_that_is_read_at_unread_coordinates_has_extents_all_the_same(kind: str, at: str, image: str) -> None:
    _, lines = drafted(
        f"kernel void turn(read_only {kind} in, sampler_t s, global float4 *out, int w, int h, float a) {{"
        "int x = get_global_id(0), y = get_global_id(1); if (x >= w || y >= h) return;"
        f"float2 p = (float2)(x * cos(a), y * sin(a)); out[y * w + x] = read_imagef(in, s, {at}); }}"
    )
    assert f"image = {image}" in shape_of(lines, "in_")
    assert "guess: its extents, its coordinates were not read" in shape_of(lines, "in_")


def test_a_guard_of_a_block_bounds_its_places_and_what_only_is_taken_off_makes_no_rows() -> None:
    text = """kernel void f(global const float *x, global float *y, const uint n, const uint m)
    {
        const uint i = get_global_id(0), within = i & 7, other = i % 4;
        if (i - within + 7 >= n || i - other + 3 >= m) return;
        y[i] = x[i];
    }"""
    _, lines = drafted(text)
    assert 'shape = ["n"]' in shape_of(lines, "y")
    text = """kernel void f(global const float *x, global float *y, const int n, const int halo)
    {
        local float t[64];
        const int l = get_local_id(0), i = (get_local_size(0) - 2 * halo) * get_group_id(0) + l - halo;
        if (i >= 0 && i < n) t[l] = x[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (i >= 0 && i < n) y[i] = t[l];
    }"""
    assert 'shape = ["TODO"]' in shape_of(drafted(text)[1], "y")


def test_a_size_of_its_own_comes_before_those_of_other_kernels() -> None:
    text = """kernel void f(global const int *at, global float *x, const int rows, const int most)
    { int i = get_global_id(0); if (i < rows) x[i * (most + 1) + at[i]] += 1; }
    kernel void g(global char *y, const int count_bytes) { y[get_global_id(0)] = 'a'; }"""
    _, lines = drafted(text)
    assert 'shape = ["count_bytes"]' in shape_of(lines, "y")
    assert 'high = "most" }' in shape_of(lines, "at")


def test_a_work_group_of_more_dimensions_than_ids_is_launched_with_as_many() -> None:
    text = """__attribute__((reqd_work_group_size(4, 2, 1)))
    kernel void f(global float *x) { x[get_global_id(0)] = 1; }"""
    _, lines = drafted(text)
    assert 'local = ["4", "2"]' in lines
    assert any(line.startswith('global = ["N", "2"]') for line in lines)


def test_a_window_that_is_walked_through_backwards_has_an_extent() -> None:
    text = """kernel void f(global const float *x, constant float *w, constant float *v, global float *y, const int n,
        const int reach)
    {
        const int i = get_global_id(0);
        float sum = 0;
        if (i >= n) return;
        for (int j = -reach; j <= reach; j++) sum += w[reach - j] * v[n - 1 - i] * x[i];
        y[i] = sum;
    }"""
    _, lines = drafted(text)
    assert 'shape = ["2 * reach + 1"]' in shape_of(lines, "w")
    assert 'shape = ["n"]' in shape_of(lines, "v")


@pytest.mark.parametrize(
    ("at", "most"),
    [
        ("((i * w + j) * h + k) * d + l", 32),
        ("(((i * w + j) * h + k) * d + l) * w + j", 16),
        ("(i * w + j) * h + k", 128),
    ],
)
def test_sizes_at_first_leave_room_for_arrays_of_many_axes(at: str, most: int) -> None:
    text = f"""kernel void f(global float *y, const int n, const int w, const int h, const int d)
    {{
        const int i = get_global_id(0);
        if (i >= n) return;
        for (int j = 0; j < w; ++j) for (int k = 0; k < h; ++k) for (int l = 0; l < d; ++l) y[{at}] = 1;
    }}"""
    assert f"n = {most}" in drafted(text)[1]


def test_sizes_at_first_make_no_image_longer_than_devices_have() -> None:
    text = """kernel void f(write_only image2d_t out, const int n, const int w, const int h)
    {
        const int i = get_global_id(0), j = get_global_id(1);
        if (i < n && j < w) write_imagef(out, (int2)(i * w + j, 0), (float4)(1.0f));
    }"""
    _, lines = drafted(text)
    assert 'image = ["1", "n * w"]' in shape_of(lines, "out")
    assert {"n = 64", "w = 64"} <= {*lines}


def test_local_memory_of_rows_holds_all_of_them() -> None:
    text = """kernel void f(global float *y, const int n, const int wide, const int radius, local float *t)
    {
        const int u = get_local_id(0), v = get_local_id(1), i = get_global_id(0), j = get_global_id(1);
        float sum = 0;
        if (i >= n || j >= n) return;
        t[(v + radius) * wide + u + radius] = 1;
        for (int d = -radius; d <= radius; d++) sum += t[(v + radius + d) * wide + u + radius];
        y[j * n + i] = sum;
    }"""
    _, lines = drafted(text)
    assert 't = { type = "float", local = "(WY + 2 * radius) * wide" }' in lines


def test_what_a_mask_takes_off_is_at_least_nothing() -> None:
    text = """kernel void f(global const int *x, global int *y, local int *t, const int n)
    {
        const int l = get_local_id(0), i = get_global_id(0), at = 2 * l - (l & (n - 1));
        t[at] = 0;
        t[at + n] = x[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        y[i] = t[at + n];
    }"""
    _, lines = drafted(text)
    assert 't = { type = "int", local = "2 * WG + n - 1" }' in lines


def test_what_one_kernel_says_is_small_is_small_in_all() -> None:
    _, lines = drafted("""
        kernel void first(global float *r, const int k, const int n) { r[k * n + k] = 1; }
        kernel void rest(global float *r, const int k, const int n)
        {
            const int j = get_global_id(0) + k + 1;
            if (j < n) r[k * n + j] += r[k * n + k];
        }""")
    assert 'r = { type = "float", shape = ["k * n + n"]' in shape_of(lines, "r")


@pytest.mark.parametrize("loop", ["d = get_local_size(0) / 2; d > 0; d >>= 1", "d = 1; d < get_local_size(0); d *= 2"])
def test_a_sum_in_halves_takes_no_more_local_memory_than_it_writes(loop: str) -> None:
    text = f"""kernel void halved(global const float *x, global float *y, local float *t)
    {{
        const int l = get_local_id(0);
        t[l] = x[get_global_id(0)];
        for (int {loop}) {{ barrier(CLK_LOCAL_MEM_FENCE); if (l < d) t[l] += t[l + d]; }}
        if (l == 0) y[get_group_id(0)] = t[0];
    }}"""
    _, lines = drafted(text)
    assert shape_of(lines, "t") == 't = { type = "float", local = "WG" }'
    _, lines = drafted(text.replace("t[l] =", "t[(int)x[l]] = 0; t[l] ="))  # nobody knows where
    assert '"WG"' not in shape_of(lines, "t")


def test_where_a_loop_begins_that_falls_is_no_number_of_groups() -> None:
    _, lines = drafted("""
        kernel void f(const int steps, global const float *x, global float *y, local float *t)
        {
            const int l = get_local_id(0);
            t[l] = x[get_group_id(0)];
            for (int j = steps; j > 0; j -= 2) { barrier(CLK_LOCAL_MEM_FENCE); if (l < j) t[l] += 1; }
            if (l == 0) y[get_group_id(0)] = t[0];
        }""")
    assert 'y = { type = "float", shape = ["GROUPS"], access = "out" }' in lines
    assert shape_of(lines, "steps").startswith('steps = { type = "int", value = "1" }')


def test_by_how_many_bits_a_number_is_shifted_is_no_size() -> None:
    _, lines = drafted("""
        kernel void sorted(global uint *x, const uint stage, const uint turn, const uint n)
        {
            const uint i = get_global_id(0), far = 1 << (stage - turn), at = i % far + i / far * 2 * far;
            if (x[at] > x[at + far]) x[at] = n;
        }""")
    for name in ("stage", "turn"):
        assert shape_of(lines, name).startswith(f'{name} = {{ type = "uint", value = "1" }}')
    assert any(line.startswith("n = 65536") for line in lines)


def test_what_is_read_ahead_alone_has_a_rim_there_though_another_kernel_writes_it() -> None:
    _, lines = drafted("""
        kernel void first(global float *e, const int n) { if (get_global_id(0) < n) e[get_global_id(0)] = 1; }
        kernel void second(global float *h, global const float *e, const int n)
        {
            const int i = get_global_id(0);
            if (i < n) h[i] += e[i + 1] - e[i];
        }
        kernel void last(global float *e, const int n) { if (get_global_id(0) < n) e[get_global_id(0)] += 1; }""")
    assert 'shape = ["n + 1"]' in shape_of(lines, "e")


def test_a_number_that_the_kernel_changes_is_another_from_there_on() -> None:
    _, lines = drafted("""
        kernel void f(global float4 *x, uint width, const uint height)
        {
            width /= 4;
            if (get_global_id(0) < width && get_global_id(1) < height)
                x[get_global_id(1) * width + get_global_id(0)] = 1;
        }""")
    assert 'shape = ["height", "width // 4"]' in shape_of(lines, "x")
    assert 'global = ["round_up(width // 4, WX)", "round_up(height, WY)"]' in lines


def test_a_window_that_each_item_walks_over_is_small() -> None:
    _, lines = drafted("""
        kernel void f(global const float *x, global const float *mask, global float *y, const int maskSize, const int n)
        {
            const int i = get_global_id(0);
            float sum = 0;
            for (int k = 0; k < maskSize; ++k) sum += mask[k] * x[i + k];
            if (i < n) y[i] = sum;
        }""")
    assert any(line.startswith("maskSize = 3  # guess: its value") for line in lines)


def test_a_macro_that_is_as_long_as_rows_of_work_items_are_is_a_size() -> None:
    text = (
        macros(N_GP=1)
        + """
        #define AT(p, k) (p)[((k) - 1) * N_GP + get_global_id(0)]
        kernel void f(global const float *x, global float *y) { AT(y, 1) = AT(x, 2);
        AT(y, 3) = AT(x, 4) + AT(x, 2); }"""
    )
    sketch, lines = drafted(text)
    assert any(line.startswith("N_GP = 1024  # guess") for line in lines)
    assert 'shape = ["3 * N_GP"]' in shape_of(lines, "y")
    assert any(line.startswith('global = ["N_GP"]') for line in lines)
    assert sketch.gaps == []
    _, lines = drafted(text.replace("* N_GP + get_global_id(0)", "+ N_GP * get_global_id(0)"))
    assert "[parameters.N_GP]" in lines


@pytest.mark.parametrize("guard", ["", "if (x >= w || y >= h) return;"], ids=["unguarded", "guarded"])
@pytest.mark.parametrize(
    "body",
    [
        "for (int c = 0; c < 3; ++c) b[(y * w + x) * 3 + c] = a[(y * w + x) * 3 + c];",
        "const int i = (y * w + x) * 3; b[i] = a[i + 2]; b[i + 1] = a[i + 1]; b[i + 2] = a[i];",
    ],
    ids=["counted", "literal"],
)
def test_elements_of_several_numbers_have_these_as_their_last_axis(body: str, guard: str) -> None:
    taken = "global const float *a, global float *b, const int w, const int h"
    _, lines = drafted(
        f"kernel void f({taken})\n{{ const int x = get_global_id(0), y = get_global_id(1); {guard} {body} }}"
    )
    assert all('shape = ["h", "w", "3"]' in shape_of(lines, name) for name in "ab")
    assert any('global = ["w", "h"]' in line or 'global = ["round_up(w, WX)"' in line for line in lines)


def test_every_other_place_of_every_other_row_is_no_element_of_two_numbers() -> None:
    read = (
        "a[2 * y * w + 2 * x] + a[2 * y * w + 2 * x + 1] + a[(2 * y + 1) * w + 2 * x] + a[(2 * y + 1) * w + 2 * x + 1]"
    )
    _, lines = drafted(
        "kernel void f(global const float *a, global float *b, const int w)\n"
        f"{{ const int x = get_global_id(0), y = get_global_id(1); b[y * (w / 2) + x] = {read}; }}"
    )
    assert 'shape = ["2 * HEIGHT", "w"]' in shape_of(lines, "a")
    assert 'shape = ["HEIGHT", "w // 2"]' in shape_of(lines, "b")


def test_of_every_third_row_the_rows_behind_the_last_are_there_too() -> None:
    taken = "global const float *a, global float *b, const int w, const int h"
    body = "const int x = get_global_id(0), y = get_global_id(1); if (x < w && y < h) b[y * w + x] = a[3 * y * w + x];"
    _, lines = drafted(f"kernel void f({taken})\n{{ {body} }}")
    assert 'shape = ["3 * h", "w"]' in shape_of(lines, "a")
    assert 'shape = ["h", "w"]' in shape_of(lines, "b")


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("for (int f = 0; f < w; ++f) y[i * w + f] = x[at[i] * w + f];", '"n", "w"'),
        ("y[i * w] = x[3 * at[i]] + x[3 * at[i] + 2];", '"n", "3"'),
        ("y[i * w] = x[at[i]];", '"n"'),
        ("y[i * w] = x[n - at[i]];", '"n"'),
    ],
)
def test_rows_that_contents_of_another_name_are_as_long_as_they_are_apart(body: str, shape: str) -> None:
    taken = "global const float *x, global const int *at, global float *y, const int n, const int w"
    _, lines = drafted(f"kernel void f({taken})\n{{ const int i = get_global_id(0); if (i >= n) return; {body} }}")
    assert f"shape = [{shape}]" in shape_of(lines, "x")


def test_rows_of_a_fixed_length_are_no_longer_than_that() -> None:
    index = "((q * 64 + get_global_id(2)) * 32 + get_global_id(1)) * 16 + get_global_id(0)"
    _, lines = drafted(
        "kernel void f(global const float *x, global float *y)\n"
        f"{{ for (int q = 0; q < 9; ++q) y[{index}] = 2 * x[{index}]; }}"
    )
    assert any(line.startswith('global = ["16", "32", "64"]') for line in lines)
    _, lines = drafted(
        "kernel void f(global float *y)\n{ const int x = get_global_id(0), y_ = get_global_id(1); y[y_ * 64 + x] = 1; }"
    )
    assert any(line.startswith('global = ["64", "HEIGHT"]') for line in lines)


@pytest.mark.parametrize(
    ("use", "access", "begins"),
    [
        ("atomic_inc(&h[x[i]].count)", "inout", ""),
        ("atomic_add((volatile global int *)&c[i], x[i])", "inout", 'distribution = "constant", value = 0'),
        (
            "atomic_fetch_add_explicit(&c[i], x[i], memory_order_relaxed)",
            "inout",
            'distribution = "constant", value = 0',
        ),
        ("atomic_store(&c[i], x[i])", "out", ""),
        ("atomic_init(c + i, x[i])", "out", ""),
        ("h[i].count = atomic_load(&c[i])", "in", "low = 0"),
    ],
)
def test_atomic_functions_use_what_is_pointed_at_as_assignments_do(use: str, access: str, begins: str) -> None:
    _, lines = drafted(
        "typedef struct { int count; float weight; } Bin;"
        "kernel void f(global const int *x, global Bin *h, global atomic_int *c, const int n)"
        f"{{ const int i = get_global_id(0); if (i < n) {use}; }}"
    )
    line = shape_of(lines, "h" if "(&h" in use else "c")
    assert f'type = "{"Bin" if "(&h" in use else "int"}", shape = ["n"], access = "{access}"' in line
    assert begins in line


@pytest.mark.parametrize(
    ("members", "first", "data"),
    [
        (
            "int begin; float w; int2 more;",
            "",
            "fields = { begin = { low = 0, high = 1 }, more = { low = 0, high = 1 } }",
        ),
        ("Span of;", ".of", "low = 0, high = 1"),
        ("float begin;", "", "low = 0, high = 1"),
    ],
)
def test_members_that_say_which_places_are_used_are_small_and_not_negative(members: str, first: str, data: str) -> None:
    _, lines = drafted(
        f"typedef struct {{ int begin, more; }} Span; typedef struct {{ {members} }} Node;"
        "kernel void f(global const Node *nodes, global const int *edges, global int *y, const int n)"
        f"{{ int i = get_global_id(0); if (i < n) y[i] = edges[(int)nodes[i]{first}.begin]; }}"
    )
    assert f'shape = ["n"], access = "in", data = {{ {data} }} }}  # guess: its data' in shape_of(lines, "nodes")


def test_what_shares_the_items_of_a_group_out_is_small() -> None:
    """No group has as many items as there are rows."""
    _, lines = drafted(
        "kernel void f(global const float *x, global float *y, const int rows, const int lanes) {"
        "const int t = get_local_id(0), row = get_group_id(0) * (get_local_size(0) / lanes) + t / lanes;"
        "if (row < rows && t % lanes == 0) y[row] = x[row]; }"
    )
    assert "lanes = 1  # guess: its value" in lines
    assert any(line.startswith("rows = ") and line != "rows = 1" for line in lines)


def test_shifts_by_a_macro_are_powers_of_two() -> None:
    _, lines = drafted(
        macros(BITS=4) + "kernel void f(global const uint *x, global uint *y, local uint *h, const int n) {"
        "for (int i = get_local_id(0); i < (1 << BITS); i += get_local_size(0)) h[i] = 0;"
        "const int i = get_global_id(0); if (i < n >> BITS) y[i] = h[x[i] & ((1 << BITS) - 1)]; }"
    )
    assert 'h = { type = "uint", local = "2 ** BITS" }' in lines
    assert 'global = ["round_up(n // (2 ** BITS), WG)"]' in lines


def test_arrays_of_images_and_image_buffers_have_extents_and_others_a_gap() -> None:
    sketch, lines = drafted(
        "kernel void f(read_only image2d_array_t x, read_only image1d_buffer_t by, read_only image2d_msaa_t z,"
        "write_only image2d_array_t y, int n) {"
        "const int4 at = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);"
        "if (at.z < get_image_array_size(x) && at.x < n)"
        "write_imagef(y, at, read_imagef(x, at) * read_imagef(by, at.x));"
        "}"
    )
    for name in "xy":
        assert 'image = ["DEPTH", "HEIGHT", "n"], form = "array"' in shape_of(lines, name)
    assert 'image = ["n"], form = "buffer"' in shape_of(lines, "by")
    assert [gap for gap in sketch.gaps if "image2d_msaa_t is not a kind of argument here: let the kernel take" in gap]
    assert len(sketch.gaps) == 1


def test_names_of_enums_are_numbers_but_arguments_are_not() -> None:
    _, lines = drafted(
        "typedef enum { REST, EAST = 0x1, WEST, FLAGS, KINDS = FLAGS, n, LATER = SIZEOF, NEVER } Kind;"
        "typedef struct { float part[KINDS]; } Cell;"
        "kernel void f(global const float *x, global const Cell *c, global float *y, const int n) {"
        "const int i = get_global_id(0); if (i >= n) return;"
        "for (int k = 0; k < KINDS; ++k) y[i * KINDS + k] = x[WEST * n + i] + c[i].part[EAST]; }"
    )
    assert 'Cell = ["float part[3]"]' in lines
    assert 'x = { type = "float", shape = ["3 * n"], access = "in" }' in lines
    assert 'y = { type = "float", shape = ["3 * n"], access = "out" }' in lines
    assert enumerators("enum { A, B = SIZEOF, C }; enum { D = 7 };") == {"A": "0", "D": "7"}


def test_a_condition_that_chooses_a_value_ends_no_places_where_neither_value_is_bounded_by_it() -> None:
    _, lines = drafted(
        "kernel void f(global const float *x, global float *y, const int w, const int r) {"
        "const int i = get_global_id(0), j = get_global_id(1), first = j < r ? 0 : j - r;"
        "float s = 0; for (int k = first; k <= j; ++k) s += x[k * w + i]; y[j * w + i] = s; }"
    )
    assert 'y = { type = "float", shape = ["HEIGHT", "w"], access = "out" }' in lines
    assert any(line.startswith('global = ["w", "HEIGHT"]  # guess') for line in lines)


@pytest.mark.parametrize("step", ["2", "(turn + 1)"])
def test_a_step_between_coordinates_is_no_extent_and_what_loops_go_around_is_small(step: str) -> None:
    _, lines = drafted(
        f"""kernel void means(read_only image2d_t from, write_only image2d_t to, sampler_t how, int reach, int turn)
        {{
            const int2 at = (int2)(get_global_id(0), get_global_id(1));
            float4 sum = 0;
            for (int x = -reach; x <= reach; ++x)
                for (int y = -reach; y <= reach; ++y)
                    sum += read_imagef(from, how, at + (int2)(x * {step}, y * {step}));
            write_imagef(to, at, sum);
        }}"""
    )
    assert all('image = ["HEIGHT", "WIDTH"]' in shape_of(lines, name) for name in ("from_", "to"))
    assert any(line.startswith("global = ") and '["WIDTH", "HEIGHT"]' in line for line in lines)
    assert {'reach = { type = "int", value = "1" }  # guess: its value'} <= {*lines}


@pytest.mark.parametrize(
    ("first", "second", "items", "shapes"),
    [
        ("if (i < n)", "if (i < m)", "round_up(max(n, m), WG)", ["n", "m"]),
        ("if (i < n)", "else if (i < m)", "round_up(max(n, m), WG)", ["n", "m"]),
        ("if (i >= n) return;", "if (i < m)", "round_up(n, WG)", ["n", "n"]),
        ("if (i < n - 1)", "if (i < n)", "round_up(n, WG)", ["n - 1", "n"]),
        ("if (i < n)", "if (i < n + 2)", "round_up(n + 2, WG)", ["n", "n + 2"]),
        ("if (i < n)", "if (i < n - m)", "round_up(n, WG)", ["n", "n - m"]),
    ],
)
def test_a_launch_reaches_all_that_is_written_in_several_places(
    first: str, second: str, items: str, shapes: list[str]
) -> None:
    _, lines = drafted(
        f"""kernel void f(const int n, const int m, global float *a, global float *b)
        {{
            const int i = get_global_id(0);
            {first} a[i] = 1;
            {second} b[i] = 2;
        }}"""
    )
    assert f'global = ["{items}"]' in lines
    assert all(f'shape = ["{shape}"]' in shape_of(lines, name) for name, shape in zip("ab", shapes, strict=True))


def test_an_image_holds_all_that_is_written_and_steps_of_one_axis_with_a_remainder_of_another() -> None:
    _, lines = drafted(
        """kernel void f(read_only image2d_t from, write_only image2d_t to, sampler_t how, const int w, const int h)
        {
            const int x = get_global_id(0), y = get_global_id(1);
            if (x >= w || y >= h) return;
            float4 sum = read_imagef(from, how, (int2)(x / 4, 8 * y + (x & 3)));
            write_imagef(to, (int2)(x, 4 * y), sum);
            write_imagef(to, (int2)(x, 4 * y + 3), sum);
        }"""
    )
    assert 'image = ["4 * h", "w"]' in shape_of(lines, "to")
    assert 'image = ["8 * h", "ceil_div(w, 4)"]' in shape_of(lines, "from_")


def test_a_bound_that_chooses_a_place_holds_where_the_place_is_used() -> None:
    _, lines = drafted(
        """kernel void copy(global const float *x, global float *y, const int n)
        {
            const int i = get_global_id(0) << 3;
            if (i > n) return;
            const int at = i + 8 > n ? n - 8 : i;
            vstore8(vload8(0, x + at), 0, y + at);
        }"""
    )
    assert 'shape = ["n"]' in shape_of(lines, "y")
