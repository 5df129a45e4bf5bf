import argparse
import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from checkpoint import load_checkpoint, save_checkpoint
from data import make_loaders
from distributed import barrier, cleanup, is_main_process, setup
from engine import evaluate, train_one_epoch


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="points.pt")
    parser.add_argument("--output", default="output")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.01)
    return parser.parse_args()


def main():
    args = parse()
    device = setup()
    torch.manual_seed(2024)
    train_loader, val_loader = make_loaders(args.data, args.batch_size)
    net = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 4)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    path = os.path.join(args.output, "last.pt")
    start = load_checkpoint(path, net, optimizer, device) if os.path.exists(path) else 0
    model = DDP(net, device_ids=[device.index])
    if is_main_process():
        os.makedirs(args.output, exist_ok=True)
    barrier()
    for epoch in range(start, args.epochs):
        train_loader.sampler.set_epoch(epoch)
        loss = train_one_epoch(model, train_loader, optimizer, device)
        accuracy = evaluate(net, val_loader, device)
        if is_main_process():
            print(f"{epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}")
        save_checkpoint(path, net, optimizer, epoch)
    cleanup()


if __name__ == "__main__":
    main()
