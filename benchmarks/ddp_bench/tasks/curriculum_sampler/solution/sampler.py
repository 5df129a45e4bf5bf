import torch
from torch.utils.data import Sampler


class CurriculumSampler(Sampler):
    """The easiest part of the data first; the part grows with every epoch. Shuffled within it."""

    def __init__(self, difficulty, parts=(0.25, 0.5, 1.0), seed=0, rank=0, world=1):
        self.rank, self.world = rank, world
        self.order = sorted(range(len(difficulty)), key=lambda i: difficulty[i])
        self.parts = parts
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def _share(self):
        return self.parts[min(self.epoch, len(self.parts) - 1)]

    def __iter__(self):
        allowed = self.order[: len(self) * self.world]
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        return iter(allowed[i] for i in torch.randperm(len(allowed), generator=g).tolist()[self.rank :: self.world])

    def __len__(self):
        return int(len(self.order) * self._share()) // self.world
