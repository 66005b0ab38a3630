"""Studies as TOML: what is written reads back as the same, and what no file can hold is refused with its place."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import StudyError
from autotune.study import Study, study_paths, toml
from tests.studies import study, table

LEAF = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
)
VALUE = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab ."é\n', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc_ .\"'é", max_size=4), VALUE, max_size=5))
def test_what_is_written_reads_back_in_the_same_order(tables: dict[str, Any]) -> None:
    found = tomllib.loads(toml(tables))
    assert found == tables
    flat = [name for name, part in tables.items() if not isinstance(part, dict | list)]
    assert [name for name in found if name in flat] == flat


@pytest.mark.parametrize("name", sorted(study_paths()))
def test_a_bundled_study_keeps_its_hash(name: str) -> None:
    loaded = Study.load(name)
    assert tomllib.loads(loaded.to_toml()) == loaded.text.table


def test_a_study_made_in_python_reaches_the_command_line(tmp_path: Path) -> None:
    made = study()
    written = made.save(tmp_path / "mine.toml")
    assert [path.suffix for path in written] == [".cl", ".toml"]
    loaded = Study.load(str(tmp_path / "mine.toml"))
    assert loaded.text.study_hash == made.text.study_hash
    assert loaded.text.kernel_hash == made.text.kernel_hash
    with pytest.raises(StudyError, match="exists already"):
        made.save(tmp_path / "mine.toml")
    with pytest.raises(StudyError, match="cannot be written: No such file or directory"):
        made.save(tmp_path / "nowhere" / "mine.toml")


def test_what_no_file_holds_is_refused_with_its_cure() -> None:
    with pytest.raises(StudyError, match=r'a function cannot be written to a file; .* python = "FILE.py:NAME"'):
        study(reference=lambda **names: names).to_toml()
    for value, message in (
        (np.zeros(3), "it is of ndarray; write the array to a file and name it"),
        (None, "it is of NoneType; leave the key out"),
        (print, "put the function into a file"),
        (np.int64(3), "it is of int64"),
    ):
        with pytest.raises(StudyError, match=f"^arguments.x.data: cannot be written to a file: .*{message}"):
            toml({"arguments": {"x": {"data": value}}})
    with pytest.raises(StudyError, match="is not a valid key"):
        toml({"a": {3: 4}})
    with pytest.raises(StudyError, match="an invalid character"):
        toml({"a": "\ud800"})


def test_a_table_is_laid_out_as_people_write_it() -> None:
    text = toml({"name": "a", "sizes": {"N": 4}, "parameters": {"WG": {"values": [1, 2]}}, "launch": [{"entry": "f"}]})
    assert text == 'name = "a"\n\n[sizes]\nN = 4\n\n[parameters.WG]\nvalues = [1, 2]\n\n[[launch]]\nentry = "f"\n'
    assert table()["name"] in study().to_toml()
