"""What draws for samples, or in layers, differs by rank, wherever it hides: what cannot be read may draw."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import functools
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import datasets, transforms
IMPORTED


class Jitter:
    def __call__(self, image):
        return image * np.random.uniform(0.5, 1.5)


class Points(Dataset):
    def __init__(self, transform=None):
        self.x, self.transform = torch.arange(64.0).view(32, 2), transform

    def __len__(self):
        return 32

    def __getitem__(self, i):
        x = self.x[i]
        return READ, i % 4


def noisy(image, scale=1):
    return transforms.functional.to_tensor(image) + scale * random.random()


def closure(scale):
    def inner(image):
        return image * np.random.uniform(1, scale)

    return inner


def collate(batch):
    return torch.stack([x + float(np.random.randn()) for x, _ in batch]), torch.tensor([y for _, y in batch])


class Sets:
    @staticmethod
    def pipeline():
        return transforms.Compose([transforms.ToTensor(), Jitter()])

    def get(self, name):
        known = {"fake": lambda: datasets.FakeData(64, (3, 8, 8), 4, transform=self.pipeline())}
        return known[name]()


def main():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    train_set = DATA
    loader = DataLoader(train_set, batch_size=8, shuffle=True, num_workers=WORKERS)
    model = MODEL
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(STEP), y).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
"""
FAKE = "datasets.FakeData(64, (3, 8, 8), 4, transform={})"
COMPOSE = "transforms.Compose([transforms.ToTensor(), {}])"
TENSORS = "TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(0, 4, (64,)))"
LINEAR = "nn.Sequential(nn.Flatten(), nn.Linear(192, 4))"
TORCH = "torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())"
NUMPY = "np.random.seed(torch.initial_seed() % 2**32)"
PYTHON = "    random.seed(torch.initial_seed())"


def script(
    data: str = TENSORS, model: str = LINEAR, imports: str = "", read: str = "x", step: str = "x", workers: str = "0"
) -> str:
    """A script that trains a model on some data."""
    parts = {"DATA": data, "MODEL": model, "IMPORTED": imports, "READ": read, "STEP": step, "WORKERS": workers}
    text = SCRIPT
    for name, code in parts.items():
        text = text.replace(name, code)
    return text


def seeded(folder: Path, text: str) -> set[str]:
    """The libraries whose generators the conversion seeds by rank."""
    code = converted(folder, text)[0]
    libraries = {
        "torch": TORCH,
        "numpy": NUMPY,
        "random": PYTHON,
        "imgaug": "imgaug.seed(torch.initial_seed() % 2**32)",
    }
    return {library for library, line in libraries.items() if line in code}


@pytest.mark.parametrize(
    ("text", "libraries"),
    [
        (script(FAKE.format(COMPOSE.format("Jitter()"))), "torch numpy"),
        (script(FAKE.format("Jitter()")), "torch numpy"),
        (script(FAKE.format("noisy")), "torch random"),
        (script(FAKE.format("functools.partial(noisy, scale=2)")), "torch random"),
        (script(FAKE.format("lambda image: noisy(image, 2)")), "torch random"),
        (script(FAKE.format(COMPOSE.format("transforms.Lambda(lambda t: t + random.random())"))), "torch random"),
        (script(FAKE.format("closure(2)")), "torch numpy"),
        (script(FAKE.format("Sets.pipeline()")), "torch numpy"),
        (script('Sets().get("fake")'), "torch numpy"),
        (script(FAKE.format(COMPOSE.format("transforms.RandomChoice([Jitter()])"))), "torch numpy random"),
        (script(f"torch.utils.data.random_split({FAKE.format('Jitter()')}, [32, 32])[0]"), "torch numpy"),
        (script("Points([Jitter()])", read="functools.reduce(lambda a, t: t(a), self.transform, x)"), "torch numpy"),
        (script("Points(Jitter())", read="self.transform(x) if self.transform else x"), "torch numpy"),
        (script("Points()", read="x + torch.zeros(2).normal_()"), "torch"),
        (script("Points()", read="warp(x)", imports="from specwarp import warp"), "torch numpy random"),
        (
            script(
                "Points(A.Compose([A.HorizontalFlip()]))",
                read="self.transform(image=x)['image']",
                imports="import albumentations as A",
            ),
            "torch numpy random",
        ),
        (
            script(
                "Points(iaa.Fliplr(0.5))", read="self.transform(image=x)", imports="import imgaug.augmenters as iaa"
            ),
            "torch imgaug",
        ),
        (script(FAKE.format("v2.RandomCrop(8)"), imports="from torchvision.transforms import v2"), "torch"),
        (script(step="K.RandomErasing()(x)", imports="import kornia.augmentation as K"), "torch"),
        (script('make_dataset("train")', imports="from somewhere import make_dataset"), "torch numpy random"),
        (script(FAKE.format("Jitter()"), workers="2"), "torch"),
        (script(FAKE.format("Jitter()"), workers="int(input())"), "torch numpy"),
        (script(TENSORS).replace("num_workers=0", "collate_fn=collate"), "torch numpy"),
        (script(TENSORS).replace("num_workers=0", "num_workers=2, collate_fn=collate"), "torch"),
        (script(FAKE.format(COMPOSE.format("transforms.Normalize(0, 1)"))), ""),
        (script("Points()", read="np.asarray(Image.open(x).resize((8, 8)))", imports="from PIL import Image"), ""),
        (script(), ""),
    ],
)
def test_samples(tmp_path: Path, text: str, libraries: str) -> None:
    """Ranks repeated what one of them drew."""
    assert seeded(tmp_path, text) == {*libraries.split()}


@pytest.mark.parametrize(
    ("model", "apart"),
    [
        ("torchvision.models.squeezenet1_1(num_classes=4)", True),
        ("torchvision.models.segmentation.deeplabv3_resnet50(num_classes=4)", True),
        ("torchvision.models.densenet121(drop_rate=0.2)", True),
        ("torchvision.models.video.mvit_v2_s()", True),
        ('torchvision.models.get_model("squeezenet1_0")', True),
        ('torchvision.models.__dict__["squeezenet1_0"]()', True),
        ('torch.hub.load("pytorch/vision", "squeezenet1_0")', True),
        ('timm.create_model("vit_tiny_patch16_224", drop_path_rate=0.1)', True),
        ('timm.create_model("swin_tiny_patch4_window7_224")', True),
        ("nn.Sequential(nn.Flatten(), xlib.Mixer(192), nn.Linear(192, 4))", True),
        ('EfficientNet.from_pretrained("efficientnet-b0")', True),
        ("torchvision.models.resnet18()", False),
        ("torchvision.models.densenet121()", False),
        ("torchvision.models.vit_b_16()", False),
        (LINEAR, False),
    ],
)
def test_models_of_libraries(tmp_path: Path, model: str, apart: bool) -> None:
    """All ranks dropped the same units."""
    imports = "import timm\nimport torchvision\nimport xlib\nfrom efficientnet_pytorch import EfficientNet"
    assert seeded(tmp_path, script(model=model, imports=imports)) == ({"torch"} if apart else set())


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("np.random.default_rng(3)", "np.random.default_rng(3 + dist.get_rank())"),
        ("np.random.RandomState(seed=3)", "np.random.RandomState(seed=3 + dist.get_rank())"),
        ("random.Random(3)", "random.Random(3 + dist.get_rank())"),
        ("np.random.default_rng()", "np.random.default_rng()"),  # each process has its own
    ],
)
def test_a_generator_that_a_data_set_keeps(tmp_path: Path, made: str, expected: str) -> None:
    text = script("Points()", read="x * self.rng.uniform(0.5, 1.5)")
    text = text.replace("        self.x, self", f"        self.rng = {made}\n        self.x, self")
    assert f"self.rng = {expected}\n" in converted(tmp_path, text)[0]
    drawn = text.replace("        self.x, self", "        self.start = self.rng.random()\n        self.x, self")
    assert "dist.get_rank())\n        self.start" not in converted(tmp_path, drawn)[0]  # all ranks have one start


ORDER = "self.order = self.rng.permutation(32)"
NOISE = "x + float(self.rng.normal())"
TORCH_NOISE = "x + torch.rand(2, generator=self.rng)"
TORCH_KEPT = "torch.Generator().manual_seed(0)"
TORCH_AGAIN = "self.rng.manual_seed(self.rng.initial_seed() + 1 + dist.get_rank())"
KEPT = {
    "permutation": (f"self.rng = np.random.default_rng(3)\n{ORDER}", NOISE, "self.rng = np.random.default_rng(4 + "),
    "seed of an argument": (
        f"self.rng = np.random.default_rng(seed)\n{ORDER}",
        NOISE,
        "self.rng = np.random.default_rng(seed + 1 + ",
    ),
    "RandomState": (f"self.rng = np.random.RandomState(3)\n{ORDER}", NOISE, "= np.random.RandomState(4 + "),
    "Random": (
        "self.rng = random.Random(3)\nself.order = self.rng.sample(range(32), 32)",
        "x + self.rng.random()",
        "self.rng = random.Random(4 + ",
    ),
    "split by a method": ("self.rng = np.random.default_rng(3)\nself.split()", NOISE, "= np.random.default_rng(4 + "),
    "split by a function": (
        "self.rng = np.random.default_rng(3)\nself.order = shuffled(32, self.rng)",
        NOISE,
        "= np.random.default_rng(4 + ",
    ),
    "noise of a function": (
        f"self.rng = np.random.default_rng(3)\n{ORDER}",
        "x + draw(self.rng)",
        "self.rng = np.random.default_rng(4 + ",
    ),
    "torch": (f"self.rng = {TORCH_KEPT}", TORCH_NOISE, TORCH_AGAIN),
    "torch in two steps": ("self.rng = torch.Generator()\nself.rng.manual_seed(seed)", TORCH_NOISE, TORCH_AGAIN),
    "torch in place": (f"self.rng = {TORCH_KEPT}", "x + torch.zeros(2).normal_(generator=self.rng)", TORCH_AGAIN),
    "torch and a split": (
        f"self.rng = {TORCH_KEPT}\nself.order = torch.randperm(32, generator=self.rng)",
        TORCH_NOISE,
        TORCH_AGAIN,
    ),
}
HELPERS = """\
def shuffled(count, rng):
    return rng.permutation(count)


def draw(rng):
    return float(rng.normal())


class Points"""


def keeping(made: str, read: str, data: str = "Points()") -> str:
    """A script whose data set makes a generator, splits by it and draws noise from it."""
    text = script(data, "nn.Linear(2, 4)", read=read).replace("class Points", HELPERS)
    text = text.replace("transform=None):", "transform=None, seed=5):")
    text = text.replace("from torchvision import datasets, transforms\n", "").replace("transforms.Compose", "list")
    body = made.replace("\n", "\n        ")
    if ".split()" in made:
        split = "    def split(self):\n        self.order = self.rng.permutation(32)\n\n"
        text = text.replace("    def __len__", f"{split}    def __len__")
    return text.replace("view(32, 2), transform\n", f"view(32, 2), transform\n        {body}\n")


@pytest.mark.parametrize(("made", "read", "expected"), KEPT.values(), ids=KEPT)
def test_a_generator_that_draws_splits_too(tmp_path: Path, made: str, read: str, expected: str) -> None:
    """Ranks split alike, and draw noise of their own once the data set is made."""
    after = converted(tmp_path, keeping(made, read))[0]
    constructor = after.partition("def __init__(self, transform=None")[2].partition("    def ")[0]
    assert all(line.strip() in constructor for line in made.splitlines())
    assert expected in constructor.rstrip().splitlines()[-1] and constructor.count("dist.get_rank()") == 1


ALIKE = {
    "split later": ("self.rng = np.random.default_rng(3)", NOISE, "    train_set.rng.permutation(32)\n"),
    "split each epoch": (
        "self.rng = np.random.default_rng(3)\nself.split()",
        NOISE,
        "    train_set.split()\n",
    ),
    "constructor that returns": (f"self.rng = np.random.default_rng(3)\n{ORDER}\nif seed:\n    return", NOISE, ""),
    "list of seeds": (f"self.rng = np.random.default_rng([3, 4])\n{ORDER}", NOISE, ""),
    "evaluated by it": ("self.rng = np.random.default_rng(3)", NOISE, "    print([*DataLoader(Points())])\n"),
    "of the module": ("self.order = RNG.permutation(32)", "x + float(RNG.normal())", ""),
    "of the module, torch": ("self.rng = 0", "x + torch.rand(2, generator=OWN)", ""),
    "given": ("self.rng = torch_rng", TORCH_NOISE, ""),
    "made when first read": ("self.rng = None", "x + self.late()", ""),
}


@pytest.mark.parametrize(("made", "read", "more"), ALIKE.values(), ids=ALIKE)
def test_generators_that_stay_alike_are_said(tmp_path: Path, made: str, read: str, more: str) -> None:
    text = keeping(made.replace("torch_rng", "transform"), read, "Points(OWN)" if "torch_rng" in made else "Points()")
    globals_ = "RNG = np.random.default_rng(3)\nOWN = torch.Generator().manual_seed(3)\n\n\ndef shuffled"
    text = text.replace("def shuffled", globals_, 1).replace("    loader = ", f"{more}    loader = ", 1)
    late = "    def late(self):\n        if self.rng is None:\n            self.rng = np.random.default_rng(3)\n"
    text = text.replace("    def __len__", f"{late}        return self.rng.random()\n\n    def __len__")
    after, told = converted(tmp_path, text)
    assert "all ranks draw alike: what is drawn repeats from rank to rank" in told
    assert "default_rng(3 + " not in after and ".initial_seed() + 1" not in after


def test_a_generator_of_given_bits(tmp_path: Path) -> None:
    said = converted(tmp_path, keeping("self.rng = np.random.Generator(np.random.PCG64(3))", NOISE))[1]
    assert "all ranks draw alike: what is drawn repeats from rank to rank" in said


def test_a_generator_of_one_sample(tmp_path: Path) -> None:
    """What is seeded by the number of a sample is the same on whichever rank reads it."""
    for read in (
        "x + np.random.default_rng(i).normal()",
        "x + torch.rand(2, generator=torch.Generator().manual_seed(i))",
    ):
        assert "AD702" not in converted(tmp_path, keeping("self.rng = 0", read))[1]


def test_the_group_is_joined_before_a_generator_asks_for_the_rank(tmp_path: Path) -> None:
    text = keeping("self.rng = 0", "x + float(RNG.normal())").replace(
        "def shuffled", "RNG = np.random.default_rng(3)\n\n\ndef shuffled"
    )
    after = converted(tmp_path, text)[0]
    assert after.index("\nsetup_distributed()\n") < after.index("RNG = np.random.default_rng(3 + dist.get_rank())")


def test_numbers_of_numpy_that_are_drawn_alike_are_a_fault(tmp_path: Path, zygote: Zygote | None) -> None:
    compose = (
        "class Compose:\n    def __init__(self, steps):\n        self.steps = steps\n\n    def __call__(self, x):\n"
    )
    compose += "        for step in self.steps:\n            x = step(x)\n        return x\n\n\nclass Points"
    text = script("Points(Compose([Jitter()]))", "nn.Linear(2, 4)", read="self.transform(x)")
    text = text.replace("class Points", compose).replace("from torchvision import datasets, transforms\n", "")
    code = converted(tmp_path, text)[0]
    (tmp_path / "before.py").write_text(text)
    for name, after in (("equal", code), ("alike", code.replace(f"    {NUMPY}\n", ""))):
        (tmp_path / "after.py").write_text(after)
        world = verify(
            tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote
        ).worlds[0]
        assert world.equal == (name == "equal"), world.reason
        assert ("noise-alike" in {finding.kind for finding in world.findings}) == (name == "alike")


STREAM = """\
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torchvision import transforms

RNG = np.random.default_rng(3)


def collate(batch):
    return torch.stack([x for x, _ in batch]) + COLLATED, torch.tensor([y for _, y in batch])


class Points(IterableDataset):
    def __init__(self):
        self.rng = np.random.default_rng(3)
        self.crop = transforms.RandomCrop(2)

    def __iter__(self):
        for i, x in enumerate(torch.arange(64.0).view(32, 2)):
            yield READ, i % 4


torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
loader = DataLoader(Points(), batch_size=8, collate_fn=collate)
model = nn.Linear(2, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("read", "collated", "said"),
    [
        ("x + np.random.normal()", "0", False),
        ("x + random.random()", "0", False),
        ("x + torch.randn(2)", "0", False),
        ("x + self.rng.normal()", "0", False),
        ("self.crop(x)", "0", False),
        ("x", "float(np.random.randn())", False),  # one number for the whole batch
        ("x", "random.random()", False),
        ("x", "torch.tensor([[np.random.randn()] for _ in batch])", True),
        ("x", "torch.tensor([[random.random()] for _ in batch])", True),
        ("x", "torch.randn(len(batch), 2)", True),
        ("x", "float(RNG.normal())", False),
        ("x", "torch.tensor([[RNG.uniform()] for _ in batch])", True),
    ],
)
def test_streams(tmp_path: Path, read: str, collated: str, said: bool) -> None:
    """Each rank reads the whole stream and draws for all samples, of which it takes its own; it puts together its own
    batches alone, and draws for them what the others do."""
    told = converted(tmp_path, STREAM.replace("READ", read).replace("COLLATED", collated))[1]
    assert ("all ranks draw alike" in told) is said


SEEDS = "    random.seed(0)\n    np.random.seed(0)\n    torch.manual_seed(0)\n"
OPTION = (
    "    import argparse\n\n    parser = argparse.ArgumentParser()\n    parser.add_argument('--seed', type=int{})\n"
)
OPTION += "    seed = parser.parse_args().seed\n"
GIVEN = SEEDS.replace("0)", "seed)").replace("    ", "        ")
SEEDED = {
    "no default": OPTION.format("") + "    if seed is not None:\n" + GIVEN,
    "a default": OPTION.format(", default=3") + "    if seed:\n" + GIVEN,
    "from where it is set": "    seed = os.environ.get('SEED')\n    if seed:\n" + GIVEN.replace("seed)", "int(seed))"),
    "a switch": OPTION.format("") + "    if seed != -1:\n" + GIVEN + "    else:\n        print('no seed')\n",
    "of a function": OPTION.format("") + "    if seed is not None:\n        seed_all(seed)\n",
}


@pytest.mark.parametrize("seeds", SEEDED.values(), ids=SEEDED.keys())
@pytest.mark.parametrize("transform", ["Jitter(), noisy", "closure(2), noisy"])
def test_what_an_option_seeds(tmp_path: Path, seeds: str, transform: str) -> None:
    """Where it is given, ranks would augment alike."""
    text = script(FAKE.format(COMPOSE.format(transform))).replace(SEEDS, seeds)
    helper = "def seed_all(number):\n" + SEEDS.replace("0)", "number)") + "\n\n"
    after, said = converted(tmp_path, "import os\n" + text.replace("def main():\n", helper + "def main():\n"))
    assert NUMPY in after and PYTHON in after and TORCH in after
    assert "AD9" not in said


OWN = """\
class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x


class Flip:
    def __call__(self, x):
        return x.flip(0) if random.random() < 0.5 else x


def main():
"""


@pytest.mark.parametrize("seeds", SEEDED.values(), ids=SEEDED.keys())
def test_own_transforms_that_nothing_reads(tmp_path: Path, seeds: str) -> None:
    """A script's own Compose."""
    text = script("Points(Compose([Jitter(), Flip()]))", "nn.Linear(2, 4)", read="self.transform(x)")
    text = text.replace("def main():\n", OWN).replace(SEEDS, seeds)
    helper = "def seed_all(number):\n" + SEEDS.replace("0)", "number)") + "\n\n"
    after, _ = converted(tmp_path, "import os\n" + text.replace("def main():\n", helper + "def main():\n"))
    assert NUMPY in after and PYTHON in after and TORCH in after
