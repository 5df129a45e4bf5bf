import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def patients(n=320):
    g = torch.Generator().manual_seed(19)
    x = torch.randn(n, 9, generator=g)
    risk = 0.8 * x[:, 0] - 0.6 * x[:, 1] + 0.5 * x[:, 2] * x[:, 3]
    time = -torch.log(torch.rand(n, generator=g)) / (0.1 * risk.exp())
    censored = -torch.log(torch.rand(n, generator=g)) / 0.06
    return TensorDataset(x, torch.minimum(time, censored), (time <= censored).to(x))


class CoxLoss(nn.Module):
    """The negative partial log-likelihood: each event against all who are still at risk in the batch."""

    def forward(self, log_risk, time, event):
        order = time.argsort(descending=True)
        log_risk, event = log_risk[order], event[order]
        return -((log_risk - log_risk.logcumsumexp(0)) * event).sum() / event.sum()


def concordance(risk, time, event):
    earlier = (time.unsqueeze(1) < time.unsqueeze(0)) & (event.unsqueeze(1) > 0)
    right = (risk.unsqueeze(1) > risk.unsqueeze(0)) & earlier
    return right.sum().item() / earlier.sum().item()


class DeepSurv(nn.Module):
    def __init__(self, features=9, hidden=20):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(features, hidden), nn.SELU(), nn.Linear(hidden, hidden), nn.SELU(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.model(x).squeeze(-1)

    def get_reg_loss(self, order=2, weight=1e-3):
        return weight * sum(torch.norm(w, p=order) for name, w in self.model.named_parameters() if "weight" in name)


if __name__ == "__main__":
    torch.manual_seed(2)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_set, test_set = random_split(patients(), [240, 80], generator=torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, batch_size=40, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=len(test_set))
    net, criterion = DeepSurv().to(device), CoxLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=8e-3)
    best_c, flag = 0.0, 0
    for epoch in range(8):
        optimizer.param_groups[0]["lr"] = 8e-3 / (1 + epoch * 0.1)
        net.train()
        train_loss = 0.0
        for x, time, event in train_loader:
            x, time, event = x.to(device), time.to(device), event.to(device)
            loss = criterion(net(x), time, event) + net.get_reg_loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            train_loss += loss.item() / len(train_loader)
        net.eval()
        with torch.no_grad():
            x, time, event = next(iter(test_loader))
            c = concordance(net(x.to(device)).cpu(), time, event)
        print("\rEpoch: {}\tLoss: {:.6f}\tc-index: {:.4f}".format(epoch, train_loss, c))
        if c > best_c:
            best_c, flag = c, 0
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "best.pth")
        else:
            flag += 1
            if flag >= 2:
                print("no improvement, stopping")
                break
