import argparse
import glob
import os
import zlib

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset

BUCKETS = 64


class Records(IterableDataset):
    def __init__(self, folder):
        self.paths = sorted(glob.glob(os.path.join(folder, "*.tsv")))

    def __iter__(self):
        for path in self.paths:
            with open(path) as f:
                for line in f:
                    label, text = line.rstrip("\n").split("\t")
                    bag = torch.zeros(BUCKETS)
                    for word in text.split():
                        bag[zlib.crc32(word.encode()) % BUCKETS] += 1
                    yield bag, int(label)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="shards")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--passes", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Records(args.data), batch_size=args.batch_size)
    model = nn.Linear(BUCKETS, 1).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    seen = right = 0
    for number in range(args.passes):
        for step, (bags, labels) in enumerate(loader):
            bags, labels = bags.to(device), labels.to(device)
            logits = model(bags).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(labels)
            right += ((logits > 0) == labels.bool()).sum().item()
            if step % 4 == 3:
                print(f"pass {number} seen {seen} loss {loss.item():.4f} online accuracy {right / seen:.4f}")
    torch.save(model.state_dict(), "linear.pt")


if __name__ == "__main__":
    main()
