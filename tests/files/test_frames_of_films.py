"""Pictures that rank 0 draws during training, and all ranks read afterwards, to make a film of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

TEXT = """\
import matplotlib.pyplot as plt
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def film(path, files):
    {read}
    frames[0].save(path, append_images=frames[1:], save_all=True)


data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
files = []
for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    file = "plots/%d.png" % epoch
    plt.savefig(file)
    files.append(file)
film("training.gif", files)
"""


@pytest.mark.parametrize(
    "read",
    [
        "frames = [Image.open(each) for each in files]",
        "frames = []\n    for each in files:\n        frames.append(Image.open(each))",
    ],
)
def test_are_there_when_they_are_read(tmp_path: Path, read: str) -> None:
    after, _ = converted(tmp_path, TEXT.format(read=read))
    assert 'dist.barrier()  # wait until rank 0 has written it\nfilm("training.gif", files)' in after
