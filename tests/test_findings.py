"""What a study's author is told before anything runs."""

from __future__ import annotations

import pytest

from autotune.errors import StudyError
from autotune.study.findings import check_entries, effects
from tests.studies import SOURCE, study, table


def entry(name: str) -> dict[str, object]:
    return {"launch": [{**table()["launch"][0], "entry": name}]}


def test_an_entry_that_the_kernel_lacks_is_told() -> None:
    check_entries(study())
    with pytest.raises(
        StudyError, match=r"launch\.1\.entry: the kernel has no function .saxpi.*did you mean.*; it has saxpy"
    ):
        check_entries(study(**entry("saxpi")))
    with pytest.raises(StudyError, match="has no function 'other'"):
        check_entries(study(source=f"{SOURCE}// kernel void other()\n", **entry("other")))


def test_an_entry_that_a_macro_may_make_is_left_to_the_compiler() -> None:
    check_entries(study(source="#define K(n) kernel void f_##n() {}\nK(x)", **entry("f_x")))
    check_entries(study(source="kernel void ENTRY() {}", options=[{"flag": "-DENTRY=f"}], **entry("f")))


def test_a_size_that_the_kernel_defines_itself_is_told() -> None:
    assert list(effects(study())) == []
    (line,) = effects(study(source=f"#define N 8\n{SOURCE}"))
    assert line.startswith("the kernel defines N itself")
    assert list(effects(study(source=f"// #define N 8\n/*\n#define N 8\n*/{SOURCE}"))) == []


def test_one_value_for_all_components_is_told() -> None:
    arguments = {**table()["arguments"], "alpha": {"type": "float3", "value": "2.5"}}
    assert list(effects(study(arguments=arguments))) == ["arguments.alpha: every component of float3 is 2.5"]
