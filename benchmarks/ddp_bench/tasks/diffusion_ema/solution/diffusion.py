import argparse
import copy
import math
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
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


class Spirals(Dataset):
    """Points of a spiral. Time steps and noise belong to the sample, so that runs can be repeated."""

    def __init__(self, n, timesteps, seed=0):
        g = torch.Generator().manual_seed(seed)
        r = torch.rand(n, generator=g).sqrt()
        angle = 3 * 3.1416 * r
        self.x = torch.stack([r * angle.cos(), r * angle.sin()], 1) + 0.02 * torch.randn(n, 2, generator=g)
        self.t = torch.randint(0, timesteps, (n,), generator=g)
        self.noise = torch.randn(n, 2, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.t[i], self.noise[i]


class Denoiser(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.dim = dim
        self.inp, self.time = nn.Linear(2, dim), nn.Linear(dim, dim)
        self.mid, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2)

    def embedding(self, t):
        frequency = torch.exp(torch.arange(self.dim // 2, device=t.device) * (-math.log(100) / (self.dim // 2)))
        angle = t.unsqueeze(1) * frequency
        return torch.cat([angle.sin(), angle.cos()], 1)

    def forward(self, x, t):
        h = nn.functional.silu(self.inp(x) + self.time(self.embedding(t)))
        return self.out(nn.functional.silu(self.mid(h)) + h)


class GaussianDiffusion(nn.Module):
    def __init__(self, model, timesteps=30):
        super().__init__()
        self.model, self.timesteps = model, timesteps
        betas = torch.linspace(1e-3, 0.2, timesteps)
        self.register_buffer("betas", betas)
        self.register_buffer("alphas_cumprod", torch.cumprod(1 - betas, 0))
        snr = self.alphas_cumprod / (1 - self.alphas_cumprod)
        self.register_buffer("loss_weight", snr.clamp(max=5) / snr)

    def forward(self, x, t, noise):
        a = self.alphas_cumprod[t].unsqueeze(1)
        predicted = self.model(a.sqrt() * x + (1 - a).sqrt() * noise, t)
        loss = (predicted - noise).pow(2).mean(1)
        return (loss * self.loss_weight[t]).mean()

    @torch.no_grad()
    def sample(self, n, generator):
        x = torch.randn(n, 2, generator=generator).to(self.betas.device)
        for step in reversed(range(self.timesteps)):
            t = torch.full((n,), step, device=x.device)
            beta, a = self.betas[step], self.alphas_cumprod[step]
            x = (x - beta / (1 - a).sqrt() * self.model(x, t)) / (1 - beta).sqrt()
            if step:
                x = x + beta.sqrt() * torch.randn(n, 2, generator=generator).to(x)
        return x


class EMA:
    def __init__(self, model, beta=0.95, update_every=2):
        self.ema_model, self.beta, self.update_every, self.step = copy.deepcopy(model), beta, update_every, 0

    @torch.no_grad()
    def update(self, model):
        self.step += 1
        if self.step % self.update_every == 0:
            for ours, theirs in zip(self.ema_model.parameters(), model.parameters()):
                ours.lerp_(theirs, 1 - self.beta)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--samples", type=Path, default=Path("samples"))
    args = parser.parse_args()
    rank, world = setup()
    args.samples.mkdir(exist_ok=True)
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    diffusion = GaussianDiffusion(Denoiser()).to(device)
    dataset = Spirals(192, diffusion.timesteps)
    sampler = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, batch_size=args.batch_size // world, sampler=sampler, drop_last=True)
    ddp = DDP(diffusion)
    optimizer = torch.optim.Adam(diffusion.parameters(), lr=3e-3, betas=(0.9, 0.99))
    ema = EMA(diffusion)
    for epoch in range(args.epochs):
        mean = 0.0
        sampler.set_epoch(epoch)
        for x, t, noise in loader:
            loss = ddp(x.to(device), t.to(device), noise.to(device))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(diffusion.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            ema.update(diffusion)
            mean += (total(loss.item()) / world - mean) / (ema.step - epoch * len(loader))
        ema.ema_model.eval()
        points = ema.ema_model.sample(16, torch.Generator().manual_seed(epoch))
        print(f"epoch {epoch}: loss {mean:.6f}, samples spread {points.std(0).mean().item():.4f}")
        if rank == 0:
            torch.save(points.cpu(), args.samples / f"{epoch}.pt")
    if rank == 0:
        torch.save({"model": diffusion.state_dict(), "ema": ema.ema_model.state_dict(), "step": ema.step}, "diffusion.pt")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
