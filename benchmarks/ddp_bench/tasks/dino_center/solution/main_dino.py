import math
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
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


class Crops(Dataset):
    """Two global and two local views of each sample, made in advance."""

    def __init__(self, n=96):
        g = torch.Generator().manual_seed(41)
        self.kind = torch.arange(n) % 6
        base = torch.randn(6, 12, generator=g)[self.kind] + 0.5 * torch.randn(n, 12, generator=g)
        self.views = []
        for scale, drop in ((0.2, 0), (0.2, 0), (0.3, 6), (0.3, 6)):
            view = base + scale * torch.randn(n, 12, generator=g)
            if drop:
                view[torch.arange(n).unsqueeze(1), torch.rand(n, 12, generator=g).argsort(1)[:, :drop]] = 0
            self.views.append(view)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, i):
        return [view[i] for view in self.views], self.kind[i]


class Head(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, 16), nn.GELU(), nn.Linear(16, 8))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(8, out, bias=False))

    def forward(self, x):
        return self.last(F.normalize(self.mlp(x), dim=-1))


class MultiCropWrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = Head(16, 12)

    def forward(self, views):
        return self.head(self.backbone(torch.cat(views)))


class DINOLoss(nn.Module):
    def __init__(self, out=12, ncrops=4, student_temp=0.2, teacher_temp=0.1, center_momentum=0.8):
        super().__init__()
        self.ncrops, self.student_temp, self.teacher_temp, self.center_momentum = ncrops, student_temp, teacher_temp, center_momentum
        self.register_buffer("center", torch.zeros(1, out))

    def forward(self, student_output, teacher_output):
        student = (student_output / self.student_temp).chunk(self.ncrops)
        teacher = F.softmax((teacher_output - self.center) / self.teacher_temp, dim=-1).detach().chunk(2)
        total_loss, n = 0, 0
        for iq, q in enumerate(teacher):
            for v in range(len(student)):
                if v != iq:
                    total_loss += torch.sum(-q * F.log_softmax(student[v], dim=-1), dim=-1).mean()
                    n += 1
        self.update_center(teacher_output)
        return total_loss / n

    @torch.no_grad()
    def update_center(self, teacher_output):
        batch_center = torch.sum(teacher_output, dim=0, keepdim=True)
        dist.all_reduce(batch_center)
        batch_center = batch_center / (len(teacher_output) * dist.get_world_size())
        self.center = self.center * self.center_momentum + batch_center * (1 - self.center_momentum)


@torch.no_grad()
def knn_accuracy(backbone, dataset, device, k=5):
    backbone.eval()
    features = torch.cat([F.normalize(backbone(views[0].to(device)), dim=1).cpu() for views, _ in DataLoader(dataset, batch_size=32)])
    backbone.train()
    similarity = features @ features.T
    similarity.fill_diagonal_(-2)
    votes = dataset.kind[similarity.topk(k).indices].mode(1).values
    return (votes == dataset.kind).double().mean().item()


def main(epochs=3, batch_size=16):
    rank, world = setup()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = Crops()
    sampler = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, batch_size=batch_size // world, sampler=sampler, drop_last=True)
    student, teacher = MultiCropWrapper().to(device), MultiCropWrapper().to(device)
    teacher.load_state_dict(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad = False
    ddp = DDP(student)
    dino_loss = DINOLoss().to(device)
    optimizer = torch.optim.AdamW(student.parameters(), lr=0.0)
    steps = epochs * len(loader)
    momentum_schedule = [1 - 0.1 * (math.cos(math.pi * i / steps) + 1) / 2 for i in range(steps)]
    lr_schedule = [4e-3 * min(1, (i + 1) / 4) for i in range(steps)]
    for epoch in range(epochs):
        losses = []
        sampler.set_epoch(epoch)
        for it, (views, _) in enumerate(loader, start=epoch * len(loader)):
            optimizer.param_groups[0]["lr"] = lr_schedule[it]
            views = [view.to(device) for view in views]
            teacher_output = teacher(views[:2])
            student_output = ddp(views)
            loss = dino_loss(student_output, teacher_output)
            optimizer.zero_grad()
            loss.backward()
            if epoch < 1:
                for p in student.head.last.parameters():
                    p.grad = None
            optimizer.step()
            with torch.no_grad():
                m = momentum_schedule[it]
                for q, k in zip(student.parameters(), teacher.parameters()):
                    k.mul_(m).add_((1 - m) * q.detach())
            losses.append(total(loss.item()) / world)
        print(f"epoch {epoch} loss {sum(losses) / len(losses):.6f} center {dino_loss.center.abs().mean().item():.6f} knn {knn_accuracy(teacher.backbone, dataset, device):.4f}")
    if rank == 0:
        torch.save({"student": student.state_dict(), "teacher": teacher.state_dict(), "dino_loss": dino_loss.state_dict()}, "dino.pth")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
