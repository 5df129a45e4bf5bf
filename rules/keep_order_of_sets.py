from __future__ import annotations

from collections.abc import Iterator

from autodist.edits import WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._collectives import AS_ON_RANK_ZERO
from ._preamble import defined, dist, planned

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        words = "the cat sees the dog and the dog sees the cat".split()
        vocabulary = list(set(words))
        numbers = torch.tensor([vocabulary.index(word) for word in words])
        loader = DataLoader(TensorDataset(numbers[:-1], numbers[1:]), batch_size=2)
        model = nn.Sequential(nn.Embedding(len(vocabulary), 8), nn.Linear(8, len(vocabulary)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for word, following in loader:
            loss = nn.functional.cross_entropy(model(word), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after='''\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def as_on_rank_zero(value):
            """The value that rank 0 has."""
            box = [value]
            dist.broadcast_object_list(box)
            return box[0]


        words = "the cat sees the dog and the dog sees the cat".split()
        vocabulary = as_on_rank_zero(list(set(words)))
        numbers = torch.tensor([vocabulary.index(word) for word in words])
        loader = DataLoader(TensorDataset(numbers[:-1], numbers[1:]), batch_size=2)
        model = nn.Sequential(nn.Embedding(len(vocabulary), 8), nn.Linear(8, len(vocabulary)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for word, following in loader:
            loss = nn.functional.cross_entropy(model(word), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ''',
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        words = "the cat sees the dog and the dog sees the cat".split()
        vocabulary = sorted(set(words))
        numbers = torch.tensor([vocabulary.index(word) for word in words])
        loader = DataLoader(TensorDataset(numbers[:-1], numbers[1:]), batch_size=2)
        model = nn.Sequential(nn.Embedding(len(vocabulary), 8), nn.Linear(8, len(vocabulary)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for word, following in loader:
            loss = nn.functional.cross_entropy(model(word), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after=None,
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torchvision import datasets

        def read(names):
            data = datasets.MNIST("data", download=True)
            chosen = [name for name in set(names)]
            return TensorDataset(data.data.float().flatten(1), data.targets), chosen

        train_set, names = read(["zero", "one"])
        loader = DataLoader(train_set, batch_size=8)
        model = nn.Linear(784, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for image, digit in loader:
            loss = nn.functional.cross_entropy(model(image), digit)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        from torchvision import datasets

        def read(names):
            data = datasets.MNIST("data", download=True)
            chosen = [name for name in sorted(set(names), key=str)]
            return TensorDataset(data.data.float().flatten(1), data.targets), chosen

        train_set, names = read(["zero", "one"])
        loader = DataLoader(train_set, batch_size=8)
        model = nn.Linear(784, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for image, digit in loader:
            loss = nn.functional.cross_entropy(model(image), digit)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
]


@rule("AD703")
def keep_order_of_sets(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Put the elements of a set in the same order on all ranks.

    Python orders a set of strings by hashes that differ from process to process. A vocabulary made of one would give
    a word another number on each rank, and the ranks would train on different encodings of the same data.
    """
    if not script.trains or script.distributed:
        return
    message = "a set of strings has another order in each process"
    for each in script.unordered:
        site = each.site
        if each.waiting:  # the others wait for rank 0 to read the data, and cannot be told its order
            edits = planned(site.source, WrapExpr(site.node, "sorted({}, key=str)"))
        else:
            d, imports = dist(context, site.source)
            template = "as_on_rank_zero({})" if each.listed else "as_on_rank_zero(list({}))"
            edits = (
                *imports,
                *defined(script, site.source, AS_ON_RANK_ZERO.replace("{d}", d)),
                *planned(site.source, WrapExpr(site.node, template)),
            )
        yield Finding(site.source, site.node, message, Fix(edits))
