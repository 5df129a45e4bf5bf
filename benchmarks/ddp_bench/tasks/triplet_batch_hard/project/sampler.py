import random

import torch


class PKSampler(torch.utils.data.Sampler):
    """Batches of P classes with K samples of each."""

    def __init__(self, labels, p, k, batches, seed=0):
        self.by_class = {}
        for index, label in enumerate(labels):
            self.by_class.setdefault(label, []).append(index)
        self.p, self.k, self.batches = p, k, batches
        self.rng = random.Random(seed)

    def __iter__(self):
        for _ in range(self.batches):
            batch = []
            for label in self.rng.sample(sorted(self.by_class), self.p):
                batch += self.rng.sample(self.by_class[label], self.k)
            yield batch

    def __len__(self):
        return self.batches
