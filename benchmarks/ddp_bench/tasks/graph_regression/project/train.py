import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from graphs import Molecules, collate_graphs


class GraphConv(nn.Module):
    def __init__(self, dim_in, dim_out):
        super().__init__()
        self.own, self.others = nn.Linear(dim_in, dim_out), nn.Linear(dim_in, dim_out, bias=False)

    def forward(self, x, edge_index):
        source, target = edge_index
        message = torch.zeros_like(x).index_add_(0, target, x[source])
        return self.own(x) + self.others(message)


class GNN(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.conv1, self.conv2 = GraphConv(4, hidden), GraphConv(hidden, hidden)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, data):
        x = self.conv1(data.x, data.edge_index).relu()
        x = self.conv2(x, data.edge_index).relu()
        size = torch.bincount(data.batch, minlength=data.num_graphs).unsqueeze(1)
        pooled = x.new_zeros(data.num_graphs, x.shape[1]).index_add_(0, data.batch, x) / size
        return self.head(pooled).squeeze(1)


def train(model, loader, optimizer, device, std):
    model.train()
    total_loss = 0
    for data in loader:
        data = data.to(device)
        optimizer.zero_grad()
        loss = (model(data) - data.y / std).abs().mean()
        loss.backward()
        optimizer.step()
        total_loss += loss.item() * data.num_graphs
    return total_loss / len(loader.dataset)


@torch.no_grad()
def test(model, loader, device, std):
    model.eval()
    error = 0
    for data in loader:
        data = data.to(device)
        error += (model(data) * std - data.y).abs().sum().item()
    return error / len(loader.dataset)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(12345)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, val_set, test_set = Molecules(128, 1), Molecules(33, 2), Molecules(37, 3)
    std = torch.stack([g.y for g in train_set]).std().item()
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, collate_fn=collate_graphs)
    val_loader = DataLoader(val_set, args.batch_size, collate_fn=collate_graphs)
    test_loader = DataLoader(test_set, args.batch_size, collate_fn=collate_graphs)
    model = GNN().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.7, patience=0, min_lr=1e-5)
    best_val_error = None
    for epoch in range(1, args.epochs + 1):
        lr = scheduler.optimizer.param_groups[0]["lr"]
        loss = train(model, train_loader, optimizer, device, std)
        val_error = test(model, val_loader, device, std)
        scheduler.step(val_error)
        if best_val_error is None or val_error <= best_val_error:
            test_error = test(model, test_loader, device, std)
            best_val_error = val_error
        print(f"Epoch: {epoch:03d}, LR: {lr:7f}, Loss: {loss:.7f}, Val MAE: {val_error:.7f}, Test MAE: {test_error:.7f}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "std": std}, "gnn.pt")
