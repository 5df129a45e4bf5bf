import torch
import torch.nn.functional as F

from distributed import reduce_sum


def train_one_epoch(model, loader, optimizer, device):
    model.train()
    loss_sum, count = 0.0, 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(x)
        count += len(x)
    totals = torch.tensor([loss_sum, count], device=device)
    totals = reduce_sum(totals)
    return (totals[0] / totals[1]).item()


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    correct = torch.zeros((), device=device)
    seen = torch.zeros((), device=device)
    for x, y in loader:
        correct += (model(x.to(device)).argmax(1) == y.to(device)).sum()
        seen += len(y)
    correct = reduce_sum(correct)
    seen = reduce_sum(seen)
    return (correct / seen).item()
