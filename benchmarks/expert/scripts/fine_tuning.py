"""Fine-tuning a head on a frozen body, with an evaluation and a checkpoint of the best after each epoch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.body(x))


def evaluate(model, loader, device):
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    return correct / len(loader.dataset)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = TensorDataset(torch.randn(256, 32), torch.randint(5, (256,)))
    test_set = TensorDataset(torch.randn(128, 32), torch.randint(5, (128,)))
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=64)
    model = Classifier().to(device)
    for p in model.body.parameters():
        p.requires_grad = False
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
    best = 0.0
    for epoch in range(2):
        model.train()
        for x, y in train_loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = evaluate(model, test_loader, device)
        print(f"epoch {epoch}: accuracy {accuracy:.3f}")
        if accuracy > best:
            best = accuracy
            torch.save(model.state_dict(), "best.pt")


if __name__ == "__main__":
    main()
