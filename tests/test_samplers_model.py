"""The parts of autotune's own sampler: features, Gaussian process, acquisition, transfer, expected gain."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import count, islice
from statistics import NormalDist

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.expression import Expression
from autotune.model import Configuration, Measurement, Outcome, Trial, identity
from autotune.samplers import Proposer, base, plain
from autotune.samplers.base import Codec, History, one_thread
from autotune.samplers.bayes import BayesSampler, aligned, maximin
from autotune.samplers.features import Features, table
from autotune.samplers.gaussian import (
    Hyper,
    Posterior,
    Prior,
    _loss,
    covariances,
    fit,
    leave_one_out,
    log_expected_improvement,
    variance,
)
from autotune.samplers.surrogate import GROWTH_STEP, POOL, Surrogate, View, by_lot, fits_at
from autotune.samplers.transfer import TransferView, transfer_view
from autotune.space import Constraint, Space

SPACE = Space.build({"x": [1, 2, 4, 8, 16, 32, 48, 64], "y": [1, 2, 4, 8], "v": ["a", "b", "c"], "pad": [0, 1]}, [])


def device(best: Configuration, unit: int = 10_000):
    """A made-up device that is fastest at `best` and slower by a factor for each step away."""

    def measure(configuration: Configuration) -> Trial:
        steps = abs(np.log2(configuration["x"]) - np.log2(best["x"]))
        steps += abs(np.log2(configuration["y"]) - np.log2(best["y"]))
        steps += (configuration["v"] != best["v"]) + (configuration["pad"] != best["pad"])
        return Trial(configuration, Outcome.OK, measurement=Measurement((round(unit * 1.4**steps),)))

    return measure


HERE = device({"x": 32, "y": 2, "v": "b", "pad": 0})
ALIKE = device({"x": 32, "y": 4, "v": "b", "pad": 0}, unit=70_000)
CONTRARY = device({"x": 1, "y": 8, "v": "c", "pad": 1})


ANY_TIME = np.exp(np.random.default_rng(1).uniform(9, 15, len(SPACE)))


def unrelated(configuration: Configuration) -> Trial:
    """A made-up device that is unrelated to all others."""
    row = SPACE.row(configuration)
    return Trial(configuration, Outcome.OK, measurement=Measurement((int(ANY_TIME[row]),)))


def trials_of(measure, seed: int = 0, donors=(), space: Space = SPACE) -> Iterator[Trial]:
    """The trials of an endless search, made as they are asked for; those without donors are made once."""
    if donors:
        yield from _trials_of(measure, seed, donors, space)
        return
    made, rest = _begun(measure, seed, space)
    for place in count():
        if place == len(made):
            made.append(next(rest))
        yield made[place]


def _trials_of(measure, seed: int, donors, space: Space) -> Iterator[Trial]:
    proposer = Proposer(space, "bayes", seed, donors)
    while True:
        trial = measure(proposer.ask())
        proposer.tell(trial)
        yield trial


@cache
def _begun(measure, seed: int, space: Space) -> tuple[list[Trial], Iterator[Trial]]:
    return [], _trials_of(measure, seed, (), space)


def search(measure, trials: int, seed: int = 0, donors=(), space: Space = SPACE) -> list[Trial]:
    return list(islice(trials_of(measure, seed, donors, space), trials))


def study_of(trials: list[Trial], codec: Codec) -> optuna.Study:
    """Return the trials as an Optuna study."""
    study = optuna.create_study()
    for trial in trials:
        row = SPACE.row(trial.configuration)
        assert row is not None
        study.add_trial(
            optuna.trial.create_trial(value=trial.time_ns, params=codec.params(row), distributions=codec.distributions)
        )
    return study


def evaluations_to_best(measure, seed: int, donors=()) -> int:
    """Return how many of the first 80 trials a search needs to reach the best, where it ends."""
    trials = islice(trials_of(measure, seed, donors), 80)
    return 1 + next(i for i, trial in enumerate(trials) if trial.time_ns == 10_000)


# features ---------------------------------------------------------------------------------------------


def test_powers_of_two_are_evenly_spaced() -> None:
    assert table([1, 2, 4, 8, 16]).tolist() == [[0.0], [0.25], [0.5], [0.75], [1.0]]


def test_other_counts_also_say_how_they_are_aligned() -> None:
    assert table([16, 24, 32, 48, 64])[:, 1] == pytest.approx([1 / 3, 0, 2 / 3, 1 / 3, 1])


def test_numbers_down_to_zero_go_by_position() -> None:
    assert table([0, 4, 100, 7, 9])[:, 0].tolist() == [0, 0.25, 1, 0.5, 0.75]


@pytest.mark.parametrize("values", [["on", "off", "auto"], [0, 1, 2]])
def test_text_and_small_numbers_from_zero_are_all_equally_apart(values: list) -> None:
    points = table(values)[:, -3:]
    apart = np.square(points[:, None] - points[None]).sum(axis=2)
    assert apart == pytest.approx(1 - np.eye(3))


def test_values_that_the_space_does_not_list() -> None:
    assert table([16, 32, 64], [128, 8]).tolist() == [[1.5], [-0.5]]
    assert table(["a", "b"], ["c"]).tolist() == [[0.0, 0.0]]


def test_rows_and_configurations_give_the_same_features() -> None:
    features = Features(SPACE)
    rows = np.arange(len(SPACE))
    found = features.of_rows(rows)
    assert found.shape == (len(SPACE), features.size)
    assert features.of(map(SPACE.configuration, range(len(SPACE)))) == pytest.approx(found)
    assert len(np.unique(found, axis=0)) == len(SPACE)


# gaussian process -------------------------------------------------------------------------------------


LENGTHS = (2.0, 1.0, 3.0, 1.5)


@pytest.fixture
def points() -> np.ndarray:
    return np.random.default_rng(0).random((12, 4))


@pytest.mark.parametrize("linear", [0, 2])
def test_the_gradient_is_that_of_the_loss(points: np.ndarray, linear: int) -> None:
    prior = Prior(LENGTHS[linear:])
    process, rest = points[:, : 4 - linear], points[:, 4 - linear :]
    squares = np.square(process.T[:, :, None] - process.T[:, None, :]).reshape(4 - linear, -1)
    y = np.sin(5 * points[:, 0]) + points[:, 3]
    centre, spread = prior.centre, prior.spread
    arguments = (squares, rest @ rest.T, y, centre, spread)
    start = centre + np.linspace(-0.5, 0.5, len(centre))
    step = 1e-5 * np.eye(len(start))
    slopes = [(_loss(start + d, *arguments)[0] - _loss(start - d, *arguments)[0]) / 2e-5 for d in step]
    assert _loss(start, *arguments)[1] == pytest.approx(slopes, rel=1e-4, abs=1e-4)


def test_fitting_finds_what_matters(points: np.ndarray) -> None:
    y = np.sin(6 * points[:, 1])
    hyper = fit(points, (y - y.mean()) / y.std(), Prior(LENGTHS))
    assert (np.exp(hyper.vector[:-3]) / LENGTHS).argmin() == 1


@pytest.mark.parametrize("linear", [0, 2])
def test_points_added_one_by_one_predict_as_all_at_once(points: np.ndarray, linear: int) -> None:
    hyper = Hyper(Prior(LENGTHS[linear:]).centre)
    points = np.vstack([points, np.random.default_rng(2).random((12, 4))])  # more than there is room for at first
    candidates, y = np.random.default_rng(1).random((30, 4)), np.sin(points.sum(axis=1))
    at_once = Posterior(candidates, points, hyper)
    stepwise = Posterior(candidates, points[:3], hyper)
    for point in points[3:]:
        stepwise.add(point)
    at, there = hyper.scale(points), hyper.scale(candidates)
    covariance = covariances(at, at, hyper) + hyper.noise * np.eye(24)
    cross = covariances(there, at, hyper)
    mean = cross @ np.linalg.solve(covariance, y)
    deviation = np.sqrt(variance(there, hyper) - (cross * np.linalg.solve(covariance, cross.T).T).sum(axis=1))
    for posterior in (at_once, stepwise):
        assert posterior.predict(y)[0] == pytest.approx(mean, abs=2e-3)
        assert posterior.predict(y)[1] == pytest.approx(deviation, abs=1e-3)
        assert np.sqrt(np.diag(posterior.covariance(np.arange(30)))) == pytest.approx(deviation, abs=1e-3)


def test_each_target_is_foretold_by_the_others(points: np.ndarray) -> None:
    hyper = Hyper(Prior(LENGTHS).centre)
    y = np.sin(points.sum(axis=1))
    mean, variances = leave_one_out(points, y, hyper)
    others = np.arange(12) != 5
    alone = Posterior(points[5:6], points[others], hyper)
    assert mean[5] == pytest.approx(alone.predict(y[others])[0][0], abs=1e-3)
    assert variances[5] == pytest.approx(alone.predict(y[others])[1][0] ** 2 + hyper.noise, rel=1e-3)


def test_what_is_in_flight_is_believed_to_come_as_predicted(points: np.ndarray) -> None:
    hyper = Hyper(Prior(LENGTHS).centre)
    y = np.sin(points.sum(axis=1))
    y[[2, 7]] = np.nan
    known = ~np.isnan(y)
    filled = Posterior(points, points, hyper).impute(y)
    assert filled[known] == pytest.approx(y[known])
    alone = Posterior(points[~known], points[known], hyper)
    assert filled[~known] == pytest.approx(alone.predict(y[known])[0], abs=1e-4)


def test_fits_are_due_at_the_same_counts_however_one_gets_there() -> None:
    due = [fits_at(count, 8) for count in range(1200)]
    assert due[:8] == [0] * 8
    assert due[8:12] == [8, 8, 8, 11]
    assert due == sorted(due)
    assert np.diff(np.unique(due)[1:]).max() <= GROWTH_STEP


# acquisition and start --------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.floats(-4, 4), st.floats(0.1, 3))
def test_expected_improvement_is_the_integral(mean: float, deviation: float) -> None:
    from scipy.integrate import quad  # each of pytest's processes imports this file

    normal = NormalDist(mean, deviation)
    wanted = quad(lambda t: (0.5 - t) * normal.pdf(t), mean - 12 * deviation, 0.5, limit=200)[0]
    found = np.exp(log_expected_improvement(np.array([mean]), np.array([deviation]), 0.5)[0])
    assert found == pytest.approx(max(wanted, 0), rel=1e-4, abs=1e-7)


def test_expected_improvement_orders_the_hopeless() -> None:
    score = log_expected_improvement(np.array([0.0, 5, 5.01, 30, 200, 300, 1e4]), np.ones(7), 0.0)
    assert np.isfinite(score).all()
    assert (np.diff(score) < 0).all()


def test_the_start_is_spread_out() -> None:
    square = np.array([[0, 0], [0.1, 0], [0, 0.1], [1, 1], [0, 1], [1, 0], [0.5, 0.5]])
    assert sorted(maximin(square, 5)) == [0, 3, 4, 5, 6]
    assert len(maximin(square, 50)) == 7


def test_the_start_prefers_whole_warps() -> None:
    space = Space.build({"threads": [20, 32, 40, 48, 64, 96], "tile": [1, 2, 3, 5]}, [])
    rows = np.arange(len(space))
    kept = {space.configuration(int(row))["threads"] for row in rows[aligned(space, rows)]}
    assert kept == {32, 64, 96}


# the sampler ------------------------------------------------------------------------------------------


def test_needs_far_fewer_trials_than_random() -> None:
    needed = [evaluations_to_best(HERE, seed) for seed in range(5)]
    assert np.median(needed) < len(SPACE) / 6


def test_what_was_stopped_is_not_taken_for_the_best() -> None:
    def measure(configuration: Configuration) -> Trial:
        trial = HERE(configuration)
        stopped = trial.time_ns > 30_000
        return Trial(configuration, Outcome.STOPPED if stopped else Outcome.OK, measurement=trial.measurement)

    assert evaluations_to_best(measure, 1) < 60


def test_failures_are_learned_to_be_avoided() -> None:
    def measure(configuration: Configuration) -> Trial:
        failed = configuration["x"] >= 16 and configuration["v"] != "b"
        return Trial(configuration, Outcome.LAUNCH_ERROR) if failed else HERE(configuration)

    trials = search(measure, 60, 3)
    share = np.mean([trial.outcome == Outcome.LAUNCH_ERROR for trial in trials[12:]])
    assert share < 0.2  # of all configurations a third fail
    assert evaluations_to_best(measure, 3) < 50


@pytest.mark.parametrize(
    ("failing", "lot"),
    [
        (lambda rows: np.random.default_rng(4).random(40) < 0.3, True),
        (lambda rows: np.array([SPACE.configuration(row)["x"] >= 32 for row in rows.tolist()]), False),
        (lambda rows: np.arange(40) < 2, False),  # so few are not judged
    ],
)
def test_failures_by_lot_are_told_from_those_that_follow_from_the_parameters(failing, lot: bool) -> None:
    features, rows = Features(SPACE), SPACE.sample(np.random.default_rng(3), 40)
    assert by_lot(features.of_rows(rows), failing(rows), Prior(features.lengths)) == lot


def test_another_device_shortens_the_search() -> None:
    donor = search(ALIKE, 60, seed=9)
    cold = [evaluations_to_best(HERE, seed) for seed in range(3)]
    informed = [evaluations_to_best(HERE, seed, [donor]) for seed in range(3)]
    assert max(informed) <= 10
    assert np.median(informed) < np.median(cold)


def test_a_misleading_device_does_not_prevent_the_best() -> None:
    donor = search(CONTRARY, 60, seed=9)
    needed = [evaluations_to_best(HERE, seed, [donor]) for seed in range(3)]
    assert np.median(needed) < 50


@pytest.mark.parametrize("time", [None, Measurement(())])
@pytest.mark.parametrize("first", [True, False])
def test_a_donor_is_no_worse_for_trials_that_worked_and_tell_no_time(time: Measurement | None, first: bool) -> None:
    donor = search(unrelated, 60, seed=9)
    timeless = [replace(donor[0], measurement=time)]
    mixed = [*timeless, *donor[1:]] if first else [*donor[1:], *timeless]
    assert len(search(HERE, 12, 2, [mixed])) == 12


@pytest.mark.parametrize(("other", "misled"), [(unrelated, True), (ALIKE, False)])
def test_donors_are_judged_by_how_well_they_foretell_the_trials_here(other, misled: bool) -> None:
    codec, donor = Codec(SPACE), search(other, 60, seed=9)
    features = Features(SPACE)
    view = transfer_view(SPACE, features, [donor])
    assert view is not None
    history = History(codec)
    history.update(study_of(search(HERE, 40), codec))
    cold, informed = Surrogate(SPACE, View(features), 0), Surrogate(SPACE, view, 0)
    cold.update(history)
    informed.update(history)
    assert (cold.evidence > informed.evidence) == misled


@pytest.mark.parametrize("done", [6, 17])
def test_a_search_with_donors_goes_on_as_if_never_interrupted(done: int) -> None:
    donors = [search(unrelated, 60, seed=9)]
    whole = search(HERE, 30, 2, donors)
    proposer = Proposer(SPACE, "bayes", 2, donors)
    proposer.add(whole[:done])
    rest = []
    for _ in range(30 - done):
        rest.append(HERE(proposer.ask()))
        proposer.tell(rest[-1])
    assert [trial.configuration for trial in rest] == [trial.configuration for trial in whole[done:]]


def test_a_donor_beside_flat_ones_stays_within_the_units() -> None:
    flat = [search(lambda c: Trial(c, Outcome.OK, measurement=Measurement((50_000,))), 30, s) for s in (1, 2)]
    view = transfer_view(SPACE, Features(SPACE), [*flat, search(ALIKE, 40)])
    assert view is not None
    linear = view.encode(np.arange(len(SPACE)))[0][:, -3:]
    assert np.abs(linear).max() < 5


def test_another_size_may_list_other_values() -> None:
    other = Space.build({"x": [8, 128], "y": [1, 2, 4, 8, 16], "v": ["b", "z"], "pad": [0, 1]}, [])
    donor = search(ALIKE, 40, space=other)
    assert transfer_view(SPACE, Features(SPACE), [donor]) is not None
    assert len(search(HERE, 12, donors=[donor])) == 12


@pytest.mark.parametrize(
    "trials",
    [
        [],
        [ALIKE(SPACE.configuration(row)) for row in range(5)],  # too few to say anything
        [Trial(SPACE.configuration(row), Outcome.CRASH) for row in range(50)],
        [Trial({"z": row}, Outcome.OK, measurement=Measurement((5,))) for row in range(50)],
    ],
)
def test_a_prior_of_no_use_changes_nothing(trials: list[Trial]) -> None:
    with_it, without = search(HERE, 12, donors=[trials]), search(HERE, 12)
    assert [trial.configuration for trial in with_it] == [trial.configuration for trial in without]


def test_the_expected_gain_falls_as_the_search_goes_on() -> None:
    proposer = Proposer(SPACE, "bayes", 4)
    gains = []
    for _ in range(60):
        gains.append(proposer.expected_gain(20))
        proposer.tell(HERE(proposer.ask()))
    assert gains[:26] == [None] * 26  # a model after 6 trials, and then as many estimates as it looks ahead
    assert all(0 <= gain < 1 for gain in gains[26:])
    assert gains[26] > 0.01
    assert gains[-1] < 0.002


def test_a_single_low_estimate_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    estimates = [0.3, 0.001, 0.2, 0.05, 0.04, 0.03, 0.02]
    monkeypatch.setattr(BayesSampler, "expected_gain", lambda sampler, trials: estimates[len(sampler.history.rows) - 1])
    proposer, told = Proposer(SPACE, "bayes", 4), []
    for _ in estimates:
        proposer.tell(HERE(proposer.ask()))
        told.append(proposer.expected_gain(2))
    assert told == [None, None, 0.3, 0.2, 0.2, 0.05, 0.04]


@pytest.mark.parametrize("in_flight", [0, 1])
def test_once_all_is_proposed_no_gain_is_foretold_and_none_in_flight_is_given_up(in_flight: int) -> None:
    proposer = Proposer(Space.build({"x": [1, 2, 4, 8, 16, 32, 64, 128, 256]}, []), "bayes", 0)
    asked = list(iter(proposer.ask, None))
    for configuration in asked[: len(asked) - in_flight]:
        proposer.tell(Trial(configuration, Outcome.OK, measurement=Measurement((configuration["x"],))))
    assert proposer.expected_gain(5) is None


def test_a_search_beyond_what_is_learned_from_goes_on() -> None:
    space = Space.build({f"p{i}": [1, 2, 3, 4, 5, 6] for i in range(4)}, [])
    proposer = Proposer(space, "bayes", 0)
    trials = [
        Trial(c, Outcome.OK, measurement=Measurement((sum(c.values()) + 1,)))
        for c in map(space.configuration, space.sample(np.random.default_rng(0), 700).tolist())
    ]
    proposer.add(trials)
    rest = [proposer.ask() for _ in range(20)]
    known = {tuple(trial.configuration.values()) for trial in trials}
    assert not known & {tuple(configuration.values()) for configuration in rest}


def test_a_large_space_is_foretold_once_while_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Space.build({f"p{column}": list(range(1, 13)) for column in range(4)}, [])
    rng = np.random.default_rng(0)
    other = [large.configuration(row) for row in large.sample(rng, 20).tolist()]
    donor = [Trial(one, Outcome.OK, measurement=Measurement((1000 + place,))) for place, one in enumerate(other)]
    foretold: list[int] = []
    encode = TransferView.encode

    def counted(self: TransferView, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        foretold.append(len(rows))
        return encode(self, rows)

    monkeypatch.setattr(TransferView, "encode", counted)
    proposer = Proposer(large, "bayes", 0, [donor])
    assert all(proposer.ask() is not None for _ in range(5))
    assert foretold.count(POOL) == 1 < POOL < len(large)


def test_of_searches_in_threads_one_proposes_at_a_time() -> None:
    free = list[bool]()
    asking = threading.Thread(target=lambda: free.append(base._lock.acquire(blocking=False)))
    with one_thread(), one_thread():
        asking.start()
        asking.join()
    assert free == [False]


def test_of_a_large_space_the_nearest_is_proposed_and_nothing_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lists(*_: object) -> object:
        raise AssertionError

    values = {"x": list(range(8)), "y": list(range(8)), "mode": ["off", "on"]}
    space = Space.build(values, [Constraint(Expression.parse("x + y != 6"), "test")])
    wanted = {"x": 3, "y": 3, "mode": "on"}
    monkeypatch.setattr(plain, "LISTED_ROWS", 10, raising=False)
    monkeypatch.setattr(base, "MASKED_ROWS", 10)
    monkeypatch.setattr(base.RowSampler, "candidates", lists)
    monkeypatch.setattr(plain.TPE, "_propose", lambda *_, **__: wanted)
    proposer = Proposer(space, "tpe", seed=0)
    found = [proposer.ask() for _ in range(len(space))]
    assert {identity(one) for one in found if one} == {identity(space.configuration(row)) for row in range(len(space))}
    away = [sum(one[name] != wanted[name] for name in wanted) for one in found[:4] if one]
    assert away == [1, 1, 1, 1]
    assert space.nearest(wanted) in found[:4]  # which of these is by lot
    assert proposer.ask() is None


def test_a_programs_own_optuna_tells_as_much_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    usual = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        proposer = Proposer(SPACE, "tpe", seed=0)
        for _ in range(3):
            proposer.tell(device(SPACE.configuration(5))(proposer.ask() or {}))
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.set_verbosity(usual)
    assert capfd.readouterr().err == ""
