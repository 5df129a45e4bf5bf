"""What a model gives for a rank's samples, in a call that rank 0 alone makes."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.config import Strategy


@pytest.mark.parametrize("strategy", [Strategy.DDP, Strategy.FSDP])
def test_outputs_are_gathered_with_the_pass_that_makes_them(tmp_path: Path, strategy: Strategy) -> None:
    """Running the model on all ranks, and gathering what it gives, is one statement ahead of the guarded one."""
    script = conftest.SCRIPT.replace("model.state_dict()", "model(x).detach()")
    after, _ = conftest.converted(tmp_path, script, strategy)
    assert "= gather_rows(model(x).detach())\nif dist.get_rank() == 0:\n    torch.save(all_model, " in after


def test_outputs_of_a_part_of_the_model_are_gathered(tmp_path: Path) -> None:
    script = conftest.SCRIPT.replace("model.state_dict()", "model[0](x).detach()").replace(
        "nn.Linear(4, 1)", "nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))"
    )
    after, _ = conftest.converted(tmp_path, script)
    assert "= gather_rows(model.module[0](x).detach())\nif dist.get_rank() == 0:\n" in after
