"""Models of torchvision and transformers, small and with random weights, converted to FSDP and verified.

    python -m benchmarks.library_models [--nproc 2] [NAME...]

Each script is converted with ``--strategy fsdp`` and compared with its original step by step. The blocks to shard
come from the catalogue. Libraries that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project

TRAIN = """\
torch.manual_seed(0)
loader = DataLoader(TensorDataset({data}), batch_size=8, shuffle=True)
model = {model}
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for epoch in range(2):
    for batch in loader:
        optimizer.zero_grad()
        loss = {loss}
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"epoch {{epoch}} loss {{loss.item():.4f}}")
torch.save(model.state_dict(), "model.pt")
"""
HEAD = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
"""
IMAGES = "torch.randn(32, 3, 32, 32), torch.randint(0, 5, (32,))"
CLASSIFY = "F.cross_entropy(model(batch[0]), batch[1])"
TOKENS = "torch.randint(0, 101, (32, 16))"
GPT2 = "transformers.GPT2Config(vocab_size=101, n_positions=16, n_embd=32, n_layer=3, n_head=2)"
BERT = (
    "transformers.BertConfig(vocab_size=101, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, "
    "intermediate_size=64, max_position_embeddings=16, num_labels=3)"
)
LLAMA = (
    "transformers.LlamaConfig(vocab_size=101, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, "
    "intermediate_size=64, max_position_embeddings=16)"
)

MODELS = {
    "torchvision resnet18": (IMAGES, "torchvision.models.resnet18(num_classes=5)", CLASSIFY),
    "transformers GPT2": (
        TOKENS,
        f"transformers.GPT2LMHeadModel({GPT2})",
        "model(input_ids=batch[0], labels=batch[0]).loss",
    ),
    "transformers BERT": (
        f"{TOKENS}, torch.randint(0, 3, (32,))",
        f"transformers.BertForSequenceClassification({BERT})",
        "model(input_ids=batch[0], labels=batch[1]).loss",
    ),
    "transformers Llama": (
        TOKENS,
        f"transformers.LlamaForCausalLM({LLAMA})",
        "model(input_ids=batch[0], labels=batch[0]).loss",
    ),
}


def script(name: str) -> str:
    """The training script of a model."""
    data, model, loss = MODELS[name]
    return f"import {name.split()[0]}\n{HEAD}\n{TRAIN.format(data=data, model=model, loss=loss)}"


def verified(name: str, nproc: int) -> tuple[bool, str]:
    """Whether the conversion trains the same model, with the verdict."""
    with tempfile.TemporaryDirectory(prefix="autodist-library-") as folder:
        before, after = Path(folder) / "before.py", Path(folder) / "after.py"
        before.write_text(script(name), encoding="utf-8")
        after.write_text(convert(Project.load(before), Config(Strategy.FSDP)).entry.after, encoding="utf-8")
        units = re.search(r"^for block in (.*):$", after.read_text(encoding="utf-8"), re.MULTILINE)
        command = [sys.executable, "-m", "autodist.verify", str(before), str(after), "--nproc", str(nproc)]
        done = subprocess.run(
            [*command, "--dtype", "float64", "--timeout", "300"], capture_output=True, text=True, check=False
        )
        told = (done.stdout or done.stderr).splitlines()
        return done.returncode == 0, f"blocks {units[1] if units else 'none'}\n  {told[0]}\n{told[1]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify each model, print the verdicts; 1 if one is not equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--nproc", type=int, default=2)
    options = parser.parse_args(arguments)
    equal = True
    for name in MODELS:
        if options.names and not any(each in name for each in options.names):
            continue
        if importlib.util.find_spec(name.split()[0]) is None:
            print(f"{name}: not installed")
            continue
        same, told = verified(name, options.nproc)
        equal = equal and same
        print(f"{name}: {told}", flush=True)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
