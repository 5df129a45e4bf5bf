"""What a manifest reads in a script: batch sizes, checkpoints, folders."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Autodist, converted
from resuming import PLAIN, preemptible
from scripts import BY_OPTION, ITSELF, LOADS, SCRIPT, loading, printed, script, told

BATCH = "assert args.batch_size % dist.get_world_size() == 0, "
GIVEN = "batch_size=args.batch_size // dist.get_world_size()"


def refused(autodist: Autodist, *args: str) -> str:
    done = autodist("manifest", "train_ddp.py", "--for", "slurm", "--nodes", "3", "--gpus", "8", "--", *args)
    assert done.exit_code == 2 and not done.stdout and len(done.stderr.splitlines()) == 1, done.output
    return done.stderr


@pytest.mark.parametrize("args", [[], ["--batch-size", "100"], ["-b", "100"], ["-b100"], ["--batch=100", "--new", "1"]])
def test_batch_must_divide(autodist: Autodist, tmp_path: Path, args: list[str]) -> None:
    script(tmp_path)
    said = refused(autodist, *args)
    size = 100 if args else 64
    assert f"args.batch_size = {size} does not divide by 3 x 8 = 24 ranks" in said
    assert f"give --batch-size {size // 24 * 24} or {size // 24 * 24 + 24}" in said


@pytest.mark.parametrize("args", [["--batch-size", "96"], ["-b=48"], ["-b", "24"]])
def test_batch_that_divides(autodist: Autodist, tmp_path: Path, args: list[str]) -> None:
    script(tmp_path)
    assert autodist("manifest", "train_ddp.py", "--for", "slurm", "--nodes=3", "--gpus=8", "--", *args).exit_code == 0


@pytest.mark.parametrize(
    ("before", "size"),
    [
        ("batch = 100", "batch"),
        ("WORLD = dist.get_world_size()\nbatch = 10 * 10", "batch"),
        ("config = {'batch': 100}", "config['batch']"),
        ("class Config:\n    batch: int = 100\nconfig = Config()", "config.batch"),
        ("class Sizes:\n    def __init__(self, n=100):\n        self.n = n\nsizes = Sizes()", "sizes.n"),
        ("", "100"),
        ("per_rank = 25", "per_rank * 4"),
    ],
)
@pytest.mark.parametrize("asserted", [True, False])
def test_batch_sizes_as_written(autodist: Autodist, tmp_path: Path, before: str, size: str, asserted: bool) -> None:
    check = f"{before}\nassert {size} % dist.get_world_size() == 0, " if asserted else f"{before}\nassert True, "
    script(tmp_path, text=SCRIPT.replace(BATCH, check).replace(GIVEN, GIVEN.replace("args.batch_size", f"({size})")))
    assert "100 does not divide by 3 x 8 = 24 ranks: make it 96 or 120" in refused(autodist)


@pytest.mark.parametrize("size", ["int(open('size').read())", "int(os.environ['BATCH'])", "settings['batch']"])
def test_batch_sizes_that_cannot_be_read_are_named(autodist: Autodist, tmp_path: Path, size: str) -> None:
    before = (
        f"import json\nsettings = json.load(open('s'))\nbatch = {size}\nassert batch % dist.get_world_size() == 0, "
    )
    script(tmp_path, text=SCRIPT.replace(BATCH, before).replace(GIVEN, GIVEN.replace("args.batch_size", "batch")))
    assert "must divide by 16: its value is not in the script's text" in printed(autodist, "slurm")


def test_other_remainders_are_no_batch_sizes(autodist: Autodist, tmp_path: Path) -> None:
    script(tmp_path, "if 7 % dist.get_world_size() == dist.get_rank():\n    print(13 // dist.get_world_size())\n")
    printed(autodist, "slurm")


def resuming(text: str) -> bool:
    """Whether a batch script is queued again; then nothing that asks for it is missing."""
    lines = ["#SBATCH --requeue\n", "#SBATCH --signal=B:USR1@120\n", "trap ", "&\nwait $!\n"]
    found = {each in text for each in lines}
    assert len(found) == 1 and found != {"#SBATCH --no-requeue\n" in text}
    return found == {True}


def test_ranks_that_listen_get_the_signal(autodist: Autodist, tmp_path: Path) -> None:
    (tmp_path / "train_ddp.py").write_text(preemptible(PLAIN, tmp_path / "made"))
    text = printed(autodist, "slurm", gpus="2")
    assert (
        resuming(text)
        and "trap 'kill -USR1 $!; wait $!; scontrol requeue" in text
        and "HUP,SIGQUIT,SIGUSR1 \\\n" in text
    )


@pytest.mark.parametrize(
    "resume",
    [
        ITSELF,
        loading('os.path.isfile("out/last.pt") and first == 0'),
        "from pathlib import Path\nlast = Path('out') / 'last.pt'\n" + loading("last.exists()", "last"),
        "last = os.path.join('out', 'last.pt')\n" + loading("os.path.exists(last)", "last"),
        "def load(path):\n    global first\n"
        + LOADS.replace("PATH", "path")
        + "\nif os.path.exists('out/last.pt'):\n    load('out/last.pt')\n",
        "try:\n" + LOADS.replace("PATH", "'out/last.pt'") + "except FileNotFoundError:\n    pass\n",
    ],
)
def test_scripts_that_look_for_their_checkpoint(autodist: Autodist, tmp_path: Path, resume: str) -> None:
    script(tmp_path, resume)
    text = printed(autodist, "slurm")
    assert resuming(text) and "--max-restarts 3" in text and "resume=()" not in text
    assert "goes on from its last checkpoint" in text


@pytest.mark.parametrize(
    ("resume", "said"),
    [
        ("", "loads no checkpoint of a training"),
        ("model.module.load_state_dict(torch.load('pretrained.pt'))\n", "loads no checkpoint of a training"),
        (BY_OPTION, "--resume is not given"),
        (loading("args.resume is not None and args.resume != ''", "args.resume"), "--resume is not given"),
        (loading("True", "'pretrained/all.pt'"), "from pretrained/all.pt, which it does not write itself"),
    ],
)
def test_scripts_that_begin_anew(autodist: Autodist, tmp_path: Path, resume: str, said: str) -> None:
    script(tmp_path, resume)
    text = printed(autodist, "slurm")
    assert not resuming(text) and "--max-restarts" not in text and said in text


def test_option_that_names_a_file_of_others(autodist: Autodist, tmp_path: Path) -> None:
    script(tmp_path, BY_OPTION)
    text = printed(autodist, "slurm", "--resume", "pretrained/all.pt")
    assert not resuming(text) and "from pretrained/all.pt, which it does not write itself" in text


@pytest.mark.parametrize("given", [["--resume", "out/last.pt"], ["--resume=out/last.pt"]])
@pytest.mark.parametrize("engine", ["slurm", "torchrun"])
def test_option_is_given_once_there_is_a_checkpoint(
    autodist: Autodist, tmp_path: Path, given: list[str], engine: str
) -> None:
    script(tmp_path, BY_OPTION)
    text = printed(autodist, engine, *given, "--name", "x")
    assert "--max-restarts" not in text  # within one torchrun the option would not appear
    after = told(text, tmp_path)
    assert after[after.index("train_ddp.py") :] == ["train_ddp.py", "--name", "x"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "last.pt").touch()
    after = told(text, tmp_path)
    assert after[after.index("train_ddp.py") :] == ["train_ddp.py", "--name", "x", *given]


AGAIN = [
    ('parser.add_argument("-c", "--go-on", action="store_true")', "args.go_on", "'out/last.pt'", ["--go-on"]),
    ('parser.add_argument("-c", "--go-on", action="store_true")', "args.go_on", "'out/last.pt'", ["-c"]),
    ('parser.add_argument("--load", dest="start")', "args.start", "args.start", ["--load", "out/last.pt"]),
    ('parser.add_argument("--load", "-l")', "args.load is not None", "args.load", ["-lout/last.pt"]),
    ('parser.add_argument("--from-epoch", type=int)', "args.from_epoch", "'out/last.pt'", ["--from-epoch", "3"]),
    ('parser.add_argument("--load", nargs="?", const="out/last.pt")', "args.load", "args.load", ["--load"]),
    ('parser.add_argument("--load")', "args.load", "os.path.join('out', args.load + '.pt')", ["--lo", "last"]),
]


@pytest.mark.parametrize(("option", "condition", "path", "given"), AGAIN)
@pytest.mark.parametrize("before", [[], ["--name", "x y"]])
@pytest.mark.parametrize("after", [[], ["-b", "32"]])
def test_words_of_options(
    autodist: Autodist,
    tmp_path: Path,
    option: str,
    condition: str,
    path: str,
    given: list[str],
    before: list[str],
    after: list[str],
) -> None:
    text = SCRIPT.replace('parser.add_argument("--resume", default="")', option)
    script(tmp_path, loading(condition, path), text)
    printed_text = printed(autodist, "slurm", *before, *given, *after)
    first = told(printed_text, tmp_path)
    assert first[first.index("train_ddp.py") + 1 :] == [*before, *after]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "last.pt").touch()
    again = told(printed_text, tmp_path)
    assert again[again.index("train_ddp.py") + 1 :] == [*before, *after, *given]
    assert f"{given[0].partition('=')[0]}" in printed_text and "--max-restarts" not in printed_text


@pytest.mark.parametrize(
    "resume",
    [
        "import glob\nfound = sorted(glob.glob('out/*.pt'))\n" + loading("found", "found[-1]"),
        "def latest(folder):\n    names = os.listdir(folder) if os.path.isdir(folder) else []\n"
        "    return os.path.join(folder, max(names)) if names else None\n\npath = latest('out')\n"
        + loading("path is not None", "path"),
        "path = 'out/last.pt' if os.path.exists('out/last.pt') else None\n" + loading("path", "path"),
    ],
)
def test_checkpoints_that_are_searched(autodist: Autodist, tmp_path: Path, resume: str) -> None:
    script(tmp_path, resume)
    assert "--max-restarts 3" in printed(autodist, "slurm")


def test_option_with_a_look_for_its_file(autodist: Autodist, tmp_path: Path) -> None:
    script(tmp_path, loading("args.resume and os.path.isfile(args.resume)", "args.resume"))
    text = printed(autodist, "slurm", "--resume", "out/last.pt")
    assert "--max-restarts 3" in text and "train_ddp.py --resume out/last.pt &" in text
    assert "--resume is not given" in printed(autodist, "slurm")


def test_folders(autodist: Autodist, tmp_path: Path) -> None:
    before = (
        "import json\nfrom torchvision.datasets import MNIST\nMNIST('data/mnist', download=True)\n"
        "names = json.load(open('/shared/names.json'))\n"
        "weights = torch.load(os.path.join('pretrained', args.name, 'net.pt'))\n"
    )
    script(tmp_path, before + ITSELF)
    text = printed(autodist, "kubeflow", "--name", "large")
    shared, own = text.partition("# On every node, or on that disk:\n")[::2]
    assert "#   out/: written, read by all ranks\n" in shared and "pretrained" not in shared
    for line in ("data/: made or downloaded", "/shared/: read by all ranks", "pretrained/: read by all ranks"):
        assert f"#   {line}" in own
    assert "mountPath: /workspace/out\n" in own and "mountPath: /workspace/data" not in own


def test_conversions_are_read_back(autodist: Autodist, tmp_path: Path) -> None:
    """What `convert` writes is what `manifest` takes, also by the number of samples that it asserts."""
    plain = SCRIPT.replace(BATCH, "assert True, ").replace(" // dist.get_world_size()", "")
    plain = plain.replace(", sampler=DistributedSampler(data)", ", shuffle=True").replace(
        "DDP(nn.Linear(4, 1))", "nn.Linear(4, 1)"
    )
    for line in (
        'dist.init_process_group("gloo")\n',
        "    loader.sampler.set_epoch(epoch)\n",
        "dist.destroy_process_group()\n",
    ):
        plain = plain.replace(line, "")
    plain = plain.replace("model.module", "model").replace("    if dist.get_rank() == 0:\n", "    if True:\n")
    after, said = converted(tmp_path, plain.replace("# resume\n", ITSELF.replace("model.module", "model")))
    (tmp_path / "train_ddp.py").write_text(after)
    assert "args.batch_size = 64 does not divide" in refused(autodist), said
    text = printed(autodist, "slurm")
    assert resuming(text) and "out/: written, read by all ranks" in text


def test_scripts_are_valid_shell(autodist: Autodist, tmp_path: Path) -> None:
    for resume in ("", ITSELF, BY_OPTION):
        script(tmp_path, resume)
        for engine in ("slurm", "torchrun"):
            text = printed(autodist, engine, "--resume", "out/last.pt")
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)


CLICKED = """\
import click
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@click.command()
@click.option("--batch", "-b", default=64)
@click.option("--auto-resume/--no-auto-resume", default=True)
def main(batch, auto_resume):
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    if batch % world:
        raise SystemExit("the batch does not divide")
    data = TensorDataset(torch.randn(128, 4), torch.randn(128, 1))
    loader = DataLoader(data, batch // world, sampler=DistributedSampler(data))
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if auto_resume and os.path.isfile("last.pt"):
        optimizer.load_state_dict(torch.load("last.pt"))
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        torch.save(optimizer.state_dict(), "last.pt")


main()
"""


def test_options_of_click(autodist: Autodist, tmp_path: Path) -> None:
    script(tmp_path, text=CLICKED)
    assert "batch = 100 does not divide by 3 x 8 = 24 ranks: give --batch 96 or 120" in refused(autodist, "-b", "100")
    assert resuming(printed(autodist, "slurm"))
    assert "--auto-resume is not given" in printed(autodist, "slurm", "--no-auto-resume")


SNAPSHOT = """\
if os.path.exists("out/last.pt"):
    snapshot = torch.load("out/last.pt")
    model.module.load_state_dict(snapshot["MODEL_STATE"])
    first = snapshot["EPOCHS_RUN"]
"""


def test_snapshots_without_an_optimizer(autodist: Autodist, tmp_path: Path) -> None:
    script(tmp_path, SNAPSHOT)
    assert resuming(printed(autodist, "slurm"))
    script(
        tmp_path,
        SNAPSHOT.replace('    first = snapshot["EPOCHS_RUN"]\n', ""),
        SCRIPT.replace('"epoch": epoch', "'n': 1"),
    )
    assert not resuming(printed(autodist, "slurm"))


def test_weights_that_are_loaded_to_be_tested(autodist: Autodist, tmp_path: Path) -> None:
    after = 'model.module.load_state_dict(torch.load("out/last.pt")["model"])\ndist.destroy'
    script(tmp_path, text=SCRIPT.replace("dist.destroy", after))
    assert not resuming(printed(autodist, "slurm"))


def test_conditions_that_do_not_hold(autodist: Autodist, tmp_path: Path) -> None:
    script(tmp_path, 'start = "scratch"\n' + loading('start == "resume"', "'out/last.pt'"))
    assert "as `start == 'resume'` does not hold" in printed(autodist, "slurm")


@pytest.mark.parametrize(
    "call", ["ImageFolder(args.name)", "np.memmap(os.path.join(args.name, 'a.bin'))", "os.listdir(args.name)"]
)
def test_folders_of_data_sets(autodist: Autodist, tmp_path: Path, call: str) -> None:
    before = f"import numpy as np\nfrom torchvision.datasets import ImageFolder\n{call}\n"
    script(tmp_path, before)
    assert "#   /data/birds/: read by all ranks\n" in printed(autodist, "slurm", "--name", "/data/birds")


@pytest.mark.parametrize("option", [[], ["--sharded-checkpoints"], ["--async-checkpoints"]])
def test_sharded_conversions_are_read_back(autodist: Autodist, tmp_path: Path, option: list[str]) -> None:
    shutil.copytree(
        ROOT / "examples", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("train_ddp*", "data")
    )
    assert (
        autodist("convert", "train.py", "-o", "train_ddp.py", "--force", "--strategy", "fsdp", *option).exit_code == 0
    )
    text = printed(autodist, "slurm", "--resume", "checkpoints/last.pt", gpus="4")
    assert "if [ -e checkpoints/last.pt ]" in text and "#   checkpoints/: written, read by all ranks\n" in text


@pytest.mark.parametrize(
    "path",
    [
        '"runs/%s/%03d.pt" % (args.name, epoch)',
        '"runs/{}.pt".format(epoch)',
        'f"runs/{args.name}/{epoch:03d}.pt"',
        'os.path.join("runs", args.name, str(epoch) + ".pt")',
        'Path("runs") / args.name / f"{epoch}.pt"',
        '"runs/" + args.name + ".pt"',
    ],
)
def test_folders_of_composed_paths(autodist: Autodist, tmp_path: Path, path: str) -> None:
    script(tmp_path, text="from pathlib import Path\n" + SCRIPT.replace('state, "out/last.pt"', f"state, {path}"))
    assert "#   runs/: written\n" in printed(autodist, "slurm")


def test_one_function_that_writes_in_several_places(autodist: Autodist, tmp_path: Path) -> None:
    writes = 'keep(state, "out/last.pt")\n        keep(state, "/backup/last.pt")'
    text = SCRIPT.replace('torch.save(state, "out/last.pt")', writes)
    script(
        tmp_path,
        text=text.replace("parser = ", "\ndef keep(state, path):\n    torch.save(state, path)\n\n\nparser = ", 1),
    )
    shown = printed(autodist, "slurm")
    assert "#   out/: written\n" in shown and "#   /backup/: written\n" in shown
