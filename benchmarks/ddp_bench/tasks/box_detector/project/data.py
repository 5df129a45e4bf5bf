import torch


class Squares(torch.utils.data.Dataset):
    """Pictures with one to four bright squares; targets are boxes (x, y, size) and classes."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            image = 0.2 * torch.randn(1, 16, 16, generator=g)
            boxes, labels = [], []
            for _ in range(int(torch.randint(1, 5, (1,), generator=g))):
                x, y = torch.randint(0, 12, (2,), generator=g).tolist()
                size = int(torch.randint(2, 5, (1,), generator=g))
                image[0, y : y + size, x : x + size] += 1
                boxes.append([x, y, size])
                labels.append(int(size > 3))
            self.items.append((image, {"boxes": torch.tensor(boxes), "labels": torch.tensor(labels)}))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    images, targets = zip(*batch)
    return torch.stack(images), list(targets)
