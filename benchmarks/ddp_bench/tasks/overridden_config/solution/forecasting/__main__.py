import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from forecasting.config import instantiate, load


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def reduced(value):
    """The sum of a number over all ranks."""
    value = torch.tensor(float(value), device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(value)
    return value.item()


def run(config):
    rank, world = setup()
    torch.manual_seed(config["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    out = Path(config["output"])
    if rank == 0:
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text(json.dumps(config, indent=1))
    train_set, test_set = (instantiate(config["data"], split=split) for split in ("train", "test"))
    sampler = DistributedSampler(train_set)
    share = {**config["loader"], "batch_size": config["loader"]["batch_size"] // world}
    loaders = {"train": DataLoader(train_set, sampler=sampler, **share), "test": DataLoader(test_set, **config["loader"])}
    model = instantiate(config["model"]).to(device)
    ddp = DDP(model)
    optimizer = instantiate(config["optimizer"], model.parameters())
    criterion = instantiate(config["loss"]).to(device)
    for epoch in range(config["epochs"]):
        losses = {}
        sampler.set_epoch(epoch)
        for split, loader in loaders.items():
            model.train(split == "train")
            total, count = 0.0, 0
            with torch.set_grad_enabled(split == "train"):
                for batch in loader:
                    batch = {name: value.to(device) for name, value in batch.items()}
                    loss = criterion((ddp if split == "train" else model)(batch["past"]), batch["future"])
                    if split == "train":
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                    total += loss.item() * len(batch["past"])
                    count += len(batch["past"])
            losses[split] = reduced(total) / reduced(count)
        print(f"[{epoch}] " + ", ".join(f"{split} loss: {value:.6f}" for split, value in losses.items()))
    if rank == 0:
        torch.save(model.state_dict(), out / "weights.pt")


if __name__ == "__main__":
    run(load("conf/config.yaml", sys.argv[1:]))
    dist.destroy_process_group()
