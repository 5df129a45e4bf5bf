"""Each rank has a device of its own, which no CPU shows: what is made on one, or loaded to one, before the rank has
chosen it lies on GPU 0, with which the rank's own tensors do not go together."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import converted, launched

from autodist.config import Strategy

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
"""
BODY = """\
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
JOINS = "setup_distributed()\n"


@pytest.mark.parametrize(
    "made",
    [
        "mean = torch.tensor([0.1, 0.2], device=device)\n",
        "mean = torch.ones(2).to(device)\n",
        "mean = torch.FloatTensor([1, 2]).to(device=device)\n",
        "if torch.cuda.is_available():\n    mean = torch.ones(2).cuda()\n",
        "mean = torch.cuda.FloatTensor(2).fill_(0) if torch.cuda.is_available() else torch.zeros(2)\n",
        "mean = torch.ones(2).type(torch.cuda.FloatTensor)\n",
        "mean = torch.ones(2).type('torch.cuda.FloatTensor')\n",
        "generator = torch.Generator(device=device)\n",
        "torch.set_default_device(device)\n",
        "torch.set_default_tensor_type('torch.cuda.FloatTensor')\n",
        "stream = torch.cuda.Stream()\n",
        "def means():\n    return torch.ones(2).to(device)\n\n\nmean = means()\n",
    ],
)
def test_a_rank_has_chosen_its_device_before_anything_is_made_there(tmp_path: Path, made: str) -> None:
    after, _ = converted(tmp_path, HEAD + made + BODY)
    lines = after.splitlines()
    first = next(line for line in made.splitlines() if not line.startswith(("def", " ")) and line)
    assert lines.index(JOINS.strip()) < lines.index(first)


@pytest.mark.parametrize(
    "made",
    [
        "mean = torch.ones(2).to(torch.float64)\n",
        'mean = torch.ones(2, device="cpu")\n',
        "mean = torch.ones(2).to('cpu')\n",
        "torch.set_default_tensor_type('torch.FloatTensor')\n",
        "mean = torch.ones(2).type(torch.FloatTensor)\n",
    ],
)
def test_what_stays_on_the_cpu_needs_no_group(tmp_path: Path, made: str) -> None:
    after, _ = converted(tmp_path, HEAD + made + BODY)
    assert f"{JOINS}torch.manual_seed(" in after


def test_a_module_that_makes_tensors_on_a_device_while_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        "weights = torch.ones(3).to(device)\n"
    )
    head = HEAD[: HEAD.index("device")] + "from settings import device, weights\n\n"
    after, said = converted(tmp_path, head + BODY.replace("(model(x), y)", "(model(x), y, weight=weights)"))
    assert JOINS not in after and "AD101" in said  # that module joins the group


LOADED = HEAD + """\
{loads}
""" + BODY
STAYS = 'map_location={"cuda:0": "cuda"}'


@pytest.mark.parametrize(
    ("loads", "after"),
    [
        ('old = torch.jit.load("c.pt").eval()', 'torch.jit.load("c.pt").eval()'),
        (
            'device = torch.device(device)\nold = torch.jit.load("c.pt")\nold.eval()',
            'torch.jit.load("c.pt", map_location=device)',
        ),
        (
            'device = torch.device(device)\nold = torch.jit.load("c.pt").eval().to(device)',
            'torch.jit.load("c.pt", map_location=device).eval().to(device)',
        ),
        ('old = torch.jit.load("c.pt", "cpu")', 'torch.jit.load("c.pt", "cpu")'),
        ('x, y = torch.load("data.pt")', f'x, y = torch.load("data.pt", {STAYS})'),
        ('torch.set_rng_state(torch.load("rng.pt"))', f'torch.load("rng.pt", {STAYS})'),
        ('ck = torch.load("c.pt")\ntorch.set_rng_state(ck["rng"])', f'torch.load("c.pt", {STAYS})'),
        ('ck = torch.load("c.pt")\ndata = TensorDataset(ck["x"])', f'torch.load("c.pt", {STAYS})'),
        ('ck = torch.load("c.pt")\nstart = ck["epoch"] + 1', 'torch.load("c.pt", map_location="cpu")'),
        (
            'device = torch.device(device)\nck = torch.load("c.pt")\nprint(len(ck), ck.get("best"))',
            'torch.load("c.pt", map_location=device)',
        ),
        ('old = torch.load("c.pt")\nold.eval().to("cuda")', f'torch.load("c.pt", {STAYS})'),
        ('old = torch.load("c.pt")\nold.eval()\nold.cuda()', 'torch.load("c.pt", map_location="cpu")'),
        ('ck = torch.load("c.pt")\nold = ck["net"]\nold.eval()', f'torch.load("c.pt", {STAYS})'),
        ('old = torch.load("c.pt")["net"].eval()', f'torch.load("c.pt", {STAYS})'),
        ('ck = torch.load("c.pt")\nold = ck["net"]\nprint(sum(map(old, data)))', f'torch.load("c.pt", {STAYS})'),
        ('class Kept:\n    pass\n\n\nck = torch.load("c.pt")\nKept.net = ck["net"]', f'torch.load("c.pt", {STAYS})'),
        ('ck = torch.load("c.pt")\nold, start = ck["net"], ck["epoch"]', f'torch.load("c.pt", {STAYS})'),
        ('old = torch.load("c.pt")["optimizer"]\nold.step()', f'torch.load("c.pt", {STAYS})'),
        ('old = torch.load("c.pt")\nold.to(torch.float16)\nold.eval()', f'torch.load("c.pt", {STAYS})'),
        ('old = nn.DataParallel(torch.load("c.pt"))', f'torch.load("c.pt", {STAYS})'),
        (
            'ck = torch.load("c.pt")\nstart = ck["epoch"]\nbest = ck.get("best")',
            'torch.load("c.pt", map_location="cpu")',
        ),
        (
            'state = torch.load("c.pt")["net"]\nnn.Linear(4, 3).load_state_dict(state)',
            'torch.load("c.pt", map_location="cpu")',
        ),
        ('ck = torch.load("c.pt")\nold = ck["net"]\nold.cuda()\nold.eval()', 'torch.load("c.pt", map_location="cpu")'),
        (
            'old = torch.load("c.pt", map_location={"cuda:1": "cuda:0"})',
            'torch.load("c.pt", map_location={"cuda:1": "cuda"})',
        ),
    ],
)
def test_what_is_loaded_stays_on_the_cpu_where_it_was_there(tmp_path: Path, loads: str, after: str) -> None:
    """Loaders can neither pin nor send what lies on a GPU, and states of generators are read on the CPU alone."""
    assert after in converted(tmp_path, LOADED.format(loads=loads))[0]


def test_an_order_is_drawn_on_the_cpu_where_tensors_are_made_on_a_gpu(tmp_path: Path) -> None:
    body = BODY.replace("shuffle=True", "shuffle=True, generator=torch.Generator(device=device)")
    after, _ = converted(tmp_path, HEAD + "torch.set_default_device(device)\n" + body)
    assert 'with torch.device("cpu"):\n            return super().__iter__()\n' in after
    assert "sampler=SamplerOnCPU(" in after and after.count("SamplerOnCPU") == 2


NOISY = BODY.replace("optimizer.zero_grad()", "x = x + torch.randn({size}, generator={generator}, device=x.device)")


@pytest.mark.parametrize(
    ("size", "generator", "shared"),
    [
        ("x.shape", "generator", True),
        ("len(x), 4", "generator", True),
        ("4", "generator", False),
        ("x.shape", "None", False),
    ],
)
def test_noise_from_a_generator_that_all_ranks_seed_alike(
    tmp_path: Path, size: str, generator: str, shared: bool
) -> None:
    made = "generator = torch.Generator(device=device).manual_seed(1)\n"
    after, said = converted(tmp_path, HEAD + made + NOISY.format(size=size, generator=generator))
    assert ("device=x.device)[dist.get_rank() :: dist.get_world_size()]" in after) == shared
    assert "what is drawn repeats from rank to rank" not in said
    assert ("torch.initial_seed() + 1 + dist.get_rank()" in after) == (generator == "None")


RECORDED = """\
if torch.cuda.is_available():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
"""


def test_a_step_that_cuda_records(tmp_path: Path) -> None:
    """It needs more steps ahead of it in a wrapper than without one."""
    _, said = converted(tmp_path, HEAD + BODY + RECORDED)
    assert "AD402 records what a model in DistributedDataParallel does" in said


@pytest.mark.parametrize(
    ("size", "check"),
    [
        ("bs * len(gpus)", "(bs * len(gpus)) % dist"),
        ("int(bs)", "int(bs) % dist"),
        ("bs", "bs % dist"),
    ],
)
def test_a_batch_size_that_is_computed_where_it_is_told(tmp_path: Path, size: str, check: str) -> None:
    """Batches of several devices, for instance: what does not divide by the ranks stops the script."""
    body = BODY.replace("batch_size=8", f"batch_size={size}")
    after, _ = converted(tmp_path, HEAD + "bs, gpus = 8, [0]\n" + body)
    assert f"assert {check}.get_world_size() == 0, " in after and f"batch_size={size} // dist" in after


@pytest.mark.parametrize(
    ("named", "own"),
    [
        ('device = torch.device("cuda", 0)', 'device = torch.device("cuda")'),
        ('device = torch.device("cuda", index=args.gpu)', 'device = torch.device("cuda")'),
        ("device = torch.device(args.gpu)", 'device = torch.device("cuda")'),
        (
            'device = 0 if torch.cuda.is_available() else "cpu"',
            'device = "cuda" if torch.cuda.is_available() else "cpu"',
        ),
        ('device = "cuda:{:d}".format(args.gpu)', 'device = "cuda"'),
        ("mean = torch.ones(2).to(args.gpu)", 'mean = torch.ones(2).to("cuda")'),
        ("mean = torch.ones(2).cuda(int(args.name))", "mean = torch.ones(2).cuda()"),
        ("number = 0\nmean = torch.ones(2).cuda(device=number)", "mean = torch.ones(2).cuda()"),
        ("mean = torch.ones(2, device=0)", 'mean = torch.ones(2, device="cuda")'),
        ("with torch.cuda.device(args.gpu):\n    mean = torch.ones(2)", "\nmean = torch.ones(2)\n"),
        ('with torch.cuda.device("cuda:1"):\n    mean = torch.ones(2)', "\nmean = torch.ones(2)\n"),
        (
            "with torch.cuda.device(0), torch.no_grad():\n    pass",
            "with torch.cuda.device(-1), torch.no_grad():\n    pass",
        ),
        ("context = torch.cuda.device(args.gpu)", "context = torch.cuda.device(-1)"),
        ("print(torch.cuda.memory_allocated(0))", "print(torch.cuda.memory_allocated())"),
        ('print(torch.cuda.max_memory_allocated(device="cuda:0"))', "print(torch.cuda.max_memory_allocated())"),
        ("if args.name:\n    torch.cuda.synchronize(args.gpu)", "    torch.cuda.synchronize()"),
        ("if args.name:\n    print(torch.cuda.get_device_name(0))", "    print(torch.cuda.get_device_name())"),
        (
            'place = torch.device(f"cuda:{args.gpu}" if args.name else "cpu")',
            'torch.device("cuda" if args.name else "cpu")',
        ),
        ("mean = torch.ones(2).to(device, torch.float64)", "mean = torch.ones(2).to(device, torch.float64)"),
        ("mean = torch.ones(2).cuda(torch.device(device))", "mean = torch.ones(2).cuda(torch.device(device))"),
    ],
)
def test_a_device_that_is_named_by_number(tmp_path: Path, named: str, own: str) -> None:
    """NCCL takes no two ranks on one device."""
    options = (
        "import argparse\n\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--gpu", type=int, default=0)\nparser.add_argument("--name", default="0")\n'
        "args = parser.parse_args()\n"
    )
    after, _ = converted(tmp_path, options + HEAD + named + "\n" + BODY)
    assert own in after and "cuda:" not in after.replace("cuda:nccl", "")


@pytest.mark.parametrize(
    ("hides", "stays"),
    [
        ('os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")', False),
        ('os.environ.update(CUDA_VISIBLE_DEVICES="0")', False),
        ('os.environ.update({"CUDA_VISIBLE_DEVICES": "0,1"})', False),
        ('os.putenv("CUDA_VISIBLE_DEVICES", "0")', False),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "0"', False),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ""', True),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "-1"', True),
    ],
)
def test_devices_that_are_hidden_from_other_ranks(tmp_path: Path, hides: str, stays: bool) -> None:
    after, _ = converted(tmp_path, "import os\n\n" + HEAD + hides + "\n" + BODY)
    assert (hides in after) == stays


SHARDED = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{named}
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1){move}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    optimizer.zero_grad()
    (model(x{move}) ** 2).mean().backward()
    optimizer.step()
"""
OPTIONS = """\
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
"""
ON_CPU = 'mesh = init_device_mesh("cpu", (dist.get_world_size(),))'
WHERE = "mesh = init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))"
THERE = "torch.cuda.is_available()"


def sharded(named: str, move: str) -> str:
    """A script that names its device like that, or does not."""
    return SHARDED.format(named=OPTIONS + named if "args." in named + move else named, move=move)


@pytest.mark.parametrize(
    ("named", "move", "mesh"),
    [
        ("", "", ON_CPU),
        ("", '.to("cpu")', ON_CPU),
        ("device = torch.device(args.device)", ".to(device)", WHERE),
        ("", ".to(args.device)", WHERE),
        ('device = torch.device("cpu")', ".to(device)", WHERE),
        (f"print({THERE})  # no GPU is needed", "", WHERE),
        (f'device = "cuda" if {THERE} and not args.no_cuda else "cpu"', ".to(device)", WHERE),
        (f'cuda = {THERE} and not args.no_cuda\ndevice = "cuda" if cuda else "cpu"', ".to(device)", WHERE),
        (f'torch.set_default_device("cuda" if {THERE} else "cpu")', "", WHERE),
        (f'device = torch.device("cuda" if {THERE} else "cpu")', ".to(device)", ""),
        (f'device = "cuda:0" if {THERE} else "cpu"', ".to(device)", ""),
        (f'cuda = {THERE}\ndevice = torch.device("cuda" if cuda else "cpu")', ".to(device)", ""),
        (f'device = 0 if {THERE} else "cpu"', ".to(device)", ""),
        (f'device = "cpu" if not {THERE} else "cuda"', ".to(device)", ""),
        ("", ".cuda()", ""),
    ],
)
def test_shards_are_where_the_script_trains(tmp_path: Path, named: str, move: str, mesh: str) -> None:
    """`fully_shard` takes a GPU wherever there is one, while the data stay where the script has them."""
    after, _ = converted(tmp_path, sharded(named, move), Strategy.FSDP)
    found = next((line for line in after.splitlines() if line.startswith("mesh = ")), "")
    assert found.partition("  #")[0] == mesh
    assert ("fully_shard(model, reshard_after_forward=True, mesh=mesh)" in after) == bool(mesh)


@pytest.mark.skipif(find_spec("torch") is None, reason="no torch")
@pytest.mark.parametrize(
    ("named", "move"), [("", ""), ("device = torch.device(args.device)", ".to(device)"), ("# cuda", "")]
)
def test_a_script_on_the_cpu_is_sharded_there_on_a_machine_with_a_gpu(tmp_path: Path, named: str, move: str) -> None:
    """What `fully_shard` asks of torch says that there is one; nothing else is made up."""
    after, _ = converted(tmp_path, sharded(named, move), Strategy.FSDP)
    gpu = 'import torch\n\ntorch._C._get_accelerator = lambda *_: torch.device("cuda")\n'
    (tmp_path / "train_fsdp.py").write_text(f"{gpu}{after}print(model.weight.device.type)\n")
    assert launched(tmp_path, "train_fsdp.py", 2) == "cpu\n"


@pytest.mark.parametrize(
    "context",
    [
        "with torch.cuda.device(args.gpu):\n    {step}",
        "with torch.cuda.device(args.gpu), torch.enable_grad():\n    {step}",
        "within = torch.cuda.device(args.gpu)\nwith within:\n    {step}",
        "print(torch.cuda.memory_allocated(0))\n{step}",
        "if torch.cuda.is_available():\n    torch.cuda.set_device(args.gpu)\n{step}",
        'place = torch.device(f"cuda:{{args.gpu}}" if torch.cuda.is_available() else "cpu")\n{step}',
        'os.environ["CUDA_VISIBLE_DEVICES"] = "0"\n{step}',
    ],
)
def test_what_runs_without_a_gpu_still_does(tmp_path: Path, context: str) -> None:
    """The original and its conversion, for real."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    head = "import argparse\nimport os\nparser = argparse.ArgumentParser()\n"
    head += 'parser.add_argument("--gpu", type=int, default=-1)\n'
    start = "def main():\n" + "".join(f"    {line}\n" for line in BODY.splitlines()) + '    print("done")\n\n\n'
    text = head + "args = parser.parse_args()\n" + HEAD + start + context.format(step="main()") + "\n"
    after, _ = converted(tmp_path, text)
    (tmp_path / "train_ddp.py").write_text(after)
    fresh = "CUDA_VISIBLE_DEVICES" in context  # counts before torch is imported
    assert launched(tmp_path, "train_ddp.py", fresh=fresh) == launched(tmp_path, "train.py", fresh=fresh)
