"""The NumPy language of references: what it computes, and that nothing in it can use up the machine."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from autotune.errors import StudyError
from autotune.study.arrays import FUNCTIONS, check_names, evaluate, shape_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a @ a", [[7, 10], [15, 22]]),
        ("a.T[0]", [1, 3]),
        ("a[:, 1]", [2, 4]),
        ("sum(a, axis=1)", [3, 7]),
        ("where(a > 2, a, -a)", [[-1, -2], [3, 4]]),
        ("einsum('ij->j', a)", [4, 6]),
        ("reshape(a, (4,))[::2]", [1, 3]),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    assert evaluate(text, {"a": np.array([[1, 2], [3, 4]])}).tolist() == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "a.__class__",
        "open('x')",
        "(lambda: 1)()",
        "[x for x in a]",
        "a @ b",
        "a +",
        "sun(a)",
        "a @ 1",
    ],
)
def test_nothing_else_is_an_expression(text: str) -> None:
    with pytest.raises(StudyError):
        evaluate(text, {"a": np.ones((2, 2))})


@pytest.mark.parametrize("text", ["a @ B", "sun(a)", "a +", "a(1)"])
def test_names_are_checked_without_running(text: str) -> None:
    with pytest.raises(StudyError, match=r"^here: "):
        check_names(text, {"a": 0}, "here")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("np.add(x, 1)", "`np.add`: no np. here, names stand alone; write x + y"),
        ("numpy.sqrt(x)", "`numpy.sqrt`: no numpy. here, names stand alone; write sqrt"),
        ("x[:, np.newaxis]", "`np.newaxis`: no np. here, names stand alone; write None"),
        ("[i * 2 for i in x]", "`[i * 2 for i in x]`: no comprehensions here; write operations on whole arrays"),
        ("sum(i for i in x)", "no comprehensions here"),
        ("2 * x.reshape(3, 1)", "`x.reshape(3, 1)`: no methods here; write reshape(x, ...) with the array first"),
        ("x if N > 1 else 2 * x", "no `if` here; write where(condition, a, b)"),
        ("(x > 0) and (x < 2)", "no `and`, `or`, `not` here; write (a > 0) & (b > 0), | and ~"),
        ("not x", "no `and`, `or`, `not` here"),
        ("x > 0 ? x : 0", "invalid syntax; write where(condition, a, b)"),
        ("(x > 0) && (x < 2)", "invalid syntax; write (a > 0) & (b > 0), | and ~"),
        ("x * 0.5f + 1", "invalid decimal literal; write 0.5, without the suffix"),
        ("fmax(x, 0)", "unknown name 'fmax'; write maximum"),
        ("native_rsqrt(x)", "unknown name 'native_rsqrt'; write 1 / sqrt(a)"),
        ("0 < x < 1", "`0 < x < 1`: no chains of comparisons here; write (a < b) & (b < c)"),
    ],
)
def test_what_numpys_users_are_used_to_is_told_otherwise(text: str, said: str) -> None:
    with pytest.raises(StudyError) as caught:
        check_names(text, {"x": np.ones(3), "N": 3}, "here")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 * in", r"`2 \* in`: invalid syntax; 'in' is a word of Python: call the argument in_, .*"),
        ("x + (x" + " + x" * 500, r"`x \+ \(x \+ x[ +x]{1,60}`: '\(' was never closed"),
        ("\n  x +\n" * 20 + "* x", r"`\* x`: .*"),
        ("x\0", "`x.` is nested too deeply, or holds what cannot be read"),
    ],
)
def test_what_is_no_expression_is_told_with_what_stands_there(text: str, said: str) -> None:
    with pytest.raises(StudyError) as caught:
        check_names(text, {"in": 0, "x": 0}, "here")
    assert re.fullmatch(f"here: not an expression: {said}", str(caught.value))


def test_a_reference_without_room_is_told() -> None:
    huge = np.broadcast_to(np.float64(1), (2**58,))  # beyond the address space
    with pytest.raises(StudyError, match=r"^here: 2 \* a: out of memory: multiply.*|mul takes .*") as caught:
        evaluate("2 * a", {"a": huge}, "here")
    assert caught.value.hint == "ask for a smaller size"


def test_a_nan_in_the_reference_warns_of_nothing() -> None:
    assert np.isnan(evaluate("log(x)", {"x": np.array([-1.0])})).all()


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "9**9**9**9",
        "2**62 * 2",
        "1 << 9999999999",
        "10**100",
        "zeros(10**12)",
        "ones((10**6, 10**6))",
        "eye(10**6)",
        "full((2**31, 2**31), 1)",
        "arange(10**13)",
        "arange(0, 1, 1e-13)",
        "outer(arange(10**7), arange(10**7))",
        "kron(ones(10**7), ones(10**7))",
        "repeat(a, 10**12)",
        "tile(a, (10**6, 10**6))",
        "pad(a, 10**7)",
        "a[0, 0] + zeros((10**7, 1)) + zeros((1, 10**7))",
        "tril(ones(10**7))",
        "zeros(10**7)[:, None] == zeros(10**7)",
        "take(zeros(10**5), zeros((10**6, 10**6), dtype='int8'))",
        "zeros((10**4, 1))[zeros(10**4, dtype='int64')[:, None] * 0 + arange(10**9)]",
        "concatenate((zeros(10**11), zeros(10**11)))",
        "einsum('ab,cd,ef,gh->abcdefgh', b, b, b, b)",
    ],
)
def test_what_has_no_room_is_refused_before_it_is_made(text: str) -> None:
    with pytest.raises(StudyError, match=r"^here: .*(out of memory|beyond 2\*\*62|at most 64)"):
        evaluate(text, {"a": np.ones((2, 2)), "b": np.ones((100, 100))}, "here", room=lambda: 2.0**32)


@pytest.mark.parametrize(
    "text",
    [
        "einsum('ab,cd,ef,gh->', b, b, b, b)",
        "convolve(zeros(10**8), zeros(10**8))",
        "diff(a, 10**9)",
        "matmul(zeros((40000, 1, 10**5)), zeros((1, 10**5, 9000))) if 0 else 1",
        "dot(zeros((10**5, 10**4), dtype='int64'), zeros((10**4, 10**5), dtype='int64'))",
        "+".join(["a"] * 600),
        "(" * 120 + "a" + ")" * 120 + "".join("[0]" for _ in range(120)),
        "a" * 5000,
    ],
)
def test_what_would_take_hours_is_refused(text: str) -> None:
    with pytest.raises(StudyError, match=r"^here: "):
        evaluate(text, {"a": np.ones((2, 2)), "b": np.ones((100, 100))}, "here", room=lambda: 2.0**50)


@pytest.mark.parametrize(
    "text",
    [
        "sin(a, b)",
        "clip(a, 0, 1, out=b)",
        "maximum(a, b, a)",
        "sum(a, out=b)",
        "astype(a, 'O')",
        "astype(a, 'U1000000')",
        "zeros(3, dtype='O')",
        "a * 'x'",
        "'x' * 3",
        "where(a > 0, 'yes', 'no')",
        "full(3, 'x')",
        "maximum(a, None)",
        "zeros('5')",
        "(-8) ** 0.5",
        "pad(a, 1, mode='empty')",
        "where(a)",
        "max(a)[0]['x']",
    ],
)
def test_nothing_is_changed_in_place_and_nothing_but_numbers_comes_out(text: str) -> None:
    a, b = np.ones((2, 2)), np.zeros((2, 2))
    with pytest.raises(StudyError, match=r"^here: "):
        evaluate(text, {"a": a, "b": b}, "here")
    assert not b.any()


EXAMPLES = """
a + b; a @ b; a @ v; v @ a; -a; a > b; a.T; a[0]; a[:, 1]; a[0, 1]; a[None]; a[::2]; abs(a); maximum(a, v);
where(a > 0, a, 1); clip(a, 0, 1); round(a, 2); astype(a, 'float32'); sum(a); sum(a, axis=0);
max(a, axis=1, keepdims=1); std(a, axis=-1, ddof=1); argmin(a, 0); trace(a); cumsum(a); cumsum(a, axis=1);
sort(a); sort(a, axis=None); argsort(v); roll(a, 1, axis=0); roll(a, (1, 2), (0, 1)); tril(a); triu(v, 1);
diff(a); diff(a, axis=0); take(a, (1, 0)); take(a, (1, 0), axis=1); repeat(a, 3); repeat(a, 2, axis=1);
tile(a, 2); tile(v, (2, 3)); pad(a, 1); pad(a, ((1, 2), (0, 1)), mode='edge'); concatenate((a, b));
concatenate((a, b), axis=1); concatenate((a, v), axis=None); stack((a, b)); stack((v, v), axis=1); arange(5);
arange(1, 6, 2); arange(0, 1, 0.25); zeros(3); ones((2, 3)); full((2, 2), 7); eye(3); eye(2, 3, k=1); expand_dims(v, 0);
flip(a); flip(a, 0); squeeze(c); reshape(a, (3, 3)); reshape(c, -1); swapaxes(c, 0, 2); rot90(c, axes=(1, 2));
transpose(c); transpose(c, (0, 2, 1)); outer(a, v); kron(a, v); kron(v, a); inner(a, v); inner(c, a);
dot(a, v); dot(c, a); dot(v, v); dot(2, a); vdot(a, b); matmul(c, a); tensordot(a, b);
tensordot(c, a, axes=1); tensordot(c, a, axes=((1,), (0,))); minimum(a, 0); convolve(v, v);
convolve(v, v, mode='same'); convolve(v, v, 'valid'); cross(a, v); einsum('ij,jk->ik', a, b);
einsum('ij,jk', a, b); einsum('ii', a); einsum('...ij,jk->...ik', c, a); einsum('ij->ji', a); hypot(a, 1);
arctan2(v, v); mean(v); var(a); prod(a, axis=0); cumprod(v); argmax(a); min(a, 1); (1, 2) + v[:2]; a ** 2;
a % 2 == 0; n * a + n; trace(c); astype(n, 'int8'); astype((1, 2), 'int8'); ~k[0]; (k[1] ^ 5) << 2; k[0] & k
"""


@pytest.mark.parametrize("text", [text.strip() for text in EXAMPLES.split(";")])
def test_the_shape_is_known_before(text: str) -> None:
    rng = np.random.default_rng(1)
    names = {"a": rng.random((3, 3)), "b": rng.random((3, 3)), "v": rng.random(3), "c": rng.random((1, 3, 3)), "n": 2}
    names["k"] = np.array([6, 1])
    assert shape_of(text, names) == np.shape(evaluate(text, names))


def test_every_function_has_an_example() -> None:
    assert [name for name in FUNCTIONS if f"{name}(" not in EXAMPLES and name not in UNARY] == []


UNARY = (
    "arccos arcsin arctan ceil cos cosh exp exp2 floor log log10 log1p log2 sign sin sinh sqrt square tan tanh trunc"
)


@pytest.mark.parametrize(
    "text", ["zeros(max(k))", "a[a > 0]", "a[k]", "repeat(a, k, axis=0)", "a[: max(k)]", "arange(k[0])"]
)
def test_a_shape_that_the_data_decides_is_not_known(text: str) -> None:
    names = {"a": np.ones((3, 3)), "k": np.array([1, 2, 0])}
    evaluate(text, names)
    assert shape_of(text, names) is None


def test_a_shape_takes_no_memory() -> None:
    huge = np.broadcast_to(np.float64(1), (2**20, 2**20))
    assert shape_of("sum(a + zeros((2**20, 2**20)), axis=0)", {"a": huge}) == (2**20,)
    with pytest.raises(StudyError, match="broadcast"):
        shape_of("a + zeros(3)", {"a": huge})


def test_argsort_leaves_equal_keys_in_their_order() -> None:
    keys = np.arange(1000) % 2
    assert evaluate("argsort(k)", {"k": keys}).tolist() == [*range(0, 1000, 2), *range(1, 1000, 2)]


UNSIGNED = np.array([2**60 + 1, 5], np.uint64)
SIGNED = np.array([-3, 4], np.int64)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x + z", [2**60 - 2, 9]),
        ("z - x", [2**64 - 2**60 - 4, 2**64 - 1]),
        ("x * -3", [2**64 - 3 * (2**60 + 1), 2**64 - 15]),
        ("x + (-1)", [2**60, 4]),
        ("x // 3 + z % x", [(2**60 + 1) // 3 + (2**64 - 3) % (2**60 + 1), 1 + 4]),
        ("x & 7", [1, 5]),
    ],
)
def test_numbers_without_a_sign_stay_whole_and_wrap(text: str, value: list[int]) -> None:
    found = evaluate(text, {"x": UNSIGNED, "z": SIGNED})
    assert found.dtype == np.uint64
    assert found.tolist() == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(z > -5) + (z > 0) + (z > 3)", [1, 3]),
        ("(z < 0) - (z > 0)", [1, -1]),
        ("-(z < 0)", [-1, 0]),
        ("~(z < 0)", [False, True]),
        ("(z < 0) | (z > 0)", [True, True]),
        ("(z < 0) * 2.5", [2.5, 0.0]),
    ],
)
def test_truths_are_counted_as_a_kernel_counts_them(text: str, value: list[Any]) -> None:
    assert evaluate(text, {"z": SIGNED}).tolist() == value
