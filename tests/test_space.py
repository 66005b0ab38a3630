"""The space of valid configurations, compared with brute force, and at sizes too large for brute force."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.errors import Counted, ExpressionError, SpaceError, counting_told
from autotune.expression import Expression, Node
from autotune.model import Value
from autotune.space import Constraint, Space
from autotune.space.build import _Builder, build, computed
from autotune.space.diagram import Level, binding_order
from autotune.space.reasons import why_impossible
from benchmarks.recording import listed_space

XGEMM = {
    "MWG": [16, 32, 64, 128],
    "NWG": [16, 32, 64, 128],
    "KWG": [16, 32],
    "MDIMC": [8, 16, 32],
    "NDIMC": [8, 16, 32],
    "MDIMA": [8, 16, 32],
    "NDIMB": [8, 16, 32],
    "KWI": [2],
    "VWM": [1, 2, 4, 8],
    "VWN": [1, 2, 4, 8],
    "STRM": [0, 1],
    "STRN": [0, 1],
    "SA": [0, 1],
    "SB": [0, 1],
}
XGEMM_CONSTRAINTS = [
    "KWG % KWI == 0",
    "MWG % (MDIMC * VWM) == 0",
    "NWG % (NDIMC * VWN) == 0",
    "MWG % (MDIMA * VWM) == 0",
    "NWG % (NDIMB * VWN) == 0",
    "KWG % ((MDIMC * NDIMC) / MDIMA) == 0",
    "KWG % ((MDIMC * NDIMC) / NDIMB) == 0",
]
NINE = {name: list(range(1, 11)) for name in "abcdefghi"}


def constraint(text: str, reason: str = "") -> Constraint:
    return Constraint(Expression.parse(text), reason)


def space(parameters: dict[str, list], *texts: str, **constants: Any) -> Space:
    return Space.build(parameters, [constraint(text) for text in texts], constants)


@pytest.fixture(scope="module")
def xgemm() -> Space:
    return space(XGEMM, *XGEMM_CONSTRAINTS)


# --- against brute force ------------------------------------------------------------------------------

VALUES = st.sampled_from(
    [[1, 2, 4, 8], [0, 1, 2], [1, 2, 3, 4, 5], [16, 32, 64], [0.5, 1.0, 2.5], ["x", "y"], ["x", 1]]
)
SHAPES = [
    "{0} * {1} <= {2} * K",
    "{0} % {1} == 0",
    "{0} + {1} + {2} == K",
    "{0} != {1}",
    "{0} == 'x' or {1} < {2}",
    "{0} == 0 or K % {0} == {1}",
    "{0} <= {1} <= {2}",
    "({0} if {1} == 1 else {2}) > 1",
    "{0} in (1, 2, 'x') and not {1} in (K, {2})",
    "ceil_div(K, {0}) * {1} < 9",
    "max({0}, {1}) * min({1}, {2}) > 2",
    "{0} // ({1} - 1) > 0",
    "is_power_of_two({0}) == ({1} > {2} / 2)",
    "{0} * {1} * {2} % 6 == 0",
    "K > 4",
]


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, list], list[Constraint], int]:
    names = "abcde"[: draw(st.integers(1, 5))]
    parameters = {name: draw(VALUES) for name in names}
    texts = [
        draw(st.sampled_from(SHAPES)).format(*[draw(st.sampled_from(names)) for _ in range(3)])
        for _ in range(draw(st.integers(0, 4)))
    ]
    return parameters, [constraint(text, "because") for text in texts], draw(st.sampled_from([4, 6, 12]))


def brute_force(parameters: dict[str, list], constraints: list[Constraint], k: int) -> tuple[list[dict], bool]:
    """Return the configurations that no constraint forbids, and whether one of them cannot be decided."""
    valid, undecided = [], False
    for values in itertools.product(*parameters.values()):
        configuration = dict(zip(parameters, values, strict=True))
        results: list[bool | None] = []
        for each in constraints:
            try:
                results.append(bool(each.require.evaluate({"K": k, **configuration})))
            except ExpressionError:
                results.append(None)
        if all(result is not False for result in results):
            valid.append(configuration)
            undecided |= None in results
    return valid, undecided


def named(space: Space, indices: NDArray[np.int16]) -> dict[str, Value]:
    """Return the configuration of value indices, valid or not."""
    return {name: listed[at] for name, listed, at in zip(space.names, space.values, indices, strict=True)}


@pytest.mark.slow
@settings(max_examples=200)
@given(problem=problems(), random=st.randoms(use_true_random=False))
def test_the_space_is_what_brute_force_finds(
    problem: tuple[dict[str, list], list[Constraint], int], random: Any
) -> None:
    parameters, constraints, k = problem
    valid, undecided = brute_force(*problem)
    met = {(name, type(value), value) for each in valid for name, value in each.items()}
    missing = [
        (name, value)
        for name, listed in parameters.items()
        for value in listed
        if (name, type(value), value) not in met
    ]
    for most in (0, 1_000_000):
        with patch.multiple("autotune.space.build", PRUNED=most, MANY=most, BLOCK=2):
            if undecided or not valid:
                with pytest.raises(ExpressionError if undecided else SpaceError):
                    Space.build(parameters, constraints, {"K": k})
                continue
            built = Space.build(parameters, constraints, {"K": k})
        require(built, valid, random)
        assert [(each.name, each.value) for each in built.exclusions()] == missing


def test_what_is_kept_of_candidates_computed_apart_keeps_its_type() -> None:
    with patch("autotune.space.build.CHUNK", 1):
        built = space({"a": [1, 2], "b": [1, 2], "c": ["x", 1]}, "(a if b == 1 else 'x') == c")
    found = {tuple(built.configuration(row).values()) for row in range(len(built))}
    assert found == {(1, 1, 1), (1, 2, "x"), (2, 2, "x")}


def require(built: Space, valid: list[dict], random: Any) -> None:
    """Assert that a space holds exactly these configurations, and finds its way among them."""
    table = built.indices()
    rows = np.arange(len(built))
    configurations = [named(built, row) for row in table]
    assert sorted(map(str, configurations)) == sorted(map(str, valid))
    assert (built.rows(table) == rows).all()
    assert all(built.row(configurations[row]) == row for row in rows[:20])
    row = random.randrange(len(built))
    assert all(str(built.configuration(one)) == str(configurations[one]) for one in (*rows[:20], row))
    everything = np.array(list(itertools.product(*[range(len(listed)) for listed in built.values])), dtype=np.int16)
    assert (built.rows(everything) >= 0).sum() == len(valid)
    in_order = table[:, [built.names.index(name) for name in built.bound]].tolist()
    assert in_order == sorted(in_order)
    apart = (table != table[row]).sum(axis=1)
    for distance in (1, 2, 9):
        assert built.neighbours(row, distance).tolist() == np.flatnonzero((apart > 0) & (apart <= distance)).tolist()
    wanted = everything[random.randrange(len(everything))]
    steps = np.abs(table - wanted)
    assert table[np.lexsort((rows, steps.sum(axis=1), (steps > 0).sum(axis=1)))[0]].tolist() == [
        listed.index(value)
        for listed, value in zip(built.values, built.nearest(named(built, wanted)).values(), strict=True)
    ]


# --- sizes at which brute force ends --------------------------------------------------------------------


def test_clblast_xgemm(xgemm: Space) -> None:
    assert xgemm.combinations == 663_552
    assert len(xgemm) == 120_800
    grids = dict(zip(XGEMM, np.meshgrid(*[np.array(v) for v in XGEMM.values()], indexing="ij"), strict=True))
    names = {name: grid.reshape(-1) for name, grid in grids.items()}
    valid = np.logical_and.reduce([eval(text, {}, names) for text in XGEMM_CONSTRAINTS])
    everything = np.stack(np.unravel_index(np.arange(663_552), [len(v) for v in XGEMM.values()]), axis=1).astype(
        np.int16
    )
    assert ((xgemm.rows(everything) >= 0) == valid).all()


@pytest.mark.parametrize(
    ("texts", "valid"),
    [
        (["+".join(NINE) + " <= 14"], 2002),  # C(14, 9)
        (["a <= b <= c <= d <= e <= f <= g <= h <= i"], 48_620),  # C(18, 9)
        (["*".join(NINE) + " <= 100"], 51_340),
        (["(" + "*".join(NINE) + ") % 9973 == 7"], 2025),  # no constraint ends before the last parameter
        (["a + i == 11", "b + h == 11", "c + g == 11", "d + f == 11", "e == 5 or a > 5"], 55_000),
        (["+".join(NINE) + " <= 20", "+".join(reversed(NINE)) + " >= 18", "*".join(NINE) + " <= 4000"], 143_560),
    ],
)
def test_a_billion_combinations(texts: list[str], valid: int) -> None:
    tracemalloc.start()
    built = space(NINE, *texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert built.combinations == 10**9
    assert len(built) == valid
    assert peak < 100e6
    sampled = [built.configuration(row) for row in built.sample(np.random.default_rng(0), 300)]
    assert all(Expression.parse(text).holds(configuration) for text in texts for configuration in sampled)


def test_a_billion_valid_configurations() -> None:
    built = space(NINE | {"j": ["x", "y"]}, "a + b <= 11", "j == 'x' or c > 5")
    assert len(built) == 55 * 15 * 10**6
    with pytest.raises(SpaceError, match="825000000 valid configurations are too many to list"):
        built.indices()
    rows = built.sample(np.random.default_rng(0), 1000)
    assert len(set(rows.tolist())) == 1000
    assert (built.rows(built.indices(rows)) == rows).all()
    last = built.configuration(len(built) - 1)
    assert built.row(last) == len(built) - 1
    assert len(built.neighbours(0)) == len(set(built.neighbours(0).tolist()))
    first = built.configuration(0)
    assert built.nearest({**first, "a": 8, "b": 9, "j": "y"}) == {**first, "a": 2, "b": 9, "j": "x"}


def test_of_long_lists_hardly_any_candidate_is_computed_by_itself() -> None:
    """Two lists of a thousand, and one more: half a billion would take minutes, one by one."""
    visited: list[int] = []
    alone: list[int] = []
    candidates = _Builder._candidates

    def compute(tree: Node, columns: Sequence[NDArray[Any]]) -> list[Any]:
        alone.append(len(columns[0]))
        return computed(tree, columns)

    def visit(builder: _Builder, name: str, key: NDArray[np.int64]) -> Any:
        visited.append(len(key))
        return candidates(builder, name, key)

    long = list(range(1, 1025))
    with patch.object(_Builder, "_candidates", visit), patch("autotune.space.build.computed", compute):
        built = space({"a": long, "b": long, "c": long}, "a * b * c <= 2**14", "a % b == 0")
    assert len(built) == sum(2**14 // (a * b) if 2**14 // (a * b) < 1024 else 1024 for a in long for b in long
                             if a % b == 0)  # fmt: skip
    assert sum(visited) < 2_000_000
    assert sum(alone) < 20_000


def test_who_looks_on_is_told_how_far_the_counting_is_and_ends_it() -> None:
    told: list[Counted] = []

    def look(counted: Counted) -> None:
        told.append(counted)
        if len(told) == 4:
            raise KeyboardInterrupt

    with patch("autotune.space.build.CHUNK", 2), pytest.raises(KeyboardInterrupt), counting_told(look):
        space({"a": [1, 2], "b": [1, 2, 3], "c": [1]}, "a <= b")
    assert told == [("c", 1, 3, 0.0), ("a", 2, 3, 0.0), ("b", 3, 3, 0.0), ("b", 3, 3, 1 / 3)]
    space({"a": [1, 2]})
    assert len(told) == 4


def test_what_no_diagram_can_hold_is_refused() -> None:
    many = {f"p{i}": list(range(40)) for i in range(8)}
    exact = " + ".join(f"{41**i} * p{i}" for i in range(8))  # keeps every partial configuration apart
    with pytest.raises(SpaceError, match="more than 10,000 partial configurations up to"):
        build(many, [Expression.parse(f"({exact}) % 1009 == 0 or ({exact}) % 997 == 0")], {}, max_transitions=10_000)


def test_more_rows_than_an_integer_holds_are_refused() -> None:
    with pytest.raises(SpaceError, match=r"more than 2\*\*62 valid configurations; .*--fix NAME=VALUE"):
        space({f"p{i}": [1, 2, 3, 4] for i in range(40)})


# --- rows -------------------------------------------------------------------------------------------------


def test_rows_are_the_same_whatever_the_order_of_constraints(xgemm: Space) -> None:
    again = space(XGEMM, *reversed(XGEMM_CONSTRAINTS))
    assert again.bound == xgemm.bound
    assert (again.indices() == xgemm.indices()).all()


def test_membership_of_other_things(xgemm: Space) -> None:
    good = xgemm.configuration(1234)
    assert good in xgemm
    assert list(good) == list(XGEMM)
    assert all(type(value) is int for value in good.values())
    assert good | {"MWG": 17} not in xgemm
    assert good | {"MWG": "16"} not in xgemm
    assert good | {"MWG": float(good["MWG"])} not in xgemm
    assert good | {"MORE": 1} not in xgemm
    assert {"MWG": 16} not in xgemm
    assert None not in xgemm
    outside = xgemm.indices(np.array([5], dtype=np.int64))
    for wrong in (-1, 99):
        outside[0, 0] = wrong
        assert xgemm.rows(outside).tolist() == [-1]


@pytest.mark.parametrize("row", [-1, 120_800])
def test_rows_outside_are_refused(xgemm: Space, row: int) -> None:
    with pytest.raises(IndexError):
        xgemm.configuration(row)
    with pytest.raises(IndexError):
        xgemm.neighbours(row)


def test_of_many_neighbours_some_are_looked_for_by_lot() -> None:
    """Lists of thousands of values have millions within two parameters: a search proposes many times a second."""
    built = space({name: list(range(60)) for name in "abc"}, "a != b or c == 0")
    every = built.neighbours(777, 2)
    assert np.array_equal(built.neighbours(777, 2, 10**6, np.random.default_rng(1)), every)
    some = built.neighbours(777, 2, 500, np.random.default_rng(1))
    assert np.array_equal(built.neighbours(777, 2, 500, np.random.default_rng(1)), some)
    assert 400 < len(some) <= 501 < len(every)
    assert set(some.tolist()) <= set(every.tolist())
    apart = built.indices(some) != built.indices(np.array([777]))
    assert apart.sum(axis=0).min() > 50, "whichever of the parameters"
    walked: list[int] = []
    descend = Level.descend
    with patch.object(Level, "descend", lambda level, *state: walked.append(len(state[0])) or descend(level, *state)):
        built.neighbours(777, 2, 500, np.random.default_rng(1))
    assert max(walked) <= 501


def test_a_sample_is_uniform_and_distinct() -> None:
    built = space({"a": list(range(10)), "b": list(range(10))}, "a + b < 10")
    rng = np.random.default_rng(1)
    counts = np.bincount(np.concatenate([built.sample(rng, 5) for _ in range(2200)]), minlength=55)
    assert counts.min() > 130  # 200 expected, standard deviation 14
    assert counts.max() < 270
    assert sorted(built.sample(rng, 99).tolist()) == list(range(55))


def test_a_space_of_listed_configurations() -> None:
    listed = np.array([[2, 0], [0, 1], [0, 0], [1, 1]], dtype=np.int16)
    built = listed_space({"a": [1, 2, 3], "V": ["x", "y"]}, listed)
    assert len(built) == 4
    assert [built.configuration(row) for row in built.rows(listed)] == [
        {"a": 3, "V": "x"},
        {"a": 1, "V": "y"},
        {"a": 1, "V": "x"},
        {"a": 2, "V": "y"},
    ]
    assert {"a": 3, "V": "y"} not in built
    with pytest.raises(SpaceError, match="none is listed"):
        listed_space({"a": [1]}, np.zeros((0, 1), dtype=np.int16))


def test_a_thousand_parameters_that_nothing_binds_together_take_no_time() -> None:
    names = [f"P{number}" for number in range(1000)]
    scopes = [("P7", "P999"), ("P999", "P3")]
    sizes = dict.fromkeys(names, 1) | {"P5": 3, "P999": 2}
    started = binding_order(sizes, scopes)
    assert sorted(started) == sorted(names)
    assert started[-1] == "P5"  # those with the fewest values come first
    assert abs(started.index("P7") - started.index("P999")) == 1


def test_no_parameters() -> None:
    built = space({})
    assert len(built) == 1
    assert built.configuration(0) == {}
    assert built.row({}) == 0
    assert built.neighbours(0).tolist() == []


# --- messages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "texts", "message"),
    [
        ({"a": [1, 2], "b": [1]}, ["a > b + N", "b < 9"], "no configuration is valid: r0 (a > b + N; N=4)"),
        (
            {"a": [1, 2], "b": [1, 2]},
            ["a > b", "a < 9", "b > a"],
            "no configuration is valid: r0 (a > b) and r2 (b > a)",
        ),
        ({"a": [1, 2]}, ["N < 3"], "no configuration is valid: r0 (N < 3; N=4)"),
        ({"a": []}, [], "parameter a has no values"),
        ({"a": [1, 2, 1.0]}, [], "parameter a has a value twice: 1, 2, 1.0"),
        ({"a": list(range(40_000))}, [], "parameter a has 40000 values"),
    ],
)
def test_spaces_that_are_refused(parameters: dict[str, list], texts: list[str], message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        Space.build(parameters, [constraint(text, f"r{i}") for i, text in enumerate(texts)], {"N": 4})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_constraint_on_an_unknown_name() -> None:
    with pytest.raises(ExpressionError, match="`WTP > 1` uses WTP, which is not defined; did you mean WPT"):
        space({"WPT": [1, 2]}, "WTP > 1")


def test_a_constraint_that_fails_for_a_configuration_that_nothing_forbids() -> None:
    with pytest.raises(ExpressionError, match=r"divides by zero \(TS=8, WPT=0\); forbid what .*require"):
        space({"TS": [8, 16], "WPT": [0, 1]}, "TS % WPT == 0")
    assert len(space({"TS": [8, 16], "WPT": [0, 1]}, "TS % WPT == 0", "WPT > 0")) == 2
    with pytest.raises(ExpressionError, match=r"by size; .* \(TS='8'\); TS is text there: values without quotes are"):
        space({"TS": ["8", "16"]}, "TS <= 64")
    with pytest.raises(ExpressionError, match=r"divides by zero .*; forbid what"):
        space({"V": ["A"], "TS": [0, 8]}, "V == 'A' and 64 % TS == 0")


@pytest.mark.parametrize("fact", [None, 2**63, float("nan")])
def test_a_constant_that_no_expression_can_use(fact: Any) -> None:
    with pytest.raises(ExpressionError, match="uses local_memory, which is"):
        space({"TS": [8, 16]}, "4 * TS < local_memory", local_memory=fact)


def test_a_value_that_no_expression_can_use_may_be_in_no_constraint() -> None:
    parameters = {"SEED": [1, 2**63 - 1], "WPT": [1, 2]}
    assert len(space(parameters, "WPT > 1")) == 2
    with pytest.raises(ExpressionError, match=r"uses SEED, which is out of bounds \(SEED=9223372036854775807\)"):
        space(parameters, "WPT > 1 or SEED > 0")


def test_exclusions_say_why() -> None:
    built = Space.build(
        {"VARIANT": ["NAIVE", "B_IN_LOCAL"], "TS": [8, 16, 32, 64], "WPT": [1, 2, 3, 4], "WG": [64, 96]},
        [
            constraint("VARIANT != 'B_IN_LOCAL' or 4*Y <= local_memory", "all of B must fit in local memory"),
            constraint("TS * TS // WPT <= max_work_group_size", "one work-item per element of a tile"),
            constraint("TS % WPT == 0", "WPT divides the tile"),
            constraint("WPT < 4 or TS < 8", "no tile of 8 or more"),
            constraint("WG == 64 or WG == 128", "a warp or two"),
        ],
        {"Y": 100000, "local_memory": 49152, "max_work_group_size": 256},
    )
    assert list(map(str, built.exclusions())) == [
        "VARIANT=B_IN_LOCAL: all of B must fit in local memory (4*Y <= local_memory; Y=100000, local_memory=49152)",
        "TS=32: one work-item per element of a tile (TS * TS // WPT <= max_work_group_size; max_work_group_size=256)"
        " and no tile of 8 or more (WPT < 4)",
        "TS=64: one work-item per element of a tile (TS * TS // WPT <= max_work_group_size; max_work_group_size=256)",
        "WPT=3: WPT divides the tile (TS % WPT == 0)",
        "WPT=4: no tile of 8 or more (TS < 8)",
        "WG=96: a warp or two (WG == 64 or WG == 128)",
    ]


def test_what_forbids_many_values_is_known_once() -> None:
    known = list[Constraint]()
    for value in (3, 6, 7):
        why_impossible({"A": [value]}, [constraint("12 % A == 5", "")], {}, {"A": value}, known)
    assert len(known) == 1  # of 4,096 values each was looked for among all that had been found


def test_a_reason_is_of_constraints_of_few_parameters() -> None:
    values = list(range(1, 9))
    sets = ["8 % T == 0", "T % W == 0", "C % W == 0 and A > 0", "8 % C == 0 and A + B > 0"]
    built = Space.build(dict.fromkeys("WTABC", values), [constraint(text, text) for text in sets])
    (reason,) = {str(each).partition(": ")[2] for each in built.exclusions() if each.name == "W"}
    assert reason == "8 % T == 0 and T % W == 0"


def test_reasons_look_at_little_of_what_is_there() -> None:
    pairs = [constraint(f"A{number} <= B{number}", "") for number in range(12)]
    both = [constraint("Q < 2 or A0 == 3", "Q needs A0"), constraint("B0 < 3", "B0 is small")]
    names = [f"{letter}{number}" for number in range(12) for letter in "AB"]
    built = Space.build({name: list(range(4)) for name in [*names, "Q"]}, [*pairs, *both])
    with patch("autotune.space.reasons.build", side_effect=build) as looks:
        reasons = [str(each) for each in built.exclusions() if each.name == "Q"]
    assert [reason[:3] for reason in reasons] == ["Q=2", "Q=3"]
    assert all("A0 <= B0" in reason and "Q needs A0" in reason and "B0 is small" in reason for reason in reasons)
    excluded = len(built.exclusions())
    # What does not name a value's parameter is not looked at alone; what was found for one is tried first for others.
    assert looks.call_count < 10 * excluded


def test_values_that_the_same_constraints_forbid_are_looked_at_together() -> None:
    texts = ["300 % A == 0", "A % B == 0", "B != 7 or A < 0"]
    built = Space.build(dict.fromkeys("AB", range(1, 301)), [constraint(text, "") for text in texts])
    with patch("autotune.space.reasons.build", side_effect=build) as looks:
        excluded = built.exclusions()
    assert len(excluded) == 2 * (300 - 18)  # 300 has 18 divisors
    reasons = {str(each).partition(": ")[2] for each in excluded}
    assert reasons == {"300 % A == 0", "300 % A == 0 and A % B == 0", "A < 0"}
    assert looks.call_count < 20  # of each value alone it took thousands
