"""CelebA: faces in one folder, with a table of what each shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save_all

ATTRIBUTES = (
    "5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose Black_Hair Blond_Hair "
    "Blurry Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee Gray_Hair Heavy_Makeup High_Cheekbones Male "
    "Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard Oval_Face Pale_Skin Pointy_Nose Receding_Hairline Rosy_Cheeks "
    "Sideburns Smiling Straight_Hair Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick Wearing_Necklace "
    "Wearing_Necktie Young"
).split()
COUNT = 64


def write(folder: Path) -> None:
    """``img_align_celeba/NUMBER.jpg`` and ``list_attr_celeba.txt``."""
    pictures = save_all(folder / "img_align_celeba", COUNT, (178, 218))
    signs = np.random.default_rng(1).choice((-1, 1), (COUNT, len(ATTRIBUTES)))
    rows = [f"{path.name} {' '.join(map(str, row))}" for path, row in zip(pictures, signs, strict=True)]
    lines = [str(COUNT), " ".join(ATTRIBUTES), *rows]
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
