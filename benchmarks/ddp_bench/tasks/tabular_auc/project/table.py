import csv

import torch
from torch.utils.data import Dataset

NUMBERS, CATEGORIES, TARGET = ("age", "calls", "bill"), ("plan", "region"), "churn"


def read(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


class Encoder:
    """Vocabularies and scales, fitted on the training rows."""

    def fit(self, rows):
        self.vocabulary = {c: {v: i + 1 for i, v in enumerate(sorted({r[c] for r in rows}))} for c in CATEGORIES}
        values = {n: [float(r[n]) for r in rows if r[n]] for n in NUMBERS}
        self.mean = {n: sum(v) / len(v) for n, v in values.items()}
        self.std = {n: (sum((x - self.mean[n]) ** 2 for x in v) / len(v)) ** 0.5 for n, v in values.items()}
        return self

    def __call__(self, row):
        numbers = [((float(row[n]) if row[n] else self.mean[n]) - self.mean[n]) / self.std[n] for n in NUMBERS]
        return torch.tensor(numbers), torch.tensor([self.vocabulary[c].get(row[c], 0) for c in CATEGORIES])


class Table(Dataset):
    def __init__(self, rows, encoder):
        self.rows, self.encoder = rows, encoder

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        numbers, categories = self.encoder(self.rows[i])
        return numbers, categories, torch.tensor(float(self.rows[i][TARGET])), self.rows[i]["customer"]
