"""What scripts write is compared in whatever way they write it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from autodist.verify import verify
from autodist.verify.contents import CLOCKED
from autodist.verify.event_files import scalars
from autodist.verify.launch import Zygote

SCRIPT = """\
import gzip, io, json, os, pickle, shutil
from collections import deque
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

{setup}
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
{loader}
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
{epoch}
    total = torch.zeros(())
    for x, y in loader:
        loss = nn.functional.mse_loss({call}(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
{reduced}
    losses.append(total.item() / len(loader))
state = {{"loss": {reported}}}
if {rank} == 0:
    {write}
"""

WAYS = {
    "copied": 'pickle.dump(state, open("b.pt", "wb")); shutil.copyfile("b.pt", "best.pt")',
    "moved": 'pickle.dump(state, open("b.tmp", "wb")); os.replace("b.tmp", "best.pt")',
    "renamed": 'pickle.dump(state, open("b.tmp", "wb")); Path("b.tmp").rename("best.pt")',
    "dumped": 'np.array(state["loss"]).dump("losses.dat")',
    "path": 'np.save(Path("losses"), np.array(state["loss"]))',
    "objects": 'np.save("losses.npy", np.array([state], dtype=object))',
    "archive": 'np.savez_compressed("losses", state=np.array([state], dtype=object))',
    "bytes": 'buffer = io.BytesIO(); torch.save(state, buffer); Path("best.bin").write_bytes(buffer.getvalue())',
    "sent": 'open("best.bin", "wb").write(pickle.dumps(np.array(state["loss"])))',
    "saved array": 'torch.save({"losses": np.array(state["loss"])}, "best.pt")',
    "saved queue": 'torch.save({"losses": deque(state["loss"])}, "best.pt")',
    "zipped": 'pickle.dump(state, gzip.open("best.pkl.gz", "wb"))',
    "several": 'f = open("log.pkl", "wb"); pickle.dump(1, f); pickle.dump(state, f); f.close()',
    "text": 'open("result.out", "w").write(str(state))',
    "json": 'json.dump(state, open("result", "w"))',
    "raw": 'np.array(state["loss"]).tofile("losses.txt", sep=" ")',
}

SETUP = 'dist.init_process_group("gloo")'
LOADER = """sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8 // dist.get_world_size(), sampler=sampler)"""
REDUCED = "    whole = total.clone()\n    dist.all_reduce(whole)\n    total = whole / dist.get_world_size()"


def pair(folder: Path, write: str, right: bool) -> tuple[Path, Path]:
    """An original and a conversion that writes the mean over the ranks, or else that of its own samples."""
    plain = {"setup": "", "loader": "loader = DataLoader(data, batch_size=8, shuffle=True)", "epoch": "", "rank": "0"}
    plain |= {"call": "model", "reduced": "", "reported": "losses", "write": write}
    converted = {"setup": SETUP, "loader": LOADER, "epoch": "    sampler.set_epoch(epoch)", "rank": "dist.get_rank()"}
    converted |= {"call": "wrapped", "reduced": REDUCED if right else "", "reported": "losses", "write": write}
    before, after = folder / "train.py", folder / "train_ddp.py"
    before.write_text(SCRIPT.format(**plain))
    text = SCRIPT.format(**converted)
    after.write_text(text.replace("losses = []", "wrapped = nn.parallel.DistributedDataParallel(model)\nlosses = []"))
    return before, after


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_ways_to_write(tmp_path: Path, zygote: Zygote | None, way: str, right: bool) -> None:
    """Equal where the mean over the ranks is written, different where rank 0 writes its own."""
    pytest.importorskip("numpy")
    verdict = verify(*pair(tmp_path, WAYS[way], right), [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal == right, (verdict.findings, verdict.notes)
    assert not any(note.kind == "not-compared" for note in verdict.notes)


def test_scalars_of_event_files(tmp_path: Path) -> None:
    """As TensorBoard's writers lay them out."""

    def block(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    value = block(1, b"loss") + b"\x15" + struct.pack("<f", 0.5)
    event = b"\x09" + struct.pack("<d", 1.7e9) + b"\x10\xac\x02" + block(5, block(1, value))
    version = b"\x09" + struct.pack("<d", 1.7e9) + block(3, b"brain.Event:2")
    path = tmp_path / "events.out.tfevents.1.host.2.0"
    path.write_bytes(b"".join(struct.pack("<Q", len(e)) + bytes(4) + e + bytes(4) for e in (version, event)))
    assert scalars(path) == [("loss", 300, 0.5)]


@pytest.mark.parametrize(
    ("tag", "clocked"),
    [
        ("steps_per_sec/train", True),
        ("samples/s", True),
        ("batch_time", True),
        ("train/throughput", True),
        ("loss/time_step", False),
        ("loss/time", False),
        ("loss/s", False),
        ("student/second", False),
        ("robot/speed", False),
        ("val/scores", False),
        ("runtime_error", False),
    ],
)
def test_scalars_that_the_clock_says(tag: str, clocked: bool) -> None:
    assert (CLOCKED.search(tag) is not None) is clocked
