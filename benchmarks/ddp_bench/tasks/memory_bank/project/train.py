import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Instances(Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(13)
        self.x = torch.randn(n, 8, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], index


class LinearAverage(nn.Module):
    def __init__(self, dim, size, T=0.2, momentum=0.5):
        super().__init__()
        self.T, self.momentum = T, momentum
        start = torch.randn(size, dim, generator=torch.Generator().manual_seed(0))
        self.register_buffer("memory", F.normalize(start, dim=1))

    def forward(self, features):
        return features @ self.memory.t() / self.T

    @torch.no_grad()
    def update(self, features, index):
        old = self.memory.index_select(0, index)
        new = self.momentum * old + (1 - self.momentum) * features
        self.memory.index_copy_(0, index, F.normalize(new, dim=1))


class Encoder(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = Instances()
    loader = DataLoader(dataset, batch_size=16, shuffle=True)
    encoder = Encoder().to(device)
    bank = LinearAverage(4, len(dataset)).to(device)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(3):
        encoder.train()
        total = 0.0
        for x, index in loader:
            x, index = x.to(device), index.to(device)
            features = encoder(x)
            loss = F.cross_entropy(bank(features), index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bank.update(features.detach(), index)
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.5f}")
    torch.save({"encoder": encoder.state_dict(), "bank": bank.state_dict()}, "instance.pt")


if __name__ == "__main__":
    main()
