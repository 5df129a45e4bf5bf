"""Pictures with sentences as lists of numbers, as "Show, Attend and Tell" prepares COCO; and as COCO names them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ._pictures import patterned, save
from .coco_captions import WORDS

COUNTS = {"train": 16, "val": 8}
EACH = 2
LENGTH = 9
SIDE = 32


def write(folder: Path) -> None:
    """``word_dict.json``, ``PART_img_paths.json``, ``PART_captions.json`` (padded alike), ``PART2017/NUMBER.jpg`` and
    ``annotations/captions_PART2017.json``."""
    numbers = {word: number for number, word in enumerate(["<start>", "<eos>", "<unk>", "<pad>", *WORDS])}
    (folder / "word_dict.json").write_text(json.dumps(numbers))
    (folder / "annotations").mkdir()
    rng = np.random.default_rng(0)
    for seed, (part, count) in enumerate(COUNTS.items()):
        labels = rng.integers(0, 4, count)
        paths, captions, annotations = [], [], []
        for number, (label, pixels) in enumerate(zip(labels, patterned(labels, (SIDE, SIDE, 3), seed), strict=True)):
            save(folder / f"{part}2017" / f"{number:012d}.jpg", pixels)
            for _ in range(EACH):
                words = [WORDS[(label * 3 + place) % len(WORDS)] for place in range(int(rng.integers(3, LENGTH - 2)))]
                caption = [numbers[word] for word in ("<start>", *words, "<eos>")]
                paths.append(f"data/coco/{part}2017/{number:012d}.jpg")
                captions.append(caption + [numbers["<pad>"]] * (LENGTH - len(caption)))
                annotations.append({"image_id": number, "caption": " ".join(words)})
        (folder / f"{part}_img_paths.json").write_text(json.dumps(paths))
        (folder / f"{part}_captions.json").write_text(json.dumps(captions))
        (folder / "annotations" / f"captions_{part}2017.json").write_text(json.dumps({"annotations": annotations}))
