import math
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_reduce
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


class Spectra(Dataset):
    """Two peaks on 32 channels. The noise of the reparameterisation belongs to the sample."""

    def __init__(self, n, seed, latent):
        g = torch.Generator().manual_seed(seed)
        centre = torch.rand(n, 2, 1, generator=g) * 32
        height = 0.5 + torch.rand(n, 2, 1, generator=g)
        self.x = (height * torch.exp(-((torch.arange(32) - centre) ** 2) / 8)).sum(1)
        self.eps = torch.randn(n, latent, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.eps[i]


class VAE(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 24), nn.SiLU(), nn.Linear(24, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 24), nn.SiLU(), nn.Linear(24, 32))

    def forward(self, x, eps):
        mu, logvar = self.encoder(x).chunk(2, dim=1)
        z = mu + eps * (0.5 * logvar).exp()
        return self.decoder(z), mu, logvar

    @torch.no_grad()
    def interpolate(self, a, b, steps=5):
        mu_a, mu_b = (self.encoder(v.unsqueeze(0)).chunk(2, dim=1)[0] for v in (a, b))
        weights = torch.linspace(0, 1, steps, device=a.device).unsqueeze(1)
        return self.decoder(mu_a + weights * (mu_b - mu_a))


def elbo_terms(recon, x, mu, logvar, free_bits):
    rec = F.mse_loss(recon, x, reduction="none").sum(1).mean()
    kl_per_dim = (-0.5 * (1 + logvar - mu.pow(2) - logvar.exp())).mean(0)
    if recon.requires_grad:
        kl_per_dim = all_reduce(kl_per_dim) / dist.get_world_size()  # over the whole batch, before the clamp
    kl = kl_per_dim.clamp(min=free_bits).sum()
    return rec, kl, kl_per_dim


def beta_schedule(step, warmup=20):
    return 0.5 * (1 - math.cos(math.pi * min(step / warmup, 1.0)))


def main(out=Path("out"), epochs=3, batch_size=16, latent=4, free_bits=0.15):
    rank, world = setup()
    torch.manual_seed(23)
    out.mkdir(exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = Spectra(160, 1, latent)
    sampler = DistributedSampler(train_set, drop_last=True)
    train_loader = DataLoader(train_set, batch_size // world, sampler=sampler, drop_last=True)
    test_set = Spectra(45, 2, latent)
    test_loader = DataLoader(test_set, batch_size=15)
    model = VAE(latent).to(device)
    ddp = DDP(model)
    optimizer = torch.optim.NAdam(model.parameters(), lr=4e-3)
    step = 0
    active = torch.zeros(latent, device=device)
    for epoch in range(epochs):
        model.train()
        sampler.set_epoch(epoch)
        sums = torch.zeros(2, device=device)
        for x, eps in train_loader:
            x, eps = x.to(device), eps.to(device)
            recon, mu, logvar = ddp(x, eps)
            rec, kl, per_dim = elbo_terms(recon, x, mu, logvar, free_bits)
            loss = rec + beta_schedule(step) * kl
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            active = 0.9 * active + 0.1 * (per_dim.detach() > free_bits)
            dist.all_reduce(rec := rec.detach())
            sums += torch.stack([rec / world, kl.detach()])
            step += 1
        rec, kl = (sums / len(train_loader)).tolist()
        model.eval()
        with torch.no_grad():
            test = sum(F.mse_loss(model(x.to(device), 0 * e.to(device))[0], x.to(device)).item() for x, e in test_loader) / len(test_loader)
        print(f"epoch {epoch} beta {beta_schedule(step):.4f} rec {rec:.5f} kl {kl:.5f} active {active.sum().item():.4f} test {test:.6f}")
        if rank == 0:
            torch.save(model.interpolate(test_set.x[0].to(device), test_set.x[1].to(device)).cpu(), out / f"interpolation-{epoch}.pt")
    if rank == 0:
        torch.save(model.state_dict(), out / "vae.pt")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
