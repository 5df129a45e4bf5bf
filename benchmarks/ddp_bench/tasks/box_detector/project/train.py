import json

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from data import Squares, collate

CELLS, STRIDE = 4, 4


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU()
        )
        self.objectness = nn.Conv2d(16, 1, 1)
        self.regression = nn.Conv2d(16, 3, 1)
        self.classes = nn.Conv2d(16, 2, 1)

    def forward(self, images):
        f = self.body(images)
        return self.objectness(f)[:, 0], self.regression(f), self.classes(f)


def assign(targets, device):
    """The cells of a batch that have a box, with what they should say."""
    where, boxes, labels = [], [], []
    for b, target in enumerate(targets):
        for box, label in zip(target["boxes"], target["labels"]):
            x, y, size = box.tolist()
            where.append((b, min(y // STRIDE, CELLS - 1), min(x // STRIDE, CELLS - 1)))
            boxes.append([x / 16, y / 16, size / 16])
            labels.append(int(label))
    return torch.tensor(where, device=device), torch.tensor(boxes, device=device), torch.tensor(labels, device=device)


def losses_of(outputs, targets):
    objectness, regression, classes = outputs
    where, boxes, labels = assign(targets, objectness.device)
    b, y, x = where.unbind(1)
    wanted = torch.zeros_like(objectness)
    wanted[b, y, x] = 1
    num_boxes = len(boxes)
    return {
        "objectness": F.binary_cross_entropy_with_logits(objectness, wanted, reduction="sum") / num_boxes,
        "box": F.l1_loss(regression[b, :, y, x], boxes, reduction="sum") / num_boxes,
        "class": F.cross_entropy(classes[b, :, y, x], labels, reduction="sum") / num_boxes,
    }


def main():
    torch.manual_seed(3)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Squares(64, 1), batch_size=8, shuffle=True, collate_fn=collate)
    model = Detector().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    log = []
    for epoch in range(2):
        sums = {}
        for images, targets in loader:
            losses = losses_of(model(images.to(device)), targets)
            total = sum(losses.values())
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + value.item()
        log.append({"epoch": epoch, **{k: v / len(loader) for k, v in sums.items()}})
        print(" ".join(f"{k} {v:.4f}" for k, v in log[-1].items()))
    with open("log.json", "w") as f:
        json.dump(log, f)
    torch.save({"model": model.state_dict()}, "detector.pt")


if __name__ == "__main__":
    main()
