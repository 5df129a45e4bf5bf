import argparse
import json
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from ema import ModelEma


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workdir", type=Path, default=Path("runs"))
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch_size", type=int, default=20)
    p.add_argument("--resume", action="store_true")
    return p.parse_args()


def build_data():
    g = torch.Generator().manual_seed(9)
    x = torch.randn(200, 6, generator=g)
    y = (x[:, :3].prod(1) + x[:, 3:].sum(1)).unsqueeze(1)
    full = TensorDataset(x, y)
    return Subset(full, range(160)), Subset(full, range(160, 200))


def evaluate(model, loader, device):
    model.eval()
    se, n = 0.0, 0
    with torch.inference_mode():
        for x, y in loader:
            se += (model(x.to(device)) - y.to(device)).square().sum().item()
            n += len(x)
    return se / n


def main(args):
    torch.manual_seed(0)
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
    device = accelerator.device
    args.workdir.mkdir(parents=True, exist_ok=True)
    train_set, val_set = build_data()
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, 16)
    model = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 1)).to(device)
    ema = ModelEma(model)
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    start = 0
    if args.resume:
        state = torch.load(args.workdir / "last.ckpt", map_location=device)
        model.load_state_dict(state["model"])
        ema.ema.load_state_dict(state["ema"])
        opt.load_state_dict(state["opt"])
        start = state["epoch"] + 1
    model, opt, train_loader = accelerator.prepare(model, opt, train_loader)
    history = []
    for epoch in range(start, args.epochs):
        model.train()
        for x, y in train_loader:
            loss = nn.functional.smooth_l1_loss(model(x.to(device)), y.to(device))
            opt.zero_grad()
            accelerator.backward(loss)
            opt.step()
            ema.update(accelerator.unwrap_model(model))
        row = {"epoch": epoch, "mse": evaluate(model, val_loader, device), "mse_ema": evaluate(ema.ema, val_loader, device)}
        history.append(row)
        accelerator.print(row["epoch"], f"{row['mse']:.6f}", f"{row['mse_ema']:.6f}")
        accelerator.save({"model": accelerator.unwrap_model(model).state_dict(), "ema": ema.ema.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, args.workdir / "last.ckpt")
    if accelerator.is_main_process:
        (args.workdir / "history.json").write_text(json.dumps(history, indent=2))


if __name__ == "__main__":
    main(get_args())
