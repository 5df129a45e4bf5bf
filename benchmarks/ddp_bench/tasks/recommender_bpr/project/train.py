import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

USERS, ITEMS, FACTORS = 30, 40, 8


def interactions():
    g = torch.Generator().manual_seed(3)
    taste = torch.randn(USERS, 3, generator=g) @ torch.randn(3, ITEMS, generator=g)
    return taste.topk(9, dim=1).indices


class Triples(Dataset):
    """(user, liked item, other item); the last liked item of each user is held out."""

    def __init__(self, liked):
        g = torch.Generator().manual_seed(4)
        self.rows = []
        for user, items in enumerate(liked[:, :8].tolist()):
            for item in items:
                other = int(torch.randint(ITEMS, (1,), generator=g))
                while other in items:
                    other = int(torch.randint(ITEMS, (1,), generator=g))
                self.rows.append((user, item, other))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class BPR(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, FACTORS)
        self.items = nn.Embedding(ITEMS, FACTORS)
        nn.init.normal_(self.users.weight, std=0.1)
        nn.init.normal_(self.items.weight, std=0.1)

    def forward(self, user, item_i, item_j):
        u = self.users(user)
        return (u * self.items(item_i)).sum(-1), (u * self.items(item_j)).sum(-1)


def evaluate(model, liked, k=10):
    hits, ndcg = [], []
    with torch.no_grad():
        for user in range(USERS):
            scores = model.users.weight[user] @ model.items.weight.T
            scores[liked[user, :8]] = -1e9
            ranked = scores.topk(k).indices.tolist()
            target = int(liked[user, 8])
            hits.append(float(target in ranked))
            ndcg.append(1 / math.log2(ranked.index(target) + 2) if target in ranked else 0.0)
    return sum(hits) / USERS, sum(ndcg) / USERS


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
liked = interactions()
loader = DataLoader(Triples(liked), batch_size=24, shuffle=True)
model = BPR().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
best_hr = 0.0
for epoch in range(3):
    model.train()
    total = 0.0
    for user, item_i, item_j in loader:
        user, item_i, item_j = user.to(device), item_i.to(device), item_j.to(device)
        model.zero_grad()
        pos, neg = model(user, item_i, item_j)
        loss = -F.logsigmoid(pos - neg).mean() + 1e-3 * (model.users(user).pow(2).mean() + model.items(item_i).pow(2).mean())
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    hr, ndcg = evaluate(model, liked)
    print("epoch {:03d} loss {:.4f} HR: {:.3f} NDCG: {:.3f}".format(epoch, total / len(loader), hr, ndcg))
    if hr > best_hr:
        best_hr = hr
        torch.save(model, "best.pt")
torch.save(model.state_dict(), "bpr.pt")
