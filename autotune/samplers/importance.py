"""Which parameters decide whether a configuration is among the fastest, by Optuna's PED-ANOVA."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.errors import without
from autotune.model import Value
from autotune.samplers.base import quiet_optuna

LEAST = 10
"""The least number of timed configurations for a result."""


class _Given(InMemoryStorage):
    """A storage with given trials. Optuna checks and copies trials that are added, which takes most of the time."""

    def __init__(self, trials: Iterable[FrozenTrial]) -> None:
        super().__init__()
        self._given = list(trials)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        return [trial for trial in self._given if states is None or trial.state in states]


def importances(configurations: Sequence[Mapping[str, Value]], times_ns: Sequence[float]) -> dict[str, float]:
    """Return each parameter's share in making a configuration one of the fastest tenth; the shares add up to 1.

    Most important first; an empty dictionary if there are fewer than `LEAST` configurations, or they differ in
    nothing that matters. A parameter that never varied has 0. The shares hold for the given configurations: a search
    tries more of the fast ones.

    Source: S. Watanabe, A. Bansal, F. Hutter, PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in
    Arbitrary Subspaces, IJCAI 2023, as Optuna implements it.
    """
    if len(configurations) < LEAST:
        return {}
    tried = {name: list(dict.fromkeys(one[name] for one in configurations)) for name in configurations[0]}
    constant = [name for name, values in tried.items() if len(values) == 1]
    tried = {name: values for name, values in tried.items() if len(values) > 1}
    if not tried:
        return {}
    with quiet_optuna(), without(UserWarning):  # it warns of zeros if nothing distinguishes the fastest from the rest
        found = _estimated(configurations, times_ns, tried)
    whole = sum(found.values())
    return {name: share / whole for name, share in found.items()} | dict.fromkeys(constant, 0.0) if whole else {}


def _estimated(
    configurations: Sequence[Mapping[str, Value]], times_ns: Sequence[float], tried: Mapping[str, Sequence[Value]]
) -> dict[str, float]:
    # Values by their places: Optuna does not distinguish 1 from 1.0, like a dictionary.
    places = {name: {value: place for place, value in enumerate(values)} for name, values in tried.items()}
    distributions: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(tuple(range(len(values)))) for name, values in tried.items()
    }
    storage = _Given(
        FrozenTrial(
            number=number,
            trial_id=number,
            state=TrialState.COMPLETE,
            value=time,
            datetime_start=None,
            datetime_complete=None,
            params={name: places[name][one[name]] for name in tried},
            distributions=distributions,
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )
        for number, (one, time) in enumerate(zip(configurations, times_ns, strict=True))
    )
    return PedAnovaImportanceEvaluator().evaluate(optuna.create_study(storage=storage))
