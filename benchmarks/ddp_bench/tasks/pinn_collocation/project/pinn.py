import math

import torch
import torch.nn as nn


class PINN(nn.Module):
    """u(x) with u'' = -pi^2 sin(pi x), u(-1) = u(1) = 0."""

    def __init__(self, width=16, depth=2):
        super().__init__()
        layers = [nn.Linear(1, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


def residual(model, x):
    x = x.requires_grad_(True)
    u = model(x)
    du = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
    ddu = torch.autograd.grad(du, x, torch.ones_like(du), create_graph=True)[0]
    return ddu + math.pi**2 * torch.sin(math.pi * x)


def main():
    torch.manual_seed(1234)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = PINN().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    grid = torch.linspace(-1, 1, 101, device=device).unsqueeze(1)
    for it in range(1, 31):
        x = 2 * torch.rand(32, 1, device=device) - 1
        pde = residual(model, x).pow(2).mean()
        edge = torch.tensor([[-1.0], [1.0]], device=device)
        boundary = model(edge).pow(2).mean()
        loss = pde + 100 * boundary
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 10 == 0:
            with torch.no_grad():
                error = (model(grid) - torch.sin(math.pi * grid)).norm() / torch.sin(math.pi * grid).norm()
            print("It: %d, Loss: %.4e, PDE: %.4e, L2 error: %.4e" % (it, loss.item(), pde.item(), error.item()))
    torch.save(model.state_dict(), "pinn.pth")


if __name__ == "__main__":
    main()
