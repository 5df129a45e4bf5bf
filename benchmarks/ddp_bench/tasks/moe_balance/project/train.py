import logging

import torch
from torch.utils.data import DataLoader, TensorDataset

from moe import Model

logger = logging.getLogger(__name__)


def counters(n, seed):
    """Sequences that count in steps; the step changes in the middle."""
    g = torch.Generator().manual_seed(seed)
    start, first, second = torch.randint(0, 16, (n, 1), generator=g), torch.randint(1, 4, (n, 1), generator=g), torch.randint(1, 4, (n, 1), generator=g)
    steps = torch.cat([first.expand(n, 6), second.expand(n, 6)], 1).cumsum(1)
    tokens = torch.cat([start, (start + steps) % 16], 1)
    return TensorDataset(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[logging.FileHandler("train.log", mode="w"), logging.StreamHandler()])
    torch.manual_seed(21)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(counters(128, 1), batch_size=16, shuffle=True)
    valid_loader = DataLoader(counters(36, 2), batch_size=12)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), weight_decay=0.05)
    for epoch in range(2):
        model.train()
        for step, (tokens, targets) in enumerate(train_loader):
            loss, aux = model(tokens.to(device), targets.to(device))
            (loss + 0.1 * aux).backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 4 == 0:
                logger.info("epoch %d step %d loss %.5f balance %.5f norm %.4f", epoch, step, loss.item(), aux.item(), norm.item())
        model.eval()
        with torch.no_grad():
            valid = torch.stack([model(tokens.to(device), targets.to(device))[0] for tokens, targets in valid_loader]).mean()
        logger.info("epoch %d valid %.5f usage %s", epoch, valid.item(), " ".join(f"{u:.4f}" for u in model.layers[0].moe.usage.tolist()))
    torch.save(model.state_dict(), "moe.pt")


if __name__ == "__main__":
    main()
