import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
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


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


latent_dim = 4
rank, world = setup()
os.makedirs("images", exist_ok=True)
cuda = torch.cuda.is_available()


class Rings(Dataset):
    """Points on a ring. Each comes with its noise, so that runs can be repeated to the bit."""

    def __init__(self, n=128):
        g = torch.Generator().manual_seed(11)
        angle = torch.rand(n, generator=g) * 6.2832
        self.points = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2, generator=g)
        self.noise = torch.randn(n, latent_dim, generator=g)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        return self.points[i], self.noise[i]


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(latent_dim, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 2))

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, x):
        return self.model(x)


torch.manual_seed(42)
adversarial_loss = nn.BCELoss()
generator = Generator()
discriminator = Discriminator()
if cuda:
    generator.cuda()
    discriminator.cuda()
    adversarial_loss.cuda()

data = Rings()
sampler = DistributedSampler(data)
dataloader = DataLoader(data, batch_size=16 // world, sampler=sampler)
optimizer_G = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
fixed_noise = torch.randn(8, latent_dim)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for i, (real, z) in enumerate(dataloader):
        valid = torch.ones(real.size(0), 1)
        fake = torch.zeros(real.size(0), 1)
        if cuda:
            real, z, valid, fake = real.cuda(), z.cuda(), valid.cuda(), fake.cuda()

        optimizer_G.zero_grad()
        gen = generator(z)
        g_loss = adversarial_loss(discriminator(gen), valid)
        g_loss.backward()
        average_gradients(generator)
        optimizer_G.step()

        optimizer_D.zero_grad()
        real_loss = adversarial_loss(discriminator(real), valid)
        fake_loss = adversarial_loss(discriminator(gen.detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        d_loss.backward()
        average_gradients(discriminator)
        optimizer_D.step()

        d_mean, g_mean = total(d_loss.item()) / world, total(g_loss.item()) / world
        if i % 4 == 0:
            print("[Epoch %d] [Batch %d/%d] [D loss: %f] [G loss: %f]" % (epoch, i, len(dataloader), d_mean, g_mean))

    if rank == 0:
        with torch.no_grad():
            torch.save(generator(fixed_noise.cuda() if cuda else fixed_noise).cpu(), "images/%d.pt" % epoch)

if rank == 0:
    torch.save({"G": generator.state_dict(), "D": discriminator.state_dict()}, "gan.pt")
dist.destroy_process_group()
