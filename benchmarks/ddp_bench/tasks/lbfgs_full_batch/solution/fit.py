import csv
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def load_csv(path):
    with open(path) as f:
        rows = [[float(v) for v in row] for row in list(csv.reader(f))[1:]]
    data = torch.tensor(rows)
    return data[:, :-1], data[:, -1:]


class Surface(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x)


rank, world = setup()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x, y = load_csv("surface.csv")
x, y = x.to(device), y.to(device)
x_train, y_train, x_test, y_test = x[:96], y[:96], x[96:], y[96:]
shift, scale = x_train.mean(0), x_train.std(0)
x_share, y_share = x_train[rank::world], y_train[rank::world]  # 96 points divide evenly
model = Surface().to(device)
ddp = DDP(model)
mse = nn.MSELoss()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=5, history_size=8, line_search_fn="strong_wolfe")
calls = 0
for step in range(6):

    def closure():
        global calls
        calls += 1
        optimizer.zero_grad()
        loss = mse(ddp((x_share - shift) / scale), y_share)
        loss.backward()
        loss = loss.detach()
        dist.all_reduce(loss)
        return loss / world  # the line search decides by it

    loss = optimizer.step(closure)
    with torch.no_grad():
        test_loss = mse(model((x_test - shift) / scale), y_test)
    print(f"step {step}: loss {loss.item():.6f} test {test_loss.item():.6f} evaluations {calls}")

with torch.no_grad():
    prediction = model((x_test - shift) / scale).cpu()
if rank == 0:
    with open("prediction.csv", "w") as f:
        for row, value in zip(x_test.cpu().tolist(), prediction.flatten().tolist()):
            f.write(f"{row[0]:.4f},{row[1]:.4f},{value:.5f}\n")
    torch.save({"model": model.state_dict(), "shift": shift.cpu(), "scale": scale.cpu()}, "surface.pt")
dist.destroy_process_group()
