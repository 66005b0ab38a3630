"""Expressions, literals and names of a study, written in C."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from autotune.errors import ExpressionError
from autotune.expression import Expression, put_in
from autotune.lookup.artefacts.ctext import NoCError, arithmetic, lines, prefix_of, string, whole
from tests.artefacts import (
    compiled,
    needs_compilers,
    printed,
)


def test_a_prefix_is_a_name_that_opencl_leaves_free() -> None:
    assert [prefix_of(name, {}) for name in ("sgemm", "a.b-c", "2d", "_x")] == ["SGEMM", "A_B_C", "STUDY_2D", "X"]
    assert [prefix_of(name, {}) for name in ("cl", "cl-build", "clblast")] == ["STUDY_CL", "STUDY_CL_BUILD", "CLBLAST"]
    assert prefix_of("saxpy", {"T": "double", "S": 0.5}) == "SAXPY_T_DOUBLE_S_0_5"
    assert prefix_of("a--b__c", {"S": -1, "T": -0.5}) == "A_B_C_S_MINUS_1_T_MINUS_0_5"


@needs_compilers
@settings(max_examples=3, derandomize=True, phases=(Phase.generate,))
@given(st.lists(st.text(max_size=40), min_size=20, max_size=40))
def test_any_text_as_a_literal(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("literals")
    told = [one.encode("utf-8", "replace").replace(b"\0", b"") for one in texts]
    rows = ", ".join(string(one.decode()) for one in told)
    checks = " ".join(
        f"if (memcmp(rows[{n}], (const char[]){{ {', '.join(f'(char){byte}' for byte in one + bytes(1))} }}, "
        f"{len(one) + 1}) != 0) return 1;" for n, one in enumerate(told)
    )  # fmt: skip
    program = (
        f"#include <string.h>\nstatic const char *rows[] = {{ {rows} }};\nint main(void) {{ {checks} return 0; }}\n"
    )
    assert printed(compiled(folder, program)) == []
    assert max(map(len, lines("x".join(texts) * 20))) < 4000, "no literal is beyond what every compiler takes"


LEAF = st.sampled_from(["M", "N", "3", "7", "1", "0", "-2"])


TREE = st.recursive(
    LEAF,
    lambda part: st.one_of(
        st.builds("({} {} {})".format, part, st.sampled_from(["+", "-", "*", "//", "%", "<", "==", "and", "or"]), part),
        st.builds("{}({}, {})".format, st.sampled_from(["ceil_div", "round_up", "min", "max"]), part, part),
        st.builds("({} if {} else {})".format, part, part, part),
        st.builds("(not {})".format, part), st.builds("abs({})".format, part), st.builds("({} ** 2)".format, LEAF),
        st.builds("({} in (1, 3, {}))".format, part, part), st.builds("is_power_of_two({})".format, part),
        st.builds("({} < {} <= {})".format, part, part, part),
        st.builds("({} >= {} != {} > {})".format, part, part, part, part),
    ),
    max_leaves=8,
)  # fmt: skip


SIZES = [1, 5, 64, 100, 46341, 2**31 - 1]


LARGE = [
    form.replace("X", operand)
    for operand in ("M * N * N", "M // (N - 1)", "-M * M * M * 2", "M ** 9", "2 ** M")
    for form in (
        "X", "X + X", "1 - X", "X * 3", "X // 3", "7 % X", "-(X)", "not X", "abs(X)", "max(X, 1)", "min(1, X)", "X < 5",
        "5 > N or X", "N > 5 and X", "X if N > 5 else 1", "1 if X else 2", "1 < N < X", "N < 5 < X", "1 in (N, X)",
        "X in (1, 2)", "ceil_div(X, 3)", "round_up(X, 5 - N)", "is_power_of_two(X)", "(X) ** 2",
        "(X) ** 0", "1 ** (X)",
    )
]  # fmt: skip


@pytest.mark.slow
@needs_compilers
@settings(max_examples=2, derandomize=True, phases=(Phase.generate,))
@given(st.lists(TREE, min_size=150, max_size=200))
def test_expressions_mean_in_c_what_they_mean_here(
    tmp_path_factory: pytest.TempPathFactory, expressions: list[str]
) -> None:
    """Also where they have no value: beyond 2**62, or divided by zero."""
    folder, names = tmp_path_factory.mktemp("expressions"), {"M": "M_", "N": "N_"}
    functions, expected = [arithmetic("P")], list[str]()
    for text_ in (*expressions, *LARGE):
        try:
            expression = Expression.parse(text_)
            c = whole(expression.tree, names, "P")
        except (ExpressionError, NoCError):
            continue  # text and the like
        name = f"f{len(functions)}"
        functions.append(f"static long long {name}(long long M_, long long N_) {{ (void)M_; (void)N_; return {c}; }}")
        for m, n in itertools.product(SIZES, SIZES):
            try:
                expected.append(str(int(expression.evaluate({"M": m, "N": n}))))
            except ExpressionError:
                expected.append(str(-(2**63)))
    all_, sizes = ", ".join(f"f{n}" for n in range(1, len(functions))), ", ".join(map(str, SIZES))
    program = [
        "#include <stdio.h>", *functions, f"static const long long sizes[] = {{ {sizes} }};",
        f"static long long (*const all[])(long long, long long) = {{ {all_} }};",
        f"int main(void) {{ const int f = {len(functions) - 1}, s = {len(SIZES)}; for (int n = 0; n < f * s * s; n++)",
        'printf("%lld\\n", all[n / (s * s)](sizes[n / s % s], sizes[n % s]));', "return 0; }",
    ]  # fmt: skip
    assert printed(compiled(folder, "\n".join(program), "sanitized")) == expected
    assert 1000 < expected.count(str(-(2**63))) < len(expected) - 1000


@pytest.mark.parametrize(
    "form",
    [
        "({} % 7)", "round_up({}, 7)", "abs({} - 1)", "is_power_of_two({} + 1)", "(0 < {} + 1 < 9)", "({} in (1, 3))",
        "(WG == 1 or (WG == 32 and {}))", "(WG == 32 and (WG == 1 or {} % 7))",
    ],
)  # fmt: skip
def test_an_operand_is_written_once_in_c(form: str) -> None:
    deep = "M"
    for _ in range(20):
        deep = form.format(deep)
    c = whole(put_in(Expression.parse(deep).tree, {"WG": 32}), {"M": "M_"}, "P")
    assert c.count("M_") == 1
    assert len(c) < 2000


def test_c_of_any_length_is_not_written() -> None:
    tree = Expression.parse("+".join(["N"] * 90)).tree
    with pytest.raises(NoCError, match=r"an expression of more than 32,768 characters"):
        whole(tree, {"N": "N" * 400}, "P")


def test_c_that_grows_too_long_is_left_at_once() -> None:
    tree = Expression.parse("max(" + ", ".join(["N"] * 90) + ")").tree
    tracemalloc.start()
    with pytest.raises(NoCError, match="an expression"):
        whole(tree, {"N": "N" * 2**15}, "P")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
