"""`autotune report`: one self-contained file, about the fitting problem that was searched last."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

pytest.importorskip("jinja2", reason="pip install '.[serve]'")

from autotune.cli import app
from autotune.errors import StudyError, UsageError
from autotune.lookup import asking
from autotune.model import Outcome, Trial
from autotune.reports import single
from autotune.reports.page import environment
from autotune.store import Store
from autotune.study import Problem
from autotune.tuner import ReplayEvaluator
from tests.stored import KEY, newer_driver, ok, put
from tests.test_loop import recorded, run

NASTY = "</script><script>alert(1)</script> \x1b[31m \u202e ' onload='x"


def report(store: Store, study: str = "scale", **asked: object) -> single.Written:
    return single.written(store, asking.Asked(study, **asked))  # type: ignore[arg-type]


def test_a_replayed_search_becomes_one_file(problem: Problem, store: Store) -> None:
    run(problem, store, ReplayEvaluator(recorded(problem, [Outcome.COMPILE_ERROR])))
    html = report(store, problem.study.name).html
    for word in ("Best so far", "because compile_error", "Which parameters matter", "Best per value", "Finalists"):
        assert word in html
    assert html.count('class="heat"') == 3
    assert not re.search(r"<(link|img|iframe)|\b(src|href)=\"(?!#)", html)


def test_what_an_axis_does_not_reach_is_not_drawn_beyond_it() -> None:
    strip = environment().get_template("macros.html").module.strip  # type: ignore[attr-defined]
    html = strip({"interval_ns": [5.0, 90.0], "samples_ns": [5.0, 20.0, 90.0], "median_ns": 20.0}, 10.0, 40.0)
    assert re.findall(r'class="band" x="([\d.-]+)" width="([\d.]+)"', html) == [("0.0", "600.0")]
    assert re.findall(r'class="sample" x1="([\d.-]+)"', html) == ["200.0"]


def test_its_policy_allows_its_own_scripts_and_styles_alone(store: Store) -> None:
    put(store, [ok({"A": 1}, 5)])
    html = report(store).html
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    allowed = set(re.findall(r"sha256-[^&' ]+", policy[1].replace("&#39;", "'")))
    blocks = re.findall(r"<(script|style)>(.*?)</\1>", html, re.DOTALL)
    found = {f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}" for _, text in blocks}
    assert found == allowed
    assert "unsafe" not in policy[1]
    assert "default-src" in policy[1]


def test_hostile_text_stays_text(store: Store) -> None:
    put(store, [ok({"A": NASTY}, 5), Trial({"A": NASTY, "B": 2}, Outcome.CRASH, reason=NASTY)])
    html = report(store).html
    assert html.count("alert(1)") > 1
    assert "<script>alert" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_the_problem_that_was_searched_last_is_told(store: Store) -> None:
    put(store, [ok({"A": 1}, 5)], key=KEY._replace(size={"M": 8, "N": 8}))
    put(store, [ok({"A": 1}, 5)])
    put(store, [ok({"A": 1}, 5)], key=KEY._replace(device="other-1cu"))
    put(store, [ok({"A": 1}, 5)], key=KEY._replace(size={"M": 8, "N": 8}), device=newer_driver("9"))
    assert report(store).key.size == {"M": 8, "N": 8}
    assert report(store, sizes=("M=64,N=32",)).key.device == "other-1cu"
    assert report(store, sizes=("M=64,N=32",), device=KEY.device).key == KEY
    assert report(store, choices=("T=float",)).key.choices == {"T": "float"}


def test_what_does_not_fit_is_one_line(store: Store) -> None:
    put(store, [ok({"A": 1}, 5)])
    with pytest.raises(UsageError, match="nothing is stored of scale at 7 on x-1cu;"):
        report(store, sizes=("7",), device="x-1cu")
    with pytest.raises(UsageError, match="nothing is stored of matmul"):
        report(store, "matmul")
    with pytest.raises(StudyError, match="no study named 'nope'"):
        report(store, "nope")


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, ["report", *words])


def test_the_command_writes_the_file(tmp_path: Path) -> None:
    database = str(tmp_path / "a.db")
    with Store.open(database) as store:
        put(store, [ok({"A": 1}, 5)])
    out = tmp_path / "r.html"
    done = typed("scale", "--db", database, "-o", str(out))
    assert done.exit_code == 0, done.output
    assert "written to" in done.stderr
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "name it .html" in typed("scale", "--db", database, "-o", "r.pdf").stderr
    missing = typed("scale", "--db", database, "-o", str(tmp_path / "no" / "r.html"))
    assert missing.exit_code == 2
    assert "cannot be written" in missing.stderr


def test_without_jinja_the_cure_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = typed("scale", "--db", str(tmp_path / "a.db"))
    assert done.exit_code == 3
    assert done.stderr.strip() == (
        "error: pages need Jinja2; pip install '.[serve]' in a checkout, or pip install 'opencl-autotune[serve]'"
    )
