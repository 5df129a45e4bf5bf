"""`nn.DataParallel` around a part of a model, parts of it that are called past its forward pass, batch sizes by
another name, and log files that are gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

HEAD = """\
import os
import sys
import imageio
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rows = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
"""
LOADER = "loader = DataLoader(rows, batch_size=8, shuffle=True)\n"
NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = {features}
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.features(x))


"""
FEATURES = "nn.Sequential(nn.Linear(4, 8), nn.ReLU())"
STEPS = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
SAVE = 'torch.save(model.state_dict(), "model.pt")\n'
PINNED = 'device_ids=[int(os.environ["LOCAL_RANK"])])'


def scripted(make: str, features: str = FEATURES, after: str = SAVE) -> str:
    return HEAD + NET.format(features=features) + LOADER + make + STEPS + after


def test_the_rest_of_a_model_trains_beside_a_part_in_a_wrapper_of_its_own(tmp_path: Path) -> None:
    make = "model = Net()\nmodel.features = nn.DataParallel(model.features)\nmodel.cuda()\n"
    code, said = converted(tmp_path, scripted(make))
    assert f"model.features = nn.DataParallel(model.features, {PINNED}\n" in code
    assert "model.cuda()\nmodel = DDP(model, gradient_as_bucket_view=True)\n" in code
    assert "torch.save(model.module.state_dict()" in code, "the keys of the part stay, others do not come"
    assert "its keys stay" in said


def test_a_part_that_is_wrapped_where_it_is_made_stays_so(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, scripted("model = Net()\n", f"nn.DataParallel({FEATURES})"))
    assert f"self.features = nn.DataParallel({FEATURES}, {PINNED}\n" in code
    assert "model = DDP(Net(), gradient_as_bucket_view=True)\n" in code


def test_all_of_a_model_is_wrapped_where_one_branch_wraps_a_part_of_it(tmp_path: Path) -> None:
    make = """\
model = Net()
if sys.argv[1].startswith("vgg"):
    model.features = nn.DataParallel(model.features)
    model.cuda()
else:
    model = nn.DataParallel(model).cuda()
"""
    code, said = converted(tmp_path, scripted(make))
    assert "    model.cuda()\n    model = DDP(model)\nelse:\n    model = DDP(model.cuda())\n" in code
    assert "have the keys features.module.…, those of the conversion module.features.…" in said


def test_a_part_under_another_name_is_refused_beside_a_whole_model(tmp_path: Path) -> None:
    make = """\
model = Net()
if sys.argv[1].startswith("vgg"):
    model.features = nn.DataParallel(Net().features)
else:
    model = nn.DataParallel(model)
"""
    assert (
        "AD401 wraps a part of the model here, and all of it in another branch"
        in converted(tmp_path, scripted(make))[1]
    )


def test_no_wrapper_for_several_devices_is_left_around_a_model_that_is_not_wrapped(tmp_path: Path) -> None:
    make = """\
model = Net()
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
"""
    steps = STEPS.replace("loss.backward()", "loss.backward(retain_graph=True)\n        loss.backward()")
    code, said = converted(tmp_path, HEAD + NET.format(features=FEATURES) + LOADER + make + steps)
    assert "AD404" in said and "DataParallel(" not in code


def test_a_wrapper_that_stays_around_a_model_that_is_not_wrapped_has_one_device(tmp_path: Path) -> None:
    steps = STEPS.replace("loss.backward()", "loss.backward(retain_graph=True)\n        loss.backward()")
    make = "model = nn.DataParallel(Net()).cuda()\n"
    code, said = converted(tmp_path, HEAD + NET.format(features=FEATURES) + LOADER + make + steps)
    assert "AD404" in said and f"model = nn.DataParallel(Net(), {PINNED}.cuda()\n" in code


def test_a_model_that_is_saved_in_data_parallel_is_loaded_without_a_group(tmp_path: Path) -> None:
    after = 'torch.save(model, "model.pt")\ntorch.save({"net": model, "epoch": 2}, "all.pt")\n'
    code, _ = converted(tmp_path, scripted("model = nn.DataParallel(Net())\n", after=after))
    assert 'torch.save(nn.DataParallel(model.module), "model.pt")' in code
    assert '{"net": nn.DataParallel(model.module), "epoch": 2}' in code


@pytest.mark.parametrize(
    ("made", "synchronised"),
    [
        ("torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1])", True),
        ("torchvision.models.VisionTransformer(32, 8, 2, 2, 8, 8)", False),
        ("torchvision.models.vgg11()", False),
        ("torchvision.models.vgg11_bn()", True),
    ],
)
def test_classes_of_torchvision_normalise_as_what_makes_them_does(
    tmp_path: Path, made: str, synchronised: bool
) -> None:
    code, _ = converted(tmp_path, HEAD + LOADER + f"model = nn.DataParallel({made})\n" + STEPS)
    assert ("convert_sync_batchnorm" in code) is synchronised


DIFFUSION = """\
class Block(nn.Module):
    def __init__(self, normalise):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 4)
        self.normalise = normalise

    def forward(self, x):
        return self.linear(self.norm(x) if self.normalise else x)


class Diffusion(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x, noise):
        return x + noise

    def backward(self, x):
        return self.network(x)


model = Diffusion(Block(len(sys.argv) < 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        noise = torch.randn_like(x)
        loss = nn.functional.mse_loss(model.backward(model(x, noise)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_gradients_are_averaged_where_unused_parameters_are_used_past_the_forward_pass(tmp_path: Path) -> None:
    code, said = converted(tmp_path, HEAD + LOADER + DIFFUSION)
    assert "AD404 DistributedDataParallel would not synchronise this model: a part of it is called on its own" in said
    assert "DDP" not in code and "model.backward(model(x, noise))" in code


GAN = """\
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Linear(4, 1)
        self.maker = nn.Linear(4, 4)

    def critic_loss(self, x):
        return self.critic(self.maker(x)).mean() - self.critic(x).mean()

    def maker_loss(self, x):
        return -self.critic(self.maker(x)).mean()


pair = Pair()
critic_optimizer = torch.optim.SGD(pair.critic.parameters(), lr=0.1)
maker_optimizer = torch.optim.SGD(pair.maker.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        critic_optimizer.zero_grad()
        pair.critic_loss(x).backward()
        critic_optimizer.step()
        maker_optimizer.zero_grad()
        pair.maker_loss(x).backward()
        maker_optimizer.step()
torch.save({saved}, "pair.pt")
"""


@pytest.mark.parametrize(
    ("saved", "wrapped"), [("pair.state_dict()", False), ("{'critic': pair.critic.state_dict()}", True)]
)
def test_parts_that_are_saved_with_the_module_around_them_keep_their_keys(
    tmp_path: Path, saved: str, wrapped: bool
) -> None:
    code, said = converted(tmp_path, HEAD + LOADER + GAN.replace("{saved}", saved))
    assert ("self.critic = DDP(nn.Linear(4, 1)" in code) is wrapped
    assert ("whose checkpoints would have other keys" in said) is not wrapped
    assert ("average_gradients(critic_optimizer)" in code) is not wrapped


SIZES = """\
def make_loader(data, batch_size):
    return DataLoader(data, batch_size=batch_size, shuffle=True, drop_last=True)


class Settings:
    batch_size_in_gpu = 8
    evaluated = 4


config = Settings()
loader = make_loader(rows, batch_size=config.batch_size_in_gpu)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ones = torch.ones(config.batch_size_in_gpu, 1)
for epoch in range(2):
    for x, y in loader:
        noise = torch.randn(config.batch_size_in_gpu, 4)
        loss = (ones - model(x + noise)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(torch.zeros(config.evaluated, 4).sum())
"""


def test_a_batch_size_that_a_function_is_told_by_another_name_is_shared_out(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, HEAD + SIZES)
    assert "ones = torch.ones(config.batch_size_in_gpu // dist.get_world_size(), 1)" in code
    assert "noise = torch.randn(config.batch_size_in_gpu // dist.get_world_size(), 4)" in code
    assert "torch.zeros(config.evaluated, 4)" in code
    assert "make_loader(rows, batch_size=config.batch_size_in_gpu)" in code


LOG = """\
path = "log.txt"
if os.path.isfile(path):
    log = open(path, "a")
else:
    log = open(path, "w")
    log.write("epoch")
"""


def test_a_log_that_is_gone_on_with_is_one_rank_s(tmp_path: Path) -> None:
    write = 'log.write("%d" % epoch)\n'
    code, _ = converted(tmp_path, scripted(LOG + "model = Net()\n", after=write))
    assert 'log = open(path if dist.get_rank() == 0 else os.devnull, "a")' in code
    assert 'log = open(path if dist.get_rank() == 0 else os.devnull, "w")' in code
    assert "dist.barrier()" not in code


def test_a_picture_that_moves_is_written_by_one_rank(tmp_path: Path) -> None:
    after = 'video = imageio.get_writer("out.gif")\nvideo.append_data(model.weight)\nvideo.close()\n'
    code, _ = converted(tmp_path, HEAD + LOADER + "model = nn.Linear(4, 2)\n" + STEPS + after)
    assert 'video = imageio.get_writer("out.gif") if dist.get_rank() == 0 else None\n' in code
    assert "if dist.get_rank() == 0:\n    video.append_data(model.module.weight)\n    video.close()\n" in code


COUNTED = """\
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x):
        b, n = x.shape
        return self.linear(x) / n


def train(epoch):
    total, n = 0, 0
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        n += x.size(0)
        total += loss.item() * x.size(0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 2 == 0:
            average = total / n
            print(average)


model = Attention()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    train(epoch)
"""


def test_a_count_is_not_what_a_forward_pass_calls_by_the_same_name(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, HEAD + LOADER + COUNTED)
    assert "        n += x.size(0)\n" in code
    assert "print(reduce_mean(average))" in code


PHASES = """\
loaders = {{x: DataLoader(rows, batch_size=8, shuffle=x == "train") for x in ("train", "val")}}
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for phase in ("train", "val"):
        hits, batches = 0, 0
        for x, y in loaders[phase]:
            batches += 1
            output = model(x)
            loss = nn.functional.cross_entropy(output, y)
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            hits += (output.argmax(1) == y).sum().item()
            if batches % 4 == 0:
                {report}
        print(phase, hits / len(rows))
"""


@pytest.mark.parametrize(
    ("report", "shown"),
    [
        ("print(phase, hits / (8 * batches))", "hits"),
        ("running = 100.0 * hits / (8 * batches)\n                print(running)", "running"),
    ],
)
def test_a_running_accuracy_is_of_all_ranks_where_they_share_a_phase(
    tmp_path: Path, zygote: Zygote | None, report: str, shown: str
) -> None:
    script = HEAD.replace("import imageio\n", "").replace("import torchvision\n", "") + PHASES.format(report=report)
    code, said = converted(tmp_path, script)
    for each in (shown, "hits"):
        shared = f"reduce_sum({each}) if isinstance(loaders[phase].sampler, DistributedSampler) else {each}\n"
        assert f"total_{each} = {shared}" in code
    assert "alone" not in said and differences(tmp_path, zygote, script) is None


STAGES = """\
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2))
for epochs, rate in ((2, 0.1), (1, 0.01)):
    {again}optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
APART = "torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())  # dropout and noise differ by rank\n"


def test_ranks_go_apart_once_for_all_stages_of_a_training(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, HEAD + LOADER + STAGES.format(again=""))
    assert f"\n{APART}for epochs, rate in" in code, "seeded in each stage, rank 0 would draw the same masks again"


def test_ranks_go_apart_after_a_model_that_each_stage_makes_anew(tmp_path: Path) -> None:
    again = "model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2))\n    "
    code, _ = converted(tmp_path, HEAD + LOADER + STAGES.format(again=again))
    assert f"    {APART}    for epoch in range(epochs):" in code
