"""Ways of writing a training script, told apart by the names that it uses. Only for counting in reports."""

from __future__ import annotations

import re
from collections.abc import Iterable

IDIOMS = {
    "argparse": r"\bArgumentParser\b",
    "AMP": r"\b(GradScaler|autocast)\b",
    "BatchNorm": r"\bBatchNorm[123]?d?\b",
    "best metric kept": r"\bif\b.*[<>].*\bbest",
    "constant cuda device": r"\.cuda\(\)",
    "DataLoader": r"\bDataLoader\(",
    "DataParallel": r"\bDataParallel\(",
    "early stopping": r"(?i)\bearly_?stop",
    "gradient accumulation": r"(?i)accum\w*_?(steps|iter|grad|every)",
    "gradient clipping": r"\bclip_grad_",
    "gradient penalty": r"\bautograd\.grad\(|create_graph\s*=\s*True",
    "hand-made batches": r"\bdef\s+(get_)?batch|\bbatchify\(|\[\s*i\s*:\s*i\s*\+\s*\w*batch",
    "images saved": r"\bsave_image\(|\bsavefig\(",
    "learning rate set by hand": r"param_groups?\b.*\[?[\"']lr[\"']",
    "model method in the step": r"\bmodel\.(encode|decode|generate|sample|loss|compute_loss)\(",
    "next(iterator)": r"\bnext\(",
    "random_split": r"\brandom_split\(",
    "resume": r"\bload_state_dict\(",
    "scheduler": r"\blr_scheduler\b",
    "sum-reduced loss": r"reduction\s*=\s*['\"]sum|size_average\s*=\s*False",
    "tensorboard": r"\bSummaryWriter\b",
    "tqdm": r"\btqdm\b",
    "Variable": r"\bVariable\(",
    "wandb": r"\bwandb\.",
}
SEVERAL_OPTIMIZERS = re.compile(r"^\s*(?:self\.)?(\w*opt\w*)\s*=\s*(?:torch\.)?(?:optim\.)?[A-Z]\w+\(", re.M | re.I)


def idioms(texts: Iterable[str]) -> tuple[str, ...]:
    """The idioms that the files of a project use."""
    text = "\n".join(texts)
    names = [name for name, pattern in IDIOMS.items() if re.search(pattern, text)]
    if len(set(SEVERAL_OPTIMIZERS.findall(text))) > 1:
        names.append("several optimizers")
    if not re.search(r"__name__\s*==", text):
        names.append("no main guard")
    return tuple(sorted(names, key=str.lower))
