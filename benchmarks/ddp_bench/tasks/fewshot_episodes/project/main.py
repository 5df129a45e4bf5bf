import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Episodes(Dataset):
    """Each item is an episode: some classes with support and query examples."""

    def __init__(self, n, ways=3, shots=2, queries=4, seed=0):
        rng = np.random.RandomState(seed)
        centres = np.random.RandomState(99).randn(20, 8)
        self.items = []
        for _ in range(n):
            classes = rng.choice(20, ways, replace=False)
            points = centres[classes][:, None] + 1.2 * rng.randn(ways, shots + queries, 8)
            self.items.append((points[:, :shots].astype(np.float32), points[:, shots:].astype(np.float32)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        support, query = self.items[i]
        return torch.from_numpy(support), torch.from_numpy(query)


class ProtoNet(nn.Module):
    def __init__(self, hidden=24, out=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, out))
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, support, query):
        ways, queries = query.shape[:2]
        prototypes = self.encoder(support).mean(1)
        z = self.encoder(query).reshape(ways * queries, -1)
        logits = -self.log_scale.exp() * torch.cdist(z, prototypes).pow(2)
        return logits, torch.arange(ways, device=query.device).repeat_interleave(queries)


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    meta_batch = 4
    train_loader = DataLoader(Episodes(48, seed=1), batch_size=meta_batch, shuffle=True)
    test_loader = DataLoader(Episodes(15, seed=2), batch_size=1)
    model = ProtoNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    results = {}
    for epoch in range(2):
        model.train()
        train_acc = []
        for supports, queries in train_loader:
            optimizer.zero_grad()
            outer_loss = 0.0
            for support, query in zip(supports.to(device), queries.to(device)):
                logits, target = model(support, query)
                outer_loss = outer_loss + F.cross_entropy(logits, target)
                train_acc.append((logits.argmax(1) == target).float().mean().item())
            outer_loss = outer_loss / meta_batch
            outer_loss.backward()
            optimizer.step()
        model.eval()
        accs = []
        with torch.no_grad():
            for supports, queries in test_loader:
                logits, target = model(supports[0].to(device), queries[0].to(device))
                accs.append((logits.argmax(1) == target).float().mean().item())
        interval = 1.96 * np.std(accs) / np.sqrt(len(accs))
        results[f"epoch {epoch}"] = {"train": float(np.mean(train_acc)), "test": float(np.mean(accs)), "interval": float(interval)}
        print(f"{epoch}: last loss {outer_loss.item():.5f}, train {np.mean(train_acc):.4f}, test {np.mean(accs):.4f} +- {interval:.4f}")
    with open("results.json", "w") as f:
        json.dump(results, f, indent=2)
    torch.save(model.state_dict(), "protonet.pt")


if __name__ == "__main__":
    main()
