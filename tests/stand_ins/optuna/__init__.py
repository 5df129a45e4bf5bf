"""As much of optuna as a search needs: suggestions of an unseeded generator, medians that prune, studies in memory."""

from __future__ import annotations

import copy
import statistics
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


class TrialPruned(Exception):
    """A trial that the study ends early."""


class FrozenTrial:
    """What a study keeps of a trial."""

    def __init__(self, number: int, state: str = "RUNNING") -> None:
        self.number = number
        self.state = state
        self.value: float | None = None
        self.params: dict[str, Any] = {}
        self.distributions: dict[str, Any] = {}
        self.user_attrs: dict[str, Any] = {}
        self.intermediate_values: dict[int, float] = {}


class Trial:
    """A trial that runs."""

    def __init__(self, study: Study, kept: FrozenTrial) -> None:
        self.study = study
        self._kept = kept

    number = property(lambda self: self._kept.number)
    params = property(lambda self: dict(self._kept.params))
    distributions = property(lambda self: dict(self._kept.distributions))
    user_attrs = property(lambda self: dict(self._kept.user_attrs))
    datetime_start = None

    def _suggest(self, name: str, draw: Callable[[], Any]) -> Any:
        return self._kept.params.setdefault(name, draw())

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        def draw() -> float:
            if log:
                return float(np.exp(self.study.sampler.uniform(np.log(low), np.log(high))))
            return float(self.study.sampler.uniform(low, high))

        return float(self._suggest(name, draw))

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return int(self._suggest(name, lambda: self.study.sampler.randint(low, high + 1)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self._suggest(name, lambda: choices[self.study.sampler.randint(len(choices))])

    def set_user_attr(self, key: str, value: Any) -> None:
        self._kept.user_attrs[key] = value

    def report(self, value: float, step: int) -> None:
        self._kept.intermediate_values[step] = value

    def should_prune(self) -> bool:
        step = max(self._kept.intermediate_values)
        others = [t.intermediate_values[step] for t in self.study.trials[:-1] if step in t.intermediate_values]
        worse = self.study.sign * self._kept.intermediate_values[step]
        return len(others) > 1 and worse > statistics.median(self.study.sign * each for each in others)


class Study:
    """A search, kept in memory."""

    def __init__(self, study_name: str, directions: list[str]) -> None:
        self.study_name = study_name
        self.directions = directions
        self.user_attrs: dict[str, Any] = {}
        self.sampler = np.random.RandomState()
        self._trials: list[FrozenTrial] = []
        self._stopped = False

    sign = property(lambda self: 1 if self.directions[0] == "minimize" else -1)
    trials = property(lambda self: copy.deepcopy(self._trials))
    best_params = property(lambda self: self.best_trial.params)
    best_value = property(lambda self: self.best_trial.value)

    @property
    def best_trial(self) -> FrozenTrial:
        best: FrozenTrial = min((t for t in self.trials if t.state == "COMPLETE"), key=lambda t: self.sign * t.value)
        return best

    def set_user_attr(self, key: str, value: Any) -> None:
        self.user_attrs[key] = value

    def add_trials(self, trials: Iterable[FrozenTrial]) -> None:
        self._trials += trials

    def stop(self) -> None:
        self._stopped = True

    def ask(self) -> Trial:
        self._trials.append(FrozenTrial(len(self._trials)))
        return Trial(self, self._trials[-1])

    def tell(self, trial: Trial, value: float | None = None, state: str = "COMPLETE") -> None:
        trial._kept.value, trial._kept.state = value, state

    def optimize(
        self, func: Callable[[Trial], float], n_trials: int, catch: Any = (), callbacks: Sequence[Any] = ()
    ) -> None:
        self._stopped = False
        for _ in range(n_trials):
            trial = self.ask()
            try:
                self.tell(trial, func(trial))
            except TrialPruned:
                self.tell(trial, state="PRUNED")
            except catch:
                self.tell(trial, state="FAIL")
            print(f"trial {trial.number}: {trial._kept.state}", file=sys.stderr)
            for callback in callbacks:
                callback(self, copy.deepcopy(trial._kept))
            if self._stopped:
                break


def create_study(study_name: str = "search", direction: str = "minimize", directions: Any = None) -> Study:
    return Study(study_name, list(directions or [direction]))


exceptions = types.SimpleNamespace(TrialPruned=TrialPruned)
logging = types.SimpleNamespace(ERROR=40, set_verbosity=lambda level: None)
