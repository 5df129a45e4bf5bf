import torch
from torch.utils.data import DataLoader, TensorDataset

from loop import Checkpoint, Fit, JsonLogger
from module import PatchMixer


def shapes(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    grid = torch.arange(8)
    r, c = torch.randint(1, 7, (2, n), generator=g)
    horizontal = (grid.view(1, 8, 1) == r.view(-1, 1, 1)).expand(n, 8, 8)
    vertical = (grid.view(1, 1, 8) == c.view(-1, 1, 1)).expand(n, 8, 8)
    kind = y.view(-1, 1, 1)
    x = torch.where(kind == 0, horizontal, torch.where(kind == 1, vertical, horizontal | vertical))
    return TensorDataset(x.to(torch.get_default_dtype()) + 0.5 * torch.randn(n, 8, 8, generator=g), y)


if __name__ == "__main__":
    torch.manual_seed(0)
    train_loader = DataLoader(shapes(192, 1), batch_size=16, shuffle=True)
    val_loader = DataLoader(shapes(70, 2), batch_size=28)
    loop = Fit(max_epochs=3, callbacks=[Checkpoint("val_accuracy"), JsonLogger()])
    loop.fit(PatchMixer(), train_loader, val_loader)
