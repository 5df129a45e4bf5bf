import argparse
import json
import os

import torch
from torch import nn, optim
from torch.utils.data import DataLoader

from . import parts  # noqa: F401
from .registry import DATASETS, MODELS, build


class Runner:
    def __init__(self, config):
        self.config = config
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.loader = DataLoader(build(DATASETS, config["dataset"]), **config["loader"])
        self.model = build(MODELS, config["model"]).to(self.device)
        self.criterion = getattr(nn, config["loss"]["name"])(**config["loss"]["args"])
        self.optimizer = getattr(optim, config["optimizer"]["name"])(self.model.parameters(), **config["optimizer"]["args"])
        self.scheduler = getattr(optim.lr_scheduler, config["scheduler"]["name"])(self.optimizer, **config["scheduler"]["args"])

    def run(self):
        for epoch in range(self.config["epochs"]):
            loss, acc = self.epoch()
            self.scheduler.step()
            print(json.dumps({"epoch": epoch, "loss": round(loss, 5), "acc": round(acc, 4)}))
        self.save()

    def epoch(self):
        self.model.train()
        total = hits = count = 0
        for batch in self.loader:
            points, label = batch["points"].to(self.device), batch["label"].to(self.device)
            logits = self.model(points)
            loss = self.criterion(logits, label)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(label)
            hits += (logits.argmax(-1) == label).sum().item()
            count += len(label)
        return total / count, hits / count

    def save(self):
        os.makedirs(self.config["output"], exist_ok=True)
        torch.save(self.model.state_dict(), os.path.join(self.config["output"], "model.pt"))
        with open(os.path.join(self.config["output"], "config.json"), "w") as f:
            json.dump(self.config, f)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    with open(parser.parse_args().config) as f:
        config = json.load(f)
    torch.manual_seed(config["seed"])
    Runner(config).run()


if __name__ == "__main__":
    main()
