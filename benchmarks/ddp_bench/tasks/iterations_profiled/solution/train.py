import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def total(value):
    """The sum of a number over all ranks."""
    value = torch.tensor(float(value), device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(value)
    return value.item()


def cycle(loader):
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        epoch += 1
        for batch in loader:
            yield batch


def faces(n, seed):
    g = torch.Generator().manual_seed(seed)
    points = torch.rand(n, 3, 2, generator=g)
    grid = torch.stack(torch.meshgrid(torch.linspace(0, 1, 10), torch.linspace(0, 1, 10), indexing="ij"), -1)
    heat = torch.exp(-((grid[None, None] - points[:, :, None, None]) ** 2).sum(-1) * 60).sum(1, keepdim=True)
    return TensorDataset(heat + 0.1 * torch.randn(heat.shape, generator=g), points.sort(1).values.flatten(1))


class Timer:
    """Seconds per step, for standard error only."""

    def __init__(self):
        self.begun, self.steps = time.perf_counter(), 0

    def tick(self):
        self.steps += 1
        return (time.perf_counter() - self.begun) / self.steps


class Trainer:
    def __init__(self, args):
        self.args = args
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.folder = Path(args.results)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(128, 6)).to(self.device)
        self.ddp = DDP(self.model)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        train_set = faces(96, 1)
        sampler = DistributedSampler(train_set, drop_last=True)
        self.data = cycle(DataLoader(train_set, batch_size=args.batch_size // dist.get_world_size(), sampler=sampler, drop_last=True))
        self.val = DataLoader(faces(31, 2), batch_size=16)
        self.step, self.milestones = 0, []

    def save(self, milestone):
        if dist.get_rank() != 0:
            return
        state = {"step": self.step, "model": self.model.state_dict(), "opt": self.opt.state_dict()}
        torch.save(state, self.folder / f"model-{milestone}.pt")
        self.milestones.append(milestone)
        while len(self.milestones) > self.args.keep:
            (self.folder / f"model-{self.milestones.pop(0)}.pt").unlink()

    @torch.inference_mode()
    def evaluate(self):
        self.model.eval()
        distances = [(self.model(x.to(self.device)) - y.to(self.device)).view(-1, 3, 2).norm(dim=-1).flatten() for x, y in self.val]
        self.model.train()
        return torch.cat(distances).median().item()

    def trace_ready(self, prof):
        events = {event.key for event in prof.key_averages()}
        print(f"profiled until step {self.step}: {'convolutions seen' if 'aten::conv2d' in events else 'no convolutions'}")

    def train(self):
        timer = Timer()
        plan = schedule(wait=2, warmup=1, active=2, repeat=1)
        with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=self.trace_ready) as prof:
            while self.step < self.args.steps:
                x, y = next(self.data)
                loss = nn.functional.smooth_l1_loss(self.ddp(x.to(self.device)), y.to(self.device), beta=0.1)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.step += 1
                prof.step()
                timer.tick()
                if self.step % self.args.save_every == 0:
                    median, mean = self.evaluate(), total(loss.item()) / dist.get_world_size()
                    print(f"{self.step}: loss {mean:.6f} median distance {median:.5f}")
                    if dist.get_rank() == 0:
                        with open(self.folder / "log.jsonl", "a") as log:
                            print(json.dumps({"step": self.step, "loss": mean, "median": median}), file=log)
                    self.save(self.step // self.args.save_every)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", default="results")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.manual_seed(args.steps)
    setup()
    Trainer(args).train()
    dist.destroy_process_group()
