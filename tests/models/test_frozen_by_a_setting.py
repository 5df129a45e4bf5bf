"""Models that a setting freezes as a whole: DistributedDataParallel refuses what has nothing to train."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

fine_tune, checkpoint = {tune}, None


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x):
        return self.net(x)

    def tune(self, on):
        for p in self.net.parameters():
            p.requires_grad = {frozen}


def main():
    global fine_tune, checkpoint
    torch.manual_seed(0)
    if checkpoint is None:
        decoder, encoder = nn.Linear(4, 3), Encoder()
        encoder.tune(fine_tune)
        {optimizers}
    else:
        checkpoint = torch.load(checkpoint, weights_only=False)
        decoder, decoding = checkpoint["decoder"], checkpoint["decoding"]
        encoder = checkpoint["encoder"]
        encoding = checkpoint["encoding"]
        if fine_tune and encoding is None:
            encoder.tune(True)
            encoding = torch.optim.SGD(encoder.parameters(), lr=0.1)
    x = torch.randn(64, 8)
    loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16, shuffle=True)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(decoder(encoder(x)), y)
            decoding.zero_grad()
            if encoding is not None:
                encoding.zero_grad()
            loss.backward()
            decoding.step()
            if encoding is not None:
                encoding.step()
        print(epoch, loss.item())
    torch.save({{"encoder": encoder.state_dict(), "decoder": decoder.state_dict()}}, "model.pt")


main()
"""
DECODING = "decoding = torch.optim.SGD(decoder.parameters(), lr=0.1)\n        "
IN_ONE = DECODING + "encoding = torch.optim.SGD(encoder.parameters(), lr=0.1) if fine_tune else None"
IN_BRANCH = (
    DECODING
    + "encoding = None\n        if fine_tune:\n            encoding = torch.optim.SGD(encoder.parameters(), lr=0.1)"
)
ALWAYS = DECODING + "encoding = torch.optim.SGD(encoder.parameters(), lr=0.1)"
TEST = "if any(p.requires_grad for p in encoder.parameters()):  # it may be frozen"


@pytest.mark.parametrize("tune", ["True", "False"])
@pytest.mark.parametrize("optimizers", [IN_ONE, IN_BRANCH], ids=["expression", "branch"])
def test_an_encoder_that_may_be_frozen(tmp_path: Path, zygote: Zygote, optimizers: str, tune: str) -> None:
    """As image captioning has it, with models that are read from a checkpoint in the other branch: it was refused."""
    before = SCRIPT.format(tune=tune, frozen="on", optimizers=optimizers)
    code, said = conftest.converted(tmp_path, before)
    assert TEST in code and 'getattr(encoder, "module", encoder)' in code and "AD904" not in said
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


@pytest.mark.parametrize(("frozen", "optimizers"), [("on", ALWAYS), ("True", IN_ONE), ("True", IN_BRANCH)])
def test_models_that_always_train(tmp_path: Path, frozen: str, optimizers: str) -> None:
    code, _ = conftest.converted(tmp_path, SCRIPT.format(tune="True", frozen=frozen, optimizers=optimizers))
    assert TEST not in code and "encoder = DDP(encoder" in code
