from itertools import cycle

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 24), nn.ReLU())
        self.heads = nn.ModuleDict({"sign": nn.Linear(24, 2), "value": nn.Linear(24, 1)})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


def split(task, n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    total = x[:, :2].sum(1)
    return TensorDataset(x, (total > 0).long() if task == "sign" else total.unsqueeze(1))


def main():
    torch.manual_seed(8)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    losses = {"sign": nn.CrossEntropyLoss(), "value": nn.MSELoss()}
    loaders = {
        "sign": DataLoader(split("sign", 96, 1), batch_size=16, shuffle=True),
        "value": DataLoader(split("value", 48, 2), batch_size=16, shuffle=True),
    }
    tests = {task: DataLoader(split(task, 37, 3), batch_size=16) for task in loaders}
    model = MultiTask().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(2):
        model.train()
        sums = {"sign": 0.0, "value": 0.0}
        for batches in zip(loaders["sign"], cycle(loaders["value"])):
            for task, (x, y) in zip(loaders, batches):
                optimizer.zero_grad()
                loss = losses[task](model(x.to(device), task), y.to(device))
                loss.backward()
                optimizer.step()
                sums[task] += loss.item()
        model.eval()
        with torch.no_grad():
            right = sum((model(x.to(device), "sign").argmax(1).cpu() == y).sum().item() for x, y in tests["sign"])
            mae = sum((model(x.to(device), "value").cpu() - y).abs().sum().item() for x, y in tests["value"])
        print(f"epoch {epoch} sign {sums['sign']:.4f} value {sums['value']:.4f} acc {right / 37:.4f} mae {mae / 37:.4f}")
    torch.save(model.state_dict(), "multitask.pt")


if __name__ == "__main__":
    main()
