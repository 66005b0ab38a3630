"""If nothing is stored, a command that only reads makes nothing, says what to type next, and ends as elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from tests.stored import DEVICE
from tests.test_main import have

READERS = [
    ("studies", 0, "matmul"),
    ("history", 0, "no trial is stored; autotune search STUDY makes some"),
    ("history matmul", 0, "no trial is stored of matmul; autotune search matmul makes some"),
    ("export", 0, "0 trials exported"),
    ("export --format csv --study matmul", 2, "nothing is stored of matmul; autotune search matmul makes some"),
    ("export --format header --study matmul", 2, "nothing is stored of matmul; autotune search matmul measures it"),
    ("report matmul", 2, "nothing is stored of matmul; autotune search matmul measures some"),
    ("report matmul --size 64 --choice T=int", 2, "autotune search matmul --size 64 --choice T=int measures some"),
    ("compare matmul --by size --no-search", 1, "leave out --no-search to measure some"),
    ("cover matmul --sizes 64,128 --no-search", 1, "no best is stored at M=64,N=64,K=64; autotune search matmul"),
    ("best matmul -d x-1cu", 0, "to measure it: autotune search matmul -d x-1cu"),
]


@pytest.mark.slow
@pytest.mark.parametrize("lies", ["nowhere", "in a file", "in a folder without it"])
@pytest.mark.parametrize(("words", "code", "said"), READERS, ids=[words for words, *_ in READERS])
def test_a_reader_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, code: int, said: str, lies: str
) -> None:
    if words.startswith("report"):
        pytest.importorskip("jinja2", reason="pip install '.[serve]'")
    have(monkeypatch, DEVICE)
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "data"
    if lies == "in a file":
        place.write_text("")
    elif lies == "in a folder without it":
        (place / "autotune").mkdir(parents=True)
    monkeypatch.delenv("AUTOTUNE_DB", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(place))
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == code, done.output
    assert said in done.output
    assert sorted(tmp_path.rglob("*")) == before
