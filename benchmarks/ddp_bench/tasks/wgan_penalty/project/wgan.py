import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

Z, N_CRITIC, LAMBDA = 3, 2, 10
g = torch.Generator().manual_seed(6)
line = torch.rand(96, 1, generator=g)
real_points = torch.cat([line, line**2], 1) + 0.02 * torch.randn(96, 2, generator=g)
noise = torch.randn(96, Z, generator=g)
mix = torch.rand(96, 1, generator=g)

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(real_points, noise, mix), batch_size=16, shuffle=True)
G = nn.Sequential(nn.Linear(Z, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)).to(device)
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.0, 0.9))


def gradient_penalty(real, fake, alpha):
    between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    score = D(between)
    (grad,) = torch.autograd.grad(score, between, torch.ones_like(score), create_graph=True, retain_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


batches_done = 0
for epoch in range(3):
    for i, (real, z, alpha) in enumerate(loader):
        real, z, alpha = real.to(device), z.to(device), alpha.to(device)
        opt_d.zero_grad()
        fake = G(z).detach()
        d_loss = D(fake).mean() - D(real).mean() + LAMBDA * gradient_penalty(real, fake, alpha)
        d_loss.backward()
        opt_d.step()
        if i % N_CRITIC == 0:
            opt_g.zero_grad()
            g_loss = -D(G(z)).mean()
            g_loss.backward()
            opt_g.step()
            print(f"[{epoch}/{i}] D {d_loss.item():.5f} G {g_loss.item():.5f}")
        batches_done += 1
    torch.save(G.state_dict(), f"generator_{epoch}.pth")
torch.save(D.state_dict(), "critic.pth")
