import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

N_RAND, N_SAMPLES, N_ITERS, LRATE, DECAY = 64, 8, 40, 5e-3, 50
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def make_scene(views, size=10):
    """Rays of a camera on a circle around a ball, and the colours that they see."""
    rays, colours = [], []
    for angle in torch.linspace(0, 5.5, views):
        origin = torch.stack([3 * angle.cos(), 3 * angle.sin(), torch.zeros(())])
        v, u = torch.meshgrid(torch.linspace(-0.5, 0.5, size), torch.linspace(-0.5, 0.5, size), indexing="ij")
        side = torch.stack([-angle.sin(), angle.cos(), torch.zeros(())])
        up = torch.tensor([0.0, 0.0, 1.0])
        direction = -origin / 3 + u[..., None] * side + v[..., None] * up
        direction = direction / direction.norm(dim=-1, keepdim=True)
        closest = origin - (origin * direction).sum(-1, keepdim=True) * direction
        hit = closest.norm(dim=-1, keepdim=True) < 0.8
        colours.append(torch.where(hit, 0.5 + 0.5 * closest, torch.ones(3)).reshape(-1, 3))
        rays.append(torch.stack([origin.expand_as(direction), direction], 2).reshape(-1, 3, 2))
    return torch.cat(rays), torch.cat(colours)


class NeRF(nn.Module):
    def __init__(self, frequencies=3, width=32):
        super().__init__()
        self.frequencies = frequencies
        self.pts_linears = nn.ModuleList([nn.Linear(3 + 6 * frequencies, width), nn.Linear(width, width)])
        self.alpha_linear, self.rgb_linear = nn.Linear(width, 1), nn.Linear(width, 3)

    def encode(self, x):
        return torch.cat([x, *(f(2.0**k * x) for k in range(self.frequencies) for f in (torch.sin, torch.cos))], -1)

    def forward(self, x):
        h = self.encode(x)
        for layer in self.pts_linears:
            h = torch.relu(layer(h))
        return torch.cat([torch.sigmoid(self.rgb_linear(h)), nn.functional.softplus(self.alpha_linear(h) - 1)], -1)


def render_rays(network_fn, rays):
    origin, direction = rays[..., 0], rays[..., 1]
    z = torch.linspace(1.5, 4.5, N_SAMPLES, device=rays.device)
    points = origin[:, None] + z[None, :, None] * direction[:, None]
    raw = network_fn(points)
    alpha = 1 - torch.exp(-raw[..., 3] * (3.0 / N_SAMPLES))
    visible = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    weights = alpha * visible
    return (weights[..., None] * raw[..., :3]).sum(1) + (1 - weights.sum(1, keepdim=True))


def batchify(network_fn, rays, chunk=40):
    return torch.cat([render_rays(network_fn, rays[i : i + chunk]) for i in range(0, len(rays), chunk)])


def img2mse(x, y):
    return torch.mean((x - y) ** 2)


def mse2psnr(x):
    return -10.0 * torch.log10(x)


def train():
    rank, world = setup()
    torch.manual_seed(0)
    rays, target = make_scene(views=6)
    held_rays, held_target = rays[500:].to(device), target[500:].to(device)
    rays_rgb = torch.cat([rays[:500].flatten(1), target[:500]], 1)
    rays_rgb = rays_rgb[torch.randperm(len(rays_rgb))].to(device)
    model = NeRF().to(device)
    ddp = DDP(model)
    optimizer = torch.optim.Adam(params=model.parameters(), lr=LRATE, betas=(0.9, 0.999))
    os.makedirs("logs", exist_ok=True)
    i_batch = 0
    for i in range(1, N_ITERS + 1):
        batch = rays_rgb[i_batch : i_batch + N_RAND][rank::world]
        i_batch += N_RAND
        if i_batch + N_RAND > rays_rgb.shape[0]:
            rand_idx = torch.randperm(rays_rgb.shape[0])
            rays_rgb = rays_rgb[rand_idx]
            i_batch = 0
        batch_rays, target_s = batch[:, :6].view(-1, 3, 2), batch[:, 6:]
        rgb = render_rays(ddp, batch_rays)
        optimizer.zero_grad()
        loss = img2mse(rgb, target_s)
        loss.backward()
        loss = loss.detach()
        dist.all_reduce(loss)
        loss /= world
        psnr = mse2psnr(loss)
        optimizer.step()
        for param_group in optimizer.param_groups:
            param_group["lr"] = LRATE * (0.1 ** (i / DECAY))
        if i % 10 == 0:
            print(f"[TRAIN] Iter: {i} Loss: {loss.item():.6f} PSNR: {psnr.item():.4f}")
        if i % 20 == 0:
            with torch.no_grad():
                image = batchify(model, held_rays)
            print(f"[TEST] Iter: {i} PSNR: {mse2psnr(img2mse(image, held_target)).item():.4f}")
            if rank == 0:
                torch.save(image.view(10, 10, 3).cpu(), f"logs/view_{i:06d}.pt")
                torch.save({"global_step": i, "network_fn_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict()}, f"logs/{i:06d}.tar")


if __name__ == "__main__":
    train()
    dist.destroy_process_group()
