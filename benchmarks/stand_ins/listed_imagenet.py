"""ImageNet as folders of pictures, and lists of their names with the number of a class."""

from __future__ import annotations

from pathlib import Path

from ._pictures import save_all

COUNTS = {"train": 32, "val": 12}


def write(folder: Path) -> None:
    """``ilsvrc12_PART.txt`` and ``ILSVRC2012_img_PART/NUMBER.jpg``."""
    for seed, (part, count) in enumerate(COUNTS.items()):
        paths = save_all(folder / f"ILSVRC2012_img_{part}", count, (256, 256), seed=seed)
        (folder / f"ilsvrc12_{part}.txt").write_text("".join(f"{path.name} {i % 4}\n" for i, path in enumerate(paths)))
