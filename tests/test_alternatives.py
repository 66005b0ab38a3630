"""How `autotune new` treats a file with several kernels that do the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from tests.drafts import TILED, drafted, macros

PRODUCTS = """
kernel void naive(const int M, const int N, const int K, global const float *a, global const float *b, global float *c)
{
    const int i = get_global_id(0), j = get_global_id(1);
    float sum = 0.0f;
    for (int k = 0; k < K; k++) sum += a[k * M + i] * b[j * K + k];
    c[j * M + i] = sum;
}
""" + TILED.replace("product", "tiled").replace("const int i = TS", "const int KERNEL = TS, i = TS")

SUMS = """
#ifndef WG
#define WG 128
#endif
kernel void serial(global const float *x, global float *sum, const int n)
{
    float s = 0;
    for (int i = 0; i < n; i++) s += x[i];
    sum[0] = s;
}
kernel void parts(global const float *x, global float *part, const int n)
{
    local float t[WG];
    const int l = get_local_id(0);
    float s = 0;
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) s += x[i];
    t[l] = s;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int o = WG / 2; o; o >>= 1) { if (l < o) t[l] += t[l + o]; barrier(CLK_LOCAL_MEM_FENCE); }
    if (l == 0) part[get_group_id(0)] = t[0];
}
kernel void total(global const float *part, global float *sum, const int groups)
{
    float s = 0;
    for (int i = 0; i < groups; i++) s += part[i];
    sum[0] = s;
}
"""

BY_ITEM = "const int i = get_global_id(0);"


def whens(lines: list[str]) -> dict[str, str]:
    """Return, by kernel, the condition under which it is launched."""
    found, entry = dict[str, str](), ""
    for line in lines:
        if line.startswith("entry = "):
            entry = line.split('"')[1]
        elif line.startswith("when = "):
            found[entry] = line.split('"')[1]
    return found


def required(lines: list[str]) -> list[str]:
    return [line.split('"')[1] for line in lines if line.startswith("require = ")]


def test_a_parameter_chooses_among_kernels_that_write_the_same() -> None:
    sketch, lines = drafted(PRODUCTS)
    assert sketch.gaps == []
    name = "KERNEL_2"  # the text has the other for something else
    at = lines.index(f"[parameters.{name}]")
    guess = "one of them is launched, as each writes c anew; --entry drafts one alone"
    assert lines[at + 1] == f'values = ["naive", "tiled"]  # guess: {guess}'
    assert lines[at + 2] == 'default = "naive"'
    assert whens(lines) == {"naive": f"{name} == 'naive'", "tiled": f"{name} == 'tiled'"}
    assert f'configuration = {{ {name} = "naive", ' in "\n".join(lines)


def test_what_one_alternative_asks_for_keeps_its_default_with_the_others() -> None:
    _, lines = drafted(PRODUCTS)
    chosen = {"TS": ("tiled", 16), "RTS": ("tiled", 4), "WX": ("naive", 16), "WY": ("naive", 16)}
    assert required(lines) == [f"KERNEL_2 == '{one}' or {name} == {least}" for name, (one, least) in chosen.items()]
    _, lines = drafted(macros(SHIFT=1) + "#if SHIFT\n#endif\n" + PRODUCTS)
    assert not any("SHIFT" in each for each in required(lines)), "an #if may stand around any of them"
    both = PRODUCTS.replace("sum = 0.0f", "sum = TS - TS")
    assert not any(" TS " in each for each in required(drafted(both)[1]))


def test_what_feeds_an_alternative_is_launched_with_it() -> None:
    _, lines = drafted(SUMS)
    with_total = "KERNEL == 'total'"
    assert whens(lines) == {"serial": "KERNEL == 'serial'", "parts": with_total, "total": with_total}
    assert required(lines) == ["KERNEL == 'total' or WG == 128"]
    other = "kernel void own(global const float *part, global float *y) { y[get_global_id(0)] = part[0]; }"
    assert "parts" not in whens(drafted(SUMS + other)[1])


def test_two_stages_may_have_alternatives_each() -> None:
    stages = "".join(
        f"kernel void {name}(global const float *{x}, global float *{y}, const int n)"
        f"{{ {BY_ITEM} if (i < n) {y}[i] = {x}[i] + {number}; }}\n"
        for name, x, y, number in (("a1", "x", "m", 1), ("a2", "x", "m", 2), ("b1", "m", "z", 3), ("b2", "m", "z", 4))
    )
    found = whens(drafted(stages)[1])
    assert found == {"a1": "KERNEL == 'a1'", "a2": "KERNEL == 'a2'", "b1": "KERNEL_2 == 'b1'", "b2": "KERNEL_2 == 'b2'"}


@pytest.mark.parametrize(
    ("takes", "then"),
    [
        ("global float *y", "y[i] += x[i];"),  # it needs what the first has written
        ("global float *z", "z[i] = x[i];"),  # another result
    ],
)
def test_what_is_no_alternative_is_launched_always(takes: str, then: str) -> None:
    source = f"""
    kernel void first(global float *y, global const float *x) {{ {BY_ITEM} y[i] = x[i]; }}
    kernel void second({takes}, global const float *x) {{ {BY_ITEM} {then} }}
    """
    _, lines = drafted(source)
    assert not any(line.startswith("[parameters.KERNEL") for line in lines), lines
    assert whens(lines) == {}


def test_what_is_read_between_has_been_written_for_that() -> None:
    source = f"""
    kernel void first(global float *y, global const float *x) {{ {BY_ITEM} y[i] = x[i]; }}
    kernel void use(global const float *y, global float *z) {{ {BY_ITEM} z[i] = y[i]; }}
    kernel void again(global float *y, global const float *x) {{ {BY_ITEM} y[i] = 2 * x[i]; }}
    """
    assert whens(drafted(source)[1]) == {}


@pytest.mark.device
@pytest.mark.gallery
@pytest.mark.parametrize(
    ("source", "size", "name", "entries"),
    [(PRODUCTS, "64", "KERNEL_2", ("naive", "tiled")), (SUMS, "n=1000", "KERNEL", ("serial", "total"))],
)
def test_every_alternative_passes_as_it_is_proposed(
    source: str, size: str, name: str, entries: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "k.cl").write_text(source)
    made = CliRunner().invoke(app, ["new", str(tmp_path / "k.cl")])
    assert made.exit_code == 0, made.output
    assert "0 lines to be written" in made.output
    for entry in entries:
        words = ["check", str(tmp_path / "k.toml"), "--size", size, "--set", f"{name}={entry}"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output


def test_kernels_that_write_one_image_from_one_whose_places_were_not_read_are_alternatives() -> None:
    body = """{
        const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
        const int i = get_global_id(0);
        if (i < n) write_imagef(out, (int2)(i, 0), AT(in));
    }"""
    text = "#define AT(in) unknown(in, s, i)\n" + "".join(
        f"kernel void {name}(read_only image2d_t in, write_only image2d_t out, const int n) {body}\n" for name in "fg"
    )
    _, lines = drafted(text)
    assert any(line.startswith('values = ["f", "g"]') for line in lines), lines
