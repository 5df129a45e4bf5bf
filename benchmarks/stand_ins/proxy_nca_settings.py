"""Settings of Proxy-NCA, small."""

from __future__ import annotations

import json
from pathlib import Path

SETTINGS = {
    "dataset": {"cub": {"classes": {"train": "range(0, 5)", "eval": "range(5, 10)"}, "root": "str('birds')"}},
    "transform_parameters": {"sz_resize": "40", "sz_crop": "32", "rgb_to_bgr": "True", "mean": "[0.5, 0.5, 0.5]"},
    "criterion": {"type": "proxynca.ProxyNCA", "args": {"smoothing_const": "0.1", "scaling_x": "1", "scaling_p": "8"}},
    "lr_scheduler": {"type": "torch.optim.lr_scheduler.ExponentialLR", "args": {"gamma": "0.94"}},
    "opt": {
        "type": "torch.optim.Adam",
        "args": {
            "embedding": {"weight_decay": "0.0"},
            "backbone": {"weight_decay": "0.0"},
            "proxynca": {"weight_decay": "0.0", "lr": "5.0"},
            "base": {"lr": "0.045", "eps": "1.0"},
        },
    },
}


def write(folder: Path) -> None:
    """``config.json``: every value is an expression of Python's."""
    (folder / "config.json").write_text(json.dumps(SETTINGS, indent=2))
