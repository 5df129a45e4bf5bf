import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from sampler import PKSampler


def people(n_classes, each, seed):
    g = torch.Generator().manual_seed(seed)
    kinds = torch.randn(n_classes, 12, generator=g)
    labels = torch.arange(n_classes).repeat_interleave(each)
    return TensorDataset(kinds[labels] + 0.9 * torch.randn(len(labels), 12, generator=g), labels)


class BatchHardTripletLoss(nn.Module):
    def __init__(self, margin=0.3):
        super().__init__()
        self.margin = margin

    def forward(self, embedding, label):
        distance = torch.cdist(embedding, embedding)
        same = label.unsqueeze(0) == label.unsqueeze(1)
        positive = distance.masked_fill(~same, 0).max(1).values
        negative = distance.masked_fill(same, float("inf")).min(1).values
        hard = F.relu(positive - negative + self.margin)
        return hard.mean(), (hard > 0).float().mean()


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 32), nn.LeakyReLU(), nn.Linear(32, 6))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


@torch.no_grad()
def rank1_and_map(model, query, gallery, device):
    model.eval()
    q = torch.cat([model(x.to(device)) for x, _ in query]).cpu()
    g = torch.cat([model(x.to(device)) for x, _ in gallery]).cpu()
    q_label = torch.cat([y for _, y in query])
    g_label = torch.cat([y for _, y in gallery])
    order = torch.cdist(q, g).argsort(1)
    match = (g_label[order] == q_label.unsqueeze(1)).to(q)
    precision = match.cumsum(1) / torch.arange(1, match.shape[1] + 1)
    return match[:, 0].mean().item(), ((precision * match).sum(1) / match.sum(1)).mean().item()


def main():
    torch.manual_seed(17)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = people(16, 10, 1)
    sampler = PKSampler(train_set.tensors[1].tolist(), p=4, k=4, batches=12, seed=3)
    loader = DataLoader(train_set, batch_sampler=sampler)
    query = DataLoader(people(9, 3, 2), batch_size=10)
    gallery = DataLoader(people(9, 5, 2), batch_size=10)
    model = Embedder().to(device)
    criterion = BatchHardTripletLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    best = 0.0
    for epoch in range(3):
        model.train()
        losses, active = [], []
        for x, label in loader:
            x, label = x.to(device), label.to(device)
            loss, share = criterion(model(x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            active.append(share.item())
        rank1, mean_ap = rank1_and_map(model, query, gallery, device)
        print("Epoch %d | loss %.5f | active %.4f | rank-1 %.4f | mAP %.4f" % (epoch, sum(losses) / len(losses), sum(active) / len(active), rank1, mean_ap))
        if mean_ap > best:
            best = mean_ap
            torch.save({"state_dict": model.state_dict(), "mAP": mean_ap}, "best.pth")


if __name__ == "__main__":
    main()
