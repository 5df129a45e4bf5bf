"""Visual question answering (VQA v2): questions about pictures, of which a detector has seen some regions."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

WORDS = "what is the colour of this how many are there where kind animal".split()
ANSWERS = "red blue one two dog cat here there".split()
PARTS = {"train": (32, 0), "val": (16, 1000)}
"""How many pictures, and the number of the first."""
EACH = 3
"""Questions about one picture."""
REGIONS = 6
FEATURES = 24


def write(folder: Path) -> None:
    """What a baseline with bottom-up attention prepares: ``dictionary.pkl``, ``glove6b_init_300d.npy``,
    ``cache/trainval_ans2label.pkl`` and ``cache/trainval_label2ans.pkl``, and for each part
    ``v2_OpenEnded_mscoco_PART2014_questions.json``, ``cache/PART_target.pkl``, ``PART36_imgid2idx.pkl`` and
    ``PART36.hdf5`` with ``image_features`` (pictures x 6 x 24) and ``spatial_features`` (pictures x 6 x 6)."""
    rng = np.random.default_rng(0)
    (folder / "cache").mkdir()
    dump(folder / "dictionary.pkl", [{word: number for number, word in enumerate(WORDS)}, WORDS])
    np.save(folder / "glove6b_init_300d.npy", rng.normal(0, 0.3, (len(WORDS), 300)).astype(np.float32))
    dump(folder / "cache" / "trainval_ans2label.pkl", {answer: number for number, answer in enumerate(ANSWERS)})
    dump(folder / "cache" / "trainval_label2ans.pkl", ANSWERS)
    for part, (count, first) in PARTS.items():
        write_part(folder, part, count, first, rng)


def write_part(folder: Path, part: str, count: int, first: int, rng: np.random.Generator) -> None:
    """The files of one part; each fifth question has no answer."""
    features = rng.normal(size=(count, REGIONS, FEATURES)).astype(np.float32)
    questions, targets = [], []
    for number in range(EACH * count):
        answer = number % len(ANSWERS)
        features[number // EACH, :, answer] += 1
        ids = {"question_id": 10 * first + number, "image_id": first + number // EACH}
        found = {answer: 1.0, (answer + 1) % len(ANSWERS): 0.3} if number % 5 else {}
        questions.append({**ids, "question": " ".join(rng.choice(WORDS, 6))})
        targets.append({**ids, "labels": list(found), "scores": list(found.values())})
    asked = folder / f"v2_OpenEnded_mscoco_{part}2014_questions.json"
    asked.write_text(json.dumps({"questions": questions}))
    dump(folder / "cache" / f"{part}_target.pkl", targets)
    dump(folder / f"{part}36_imgid2idx.pkl", {first + number: number for number in range(count)})
    with h5py.File(folder / f"{part}36.hdf5", "w") as file:
        file["image_features"] = features
        file["spatial_features"] = rng.random((count, REGIONS, 6)).astype(np.float32)


def dump(path: Path, value: object) -> None:
    """Pickle it."""
    path.write_bytes(pickle.dumps(value))
