"""What is printed for each engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Autodist
from scripts import BY_OPTION, ITSELF, SCRIPT, printed, script, told, yaml

from autodist.cli import ENGINES

FACTS = Path(__file__).parent / "facts"
ODD = ["a b", "it's", "$HOME", "$(date)", 'say "hi"', "new\nline", "*", "é", "--x=1 2"]
SLURM = """\
#!/bin/bash
#SBATCH --job-name=train-ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#
# train_ddp.py on 2 nodes with 8 GPUs each.
# On a disk that all nodes share, at one path: the working folder, with the script and its modules
#   out/: written, read by all ranks
# Started again, the script goes on from its last checkpoint.
# Add --time, --partition and --account as your cluster wants them.

# Slurm sends SIGUSR1 here 120 s before the time limit, and the job goes back into the queue. By hand:
# scancel --batch --signal=USR1 JOB
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000))
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
srun --kill-on-bad-exit=1 torchrun \\
    --nnodes 2 --nproc-per-node 8 \\
    --rdzv-backend c10d --rdzv-endpoint "$head:$port" --rdzv-id "$SLURM_JOB_ID" \\
    --max-restarts 3 \\
    --numa-binding=node \\
    train_ddp.py --name 'a b' &
wait $!
"""


def test_slurm_text(autodist: Autodist, tmp_path: Path) -> None:
    script(tmp_path, ITSELF)
    assert printed(autodist, "slurm", "--name", "a b") == SLURM


@pytest.mark.parametrize("engine", ["slurm", "torchrun", "skypilot"])
def test_shells_give_arguments_as_they_are(autodist: Autodist, tmp_path: Path, engine: str) -> None:
    script(tmp_path)
    text = printed(autodist, engine, *ODD)
    text = yaml(text)["run"] if engine == "skypilot" else text
    words = told(text, tmp_path, SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2", SKYPILOT_TASK_ID="t")
    assert words[words.index("train_ddp.py") + 1 :] == ODD
    assert words[:4] == ["--nnodes", "2", "--nproc-per-node", "8"]


def test_kubeflow_and_compose_give_arguments_as_they_are(autodist: Autodist, tmp_path: Path) -> None:
    script(tmp_path)
    trainer = yaml(printed(autodist, "kubeflow", *ODD))["spec"]["trainer"]
    assert trainer["command"] == ["torchrun"]
    assert [each.replace("$$(", "$(") for each in trainer["args"]] == ["train_ddp.py", *ODD]
    node = yaml(printed(autodist, "compose", *ODD))["services"]["node1"]
    assert [each.replace("$$", "$") for each in node["command"]][-len(ODD) :] == ODD


def strict(schema: Any) -> Any:
    """A schema of Kubernetes as `kubectl --validate=strict` takes it: without fields that are not known."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    known = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return {**known, **{key: strict(value) for key, value in schema.items()}}


@pytest.mark.parametrize("resume", ["", ITSELF, BY_OPTION])
@pytest.mark.parametrize("args", [[], ["--resume", "out/last.pt"], ODD])
def test_yaml_fits_its_schema(autodist: Autodist, tmp_path: Path, resume: str, args: list[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    script(tmp_path, resume)
    trainjob = strict(json.loads((FACTS / "trainjob.json").read_text()))
    trainjob["properties"]["metadata"] = {"type": "object"}
    jsonschema.validate(yaml(printed(autodist, "kubeflow", *args)), trainjob)
    jsonschema.validate(yaml(printed(autodist, "skypilot", *args)), json.loads((FACTS / "skypilot.json").read_text()))


def test_schemas_find_mistakes(autodist: Autodist, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    script(tmp_path)
    trainjob = strict(json.loads((FACTS / "trainjob.json").read_text()))
    trainjob["properties"]["metadata"] = {"type": "object"}
    wrong = printed(autodist, "kubeflow").replace("numNodes", "nodes")
    with pytest.raises(jsonschema.ValidationError, match="nodes"):
        jsonschema.validate(yaml(wrong), trainjob)


def test_compose_gives_each_node_its_own_devices(autodist: Autodist, tmp_path: Path) -> None:
    script(tmp_path)
    services = yaml(printed(autodist, "compose", gpus="2"))["services"]
    devices = [each["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for each in services.values()]
    assert devices == [["0", "1"], ["2", "3"]]
    assert [each["hostname"] for each in services.values()] == ["node0", "node1"]


def test_kind_of_gpu(autodist: Autodist, tmp_path: Path) -> None:
    script(tmp_path)
    assert "#SBATCH --gpus-per-node=a100:4\n" in printed(autodist, "slurm", gpus="A100:4")
    assert "accelerators: A100:4\n" in printed(autodist, "skypilot", gpus="A100:4")


@pytest.mark.parametrize("gpus", ["0", "many", ":4", "H100:", "-1"])
def test_bad_number_of_gpus(autodist: Autodist, tmp_path: Path, gpus: str) -> None:
    script(tmp_path)
    done = autodist("manifest", "train_ddp.py", "--for", "slurm", "--gpus", gpus)
    assert done.exit_code == 2 and "a number of GPUs is wanted" in done.output


def test_modules_elsewhere_are_on_the_path(autodist: Autodist, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "common" / "nets.py").write_text("import torch\n\n\ndef net():\n    return torch.nn.Linear(4, 1)\n")
    path = script(tmp_path / "scripts", text="from common.nets import net\n" + SCRIPT)
    done = autodist("manifest", path.relative_to(tmp_path), "--for", "slurm")
    assert 'export PYTHONPATH=".${PYTHONPATH:+:$PYTHONPATH}"\n' in done.stdout


def test_scripts_that_are_modules_are_started_by_name(autodist: Autodist, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nets.py").write_text("import torch\n\n\ndef net():\n    return torch.nn.Linear(4, 1)\n")
    path = script(package, text="from .nets import net\n" + SCRIPT)
    done = autodist("manifest", path.relative_to(tmp_path), "--for", "slurm", "--", "--name", "x")
    words = told(done.stdout, tmp_path)
    assert words[-4:] == ["-m", "package.train_ddp", "--name", "x"] and "PYTHONPATH" not in done.stdout


@pytest.mark.parametrize("engine", ENGINES)
def test_scripts_for_one_device_are_refused(autodist: Autodist, script: Path, engine: str) -> None:
    done = autodist("manifest", script, "--for", engine)
    assert done.exit_code == 2 and not done.stdout
    assert "joins no process group" in done.stderr and "autodist convert" in done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("accelerate_refused/before/train.py", "training is owned by accelerate.Accelerator"),
        ("lightning_refused/before/train.py", "training is owned by lightning.Trainer"),
        ("horovod_clip/before/train_lm.py", "joins its ranks by horovod.torch.init"),
        ("ddp_spawn_folder/before/train.py", "starts its ranks itself"),
        ("ddp_launch_local_rank/before/train.py", "told their numbers by an option"),
    ],
)
def test_scripts_that_torchrun_does_not_start_are_refused(autodist: Autodist, name: str, said: str) -> None:
    done = autodist("manifest", ROOT / "fixtures" / name, "--for", "slurm")
    assert done.exit_code == 2 and not done.stdout and said in done.stderr, done.output


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ('os.environ["MASTER_ADDR"] = "localhost"', True),
        ("os.environ['MASTER_ADDR'] = '127.0.0.1'", True),
        ('os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29500")', True),
        ('dist.init_process_group("gloo", init_method="tcp://127.0.0.1:23456")', True),
        ('os.environ.setdefault("MASTER_ADDR", "localhost")', False),
        ('if "RANK" not in os.environ:\n    os.environ["MASTER_ADDR"] = "localhost"', False),
        ('dist.init_process_group("gloo", init_method="env://")', False),
        ('os.environ["MASTER_ADDR"] = os.environ["HEAD"]', False),
    ],
)
def test_addresses_of_one_node(autodist: Autodist, tmp_path: Path, address: str, refused: bool) -> None:
    script(
        tmp_path, text=SCRIPT.replace('dist.init_process_group("gloo")', f'{address}\ndist.init_process_group("gloo")')
    )
    done = autodist("manifest", "train_ddp.py", "--for", "slurm", "--nodes", "2")
    assert done.exit_code == 2 * refused, done.output
    assert not refused or "ranks of other nodes would look for rank 0" in done.stderr
    assert autodist("manifest", "train_ddp.py", "--for", "slurm", "--gpus", "2").exit_code == 0


@pytest.mark.parametrize(("name", "text"), [("no.py", None), ("bad.py", "def :"), ("bytes.py", "\0")])
def test_bad_input(autodist: Autodist, tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    done = autodist("manifest", name, "--for", "slurm")
    assert done.exit_code == 2 and len(done.stderr.strip().splitlines()) == 1
