"""Functions and methods that draw for each number that they are given: each rank draws for its own samples."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import SCRIPT, converted

DRAWN = [
    "nn.functional.gumbel_softmax(model(x))",
    "nn.functional.alpha_dropout(model(x), 0.3, True)",
    "nn.functional.dropout1d(model(x), 0.3)",
    "model(x) * model(x).sigmoid().bernoulli()",
    "model(x) + x.abs().multinomial(1)",
    "model(x + torch.poisson(x.abs()))",
]


@pytest.mark.parametrize("drawn", DRAWN)
def test_each_rank_draws_noise_of_its_own(tmp_path: Path, drawn: str) -> None:
    _, said = converted(tmp_path, SCRIPT.replace("mse_loss(model(x), y)", f"mse_loss({drawn}, y)"))
    assert "AD702" in said and "AD9" not in said
