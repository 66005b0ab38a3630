"""The expression language: what it accepts, what it means, and what intervals may say about it."""

from __future__ import annotations

import ast
import itertools
import math
import pickle
import re
import time
import warnings
from bisect import bisect_left
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import ExpressionError
from autotune.expression import Expression
from autotune.space.bounds import Bounds, of_column, of_values, surely_false

LIMIT = 2**62


def value(text: str, **names: Any) -> Any:
    return Expression.parse(text).evaluate(names)


def parsed(text: str) -> Expression | None:
    """Return the expression, or None if the text is refused."""
    try:
        return Expression.parse(text)
    except ExpressionError:
        return None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("7 // 2", 3),
        ("-7 // 2", -4),
        ("7 / 2", 3.5),
        ("-7 % 3", 2),
        ("2 ** 10", 1024),
        ("TS % 8 == 0 and TS > 8", True),
        ("0 < TS <= 16 < 17", True),
        ("not TS", False),
        ("TS in (8, 16)", True),
        ("TS not in [8, 16]", False),
        ("VARIANT in ('TILED', 'WPT')", True),
        ("VARIANT == 'NAIVE'", False),
        ("VARIANT != 3", True),
        ("3 if VARIANT == 'TILED' else 4", 3),
        ("ceil_div(17, TS)", 2),
        ("round_up(17, TS)", 32),
        ("min(TS, 3, 9) + max(TS, 3)", 19),
        ("abs(-TS)", 16),
        ("log2(TS)", 4.0),
        ("is_power_of_two(TS) and not is_power_of_two(12)", True),
        ('has_extension("cl_khr_fp16")', True),
        ('has_extension("cl_khr_fp64")', False),
        ("TS == 0 or 1 // TS == 0", True),
        ("True + True", 2),
        ("TS + # over\n 1  # two lines", 17),
        (12, 12),
        (0.5, 0.5),
    ],
)
def test_value(text: str | int | float, expected: Any) -> None:
    found = Expression.parse(text).evaluate({"TS": 16, "VARIANT": "TILED", "extensions": ("cl_khr_fp16",)})
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("TS +", "is not an expression: invalid syntax"),
        ("TS = 4", "is not an expression: invalid syntax; write == to compare"),
        ("not (TS = 4)", "is not an expression: invalid syntax; write == to compare"),
        ("TS * 1e-5f", "is not an expression: invalid decimal literal; write 1e-5, without the suffix"),
        ("2 ** pass if TS else", "'pass' is a word of Python, which no expression can name: choose another name"),
        ("TS > 4 && WPT < 3", "write `and`, `or`, `not`"),
        ("9**9**9", "exponents are whole numbers from 0 to 64"),
        ("2**63", "beyond 2**62"),
        ("9" * 3000, "beyond 2**62"),
        ("1e999", "too large for a float"),
        ("1 / 0", "divides by zero"),
        ("1" * 4001, "longer than 4000 characters"),
        ("1+" * 1999 + "1", "more than"),
        ("[" * 500 + "]" * 500, "is not an expression"),
        ("not " * 120 + "1", "nested more than 100 levels"),
        ("or".join(["(a and b) "] * 200), "more than 500 parts"),
        ("__import__('os')", "which is not a function of the language"),
        ("TS.bit_length()", "not a plain function"),
        ("TS.real", "Python's Attribute"),
        ("[10, TS]", 'quote each part, not the list: ["1", "2"]'),
        ("TS in 1, 2 if TS else 3", "a list after `in` stands in parentheses: `X in (1, 2)`"),
        ("().__class__", "Python's Attribute"),
        ("p['TS'] > 1", "a name stands by itself: `X`, not `p['X']`"),
        ("lambda p: 1", "Python's Lambda, which is not part of the language; write the part after its colon"),
        ("int(TS / 2)", "written `a // b`"),
        ("(x := 1)", "Python's NamedExpr"),
        ("[x for x in y]", "Python's ListComp"),
        ("f'{TS}'", "Python's JoinedStr"),
        ("TS & 1", "use `and`; the last bit is `X % 2`"),
        ("TS == 1 or 2", "has the number 2 for a condition; write `x in (1, 2)`"),
        ("1 << 70", "2 ** n"),
        ("TS is 1", "use =="),
        ("(1, 2)", "Python's Tuple"),
        ("TS in 'abc'", "no list after `in`"),
        ("TS < 3 in (1, 2)", "chains `in`"),
        ("None", "neither a number nor text"),
        ("1j", "neither a number nor text"),
        ("ceil_dif(1, 2)", "did you mean ceil_div?"),
        ("ceil_div(1)", "it takes 2"),
        ("min(1)", "at least 2"),
        ("min + 1", "without parentheses"),
        ("max(*x)", "not a plain function"),
        ("has_extension(TS)", "write `has_extension("),
        ("1if TS else 2", "is not an expression: a word follows a number without a space, 1if"),
        ("TS < 0x1f or 1.5or TS", "without a space, 1.5or"),
        ("'\\d' == TS", "is not an expression: \\d is not an escape of a character"),
        ("'\\\\\\456' == TS", "\\456 is not an escape of a character"),
        ("\0", "is not an expression"),
        ("\ud800", "is not an expression"),
    ],
)
def test_refused_when_parsed(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression.parse(text, where="constraints[3]")
    line = str(caught.value)
    assert line.startswith("constraints[3]: ")
    assert message in line
    assert "\n" not in line
    assert len(line) < 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("N // (N - 4)", "`N // (N - 4)` divides by zero (N=4)"),
        ("N % 0.0 == 1", "divides by zero"),
        ("N ** 40", "beyond 2**62"),
        ("N ** -1", "exponents are whole numbers from 0 to 64"),
        ("1e300 * 10.0 ** N ** 3", "too large for a float"),
        ("log2(4 - N)", "takes log2 of 0"),
        ("ceil_div(N, 0.5)", "which is not a whole number (// divides without remainder, -(-a // b) rounds up)"),
        ("T + 1", "calculates with the text 'float'"),
        ("T < 'int'", "compares text by size; text compares with ==, != and in"),
        ("4 <= T", "compares text by size"),
        ("N * T", "calculates with the text 'float'"),
        ("N % T", "calculates with the text 'float'"),
        ("-T == N", "calculates with the text 'float'"),
        ("abs(T)", "calculates with the text 'float'"),
        ("log2(T)", "calculates with the text 'float'"),
        ("max(N, T)", "compares text by size"),
        ("not T", "uses the text 'float' as a condition"),
        ("1 if T else 2", "uses the text 'float' as a condition"),
        ("T or N", "uses the text 'float' as a condition"),
        ("extensions == 3", "uses the list extensions as a value"),
        ("has_extension('a') and has_extension('b') or 1 // (N - 4)", "divides by zero (N=4)"),
        ("HUGE + 1", "uses HUGE, which is out of bounds"),
        ("SIZES + 1", "uses the list SIZES as a value"),
        ("NONE + 1", "uses NONE, which is neither a number nor text"),
        ("n + 1", "`n + 1` uses n, which is not defined; did you mean N?"),
        ("N > 0 or M", "uses M, which is not defined"),
    ],
)
def test_refused_when_evaluated(text: str, message: str) -> None:
    names = {"N": 4, "T": "float", "extensions": ("a",), "HUGE": 2**62 + 1, "SIZES": (1, 2), "NONE": None}
    with pytest.raises(ExpressionError) as caught:
        Expression.parse(text).evaluate(names)
    assert message in str(caught.value)


def test_parsing_leaves_the_warnings_of_other_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, seen = ast.parse, list[Any]()
    monkeypatch.setattr(ast, "parse", lambda *args, **named: seen.append([*warnings.filters]) or parse(*args, **named))
    with warnings.catch_warnings(action="ignore"):
        filters = [*warnings.filters]
        assert Expression.parse("n1 == '2in \\'\\n' or n1 < 1  # 1if, '\\d'").names == {"n1"}
    assert seen == [filters]


def test_a_hostile_text_costs_no_time() -> None:
    """If operands were computed twice, nested chains and memberships would double the work per level."""
    deep = "1"
    for _ in range(24):
        deep = f"(0 <= ({deep} in (0, a)) <= b < 5)"
    begin = time.process_time()
    value(deep, a=1, b=1)
    with pytest.raises(ExpressionError):
        Expression.parse("a" * 10_000_000)
    assert time.process_time() - begin < 10  # 2**24 evaluations would take minutes


def test_identity() -> None:
    one, two = Expression.parse("a + 1", where="here"), Expression.parse(" a + 1 ", where="there")
    assert one == two
    assert len({one, two}) == 1
    assert one.names == {"a"}
    assert pickle.loads(pickle.dumps(one)).evaluate({"a": 2}) == 3
    with pytest.raises(AttributeError):
        one.text = "b"  # type: ignore[misc]


def test_extensions_are_a_free_name() -> None:
    assert Expression.parse("has_extension('cl_khr_fp64')").names == {"extensions"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        "-({})",
        "not ({})",
        "abs({})",
        "({}) * 1",
        "({}) < b < 3",
        "0 < b <= ({})",
        "0 <= ({}) <= b < 5",
        "({}) not in (4, 5)",
        "({}) and b",
        "1 if ({}) else 2",
    ],
)
def test_what_may_be_nested_can_be_compiled(shape: str) -> None:
    texts = list(accumulate(range(400), lambda text, _: shape.format(text), initial="a"))
    deepest = texts[bisect_left(texts, True, key=lambda text: parsed(text) is None) - 1]
    assert deepest.count("(") > 40
    assert abs(value(deepest, a=1, b=2)) <= 2


def test_nesting_beyond_what_some_parsers_of_python_bear() -> None:
    """Python 3.12 gives up on this text; others read it, and its parts are too many."""
    with pytest.raises(ExpressionError, match=r"is nested too deeply|has more than 500 parts"):
        Expression.parse("-" * 3999 + "1")


@pytest.mark.parametrize("sign", ["+", "*"])
def test_a_long_sum_or_product_is_not_nested(sign: str) -> None:
    terms = [f"(a == {number})" if sign == "+" else f"(a - {number}) ** 0" for number in range(30)]
    long = f" {sign} ".join(["a"] * 3 + ["1"] * 100 + terms)
    assert value(long, a=3) == (9 + 100 + 1 if sign == "+" else 27)
    assert Expression.parse("a - x").with_parts({"x": Expression.parse("a + " * 200 + "a")}).evaluate({"a": 2}) == -400
    with pytest.raises(ExpressionError, match="nested more than 100 levels"):
        Expression.parse(" - ".join(["a"] * 120))


def test_names_are_no_words_of_python() -> None:
    """A study's names never reach the compiled code."""
    names = dict.fromkeys(("n1", "k0", "bounded", "power", "bool", "__builtins__", "__import__"), 1)
    assert Expression.parse(" + ".join(names) + " + 3 ** 2").evaluate(names) == 16
    assert Expression.parse("n1 == 'x\\'\\n\\\\' or k0 == 1").holds(names)


def test_whether_it_holds() -> None:
    assert Expression.parse("a - 3").holds({"a": 2}) is True
    assert Expression.parse("a - 3").holds({"a": np.int8(3)}) is False
    with pytest.raises(ExpressionError, match=r"`a` uses the text 'x' as a condition \(a='x'\)"):
        Expression.parse("a").holds({"a": "x"})


# --- what it means ------------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-4, 9),
    st.sampled_from([16, 64, 4096, 2**31, 2**53 + 1, 2**61, LIMIT, -LIMIT]),
    st.sampled_from([0.5, -2.5, 3.0, 1e300, 1e-300, float(2**53)]),
)
LEAVES = st.one_of(
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(["0", "1", "2", "7", "64", "2.5", "'x'", "'y'", str(2**40)]),
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def form(shape: str) -> st.SearchStrategy[str]:
        parts = len({*re.findall(r"{\d}", shape)})
        return st.tuples(*[inner] * parts).map(lambda parts: shape.format(*parts))

    signs = ["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
    binary = [f"({{0}} {sign} {{1}})" for sign in signs]
    calls = [f"{name}({{0}}, {{1}})" for name in ("min", "max", "ceil_div", "round_up")]
    single = ["(-{0})", "(not {0})", "abs({0})", "log2({0})", "is_power_of_two({0})"]
    more = ["({0} if {1} else {2})", "({0} in ({1}, {2}))", "({0} not in ({1}, 4))", "({0} < {1} <= {2})"]
    return st.one_of(*map(form, [*binary, *binary, *calls, *single, *more]))


TEXTS = st.recursive(LEAVES, _larger, max_leaves=9)


PYTHON = {
    "ceil_div": lambda a, b: -(-a // b),
    "round_up": lambda a, b: -(-a // b) * b,
    "log2": math.log2,
    "is_power_of_two": lambda a: a in [2**n for n in range(63)],
}


class TruthValues(ast.NodeTransformer):
    """Makes Python's `and` and `or` return truth values."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.Call:
        self.generic_visit(node)
        return ast.Call(ast.Name("bool", ast.Load()), [node], [])


@settings(max_examples=300)
@given(TEXTS, st.lists(st.one_of(NUMBERS, st.sampled_from(["x", "y", True])), min_size=4, max_size=4))
def test_where_there_is_a_value_it_is_what_python_gives(text: str, values: list) -> None:
    names = dict(zip("abcd", values, strict=True))
    try:
        found = Expression.parse(text).evaluate(names)
    except ExpressionError:
        return
    syntax = ast.fix_missing_locations(TruthValues().visit(ast.parse(text, mode="eval")))
    expected = eval(compile(syntax, "text", "eval"), PYTHON, names)
    assert found == expected
    assert type(found) is type(expected)


@settings(max_examples=300)
@given(TEXTS, st.lists(st.integers(0, 9), min_size=3, max_size=3), st.lists(NUMBERS, min_size=1, max_size=3), NUMBERS)
def test_what_bounds_rule_out_is_false_for_every_value(text: str, a: list, b: list, c: Any) -> None:
    expression = parsed(text)
    if expression is None:
        return
    plain: dict[str, list] = {"a": a, "b": b, "c": [c], "d": ["x", "y"]}
    bounds = {name: of_values(listed) for name, listed in plain.items()}
    false = surely_false(expression.tree, {**bounds, "a": of_column(np.array(a))})
    for row in np.flatnonzero(np.broadcast_to(false, (3,))):
        for others in itertools.product(b, [c], ["x", "y"]):
            assert not expression.evaluate(dict(zip("abcd", (a[row], *others), strict=True)))


INTERVALS = [(low, high) for low in range(-3, 4) for high in range(low, 4)]


@pytest.mark.parametrize(
    "shape",
    [
        "a + b",
        "a - b",
        "a * b",
        "a // b",
        "a / b",
        "a % b",
        "a ** b",
        "min(a, b)",
        "max(b, a)",
        "ceil_div(a, b)",
        "round_up(a, b)",
        "abs(a) - -b",
        "a if b else 2",
    ],
)
def test_bounds_of_each_operator(shape: str) -> None:
    """All pairs of small intervals: an excluded result never happens, and a result outside is excluded."""
    pairs = list(itertools.product(INTERVALS, INTERVALS))
    columns = np.array([(*one, *other) for one, other in pairs], dtype=np.float64).T
    sure = np.ones(len(pairs), dtype=np.bool_)
    bounds = {"a": Bounds(columns[0], columns[1], sure), "b": Bounds(columns[2], columns[3], sure)}
    results: dict[tuple[int, int], Any] = {}
    for a, b in itertools.product(range(-3, 4), range(-3, 4)):
        try:
            results[a, b] = value(shape, a=a, b=b)
        except ExpressionError:
            results[a, b] = None
    within = [
        [results[a, b] for a in range(one[0], one[1] + 1) for b in range(other[0], other[1] + 1)]
        for one, other in pairs
    ]
    for target in (-40, -9, -4, -1, 0, 0.5, 1, 2, 6, 9, 40):
        false = np.broadcast_to(surely_false(Expression.parse(f"({shape}) == {target}").tree, bounds), sure.shape)
        for values, ruled_out in zip(within, false, strict=True):
            assert not (ruled_out and (None in values or target in values))
            if abs(target) == 40 and shape != "a ** b":
                assert ruled_out == (None not in values)


def test_large_whole_numbers_beside_floats() -> None:
    """They are compared and divided exactly, not as floats."""
    assert [value("a > 9007199254740992.0", a=each) for each in (2**53, 2**53 + 1)] == [False, True]
    assert [value("a in (2.0**53, 1)", a=each) for each in (2**53, 2**53 + 1)] == [True, False]


def test_what_is_left_aside_does_not_fail() -> None:
    for wpt, divides, quotient, few in ((0, False, True, True), (1, True, False, False), (2, True, False, True)):
        assert value("WPT != 0 and 16 % WPT == 0", WPT=wpt) is divides
        assert value("(16 // WPT if WPT else 5) == 5", WPT=wpt) is quotient
        assert value("WPT == 0 or 0 < 16 // WPT < 9", WPT=wpt) is few
