"""Turns text into a file of token numbers, as prepare scripts of language models do."""

import json
import os

import numpy as np


def prepare(folder):
    os.makedirs(folder, exist_ok=True)
    meta = os.path.join(folder, "meta.json")
    if os.path.exists(meta):
        with open(meta) as f:
            return json.load(f)
    rng = np.random.RandomState(7)
    words = ["the", "cat", "dog", "sat", "ran", "on", "mat", "a", "and", "then"]
    text = " ".join(words[i] for i in np.cumsum(rng.randint(1, 4, size=2600)) % len(words))
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    ids = np.array([stoi[c] for c in text], dtype=np.uint16)
    cut = int(0.9 * len(ids))
    ids[:cut].tofile(os.path.join(folder, "train.bin"))
    ids[cut:].tofile(os.path.join(folder, "val.bin"))
    with open(meta, "w") as f:
        json.dump({"vocab_size": len(chars), "chars": chars}, f)
    print(f"prepared {len(ids)} tokens, {len(chars)} different ones")
    return {"vocab_size": len(chars), "chars": chars}
