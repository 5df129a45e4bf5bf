"""What `--on-preempt` refuses, with what is missing: in one line, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from resuming import PLAIN

from autodist import registry
from autodist.cli import cli

LOAD = PLAIN[PLAIN.index('    if os.path.exists("last.pt")') : PLAIN.index("    for epoch in")]
SAVE = PLAIN[PLAIN.index("        checkpoint = {") : PLAIN.index("\n\nif __name__")]
LOADER = "DataLoader(train_set, batch_size=args.batch_size, shuffle=True)"
WRITE = 'torch.save(checkpoint, "last.pt")'
STREAM = """\
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for i in range(96):
            yield torch.randn(6), i % 3

    def __len__(self):
        return 96


def main():"""
STEP = """\
            steps += 1
            if steps % 2 == 0:
                optimizer.step()"""
SIBLINGS = {
    "nothing saved": ({SAVE: ""}, "writes no checkpoint with the optimizer's state"),
    "the model alone": (
        {SAVE: '        torch.save(model.state_dict(), "m.pt")\n'},
        "writes no checkpoint with the opt",
    ),
    "saved at the end": (
        {SAVE: SAVE.replace("        ", "    ", 1).replace("\n        ", "\n    ")},
        "writes no checkpoint",
    ),
    "never loaded": ({LOAD: ""}, "the checkpoint is never loaded again"),
    "from the first epoch": ({"range(start_epoch, args.epochs)": "range(args.epochs)"}, "begins with the same epoch"),
    "epoch not loaded": ({'start_epoch, best = checkpoint["epoch"] + 1, ': "best = "}, "begins with the same epoch"),
    "the best one alone": ({WRITE: f"if acc >= best:\n            {WRITE}"}, "only written where this holds"),
    "others left out": (
        {"        checkpoint = {": "        if acc < best:\n            continue\n        checkpoint = {"},
        "only written",
    ),
    "no dict": (
        {SAVE: '        torch.save((epoch, model.state_dict(), optimizer.state_dict()), "last.pt")\n'}
        | {'torch.load("last.pt")': 'dict(zip(("epoch", "model", "optimizer"), torch.load("last.pt")))'},
        "is no dict",
    ),
    "run twice": ({'__main__":\n    main()': '__main__":\n    main()\n    main()'}, "run several times"),
    "an open file": ({WRITE: f'with open("last.pt", "wb") as f:\n            {WRITE[:-10]}f)'}, "give it the path"),
    "numbered beside": (
        {"for x, y in train_loader:": "for i, (x, y) in zip(range(99), train_loader):"},
        "`zip` stands between",
    ),
    "numbered before": (
        {"        for x, y in train_loader:": "        it = enumerate(train_loader)\n        for i, (x, y) in it:"},
        "`enumerate` stands",
    ),
    "a handler of its own": (
        {"def main():": "import signal\n\n\nsignal.signal(signal.SIGTERM, print)\n\n\ndef main():"},
        "listens to this signal itself",
    ),
    "put together among other things": (
        {WRITE: f'if acc > 2:\n            checkpoint["note"] = 1\n            print(acc)\n        {WRITE}'},
        "put together among other things",
    ),
    "a sampler of its own": (
        {LOADER: LOADER.replace("shuffle=True", "sampler=torch.utils.data.WeightedRandomSampler(torch.ones(96), 96)")},
        "drawn by a sampler of the script's own",
    ),
    "a stream": (
        {"def main():": STREAM, LOADER: LOADER.replace(", shuffle=True", ""), "torch.randn(96, 6), torch": "torch"}
        | {"TensorDataset(torch.randint(0, 3, (96,)))": "Stream()"},
        "an IterableDataset has no order",
    ),
    "known only at the end": (
        {
            '"best": best,': '"best": best,\n            "acc": acc,',
            "start_epoch, best = ch": 'print(checkpoint["acc"])\n        start_epoch, best = ch',
        },
        "which an epoch knows only at its end",
    ),
    "counted inside": (
        {"            optimizer.step()": STEP} | {"start_epoch, best = 0, 0.0": "start_epoch, best, steps = 0, 0.0, 0"},
        "the loop changes what this condition",
    ),
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_says_what_is_missing(name: str, tmp_path: Path) -> None:
    changes, reason = SIBLINGS[name]
    text = PLAIN
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / "train.py"
    path.write_text(text)
    compile(text, "train.py", "exec")
    done = CliRunner().invoke(cli, ["convert", str(path), "--on-preempt"])
    assert done.exit_code == 2
    errors = [line for line in done.output.splitlines() if "error" in line]
    assert len(errors) == 1 and "--on-preempt" in errors[0] and reason in errors[0]
    assert not (tmp_path / "train_ddp.py").exists()


HAND_WRITTEN = registry.examples("AD311")[0].before


def test_a_script_that_is_distributed_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    for backend, code in (("gloo", 0), ("nccl", 2)):
        path.write_text(HAND_WRITTEN.replace('"gloo"', f'"{backend}"'))
        done = CliRunner().invoke(cli, ["convert", str(path), "--on-preempt", "--force"])
        assert done.exit_code == code, done.output
    assert "which NCCL does not take" in done.output
    assert "if preemption.agreed():" in (tmp_path / "train_ddp.py").read_text()


def test_options_that_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    options = ["--on-preempt", "--strategy", "fsdp", "--sharded-checkpoints"]
    done = CliRunner().invoke(cli, ["convert", str(tmp_path / "train.py"), *options])
    assert done.exit_code == 2 and "leave out --sharded-checkpoints" in done.output
