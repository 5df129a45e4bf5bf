import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from callbacks import Checkpoints, JsonLogger, Printer


class Trainer:
    def __init__(self, model, train_loader, val_loader, callbacks=(), lr=0.05):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.train_loader, self.val_loader = train_loader, val_loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=lr, total_steps=4 * len(train_loader))
        self.callbacks = callbacks
        self.epoch = self.step = 0

    def state_dict(self):
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
        }

    def load_state_dict(self, state):
        for name in ("model", "optimizer", "scheduler"):
            getattr(self, name).load_state_dict(state[name])
        self.epoch, self.step = state["epoch"], state["step"]

    def call(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, *args)

    def training_step(self, batch):
        x, y = (t.to(self.device) for t in batch)
        return nn.functional.mse_loss(self.model(x), y)

    def fit(self, epochs):
        while self.epoch < epochs:
            self.epoch += 1
            self.model.train()
            for batch in self.train_loader:
                self.optimizer.zero_grad()
                loss = self.training_step(batch)
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.step += 1
                self.call("on_batch_end", loss.item())
            self.call("on_epoch_end", {"val_loss": self.validate()})

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = [self.training_step(batch) for batch in self.val_loader]
        return torch.stack(losses).mean().item()


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 2, generator=g) * 4 - 2
    return TensorDataset(x, (x.pow(2).sum(1, keepdim=True)).cos())


def main():
    def trainer():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1))
        train_loader = DataLoader(make(96, 1), batch_size=12, shuffle=True)
        val_loader = DataLoader(make(24, 2), batch_size=12)
        return Trainer(model, train_loader, val_loader, [Printer(), JsonLogger("logs/log.jsonl"), Checkpoints("checkpoints")])

    trainer().fit(2)
    resumed = trainer()
    resumed.load_state_dict(torch.load("checkpoints/last.pt"))
    resumed.fit(4)


if __name__ == "__main__":
    main()
