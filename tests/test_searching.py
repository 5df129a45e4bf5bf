"""Searches of hyperparameters: ranks must try the same models, as often."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import optuna
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loaders():
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    return DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)


def objective(trial):
    loader, valid_loader = loaders()
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.suggest_float("lr", 1e-3, 1e-1))
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return sum(nn.functional.mse_loss(model(x), y).item() for x, y in valid_loader) / len(valid_loader)


study = optuna.create_study({study})
study.optimize(objective, {trials})
print(study.best_params)
"""


@pytest.mark.parametrize(
    ("study", "trials", "code", "said"),
    [
        ("", "n_trials=4", "create_study(sampler=optuna.samplers.TPESampler(seed=0))", ""),
        ("directions=['minimize']", "n_trials=4", "sampler=optuna.samplers.NSGAIISampler(seed=0)", ""),
        ("sampler=optuna.samplers.RandomSampler()", "n_trials=4", "RandomSampler(seed=0)", ""),
        ("", "n_trials=4, timeout=600", "TPESampler(seed=0)", "ends when the clock of each rank says so"),
        ("storage='sqlite:///trials.db'", "n_trials=4", "", "every rank would add its trials to the storage"),
    ],
)
def test_trials_are_those_of_all_ranks(tmp_path: Path, study: str, trials: str, code: str, said: str) -> None:
    after, told = converted(tmp_path, SCRIPT.format(study=study, trials=trials))
    assert code in after and said in told
    assert "AD201 makes loaders" not in told, "the function that makes loaders is called by the trial alone"
    if "storage" not in study:
        assert after.index("\nsetup_distributed()") < after.index("study.optimize(")
