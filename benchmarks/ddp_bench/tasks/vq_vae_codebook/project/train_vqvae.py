import argparse
import os

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

from vqvae import VQVAE


def stripes(n, seed):
    g = torch.Generator().manual_seed(seed)
    angle, phase = torch.rand(2, n, 1, 1, generator=g) * 6.28
    y, x = torch.meshgrid(torch.linspace(0, 6, 8), torch.linspace(0, 6, 8), indexing="ij")
    return TensorDataset(torch.sin(x * angle.cos() + y * angle.sin() + phase).unsqueeze(1), torch.zeros(n))


def train(epoch, loader, model, optimizer, device):
    criterion = nn.MSELoss()
    latent_loss_weight = 0.25
    mse_sum, mse_n = 0, 0
    counts = torch.zeros(16)
    for i, (img, _) in enumerate(loader):
        model.zero_grad()
        img = img.to(device)
        out, latent_loss, ids = model(img)
        recon_loss = criterion(out, img)
        loss = recon_loss + latent_loss_weight * latent_loss
        loss.backward()
        optimizer.step()
        mse_sum += recon_loss.item() * img.shape[0]
        mse_n += img.shape[0]
        counts += torch.bincount(ids.flatten().cpu(), minlength=16)
        if i % 4 == 0:
            print(f"epoch: {epoch + 1}; mse: {recon_loss.item():.5f}; latent: {latent_loss.item():.5f}; avg mse: {mse_sum / mse_n:.5f}")
    p = counts / counts.sum()
    print(f"perplexity of the codes: {torch.exp(-(p * (p + 1e-10).log()).sum()).item():.4f}")


def sample(epoch, model, test_set, device):
    model.eval()
    with torch.no_grad():
        img = test_set.tensors[0][:6].to(device)
        out, _, ids = model(img)
    torch.save({"in": img.cpu(), "out": out.cpu(), "ids": ids.cpu()}, f"sample/{epoch + 1:02d}.pt")
    model.train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epoch", type=int, default=2)
    parser.add_argument("--bsize", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(6)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    os.makedirs("sample", exist_ok=True)
    loader = DataLoader(stripes(128, 1), shuffle=True, batch_size=args.bsize)
    test_set = stripes(10, 2)
    model = VQVAE().to(device)
    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    for i in range(args.epoch):
        train(i, loader, model, optimizer, device)
        sample(i, model, test_set, device)
    torch.save(model.state_dict(), "vqvae.pt")
