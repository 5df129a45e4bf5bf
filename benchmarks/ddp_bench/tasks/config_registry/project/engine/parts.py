import torch
from torch import nn
from torch.utils.data import Dataset

from .registry import DATASETS, MODELS, register


@register(DATASETS)
class Spirals(Dataset):
    def __init__(self, n, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.arange(n) % 3
        r = torch.rand(n, generator=g)
        angle = 4 * r + self.y * 2.094 + 0.1 * torch.randn(n, generator=g)
        self.x = torch.stack([r * angle.cos(), r * angle.sin()], 1)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return {"points": self.x[index], "label": self.y[index]}


@register(MODELS)
class MLP(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        sizes = [2, *hidden]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.head = nn.Linear(sizes[-1], 3)

    def forward(self, points):
        for layer in self.layers:
            points = torch.relu(layer(points))
        return self.head(points)
