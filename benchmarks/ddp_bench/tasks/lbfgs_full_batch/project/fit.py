import csv

import torch
import torch.nn as nn


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


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x, y = load_csv("surface.csv")
x, y = x.to(device), y.to(device)
x_train, y_train, x_test, y_test = x[:96], y[:96], x[96:], y[96:]
shift, scale = x_train.mean(0), x_train.std(0)
model = Surface().to(device)
mse = nn.MSELoss()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=5, history_size=8, line_search_fn="strong_wolfe")
calls = 0
for step in range(6):

    def closure():
        global calls
        calls += 1
        optimizer.zero_grad()
        loss = mse(model((x_train - shift) / scale), y_train)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    with torch.no_grad():
        test_loss = mse(model((x_test - shift) / scale), y_test)
    print(f"step {step}: loss {loss.item():.6f} test {test_loss.item():.6f} evaluations {calls}")

with torch.no_grad():
    prediction = model((x_test - shift) / scale).cpu()
with open("prediction.csv", "w") as f:
    for row, value in zip(x_test.cpu().tolist(), prediction.flatten().tolist()):
        f.write(f"{row[0]:.4f},{row[1]:.4f},{value:.5f}\n")
torch.save({"model": model.state_dict(), "shift": shift.cpu(), "scale": scale.cpu()}, "surface.pt")
