import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from sam import SAM


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def gather(values):
    """The values of all ranks, which have equally many."""
    parts = [torch.empty_like(values) for _ in range(world)]
    dist.all_gather(parts, values.detach().contiguous())
    return torch.cat(parts)


class Log:
    def __init__(self, log_each):
        self.log_each, self.best_accuracy, self.epoch, self.learning_rate = log_each, 0.0, -1, 0.0

    def train(self, len_dataset):
        self.epoch += 1
        self.len_dataset, self.is_train, self.step = len_dataset, True, 0
        self.epoch_state = {"loss": 0.0, "accuracy": 0.0, "steps": 0}

    def eval(self, len_dataset):
        self.flush()
        self.len_dataset, self.is_train = len_dataset, False
        self.epoch_state = {"loss": 0.0, "accuracy": 0.0, "steps": 0}

    def __call__(self, loss, correct, learning_rate=None):
        self.epoch_state["loss"] += loss.sum().item()
        self.epoch_state["accuracy"] += correct.sum().item()
        self.epoch_state["steps"] += loss.size(0)
        if self.is_train:
            self.learning_rate = learning_rate
            self.step += 1
            if self.step % self.log_each == 0:
                print(f"  step {self.step}/{self.len_dataset}: loss {loss.mean().item():.5f}")

    def flush(self):
        loss = self.epoch_state["loss"] / self.epoch_state["steps"]
        accuracy = self.epoch_state["accuracy"] / self.epoch_state["steps"]
        kind = "train" if self.is_train else "valid"
        print(f"epoch {self.epoch} {kind} loss {loss:.5f} accuracy {100 * accuracy:.2f}% lr {self.learning_rate:.3e}")
        if not self.is_train and accuracy > self.best_accuracy:
            self.best_accuracy = accuracy


def smooth_crossentropy(pred, gold, smoothing=0.1):
    n_class = pred.size(1)
    one_hot = torch.full_like(pred, fill_value=smoothing / (n_class - 1))
    one_hot.scatter_(dim=1, index=gold.unsqueeze(1), value=1.0 - smoothing)
    return F.kl_div(input=F.log_softmax(pred, dim=1), target=one_hot, reduction="none").sum(-1)


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 5, (n,), generator=g)
    centre = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    return TensorDataset(centre[y] + torch.randn(n, 6, generator=g), y)


class StepLR:
    def __init__(self, optimizer, learning_rate, total_epochs):
        self.optimizer, self.base, self.total_epochs = optimizer, learning_rate, total_epochs

    def __call__(self, epoch):
        for group in self.optimizer.param_groups:
            group["lr"] = self.base * (1.0 if epoch < self.total_epochs / 2 else 0.2)

    def lr(self):
        return self.optimizer.param_groups[0]["lr"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", default=16, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--learning_rate", default=0.1, type=float)
    parser.add_argument("--rho", default=0.3, type=float)
    args = parser.parse_args()
    rank, world = setup()
    torch.manual_seed(42)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = blobs(128, 1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=args.batch_size // world, sampler=sampler)
    test_loader = DataLoader(blobs(50, 2), batch_size=25)
    log = Log(log_each=4)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 5)).to(device)
    ddp = DDP(model)
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=args.rho, lr=args.learning_rate, momentum=0.9, weight_decay=5e-4)
    scheduler = StepLR(optimizer, args.learning_rate, args.epochs)
    for epoch in range(args.epochs):
        model.train()
        sampler.set_epoch(epoch)
        log.train(len_dataset=len(train_loader))
        for batch in train_loader:
            inputs, targets = (b.to(device) for b in batch)
            predictions = ddp(inputs)
            loss = smooth_crossentropy(predictions, targets)
            loss.mean().backward()
            optimizer.first_step(zero_grad=True)
            smooth_crossentropy(ddp(inputs), targets).mean().backward()
            optimizer.second_step(zero_grad=True)
            with torch.no_grad():
                correct = torch.argmax(predictions.data, 1) == targets
                log(gather(loss).cpu(), gather(correct.int()).cpu(), scheduler.lr())
                scheduler(epoch)
        model.eval()
        log.eval(len_dataset=len(test_loader))
        with torch.no_grad():
            for batch in test_loader:
                inputs, targets = (b.to(device) for b in batch)
                predictions = model(inputs)
                log(smooth_crossentropy(predictions, targets).cpu(), (predictions.argmax(1) == targets).cpu())
    log.flush()
    print(f"best accuracy {log.best_accuracy:.4f}")
    if rank == 0:
        torch.save(model.state_dict(), "sam.pt")
    dist.destroy_process_group()
