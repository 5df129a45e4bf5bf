import os

import torch
import torch.nn as nn
import torch.optim as optim
from lightning_fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset, random_split


class EarlyStopping:
    def __init__(self, patience=2, path="checkpoint.pt"):
        self.patience, self.path = patience, path
        self.counter, self.best_score, self.early_stop = 0, None, False

    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best_score is None or score > self.best_score + 1e-3:
            self.best_score = score
            self.counter = 0
            fabric.save(self.path, model.state_dict())
        else:
            self.counter += 1
            fabric.print(f"EarlyStopping counter: {self.counter} out of {self.patience}")
            self.early_stop = self.counter >= self.patience


torch.manual_seed(12)
fabric = Fabric(accelerator="auto", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
fabric.launch()
device = fabric.device
x = torch.randn(150, 5, generator=torch.Generator().manual_seed(4))
y = torch.sin(x.sum(1, keepdim=True)) + 0.3 * torch.randn(150, 1, generator=torch.Generator().manual_seed(5))
train_set, val_set = random_split(TensorDataset(x, y), [117, 33], generator=torch.Generator().manual_seed(6))
train_loader = DataLoader(train_set, batch_size=16 // fabric.world_size, shuffle=True)
val_loader = DataLoader(val_set, batch_size=16)

model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
criterion = nn.MSELoss()
optimizer = optim.Adam(model.parameters(), lr=0.03)
scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", factor=0.5, patience=0)
stopper = EarlyStopping()
model, optimizer = fabric.setup(model, optimizer)
train_loader = fabric.setup_dataloaders(train_loader)

for epoch in range(12):
    model.train()
    train_losses = []
    for data, target in train_loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        fabric.backward(loss)
        optimizer.step()
        train_losses.append(fabric.all_reduce(loss.detach()).item())
    model.eval()
    valid_losses = []
    with torch.no_grad():
        for data, target in val_loader:
            valid_losses.append(criterion(model(data.to(device)), target.to(device)).item())
    train_loss = sum(train_losses) / len(train_losses)
    valid_loss = sum(valid_losses) / len(valid_losses)
    fabric.print(f"[{epoch:>2}] train_loss: {train_loss:.5f} valid_loss: {valid_loss:.5f} lr: {optimizer.param_groups[0]['lr']:.5f}")
    scheduler.step(valid_loss)
    stopper(valid_loss, model)
    if stopper.early_stop:
        fabric.print("Early stopping")
        break
fabric.barrier()
model.load_state_dict(torch.load("checkpoint.pt"))
fabric.save("final.pt", model.state_dict())
