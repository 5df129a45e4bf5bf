import torch

torch.manual_seed(0)
dev = "cuda" if torch.cuda.is_available() else "cpu"

# y = a noisy plane over 10 features, two thirds of them useless
N, D, BS = 192, 10, 32
X = torch.randn(N, D)
w = torch.zeros(D, 1)
w[:3] = torch.tensor([[2.0], [-1.0], [0.5]])
Y = X @ w + 0.1 * torch.randn(N, 1)
Xtr, Ytr, Xte, Yte = X[:160].to(dev), Y[:160].to(dev), X[160:].to(dev), Y[160:].to(dev)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(D, 16)
        self.b = torch.nn.Linear(16, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))

    def l1(self):
        return sum(p.abs().sum() for p in self.parameters())


net = Net().to(dev)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
curve = []
for epoch in range(3):
    perm = torch.randperm(Xtr.size(0))
    for i in range(0, Xtr.size(0), BS):
        idx = perm[i : i + BS].to(dev)
        pred = net(Xtr[idx])
        loss = (pred - Ytr[idx]).pow(2).mean() + 1e-4 * net.l1()
        opt.zero_grad()
        loss.backward()
        opt.step()
        curve.append(loss.item())
    with torch.no_grad():
        err = (net(Xte) - Yte).pow(2).mean()
        r2 = 1 - err / Yte.var(unbiased=False)
    print(f"{epoch}: train {curve[-1]:.5f} test {err.item():.5f} r2 {r2.item():.4f}")
torch.save({"net": net.state_dict(), "curve": torch.tensor(curve)}, "result.pt")
