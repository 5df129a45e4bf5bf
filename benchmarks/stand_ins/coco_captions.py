"""COCO's captions, prepared as a tutorial on captioning does: pictures in one HDF5 file, sentences as numbers."""

from __future__ import annotations

import json
from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from ._pictures import patterned

NAME = "coco_5_cap_per_img_5_min_word_freq"
WORDS = "a the man woman dog cat tree on under near red small sits runs".split()
PARTS = {"TRAIN": 16, "VAL": 8, "TEST": 8}
EACH = 5
LENGTH = 14
SIDE = 64


def write(folder: Path) -> None:
    """``WORDMAP_NAME.json``, and for each part ``PART_IMAGES_NAME.hdf5`` (``images``: pictures x 3 x 64 x 64, with the
    attribute ``captions_per_image``), ``PART_CAPTIONS_NAME.json`` and ``PART_CAPLENS_NAME.json``."""
    numbers = {word: number for number, word in enumerate(["<pad>", *WORDS, "<unk>", "<start>", "<end>"])}
    (folder / f"WORDMAP_{NAME}.json").write_text(json.dumps(numbers))
    rng = np.random.default_rng(0)
    for part, count in PARTS.items():
        labels = rng.integers(0, 4, count)
        captions, lengths = [], []
        for label in labels.repeat(EACH):
            length = int(rng.integers(4, LENGTH - 2))
            words = [int(1 + (label * 3 + place) % len(WORDS)) for place in range(length)]
            caption = [numbers["<start>"], *words, numbers["<end>"]]
            captions.append(caption + [0] * (LENGTH - len(caption)))
            lengths.append(len(caption))
        with h5py.File(folder / f"{part}_IMAGES_{NAME}.hdf5", "w") as file:
            file["images"] = patterned(labels, (3, SIDE, SIDE), seed=count)
            file.attrs["captions_per_image"] = EACH
        (folder / f"{part}_CAPTIONS_{NAME}.json").write_text(json.dumps(captions))
        (folder / f"{part}_CAPLENS_{NAME}.json").write_text(json.dumps(lengths))
