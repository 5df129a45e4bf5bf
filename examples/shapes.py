"""A data set of 1,200 noisy 16 x 16 pictures, made instead of downloaded so that the example needs no network."""

import os

import torch
from torch.utils.data import Dataset


class Shapes(Dataset):
    classes = ("circle", "square", "cross", "stripes")

    def __init__(self, root, download=False):
        self.path = os.path.join(root, "shapes.pt")
        if download and not os.path.exists(self.path):
            print(f"making {self.path}")
            os.makedirs(root, exist_ok=True)
            torch.save(self._draw(1200), self.path)
        self.images, self.labels = torch.load(self.path)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]

    @staticmethod
    def _draw(count):
        generator = torch.Generator().manual_seed(7)
        labels = torch.randint(0, 4, (count,), generator=generator)
        centres = torch.randint(6, 10, (count, 2, 1, 1), generator=generator)
        y, x = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
        dy, dx = (y - centres[:, 0]).abs(), (x - centres[:, 1]).abs()
        masks = torch.stack(
            [
                (dy**2 + dx**2 - 16).abs() <= 5,
                torch.maximum(dy, dx) == 4,
                torch.minimum(dy, dx) == 0,
                (dy + dx) % 4 == 0,
            ]
        )
        images = masks[labels, torch.arange(count)].float()
        noise = torch.randn(count, 16, 16, generator=generator)
        return (images + 0.6 * noise).unsqueeze(1), labels
