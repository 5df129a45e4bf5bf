import json
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from forecasting.config import instantiate, load


def run(config):
    torch.manual_seed(config["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    out = Path(config["output"])
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=1))
    loaders = {
        split: DataLoader(instantiate(config["data"], split=split), shuffle=split == "train", **config["loader"])
        for split in ("train", "test")
    }
    model = instantiate(config["model"]).to(device)
    optimizer = instantiate(config["optimizer"], model.parameters())
    criterion = instantiate(config["loss"]).to(device)
    for epoch in range(config["epochs"]):
        losses = {}
        for split, loader in loaders.items():
            model.train(split == "train")
            total, count = 0.0, 0
            with torch.set_grad_enabled(split == "train"):
                for batch in loader:
                    batch = {name: value.to(device) for name, value in batch.items()}
                    loss = criterion(model(batch["past"]), batch["future"])
                    if split == "train":
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                    total += loss.item() * len(batch["past"])
                    count += len(batch["past"])
            losses[split] = total / count
        print(f"[{epoch}] " + ", ".join(f"{split} loss: {value:.6f}" for split, value in losses.items()))
    torch.save(model.state_dict(), out / "weights.pt")


if __name__ == "__main__":
    run(load("conf/config.yaml", sys.argv[1:]))
