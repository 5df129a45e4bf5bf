"""What is read from the source of a `collate_fn`, and what follows for losses."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from conftest import converted

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project

SCRIPT = """\
import itertools
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import default_collate
from texts import Texts


{collate}


model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=collate)
for epoch in range(2):
    for words, labels, lengths in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(words, lengths), labels)
        loss.backward()
        optimizer.step()
"""

EVEN = [
    """
    def collate(batch):
        words, labels = [], []
        for text, label in batch:
            row = []
            for word in text[:9]:
                row.append(word + 1)
            words.append(row)
            labels.append(label)
        return torch.tensor(words), torch.tensor(labels), None
    """,
    """
    def collate(batch):
        words, labels = [], []
        for text, label in batch:
            for turn in range(4):
                words.append(text + turn)
                labels.append(label)
        return torch.stack(words), torch.tensor(labels), None
    """,
    """
    def collate(batch):
        words, labels = zip(*batch)
        lengths = torch.tensor([len(each) for each in words])
        return pad_sequence(words, batch_first=True), torch.tensor(labels), lengths
    """,
    """
    def collate(batch):
        words, labels, lengths = [], [], []
        for text, label in batch:
            words.extend(text)
            labels.append(label)
            lengths.append(len(text))
        return torch.tensor(words), torch.tensor(labels), torch.tensor(lengths)
    """,
    """
    def collate(batch):
        labels = []
        for item in batch:
            labels.append(item[1].unsqueeze(0))
        return torch.stack([item[0] for item in batch]), torch.cat(labels), torch.LongTensor([1 for _ in batch])
    """,
    """
    def collate(batch):
        batch.sort(key=lambda item: len(item[0]), reverse=True)
        longest = len(batch[0][0])
        words = torch.zeros(len(batch), longest).long()
        for row, item in enumerate(batch):
            words[row, : len(item[0])] = item[0]
        return words, torch.cat([item[1].view(1, -1) for item in batch], dim=0), torch.tensor([3] * len(batch))
    """,
    """
    def collate(batch):
        longest = max(len(item["words"]) for item in batch)
        for item in batch:
            while len(item["words"]) < longest:
                item["words"].append(0)
        words, labels = zip(*[(item["words"], item["label"]) for item in batch])
        return torch.tensor(words), torch.tensor([item["label"] for item in batch]), None
    """,
    """
    def collate(batch):
        rows, labels = [], []
        for words, label in batch:
            while len(words) < 20:
                words.append(0)
            rows.append(words)
            labels.append(label)
        return torch.tensor(rows), torch.tensor(labels), None
    """,
    "collate = default_collate",
    "collate = lambda batch: tuple(zip(*batch))",
]

UNEVEN = {
    "joins": [
        """
        def collate(batch):
            words = torch.cat([item[0] for item in batch])
            return words, torch.cat([item[1] for item in batch], dim=0), len(words)
        """,
        """
        def collate(batch):
            labels = []
            for words, tags in batch:
                labels += tags
            return torch.stack([words for words, _ in batch]), torch.tensor(labels), None
        """,
        """
        def flat(lists):
            return torch.tensor([each for inner in lists for each in inner])


        def collate(batch):
            words, tags = zip(*batch)
            return flat(words), flat(tags), None
        """,
        """
        def collate(batch):
            inputs, labels = [], []
            for text in batch:
                if len(text) < 5:
                    continue
                for start in range(len(text) - 4):
                    window = text[start : start + 5]
                    labels.append(window.pop(2))
                    inputs.append(window)
            return torch.tensor(inputs), torch.tensor(labels), None
        """,
        """
        def collate(batch):
            words, tags = [], []
            for text, marks in batch:
                for word, mark in zip(text, marks):
                    words.append(word)
                    tags.append(mark)
            return torch.tensor(words), torch.tensor(tags), None
        """,
        """
        def stacked(batch):
            words, labels = zip(*batch)
            return torch.stack(words), torch.tensor(labels), None


        def joined(batch):
            words, tags = zip(*batch)
            return torch.cat(words), torch.cat(tags), None


        if torch.cuda.is_available():
            collate = stacked
        else:
            collate = joined
        """,
    ],
    "pads": [
        """
        def Variable(tensor):
            return torch.autograd.Variable(tensor.cuda() if torch.cuda.is_available() else tensor)


        def collate(batch):
            tags = Variable(torch.zeros(len(batch), max([len(item) for item in batch])))
            for i, item in enumerate(batch):
                tags[i, : len(item)] = item
            return tags, tags, None
        """,
        """
        def collate(batch):
            words = pad_sequence([item[0] for item in batch])
            return words, pad_sequence([item[1] for item in batch]), None
        """,
        """
        def collate(batch):
            longest = max(len(words) for words, _ in batch)
            words = [F.pad(words, (0, longest - len(words))) for words, _ in batch]
            tags = [F.pad(tags, (0, longest - len(tags))) for _, tags in batch]
            return torch.stack(words), torch.stack(tags), None
        """,
        """
        class Padder:
            def pad(self, rows, length):
                padded = np.zeros((len(rows), length))
                for at, row in enumerate(rows):
                    padded[at, : len(row)] = row
                return torch.from_numpy(padded)

            def __call__(self, batch):
                rows = [item[0] for item in batch]
                length = max(map(len, rows))
                return self.pad(rows, length), self.pad([item[1] for item in batch], length), None


        collate = Padder()
        """,
        """
        def collate(batch):
            f = lambda at: [sample[at] for sample in batch]
            longest = np.array(f(-1)).max()
            f = lambda at, length: [sample[at] + [0] * (length - len(sample[at])) for sample in batch]
            words, tags = f(0, longest), f(1, longest)
            f = torch.LongTensor
            return f(words), f(tags), None
        """,
        """
        def collate(batch):
            def merge(rows):
                lengths = [len(row) for row in rows]
                padded = torch.zeros(len(rows), max(lengths)).long()
                for at, row in enumerate(rows):
                    padded[at, : lengths[at]] = torch.tensor(row)
                return padded, lengths

            texts, labels = zip(*batch)
            words, lengths = merge(texts)
            tags, _ = merge(labels)
            return words, tags, lengths
        """,
        """
        class Collate:
            def __call__(self, batch):
                lengths, order = torch.sort(torch.LongTensor([len(item[0]) for item in batch]), descending=True)
                words = torch.LongTensor(len(batch), lengths[0])
                tags = torch.FloatTensor(len(batch), max([item[1].size(0) for item in batch]))
                for row, at in enumerate(order):
                    words[row, : lengths[row]] = batch[at][0]
                    tags[row, : batch[at][1].size(0)] = batch[at][1]
                return words, tags, lengths


        collate = Collate()
        """,
        """
        def collate(batch):
            batch.sort(key=lambda item: len(item[0]), reverse=True)
            words, tags = zip(*batch)
            lengths = [len(each) for each in words]
            return torch.zeros(len(words), lengths[0]), torch.zeros(len(words), len(tags[0])), lengths
        """,
        """
        def collate(batch):
            lengths = np.array([len(item[0]) for item in batch])
            order = np.argsort(-lengths)
            lengths = lengths[order]
            return torch.zeros(len(batch), lengths[0]), torch.full(size=(len(batch), lengths[0]), fill_value=0), None
        """,
        """
        def filled(rows, value):
            rows = list(itertools.zip_longest(*rows, fillvalue=value))
            return torch.LongTensor(rows).t()


        def collate(batch):
            return filled([item[0] for item in batch], 0), filled([item[1] for item in batch], -1), None
        """,
        """
        def pad_list(rows, value):
            longest = max(row.size(0) for row in rows)
            padded = rows[0].new(len(rows), longest, *rows[0].size()[1:]).fill_(value)
            for at, row in enumerate(rows):
                padded[at, : row.size(0)] = row
            return padded


        def collate(batch):
            words = pad_list([item[0] for item in batch], 0), pad_list([item[1] for item in batch], -1)
            return (*words, None)
        """,
        """
        def collate(batch):
            longest = 0
            for words, tags in batch:
                longest = max(longest, len(words))
            rows, marks = [], []
            for words, tags in batch:
                rows.append(words + [0] * (longest - len(words)))
                marks.append(tags + [0] * (longest - len(tags)))
            return torch.tensor(rows), torch.tensor(marks), None
        """,
        """
        def collate(batch):
            longest = 0
            for words, tags in batch:
                if len(words) > longest:
                    longest = len(words)
            rows, marks = np.zeros((len(batch), longest)), np.zeros((len(batch), longest))
            for at, (words, tags) in enumerate(batch):
                rows[at, : len(words)] = words
                marks[at, : len(tags)] = tags
            return torch.tensor(rows), torch.tensor(marks), None
        """,
        """
        def collate(batch):
            longest = max(len(words) for words, _ in batch)
            rows, marks = [], []
            for words, tags in batch:
                words, tags = list(words), list(tags)
                while len(words) < longest:
                    words.append(0)
                    tags += [0]
                rows.append(words)
                marks.append(torch.tensor(tags))
            return torch.tensor(rows), torch.stack(marks), None
        """,
        """
        def collate(batch):
            rows, marks = [item[0] for item in batch], [item[1] for item in batch]
            longest = len(max(rows, key=len))
            for words, tags in zip(rows, marks):
                for _ in range(longest - len(words)):
                    words.append(0)
                for _ in range(len(tags), longest):
                    tags.append(0)
            return torch.tensor(rows), torch.tensor(marks), None
        """,
        """
        def fill(rows, value=0):
            longest = max(map(len, rows))
            for at in range(len(rows)):
                rows[at] = rows[at] + [value] * (longest - len(rows[at]))
            return rows


        def collate(batch):
            words, tags = fill([item[0] for item in batch]), fill([item[1] for item in batch])
            return torch.tensor(words), torch.tensor(tags), None
        """,
        """
        def collate(batch):
            longest = max(len(item["words"]) for item in batch)
            for item in batch:
                if len(item["words"]) < longest:
                    missing = longest - len(item["words"])
                    item["words"] += [0] * missing
                    item["tags"].extend([0] * missing)
            words = torch.tensor([item["words"] for item in batch])
            return words, torch.tensor([item["tags"] for item in batch]), torch.tensor([item["n"] for item in batch])
        """,
        """
        def fill(row, length):
            while len(row) < length:
                row.append(0)


        def collate(batch):
            rows, marks = [item[0] for item in batch], [item[1] for item in batch]
            lengths = [len(row) for row in rows]
            for row in rows:
                fill(row, max(lengths))
            for mark in marks:
                fill(mark, length=max(lengths))
            return torch.tensor(rows), torch.tensor(marks), lengths
        """,
        """
        def fill(rows):
            longest = max(len(row) for row in rows)
            for row in rows:
                while len(row) < longest:
                    row.append(0)


        def collate(batch):
            rows, marks = [item[0] for item in batch], [item[1] for item in batch]
            fill(rows)
            fill(marks)
            return torch.tensor(rows), torch.tensor(marks), None
        """,
        """
        def collate(batch):
            batch.sort(key=lambda item: len(item[0]), reverse=True)
            words, tags = [], []
            for text, marks in batch:
                words.extend(text + [0] * (len(batch[0][0]) - len(text)))
                tags += marks + [0] * (len(batch[0][0]) - len(marks))
            return torch.tensor(words).view(len(batch), -1), torch.tensor(tags).view(len(batch), -1), None
        """,
    ],
    "leaves": [
        """
        def collate(batch):
            return default_collate([item for item in batch if item is not None])
        """,
        """
        def collate(batch):
            batch = list(filter(lambda item: item[0] is not None, batch))
            words, labels = zip(*batch)
            return torch.stack(words), torch.tensor(labels), None
        """,
        """
        def collate(batch):
            words, labels = [], []
            for text, label in batch:
                if len(text) > 3:
                    words.append(text)
                    labels.append(label)
            return torch.stack(words), torch.tensor(labels), None
        """,
        """
        def collate(batch):
            words, labels = [], []
            for text, label in batch:
                if text is None:
                    continue
                words.append(text)
                labels.append(label)
            return torch.stack(words), torch.tensor(labels), None
        """,
    ],
}


def warnings(folder: Path, collate: str, step: tuple[str, str] = ("", "")) -> list[str]:
    """What a person is told of the loss."""
    (folder / "texts.py").write_text("class Texts:\n    def __len__(self):\n        return 64\n")
    path = folder / "train.py"
    path.write_text(SCRIPT.format(collate=textwrap.dedent(collate).strip()).replace(*step))
    result = convert(Project.load(path), Config())
    return [each.message for each in result.diagnostics if each.code == "AD602"]


@pytest.mark.parametrize("collate", EVEN)
def test_one_row_for_each_sample(tmp_path: Path, collate: str) -> None:
    """Targets with a row for each sample: every rank has as many."""
    assert not warnings(tmp_path, collate, ("model(words, lengths)", "model(words)[:, 0]"))


ONE_SCORE = "F.poisson_nll_loss(model(words, lengths)[..., 0]"


@pytest.mark.parametrize(("verb", "collate"), [(verb, each) for verb, some in UNEVEN.items() for each in some])
def test_uneven_targets(tmp_path: Path, verb: str, collate: str) -> None:
    """Targets of which a rank has as many as its samples happen to give: the mean of ranks is not that of all."""
    (message,) = warnings(tmp_path, collate, ("F.cross_entropy(model(words, lengths)", ONE_SCORE))
    assert verb in message


@pytest.mark.parametrize(("verb", "collate"), [(verb, each) for verb, some in UNEVEN.items() for each in some])
def test_means_over_uneven_targets_are_weighed(tmp_path: Path, verb: str, collate: str) -> None:
    """Where the number of targets is that of what the mean is taken of; padding counts in the longest of all."""
    messages = warnings(tmp_path, collate)
    weighed = "weigh_by_count(F.cross_entropy(model(words, lengths), labels), labels.numel())"
    after = convert(Project.load(tmp_path / "train.py"), Config()).entry.after
    assert (weighed in after) == (verb != "pads") == (not messages)


PACKED = """\
    for words, labels, lengths in loader:
        targets = nn.utils.rnn.pack_padded_sequence(labels, lengths, batch_first=True)[0]
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(words, lengths), targets)
"""


def test_packed_targets(tmp_path: Path) -> None:
    """`pack_padded_sequence` leaves the words alone, of which each rank has its own number."""
    step = SCRIPT[SCRIPT.index("    for words") : SCRIPT.index("        loss.backward")]
    collate = EVEN[0].replace("torch.tensor(labels)", "pad_sequence(labels, True)")
    assert not warnings(tmp_path, collate, (step, PACKED))
    after = convert(Project.load(tmp_path / "train.py"), Config()).entry.after
    assert "weigh_by_count(nn.CrossEntropyLoss()(model(words, lengths), targets), targets.numel())" in after


GRAPHS = """\
import torch
import torch.nn.functional as F
from torch_geometric.datasets import PPI
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(50, 121)

    def forward(self, data):
        return {result}


loader = DataLoader(PPI("data"), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    total = 0
    for data in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), data.y)
        loss.backward()
        optimizer.step()
        total += loss.item() * data.num_graphs
    print(total / len(loader.dataset))
"""


@pytest.mark.parametrize("pooled", [True, False])
def test_graphs(tmp_path: Path, pooled: bool) -> None:
    """A loader of graphs joins their nodes: a mean over these is a rank's own, one over whole graphs is not."""
    convolved = "self.conv(data.x, data.edge_index)"
    result = f"global_mean_pool({convolved}, data.batch)" if pooled else convolved
    path = tmp_path / "train.py"
    path.write_text(
        GRAPHS.replace(", global_mean_pool", "" if not pooled else ", global_mean_pool").format(result=result)
    )
    converted = convert(Project.load(path), Config())
    assert pooled != ("weigh_by_count(F.cross_entropy(model(data), data.y), data.y.numel())" in converted.entry.after)
    assert "reduce_sum(total" in converted.entry.after or not pooled


PADDED = """\
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.score, self.out = nn.GRU(4, 3, batch_first=True), nn.Linear(3, 1), nn.Linear(3, 2)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x, lengths):
        packed, _ = self.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        states, _ = pad_packed_sequence(packed, batch_first=True{fixed})
        weights = self.softmax(self.score(states).squeeze(2){mask})
        return self.out((states * weights.unsqueeze(2)).sum(1))


data = TensorDataset(torch.randn(32, 5, 4), torch.randint(1, 6, (32,)), torch.randint(0, 2, (32,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, lengths, y in loader:
    loss = nn.functional.cross_entropy(model(x, lengths), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("fixed", "mask", "told"), [("", "", True), (", total_length=5", "", False), ("", " + mask(lengths)", False)]
)
def test_padding_that_has_a_share_in_a_softmax(tmp_path: Path, fixed: str, mask: str, told: bool) -> None:
    """How long it is, the longest of a rank's own samples says. Of a mask that is not known it is told that."""
    (tmp_path / "train.py").write_text(PADDED.format(fixed=fixed, mask=mask))
    said = " ".join(d.message for d in convert(Project.load(tmp_path / "train.py"), Config()).diagnostics)
    assert ("gives the padding its share" in said) == told
    assert ("cannot tell whether self.softmax(" in said) == bool(mask)


TAGGER = """\
import scores
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

samples = [(torch.randint(1, 20, (3 + i % 5,)), torch.randint(0, 3, (3 + i % 5,))) for i in range(48)]


def collate(batch):
    words, tags = zip(*batch)
    return pad_sequence(words, True), pad_sequence(tags, True), torch.tensor([len(each) for each in words])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.rnn = nn.GRU(8, 3, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embed(x), lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


loader = DataLoader(samples, batch_size=8, shuffle=True, collate_fn=collate)
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y, lengths in loader:
    out = model(x, lengths)
    mask = torch.arange(x.size(1))[None, :] < lengths[:, None]
    loss = nn.functional.cross_entropy(out[mask], y[mask])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(scores.of({told}, lengths.numpy()))
"""


@pytest.mark.parametrize(
    ("told", "filled"), [("out.argmax(-1).numpy()", True), ("(lengths - 1).numpy()", False)], ids=["padded", "numbers"]
)
def test_gathered_rows_that_each_rank_pads(tmp_path: Path, told: str, filled: bool) -> None:
    """Ranks whose longest samples differ would wait for each other for ever."""
    code, said = converted(tmp_path, TAGGER.replace("{told}", told))
    assert "gather_rows(lengths" in code
    assert ("filled up with zeros to the longest" in code) is filled
    assert ("is filled up with zeros where samples of another rank are longer" in said) is filled
