"""Searches of hyperparameters: rank 0 chooses the trials, all ranks run them, and what a trial reports is global."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from conftest import converted, differences, launched

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.verify.launch import Zygote

START = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))


def fit(lr, width=8):
    total, model = 0.0, nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / 8


"""
OBJECTIVE = """\
def objective(trial):
    width = trial.suggest_int("width", 4, 9)
    lr = trial.suggest_float("lr", 1e-3, 1.0, log=True)
    for epoch in range(2):
        loss = fit(lr, width)
        trial.report(loss, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return loss


"""
LR = 'trial.suggest_float("lr", 1e-3, 1e-1)'
MADE = "study = optuna.create_study()\n"
SHARED = "study = shared_study(lambda: optuna.create_study())\n"
SEARCHES = {
    "options": (
        OBJECTIVE + MADE + "study.optimize(objective, n_trials=3, timeout=600, callbacks=[print])\n",
        [SHARED, "StudyOnAllRanks(study).optimize(objective, n_trials=3, timeout=600, callbacks=[print])\n"],
    ),
    "storage": (
        OBJECTIVE + 'study = optuna.create_study(storage="sqlite:///a.db")\nstudy.optimize(objective, 3)\n',
        ['shared_study(lambda: optuna.create_study(storage="sqlite:///a.db"))'],
    ),
    "loaded study": (
        OBJECTIVE + 'study = optuna.load_study("a", "sqlite:///a.db")\nstudy.optimize(objective, 3)\n',
        ['shared_study(lambda: optuna.load_study("a", "sqlite:///a.db"))', "StudyOnAllRanks(study).optimize("],
    ),
    "study in a file": (
        "import joblib\n\n\n" + OBJECTIVE + 'study = joblib.load("a.pkl")\nstudy.optimize(objective, n_trials=3)\n',
        ["StudyOnAllRanks(study).optimize(", "class StudyOnAllRanks:"],
    ),
    "storage of its own": (
        OBJECTIVE + "from optuna.storages import RDBStorage\n\nstorage = RDBStorage('sqlite:///a.db')\n"
        "study = optuna.create_study(study_name='a', storage=storage)\nstudy.optimize(objective, n_trials=3)\n"
        "optuna.delete_study(study_name='a', storage=storage)\n",
        [
            "storage = RDBStorage('sqlite:///a.db') if dist.get_rank() == 0 else None",
            "shared_study(lambda: optuna.create_study(study_name='a', storage=storage))",
            "if dist.get_rank() == 0:\n    optuna.delete_study(",
        ],
    ),
    "no name": (
        OBJECTIVE + "optuna.create_study().optimize(func=objective, n_trials=3)\n",
        ["StudyOnAllRanks(shared_study(lambda: optuna.create_study())).optimize(func=objective, n_trials=3)"],
    ),
    "given to a function": (
        OBJECTIVE + "def search(study: optuna.Study, n):\n    study.optimize(objective, n)\n\n\n"
        "study: optuna.Study = optuna.create_study()\nsearch(study, 3)\n",
        ["study: optuna.Study = shared_study(lambda: optuna.create_study())", "StudyOnAllRanks(study).optimize("],
    ),
    "sampler and pruner": (
        OBJECTIVE + "study = optuna.create_study(sampler=optuna.samplers.TPESampler())\nstudy.optimize(objective, 3)\n",
        ["shared_study(lambda: optuna.create_study(sampler=optuna.samplers.TPESampler()))"],
    ),
    "lambda": (
        MADE + f"study.optimize(lambda trial: fit({LR}), n_trials=3)\n",
        [f".optimize(lambda trial: reduce_mean(fit({LR})), n_trials=3)"],
    ),
    "partial": (
        f"from functools import partial\n\n\ndef objective(scale, trial):\n    return scale * fit({LR})\n\n\n"
        f"{MADE}study.optimize(partial(objective, 2.0), n_trials=3)\n",
        [f"return reduce_mean(scale * fit({LR}))", "StudyOnAllRanks(study).optimize(partial(objective, 2.0), "],
    ),
    "object": (
        f"class Objective:\n    def __call__(self, trial):\n        return fit({LR})\n\n\n"
        f"{MADE}study.optimize(Objective(), n_trials=3)\n",
        [f"return reduce_mean(fit({LR}))"],
    ),
    "method": (
        "class Search:\n    def __init__(self):\n        self.study = optuna.create_study()\n\n"
        f"    def objective(self, trial):\n        return fit({LR})\n\n"
        "    def run(self):\n        self.study.optimize(self.objective, n_trials=3)\n\n\nSearch().run()\n",
        [
            "self.study = shared_study(lambda: optuna.create_study())",
            f"return reduce_mean(fit({LR}))",
            "StudyOnAllRanks(self.study).optimize(self.objective",
        ],
    ),
    "several objectives": (
        f"def objective(trial):\n    loss = fit({LR})\n    return loss, trial.number\n\n\n"
        'study = optuna.create_study(directions=["minimize", "minimize"])\nstudy.optimize(objective, n_trials=3)\n',
        ["return reduce_mean(loss), trial.number"],
    ),
    "own condition": (
        f"def objective(trial):\n    loss = fit({LR})\n    if loss > 1.0:\n        raise optuna.TrialPruned()\n"
        f"    return loss\n\n\n{MADE}study.optimize(objective, n_trials=3)\n",
        [f"loss = reduce_mean(fit({LR}))\n    if loss > 1.0:"],
    ),
    "attribute": (
        f"def objective(trial):\n    loss = fit({LR})\n    trial.set_user_attr('loss', loss)\n    return 1.0\n\n\n"
        f"{MADE}study.optimize(objective, n_trials=3)\n",
        ["trial.set_user_attr('loss', reduce_mean(loss))"],
    ),
    "stopped": (
        f"def objective(trial):\n    if trial.number > 1:\n        trial.study.stop()\n    return fit({LR})\n\n\n"
        f"{MADE}study.optimize(objective, n_trials=3)\n",
        ["if trial.number > 1 and dist.get_rank() == 0:\n        trial.study.stop()"],
    ),
    "caught": (
        OBJECTIVE + MADE + "study.optimize(objective, n_trials=3, catch=(ValueError,))\n",
        ["except (optuna.TrialPruned, *(catch if isinstance(catch, tuple) else [catch])):", "catch=catch, **options)"],
    ),
    "caught, by its place": (
        OBJECTIVE + MADE + "study.optimize(objective, 3, None, 1, (ValueError,))\n",
        [
            "def optimize(self, func, n_trials=None, timeout=None, n_jobs=1, catch=(), *args, **options):",
            "self.study.optimize(lead, n_trials, timeout, n_jobs, catch, *args, **options)",
            "except (optuna.TrialPruned, *(catch if isinstance(catch, tuple) else [catch])):",
        ],
    ),
    "asked and told": (
        f"{MADE}for _ in range(3):\n    trial = study.ask()\n    loss = fit({LR})\n    study.tell(trial, loss)\n",
        [
            "trial = StudyOnAllRanks(study).ask()",
            "StudyOnAllRanks(study).tell(trial, reduce_mean(loss))",
            "    def tell(self, trial, *args, **kwargs):",
        ],
    ),
    "hyperopt": (
        "from hyperopt import Trials, fmin, hp\n\n\ndef objective(space):\n    loss = fit(space['lr'])\n"
        "    return {'loss': loss, 'status': 'ok'}\n\n\ntrials = Trials()\n"
        "best = fmin(objective, {'lr': hp.uniform('lr', 0, 1)}, max_evals=3, trials=trials)\nprint(best)\n",
        [
            "return {'loss': reduce_mean(loss), 'status': 'ok'}",
            "best = search_on_all_ranks(objective, lambda objective: fmin(objective, {'lr': hp.uniform('lr', 0, 1)}, ",
            "vars(trials).update(as_on_rank_zero(vars(trials)))\nprint(best)\n",
        ],
    ),
    "hyperopt's function in place": (
        "import hyperopt\n\n"
        "hyperopt.fmin(fn=lambda lr: fit(lr), space=hyperopt.hp.uniform('lr', 0, 1), max_evals=3)\n",
        [
            "\nsearch_on_all_ranks(lambda lr: reduce_mean(fit(lr)), lambda objective: hyperopt.fmin(fn=objective, "
            "space=hyperopt.hp.uniform('lr', 0, 1), max_evals=3))"
        ],
    ),
    "hyperopt's method": (
        "import hyperopt\n\n\nclass Search:\n    def try_out(self, lr):\n        return fit(lr)\n\n"
        "    def run(self):\n        return hyperopt.fmin(self.try_out, hyperopt.hp.uniform('lr', 0, 1), max_evals=3)\n"
        "\n\nprint(Search().run())\n",
        [
            "return search_on_all_ranks(self.try_out, lambda objective: hyperopt.fmin(objective, ",
            "reduce_mean(fit(lr))",
        ],
    ),
    "scipy": (
        "from scipy.optimize import minimize_scalar\n\n\n"
        "print(minimize_scalar(lambda lr: fit(lr), bounds=(0.01, 0.1)))\n",
        ["minimize_scalar(lambda lr: reduce_mean(fit(lr)), "],
    ),
    "grid": (
        "import itertools\n\nbest = 9.0\nfor lr, width in itertools.product([0.1, 0.01], [4, 8]):\n"
        "    loss = fit(lr)\n    best = min(best, loss)\nprint(best)\n",
        ["best = min(best, reduce_mean(loss))"],
    ),
}


@pytest.mark.parametrize(("search", "expected"), SEARCHES.values(), ids=SEARCHES)
def test_a_search(tmp_path: Path, search: str, expected: list[str]) -> None:
    after, told = converted(tmp_path, f"import optuna\n{START}{search}")
    assert [each for each in expected if each not in after] == []
    assert "AD9" not in told


SWEEPS = {
    "module": ("wandb.init()\nfit(wandb.config.lr)\n", True),
    "by name": ('wandb.init(project="a")\nconfig = wandb.config\nfit(config["lr"])\n', True),
    "of the run": ('run = wandb.init(config={"lr": 0.1})\nfit(run.config.lr)\n', True),
    "with": ("with wandb.init() as run:\n    fit(run.config.lr)\n", True),
    "in a function": ("def main():\n    wandb.init()\n    fit(**wandb.config)\n\n\nmain()\n", True),
    "filled": ('wandb.init()\nwandb.config.update({"lr": 0.1})\nwandb.config.width = 8\nfit(0.1)\n', False),
    "not read": ('wandb.init(config={"lr": 0.1})\nfit(0.1)\n', False),
}


@pytest.mark.parametrize(("search", "shared"), SWEEPS.values(), ids=SWEEPS)
def test_settings_of_a_sweep(tmp_path: Path, search: str, shared: bool) -> None:
    """A sweep of wandb sets hyperparameters in the run of rank 0: all ranks take these."""
    after, _ = converted(tmp_path, f"import wandb\n{START}{search}")
    lines = "\n".join(line.strip() for line in after.splitlines())
    assert ("\nsettings = as_on_rank_zero(dict(wandb.config))\n" in lines) is shared
    assert ("\nwandb.config.update(settings, allow_val_change=True)  # a sweep sets rank 0's\n" in lines) is shared


NESTED = {
    "returned": "def track():\n    return INIT\n\n\nrun = track()\nfit(run.config.lr)\n",
    "returned on request": (
        "def track(on):\n    if on:\n        return INIT\n    return None\n\n\n" "track(True)\nfit(wandb.config.lr)\n"
    ),
    "with another": "def track():\n    return INIT, 3\n\n\nrun, _ = track()\nfit(run.config.lr)\n",
    "of a method": (
        "class Search:\n    def track(self):\n        return INIT\n\n"
        "    def run(self):\n        self.tracked = self.track()\n"
        "        fit(self.tracked.config.lr)\n\n\nSearch().run()\n"
    ),
    "lambda": "track = lambda: INIT\nfit(track().config.lr)\n",
    "in a condition": "run = INIT if data else None\nfit(run.config.lr)\n",
    "walrus": "if run := INIT:\n    fit(run.config.lr)\n",
    "its configuration": "config = INIT.config\nfit(config.lr)\n",
    "read in place": "fit(INIT.config.lr)\n",
    "with a file": "with INIT as run, open('a.txt') as file:\n    fit(run.config.lr)\n",
    "yielded": (
        "import contextlib\n\n\n@contextlib.contextmanager\ndef track():\n    yield INIT\n\n\n"
        "with track() as run:\n    fit(run.config.lr)\n"
    ),
}


@pytest.mark.parametrize("search", NESTED.values(), ids=NESTED)
def test_settings_of_a_run_that_is_made_within_a_statement(tmp_path: Path, search: str) -> None:
    """Lines after a `return` never run, and those after a statement that reads the settings come too late."""
    after, _ = converted(tmp_path, f"import wandb\n{START}{search.replace('INIT', 'wandb.init()')}")
    made = 'with_settings_of_rank_zero(wandb.init(mode=None if dist.get_rank() == 0 else "disabled"))'
    assert search.replace("INIT", made).rpartition("\n\n")[2] in after.replace(" if dist.get_rank() == 0 else None", "")
    assert after.count("as_on_rank_zero(dict(") == 1 and after.count(made) == 1
    given = converted(tmp_path, f"import wandb\nfrom wandb import init\n{START}{search.replace('INIT', 'init()')}")[0]
    assert "with_settings_of_rank_zero(init(mode=" in given


REFUSED = {
    "threads": ("study.optimize(objective, n_trials=4, n_jobs=2)", "n_jobs", "several threads at once"),
    "threads by position": ("study.optimize(objective, 4, None, -1)", "-1", "leave n_jobs at 1"),
    "global of a callback": (
        "def keep(study, trial):\n    global best\n    best = trial\n\n\n"
        "study.optimize(objective, n_trials=4, callbacks=[keep])",
        "global best",
        "best would be set on rank 0 alone, where the study calls this",
    ),
    "trained in a callback": (
        "def again(study, trial):\n    fit(**trial.params)\n\n\n"
        "study.optimize(objective, n_trials=4, callbacks=[print, again])",
        "fit(**trial.params)",
        "trains on rank 0 alone, where the study calls this",
    ),
    "processes of spark": (
        "from hyperopt import SparkTrials, fmin\n\nfmin(fit, space={}, max_evals=3, trials=SparkTrials())",
        "fmin(fit",
        "runs its trials in processes of Spark",
    ),
    "options of hyperopt": (
        "import hyperopt\n\nhyperopt.fmin(**{'fn': fit})",
        "hyperopt.fmin(",
        "cannot see the function",
    ),
    "ray": ("from ray import tune\n\ntune.Tuner(fit).fit()", "tune.Tuner(", "runs its trials in processes of its own"),
    "ray by its function": ("import ray.tune\n\nray.tune.run(fit)", "ray.tune.run(", "ray.train.torch.TorchTrainer"),
    "wandb": (
        "import wandb\n\nwandb.agent('a', function=fit)",
        "wandb.agent(",
        "another run of the sweep on each rank",
    ),
    "skorch": (
        "from skorch import NeuralNetRegressor\n\nNeuralNetRegressor(nn.Linear(4, 3)).fit(*data.tensors)",
        "NeuralNetRegressor(nn",
        "skorch.hf.AccelerateMixin",
    ),
    "skopt": ("import skopt\n\nskopt.gp_minimize(fit, [(0.1, 1.0)])", "skopt.gp_minimize(", "chooses hyperparameters"),
    "bayes_opt": (
        "from bayes_opt import BayesianOptimization\n\nBayesianOptimization(f=fit, pbounds={}).maximize()",
        "BayesianOptimization(f",
        "each rank would search for itself",
    ),
    "ax": (
        "from ax.service.ax_client import AxClient\n\nclient = AxClient()\nfit(client.get_next_trial()[0]['lr'])",
        "AxClient()",
        "search around the converted script",
    ),
    "nevergrad": (
        "import nevergrad as ng\n\nbest = ng.optimizers.NGOpt(1, 9).minimize(fit)",
        "ng.optimizers.NGOpt(",
        "chooses hyperparameters",
    ),
    "artifacts of a trial": (
        "from optuna.artifacts import FileSystemArtifactStore, upload_artifact\n\n\ndef kept(trial):\n"
        "    upload_artifact(artifact_store=FileSystemArtifactStore('.'), file_path='a.pt', study_or_trial=trial)\n"
        "    return objective(trial)\n\n\nstudy.optimize(kept, n_trials=3)",
        "upload_artifact(artifact_store",
        "gives the trial to upload_artifact, which needs optuna's own",
    ),
    "trials tried again": (
        "from optuna.storages import RetryFailedTrialCallback\n\nstudy.optimize("
        "lambda trial: fit(0.1 if RetryFailedTrialCallback.retried_trial_number(trial) else 0.2), n_trials=3)",
        "retried_trial_number(trial)",
        "gives the trial to RetryFailedTrialCallback.retried_trial_number",
    ),
    "callback of another library": (
        "def pruned(trial):\n    stop = optuna.integration.PyTorchIgnitePruningHandler(trial, 'loss', None)\n"
        "    return objective(trial)\n\n\nstudy.optimize(pruned, n_trials=3)",
        "PyTorchIgnitePruningHandler(",
        "gives the trial to optuna.integration.PyTorchIgnitePruningHandler",
    ),
    "trial that is asked for": (
        "trial = study.ask()\nfit(trial.suggest_float('lr', 0.1, 1.0))\n"
        "optuna.artifacts.upload_artifact(trial, 'a.pt', None)",
        "upload_artifact(",
        "gives the trial to optuna.artifacts.upload_artifact",
    ),
    "nobody knows it": (
        "import tuning\n\ntuning.Space(9).minimize(lambda lr: fit(lr))",
        "tuning.Space(9).minimize(",
        "each rank would search for itself",
    ),
}


@pytest.mark.parametrize(("search", "at", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_search_that_ranks_cannot_share(tmp_path: Path, search: str, at: str, reason: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"import optuna\n{START}{OBJECTIVE}{MADE}fit(0.1)\n{search}\n")
    refusal = convert(Project.load(path), Config()).diagnostics[0]
    assert refusal.code in ("AD902", "AD903") and reason in refusal.message
    assert at in path.read_text().splitlines()[refusal.line - 1]


@pytest.mark.parametrize(
    "use",
    [
        "print(trial, trial.number)",
        "import logging\n    logging.info('%s', trial)",
        "assert isinstance(trial, optuna.Trial | object)",
        "fit(trial.suggest_float('again', 0.1, 1.0))",
        "str(trial.params)",
    ],
)
def test_a_trial_that_no_library_needs_itself(tmp_path: Path, use: str) -> None:
    searched = f"def used(trial):\n    {use}\n    return objective(trial)\n\n\nstudy.optimize(used, n_trials=3)\n"
    assert "AD902" not in converted(tmp_path, f"import optuna\n{START}{OBJECTIVE}{MADE}{searched}")[1]


def test_threads_that_an_option_asks_for(tmp_path: Path) -> None:
    options = "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--jobs', type=int)\n"
    search = f"{options}jobs = parser.parse_args().jobs\nstudy.optimize(objective, n_trials=4, n_jobs=jobs)\n"
    after, told = converted(tmp_path, f"import optuna\n{START}{OBJECTIVE}{MADE}{search}")
    assert "StudyOnAllRanks(study).optimize(" in after and "leave n_jobs at 1" in told


GIVEN = {
    "of an object": ("tuner = tuning.Tuner(max_trials=3)\ntuner.start(fit)\n", "tuner.start(fit)"),
    "run": ("runner = tuning.Runner()\nrunner.run(fit)\n", "runner.run(fit)"),
    "function": ("from agents import agent\n\nagent(fit)\n", "agent(fit)"),
    "by keyword": ("tuning.launch(trial=fit, count=3)\n", "tuning.launch("),
    "to a constructor": ("tuning.Search(f=fit).run()\n", "tuning.Search("),
    "partial": ("import functools\n\ntuning.go(functools.partial(fit, width=9))\n", "tuning.go("),
    "lambda": ("tuning.go(lambda lr: fit(lr))\n", "tuning.go("),
    "in a list": ("tuning.go([fit])\n", "tuning.go("),
    "in a dict": ("tuning.go({'objective': fit})\n", "tuning.go("),
    "method": ("class Fit:\n    def run(self):\n        fit(0.1)\n\n\ntuning.go(Fit().run)\n", "tuning.go("),
    "object": ("class Fit:\n    def __call__(self, lr):\n        fit(lr)\n\n\ntuning.go(Fit())\n", "tuning.go("),
    "inherited": ("class Tuner(tuning.Tuner):\n    pass\n\n\nTuner().start(fit)\n", "Tuner().start(fit)"),
    "other processes": ("import submitit\n\nsubmitit.AutoExecutor('a').submit(fit, 0.1)\n", ".submit(fit"),
}


@pytest.mark.parametrize(("search", "at"), GIVEN.values(), ids=GIVEN)
def test_a_library_that_nobody_knows_may_search(tmp_path: Path, search: str, at: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"import tuning\n{START}{search}")
    (said,) = (each for each in convert(Project.load(path), Config()).diagnostics if each.code == "AD704")
    assert "it is not known how often" in said.message and at in path.read_text().splitlines()[said.line - 1]


ONCE = {
    "fire": "import fire\n\nfire.Fire(fit)\n",
    "absl": "from absl import app\n\napp.run(lambda argv: fit(0.1))\n",
    "typer": "import typer\n\ntyper.run(fit)\n",
    "a command": "import typer\n\napp = typer.Typer()\napp.command()(fit)\napp()\n",
    "tyro": "import tyro\n\ntyro.cli(fit)\n",
    "jsonargparse": "from jsonargparse import CLI\n\nCLI(fit)\n",
    "click": "import click\n\n\n@click.command()\ndef main():\n    fit(0.1)\n\n\nmain()\n",
    "hydra": "import hydra\n\n\n@hydra.main(config_path=None)\ndef main(config):\n    fit(0.1)\n\n\nmain()\n",
    "thread": "import threading\n\nthreading.Thread(target=fit, args=(0.1,)).start()\n",
    "pool": "from concurrent.futures import ThreadPoolExecutor\n\nThreadPoolExecutor().submit(fit, 0.1).result()\n",
    "exit": "import atexit\n\natexit.register(fit, 0.1)\n",
    "signal": "import signal\n\nfit(0.1)\nsignal.signal(signal.SIGUSR1, fit)\n",
    "spawn": "import torch.multiprocessing as mp\n\nmp.spawn(fit, nprocs=1)\n",
    "notebook": "from accelerate import notebook_launcher\n\nnotebook_launcher(fit, (0.1,))\n",
    "profile": "import cProfile\n\ncProfile.Profile().runcall(fit, 0.1)\n",
    "lines": "from line_profiler import LineProfiler\n\nLineProfiler()(fit)(0.1)\n",
    "options": (
        "import argparse\n\nparser = argparse.ArgumentParser()\nparser.set_defaults(run=fit)\n"
        "parser.parse_args().run(0.1)\n"
    ),
    "its own": "class Runner:\n    def run(self, function):\n        return function(0.1)\n\n\nRunner().run(fit)\n",
    "what it returns": "import tuning\n\ntuning.note(fit(0.1))\n",
    "a trainer": (
        "import tuning\n\n\nclass Trainer:\n    def train(self):\n        fit(0.1)\n\n\n"
        "trainer = Trainer()\ntrainer.train()\ntuning.note(trainer)\n"
    ),
}


@pytest.mark.parametrize("search", ONCE.values(), ids=ONCE)
def test_what_runs_a_function_once_is_no_search(tmp_path: Path, search: str) -> None:
    assert "AD704" not in converted(tmp_path, START + search)[1]


def test_a_script_that_trains_elsewhere_may_search(tmp_path: Path) -> None:
    """What a library is given is no search of models where nothing is trained by it."""
    search = "import tuning\n\ntuning.Space(9).minimize(lambda lr: lr)\nfit(0.1)\n"
    assert "AD902" not in converted(tmp_path, START + search)[1]


def test_pruned_trials_end(tmp_path: Path) -> None:
    """With the real optuna: thirty trials, most of them pruned, are the same on two ranks as in one process."""
    pytest.importorskip("optuna")
    told = "print([t.state.name for t in study.trials], study.best_trial.number, sorted(study.best_params))\n"
    sampler = "sampler=optuna.samplers.TPESampler(seed=3), storage='sqlite:///trials.db'"
    search = OBJECTIVE.replace("1e-3, 1.0", "1e-9, 1.0") + MADE.replace("()", f"({sampler})")
    script = f"import optuna\n{START}{search}study.optimize(objective, n_trials=30)\n{told}"
    (tmp_path / "ranks.py").write_text(converted(tmp_path, script)[0])
    printed = launched(tmp_path, "ranks.py", nproc=2)
    assert printed.count("PRUNED") > 10 and printed.count("COMPLETE") + printed.count("PRUNED") == 30
    with sqlite3.connect(tmp_path / "trials.db") as storage:
        assert storage.execute("select count(*) from trials").fetchone() == (30,)


RUN = {
    name: SEARCHES[name][0]
    for name in (
        "method",
        "asked and told",
        "several objectives",
        "stopped",
        "caught",
        "caught, by its place",
        "sampler and pruner",
    )
}
RUN["method"] = RUN["method"].replace("Search().run()", "search = Search()\nsearch.run()\nstudy = search.study")
RUN["failed"] = RUN["caught"].replace(
    "def objective(trial):", "def objective(trial):\n    if trial.number == 1:\n        raise ValueError"
)
RUN["failed, by its place"] = RUN["caught, by its place"].replace(
    "def objective(trial):", "def objective(trial):\n    if trial.number == 1:\n        raise ValueError"
)
RUN["trained again"] = RUN["caught"] + "print(fit(study.best_params['lr']), len(study.trials), study.best_value)\n"
RUN["one trial at a time"] = RUN["caught"].replace(
    "study.optimize(objective, n_trials=3, catch=(ValueError,))",
    "for i in range(3):\n    study.optimize(objective, n_trials=1)\n    print(i, study.best_value)",
)
RUN["hyperband"] = RUN["caught"].replace(MADE, "study = optuna.create_study(pruner=optuna.pruners.HyperbandPruner())\n")
RUN["in a study of another"] = (
    "def outer(trial):\n    width = trial.suggest_int('width', 4, 8)\n    inner = optuna.create_study()\n"
    "    inner.optimize(lambda trial: fit(trial.suggest_float('lr', 0.1, 1.0), width), n_trials=2)\n"
    f"    return inner.best_value\n\n\n{MADE}study.optimize(outer, n_trials=2)\nprint(study.best_value)\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("search", RUN.values(), ids=RUN)
def test_ranks_search_as_one_process_does(tmp_path: Path, zygote: Zygote | None, search: str) -> None:
    pytest.importorskip("optuna")
    assert differences(tmp_path, zygote, f"import optuna\n{START}{search}print(len(study.trials))\n") is None
