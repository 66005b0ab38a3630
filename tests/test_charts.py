"""Charts: every value, label and reason is in the picture, and a bad path is refused before any work."""

from xml.etree import ElementTree

import pytest

from autotune.errors import UsageError
from autotune.reports.charts import check_path
from autotune.reports.drawing import Bar, Line, Panel, bar_chart, line_chart, spread

PANELS = [
    Panel("M=N=K=1024", (Bar("NAIVE", 900.0), Bar("TILED", 2400.0), Bar("ALL_OF_B", None, "does not fit into 48 KiB"))),
    Panel("M=N=K=2048", (Bar("NAIVE", 950.0), Bar("TILED", 2500.0), Bar("ALL_OF_B", None))),
]


def test_bars_name_every_value_and_every_reason(tmp_path):
    path = tmp_path / "bars.svg"
    bar_chart(path, PANELS, title="matmul by VARIANT", subtitle="a device", axis="GFLOPS")
    text = path.read_text()
    for word in ("matmul by VARIANT", "a device", "GFLOPS", "NAIVE", "ALL_OF_B", "900.0", "2400", "M=N=K=2048"):
        assert f">{word}<" in text
    assert "does not fit into 48 KiB" in text
    assert "no result" in text


@pytest.mark.parametrize(("least", "strong"), [(False, "2400"), (True, "900.0")])
def test_the_best_bar_stands_out(tmp_path, least, strong):
    path = tmp_path / "bars.svg"
    bar_chart(path, PANELS[:1], title="t", subtitle="", axis="Time (ms)", least=least)
    fills = [
        line.split("fill: ")[1][:7]
        for line in path.read_text().splitlines()
        if "clip-path" in line and "fill: #" in line
    ]
    assert fills.count("#0072b2") == 1
    assert fills.index("#0072b2") == (1 if strong == "2400" else 0)


def test_more_panels_than_columns_and_no_value_at_all(tmp_path):
    panels = [Panel(str(n), (Bar("1", None, "excluded"),)) for n in range(5)]
    path = tmp_path / "bars.png"
    bar_chart(path, panels, title="t", subtitle="", axis="GFLOPS")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_lines_carry_their_names_and_sizes(tmp_path):
    path = tmp_path / "lines.svg"
    lines = [
        Line("kernel alone", ((128, 500.0), (256, 4000.0))),
        Line("NumPy BLAS (host)", ((128, 20.0), (256, 30.0))),
        Line("nothing measured", ()),
    ]
    line_chart(path, lines, title="t", subtitle="", x_axis="M = N = K", y_axis="GFLOPS")
    text = path.read_text()
    for word in ("kernel alone", "NumPy BLAS (host)", "M = N = K", "GFLOPS", "128", "256", "1000"):
        assert f">{word}<" in text
    assert "nothing measured" not in text


def test_the_same_data_gives_the_same_file(tmp_path):
    for name in ("a.svg", "b.svg"):
        bar_chart(tmp_path / name, PANELS, title="t", subtitle="", axis="GFLOPS")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_labels_are_pushed_apart_only_where_they_would_touch():
    assert spread([10, 12, 13, 90], 15) == [10, 25, 40, 90]


def test_a_path_that_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\.png or \.svg"):
        check_path(tmp_path / "chart.pdf")
    with pytest.raises(UsageError, match="mkdir -p"):
        check_path(tmp_path / "nowhere" / "chart.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        bar_chart(tmp_path / "folder.png", PANELS, title="t", subtitle="", axis="GFLOPS")


def texts(path):
    return [
        line.split(">")[1].split("<")[0] for line in path.read_text().splitlines() if line.lstrip().startswith("<text")
    ]


@pytest.mark.parametrize("scale", [1, 1000])
def test_axes_write_numbers_out(tmp_path, scale):
    path = tmp_path / "lines.svg"
    points = tuple((2.0**n, 1e6 * scale ** (n % 2) + n) for n in range(10, 25))
    line_chart(path, [Line("all", points)], title="t", subtitle="", x_axis="N", y_axis="GFLOPS")
    assert {"1024", "1048576", "16777216"} <= set(texts(path))
    assert {"1000000", "1000000000"} <= set(texts(path)) or scale == 1
    assert not [text for text in texts(path) if "e+" in text or "1e" in text]
    bar_chart(path, [Panel("p", (Bar("a", 3e7),))], title="t", subtitle="", axis="Time (ms)")
    assert "20000000" in texts(path)


NASTY = "$\\frac{1}$ \x1b[31m</text><script> \u202e\u6c49 &\n$x$"
SHOWN = r"$\frac{1}$ \x1b[31m</text><script> \u202e" + "\u6c49 & $x$"


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_labels_of_others_are_text_and_nothing_else(tmp_path, kind):
    bars, lines = tmp_path / f"bars.{kind}", tmp_path / f"lines.{kind}"
    bar_chart(bars, [Panel(NASTY, (Bar(NASTY, 1.0), Bar("$", None, NASTY)))], title=NASTY, subtitle=NASTY, axis="GB/s")
    line_chart(lines, [Line(NASTY, ((1, 1), (2, 50)))], title=NASTY, subtitle=NASTY, x_axis="N", y_axis="GB/s")
    if kind == "svg":
        assert [drawn(bars).count(SHOWN), drawn(lines).count(SHOWN)] == [4, 3]
        assert "$" in drawn(bars)


def drawn(path):
    """Return the texts of a picture as a browser shows them; raises an error unless it is well-formed XML."""
    return [element.text for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
