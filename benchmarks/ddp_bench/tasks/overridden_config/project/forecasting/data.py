import torch
from torch.utils.data import Dataset


class WindowedSeries(Dataset):
    def __init__(self, window, horizon, length, split="train"):
        g = torch.Generator().manual_seed(15)
        t = torch.arange(2.0 * length)
        series = torch.sin(t / 5) + 0.4 * torch.sin(t / 1.7) + 0.15 * torch.randn(2 * length, generator=g)
        self.series = series[:length] if split == "train" else series[length : length + length // 2]
        self.window, self.horizon = window, horizon

    def __len__(self):
        return (len(self.series) - self.window - self.horizon)

    def __getitem__(self, i):
        cut = i + self.window
        return {"past": self.series[i:cut].unsqueeze(0), "future": self.series[cut : cut + self.horizon]}
