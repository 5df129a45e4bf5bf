"""Products that are summed over the samples of a batch: of features, and no pairs of samples."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest
from test_places import PLAIN, SCRIPT

from autodist.verify.launch import Zygote

SEEDED = SCRIPT.replace("loader = ", "torch.manual_seed(0)\nloader = ")


@pytest.mark.parametrize(
    ("loss", "rule"),
    [
        ("(out.t() @ out).mean()", "AD603"),
        ("(out.T @ out / len(out)).pow(2).mean()", "AD605"),
        ("torch.mm(out.t(), out).sum() / len(out)", "AD601"),
        (PLAIN + " + (out.T @ out / len(out) - torch.eye(3)).pow(2).sum()", "AD605"),
        ("(out @ out.t()).mean()", "AD606"),
        ("torch.pdist(out).mean()", "AD606"),
    ],
)
def test_products(tmp_path: Path, zygote: Zygote | None, loss: str, rule: str) -> None:
    text = SEEDED.replace("{step}", f"loss = {loss}")
    said = conftest.converted(tmp_path, text)[1]
    assert rule in said and "AD602" not in said and "AD906" not in said
    assert conftest.differences(tmp_path, zygote, text) is None
