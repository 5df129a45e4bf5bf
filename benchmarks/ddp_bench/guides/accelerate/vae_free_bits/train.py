import math
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, Dataset


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
    kl = kl_per_dim.clamp(min=free_bits).sum()
    return rec, kl, kl_per_dim


def beta_schedule(step, warmup=20):
    return 0.5 * (1 - math.cos(math.pi * min(step / warmup, 1.0)))


def main(out=Path("out"), epochs=3, batch_size=16, latent=4, free_bits=0.15):
    torch.manual_seed(23)
    out.mkdir(exist_ok=True)
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
    device = accelerator.device
    train_loader = DataLoader(Spectra(160, 1, latent), batch_size, shuffle=True, drop_last=True)
    test_set = Spectra(45, 2, latent)
    test_loader = DataLoader(test_set, batch_size=15)
    model = VAE(latent).to(device)
    optimizer = torch.optim.NAdam(model.parameters(), lr=4e-3)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    step = 0
    active = torch.zeros(latent, device=device)
    for epoch in range(epochs):
        model.train()
        sums = torch.zeros(2, device=device)
        for x, eps in train_loader:
            x, eps = x.to(device), eps.to(device)
            recon, mu, logvar = model(x, eps)
            rec, kl, per_dim = elbo_terms(recon, x, mu, logvar, free_bits)
            loss = rec + beta_schedule(step) * kl
            optimizer.zero_grad(set_to_none=True)
            accelerator.backward(loss)
            optimizer.step()
            rec, kl, per_dim = accelerator.reduce((rec.detach(), kl.detach(), per_dim.detach()), "mean")
            active = 0.9 * active + 0.1 * (per_dim.detach() > free_bits)
            sums += torch.stack([rec, kl]).detach()
            step += 1
        rec, kl = (sums / len(train_loader)).tolist()
        model.eval()
        with torch.no_grad():
            test = sum(F.mse_loss(model(x.to(device), 0 * e.to(device))[0], x.to(device)).item() for x, e in test_loader) / len(test_loader)
        accelerator.print(f"epoch {epoch} beta {beta_schedule(step):.4f} rec {rec:.5f} kl {kl:.5f} active {active.sum().item():.4f} test {test:.6f}")
        accelerator.save(accelerator.unwrap_model(model).interpolate(test_set.x[0].to(device), test_set.x[1].to(device)).cpu(), out / f"interpolation-{epoch}.pt")
    accelerator.save(accelerator.unwrap_model(model).state_dict(), out / "vae.pt")


if __name__ == "__main__":
    main()
