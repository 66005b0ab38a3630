"""The contract that every sampler in the registry fulfils."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import SetupError, SpaceError, UsageError
from autotune.expression import Expression
from autotune.model import Configuration, Measurement, Outcome, Trial
from autotune.samplers import SAMPLERS, Proposer
from autotune.samplers.base import Codec
from autotune.samplers.plain import StockSampler
from autotune.space import Constraint, Space
from autotune.space.diagram import Diagram


def make_space(*constraints: str, **parameters: list) -> Space:
    return Space.build(parameters, [Constraint(Expression.parse(text), "test") for text in constraints])


@pytest.fixture(scope="module")
def small() -> Space:
    """A space with two constraints, text, and a parameter with a single value."""
    return make_space(
        "x * y <= 64",
        "mode == 'on' or pad == 0",
        x=[1, 2, 4, 8, 16, 32],
        y=[1, 4, 8, 16],
        mode=["off", "on"],
        pad=[0, 1],
        one=[7],
    )


@pytest.fixture(scope="module")
def million() -> Space:
    return make_space(**{f"p{i}": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] for i in range(6)})


def measure(configuration: Configuration) -> Trial:
    """A made-up device: fails if pad is 1 and x is 16, stops slow ones."""
    x, y = configuration["x"], configuration["y"]
    if configuration["pad"] == 1 and x == 16:
        return Trial(configuration, Outcome.LAUNCH_ERROR, "no")
    time = round(1e6 * (1 + (np.log2(x) - 3) ** 2 + (np.log2(y) - 2) ** 2 + (configuration["mode"] == "on")))
    outcome = Outcome.STOPPED if time > 8e6 else Outcome.OK
    return Trial(configuration, outcome, measurement=Measurement((time,)))


def search(proposer: Proposer, count: int, evaluate=measure) -> list[Trial]:
    trials = []
    for _ in range(count):
        if (configuration := proposer.ask()) is None:
            break
        trials.append(evaluate(configuration))
        proposer.tell(trials[-1])
    return trials


def key(configuration: Configuration) -> tuple:
    return tuple(configuration.values())


def keys(trials: list[Trial]) -> list[tuple]:
    return [key(trial.configuration) for trial in trials]


pytestmark = pytest.mark.parametrize("sampler", [name for name, entry in SAMPLERS.items() if entry.is_here])


@pytest.mark.parametrize(
    "evaluate",
    [
        measure,
        lambda c: Trial(c, Outcome.COMPILE_ERROR, "no"),
        lambda c: Trial(c, Outcome.OK, measurement=Measurement((9,))),  # all equally fast
    ],
)
def test_proposes_each_valid_configuration_once_and_then_nothing(sampler: str, small: Space, evaluate) -> None:
    trials = search(Proposer(small, sampler, seed=1), len(small) + 5, evaluate)
    assert len(set(keys(trials))) == len(trials) == len(small)
    assert all(trial.configuration in small for trial in trials)


def test_same_seed_and_results_propose_the_same(sampler: str, small: Space) -> None:
    first, second = (search(Proposer(small, sampler, seed=5), 30) for _ in range(2))
    assert keys(first) == keys(second)


def test_what_is_prepared_proposes_the_same(sampler: str, small: Space) -> None:
    prepared, other = (Proposer(small, sampler, seed=5) for _ in range(2))
    prepared.prepare(len(small))
    assert keys(search(prepared, 12)) == keys(search(other, 12))


def test_other_seeds_propose_others(sampler: str, small: Space) -> None:
    runs = {tuple(keys(search(Proposer(small, sampler, seed=seed), 12))) for seed in range(3)}
    assert len(runs) == (1 if sampler == "grid" else 3)


def test_results_decide_what_a_sampler_that_learns_proposes_and_no_other(sampler: str, small: Space) -> None:
    def wider_is_faster(configuration: Configuration) -> Trial:
        return Trial(configuration, Outcome.OK, measurement=Measurement((10**6 // configuration["x"],)))

    told = {tuple(keys(search(Proposer(small, sampler, seed=5), 30, way))) for way in (measure, wider_is_faster)}
    assert len(told) == 1 + SAMPLERS[sampler].learns, "`learns` of its row in samplers/registry.py"


@pytest.mark.parametrize("done", [3, 17])
def test_a_resumed_search_goes_on_as_if_never_interrupted(sampler: str, small: Space, done: int) -> None:
    whole = search(Proposer(small, sampler, seed=2), 30)
    proposer = Proposer(small, sampler, seed=2)
    proposer.add(whole[:done])
    assert keys(whole[:done] + search(proposer, 30 - done)) == keys(whole)


def test_what_is_stored_is_looked_up_at_once(sampler: str, small: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million trials may be stored: one walk through the space for all, and a study only for who asks it."""
    whole, walks = [measure(small.configuration(row)) for row in range(len(small) // 2)], []
    rows = Diagram.rows
    monkeypatch.setattr(Diagram, "rows", lambda diagram, indices: walks.append(len(indices)) or rows(diagram, indices))
    proposer = Proposer(small, sampler, seed=2)
    proposer.add(whole)
    assert walks == [len(whole)]
    stock = isinstance(proposer._sampler, StockSampler)
    assert len(proposer._study.trials) == (len(whole) if stock else 0), "only one of Optuna's reads trials in a study"


def test_enqueued_configurations_come_first_and_once(sampler: str, small: Space) -> None:
    wanted = [small.configuration(row) for row in (20, 3, 20)]
    proposer = Proposer(small, sampler, seed=0)
    for configuration in wanted:
        proposer.enqueue(configuration)
    trials = search(proposer, len(small) + 5)
    assert [dict(trial.configuration) for trial in trials[:2]] == wanted[:2]
    assert len(set(keys(trials))) == len(trials) == len(small)


def test_enqueued_between_proposals_is_next(sampler: str, small: Space) -> None:
    proposer = Proposer(small, sampler, seed=0)
    seen = keys(search(proposer, 9))
    fresh = next(c for c in map(small.configuration, range(len(small))) if key(c) not in seen)
    proposer.enqueue(fresh)
    assert proposer.ask() == fresh


def test_enqueueing_the_invalid_is_refused(sampler: str, small: Space) -> None:
    with pytest.raises(SpaceError, match="not a valid configuration"):
        Proposer(small, sampler, seed=0).enqueue({"x": 32, "y": 16, "mode": "on", "pad": 0, "one": 7})


@pytest.mark.parametrize("ahead", [2, 7])
def test_several_in_flight_are_never_the_same(sampler: str, small: Space, ahead: int) -> None:
    proposer = Proposer(small, sampler, seed=3)
    seen: list[tuple] = []
    flying: list[Configuration] = []
    while (configuration := proposer.ask()) is not None:
        seen.append(key(configuration))
        flying.append(configuration)
        if len(flying) == ahead:
            proposer.tell(measure(flying.pop(len(seen) % ahead)))  # not in the order asked
    assert len(seen) == len(set(seen)) == len(small)


def test_each_trial_in_flight_is_looked_up_once(sampler: str, million: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple] = []
    look_up = Codec.row_of
    monkeypatch.setattr(
        Codec, "row_of", lambda codec, params: read.append(tuple(params.items())) or look_up(codec, params)
    )
    proposer = Proposer(million, sampler, seed=3)
    for _ in range(12):
        proposer.ask()
    assert read.count(()) <= 12  # while it is asked for
    assert max(map(read.count, filter(None, read))) <= 2  # as it was proposed, and once after that


def test_told_what_it_never_asked_for(sampler: str, small: Space) -> None:
    proposer = Proposer(small, sampler, seed=3)
    stranger = small.configuration(11)
    proposer.tell(measure(stranger))
    assert key(stranger) not in keys(search(proposer, len(small)))


def test_stored_trials_of_other_values_are_passed_over(sampler: str, small: Space) -> None:
    proposer = Proposer(small, sampler, seed=3)
    proposer.add([Trial({"x": 64, "y": 4, "mode": "on", "pad": 0, "one": 7}, Outcome.CRASH)] * 2)
    assert len(search(proposer, 99)) == len(small)


def test_a_space_of_one(sampler: str) -> None:
    space = make_space(x=[4], mode=["on"])
    proposer = Proposer(space, sampler, seed=0)
    assert proposer.ask() == {"x": 4, "mode": "on"}
    assert proposer.ask() is None
    proposer.tell(Trial({"x": 4, "mode": "on"}, Outcome.OK, measurement=Measurement((5,))))
    assert proposer.ask() is None


def test_a_space_of_two(sampler: str) -> None:
    space = make_space(x=[4, 8])
    trials = search(Proposer(space, sampler, seed=0), 5, lambda c: Trial(c, Outcome.OK, measurement=Measurement((5,))))
    assert sorted(keys(trials)) == [(4,), (8,)]


def test_a_space_whose_rows_no_memory_holds(sampler: str) -> None:
    proposer = Proposer(make_space(**{f"p{i}": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] for i in range(14)}), sampler, seed=0)
    trials = search(proposer, 20, lambda c: Trial(c, Outcome.OK, measurement=Measurement((sum(c.values()),))))
    assert len(set(keys(trials))) == 20


def test_a_sampler_with_a_model_says_what_to_expect(sampler: str, small: Space) -> None:
    proposer = Proposer(small, sampler, seed=0)
    said = []
    for _ in range(12):
        search(proposer, 1)
        said.append(proposer.expected_gain(3) is not None)
    assert any(said) == SAMPLERS[sampler].has_model


def test_a_bound_of_nothing_is_no_bound(sampler: str, small: Space) -> None:
    proposer = Proposer(small, sampler, seed=0)
    proposer.add([Trial(small.configuration(5), Outcome.STOPPED, measurement=Measurement((0,)))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(search(proposer, 12)) == 12


def test_unknown_sampler_names_the_known(sampler: str, small: Space) -> None:
    with pytest.raises(UsageError, match=sampler):
        Proposer(small, "no_such", seed=0)


def test_a_package_that_does_not_load_is_told_before_a_search(
    sampler: str, small: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_a_torch.py").write_text("raise ImportError('no libcudart\\nis here')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SetupError) as error:
        replace(SAMPLERS[sampler], needs="half_a_torch").make(small, 0, ())
    assert str(error.value) == "half_a_torch does not load: no libcudart is here; pip install half_a_torch"
