import argparse
import csv
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from table import Encoder, Table, read


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def total(value):
    """The sum of a number over all ranks."""
    value = torch.tensor(float(value), device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(value)
    return value.item()


class TabularNet(nn.Module):
    def __init__(self, sizes, numbers):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size + 1, 3) for size in sizes)
        self.layers = nn.Sequential(nn.Linear(3 * len(sizes) + numbers, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, numbers, categories):
        embedded = [e(categories[:, k]) for k, e in enumerate(self.embeddings)]
        return self.layers(torch.cat([numbers, *embedded], 1)).squeeze(1)


def roc_auc(scores, labels):
    order = scores.argsort()
    ranks = torch.empty_like(scores)
    ranks[order] = torch.arange(1, len(scores) + 1).to(scores)
    positive = labels.sum()
    return ((ranks[labels > 0].sum() - positive * (positive + 1) / 2) / (positive * (len(labels) - positive))).item()


def predict(model, loader, device):
    model.eval()
    scores, labels, names = [], [], []
    with torch.no_grad():
        for numbers, categories, churn, customer in loader:
            scores.append(torch.sigmoid(model(numbers.to(device), categories.to(device))).cpu())
            labels.append(churn)
            names.extend(customer)
    return torch.cat(scores), torch.cat(labels), names


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("csv")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--predictions", default="predictions.csv")
    args = parser.parse_args(argv)
    rank, world = setup()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = read(args.csv)
    train_rows, test_rows = rows[:200], rows[200:]
    encoder = Encoder().fit(train_rows)
    train_set = Table(train_rows, encoder)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=args.batch_size // world, sampler=sampler)
    train_eval_loader = DataLoader(Table(train_rows, encoder), batch_size=50)
    test_loader = DataLoader(Table(test_rows, encoder), batch_size=25)
    model = TabularNet([len(v) for v in encoder.vocabulary.values()], 3).to(device)
    ddp = DDP(model)
    positive = sum(int(r["churn"]) for r in train_rows)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor((len(train_rows) - positive) / positive, device=device))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(args.epochs):
        model.train()
        sampler.set_epoch(epoch)
        loss_sum, correct = 0.0, 0
        for numbers, categories, churn, _ in train_loader:
            numbers, categories, churn = numbers.to(device), categories.to(device), churn.to(device)
            optimizer.zero_grad()
            logits = ddp(numbers, categories)
            loss = criterion(logits, churn)
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(churn)
            correct += ((logits > 0) == (churn > 0)).sum().item()
        loss_sum, correct = total(loss_sum), total(correct)
        train_auc = roc_auc(*predict(model, train_eval_loader, device)[:2])
        test_auc = roc_auc(*predict(model, test_loader, device)[:2])
        print(f"epoch {epoch + 1}: loss {loss_sum / len(train_rows):.5f} accuracy {correct / len(train_rows):.4f} AUC {train_auc:.4f} test AUC {test_auc:.4f}")
    scores, labels, names = predict(model, test_loader, device)
    if rank == 0:
        with open(args.predictions, "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["customer", "score", "churn"])
            for name, score, label in zip(names, scores.tolist(), labels.tolist()):
                writer.writerow([name, f"{score:.6f}", int(label)])
    return 0


if __name__ == "__main__":
    code = main()
    dist.destroy_process_group()
    sys.exit(code)
