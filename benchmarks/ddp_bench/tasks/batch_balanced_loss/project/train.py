import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

from losses import balanced_hard_loss


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=g) ** 3 * 4).long()
    x = torch.randn(n, 5, generator=g)
    x[:, :4] += 2 * torch.eye(4)[y]
    return TensorDataset(x, y)


def main():
    torch.manual_seed(77)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(make(128, 1), batch_size=16, shuffle=True, drop_last=True)
    test = DataLoader(make(45, 2), batch_size=16)
    model = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 4)).to(device)
    optimizer = optim.NAdam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        model.train()
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = balanced_hard_loss(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            if step % 4 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.5f}")
        model.eval()
        per_class = torch.zeros(4, 2, dtype=torch.long)
        with torch.no_grad():
            for x, y in test:
                hit = model(x.to(device)).argmax(1).cpu() == y
                for c in range(4):
                    per_class[c] += torch.stack([hit[y == c].sum(), (y == c).sum()])
        print("recall", " ".join(f"{h}/{n}" for h, n in per_class.tolist()))
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
