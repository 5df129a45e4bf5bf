import torch
import torch.nn as nn
import torch.optim as optim
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
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
            accelerator.save(accelerator.unwrap_model(model).state_dict(), self.path)
        else:
            self.counter += 1
            accelerator.print(f"EarlyStopping counter: {self.counter} out of {self.patience}")
            self.early_stop = self.counter >= self.patience


torch.manual_seed(12)
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
device = accelerator.device
x = torch.randn(150, 5, generator=torch.Generator().manual_seed(4))
y = torch.sin(x.sum(1, keepdim=True)) + 0.3 * torch.randn(150, 1, generator=torch.Generator().manual_seed(5))
train_set, val_set = random_split(TensorDataset(x, y), [117, 33], generator=torch.Generator().manual_seed(6))
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
val_loader = DataLoader(val_set, batch_size=16)

model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
criterion = nn.MSELoss()
optimizer = optim.Adam(model.parameters(), lr=0.03)
scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", factor=0.5, patience=0)
stopper = EarlyStopping()
model, optimizer, train_loader, val_loader, scheduler = accelerator.prepare(
    model, optimizer, train_loader, val_loader, scheduler
)

for epoch in range(12):
    model.train()
    train_losses = []
    for data, target in train_loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        accelerator.backward(loss)
        optimizer.step()
        train_losses.append(accelerator.reduce(loss.detach(), "mean").item())
    model.eval()
    valid_losses = []
    with torch.no_grad():
        for data, target in val_loader:
            output, target = accelerator.gather_for_metrics((model(data), target))
            valid_losses.append(criterion(output, target).item())
    train_loss = sum(train_losses) / len(train_losses)
    valid_loss = sum(valid_losses) / len(valid_losses)
    accelerator.print(f"[{epoch:>2}] train_loss: {train_loss:.5f} valid_loss: {valid_loss:.5f} lr: {optimizer.param_groups[0]['lr']:.5f}")
    scheduler.step(valid_loss)
    stopper(valid_loss, model)
    if stopper.early_stop:
        accelerator.print("Early stopping")
        break
accelerator.wait_for_everyone()
model = accelerator.unwrap_model(model)
model.load_state_dict(torch.load("checkpoint.pt"))
accelerator.save(model.state_dict(), "final.pt")
