"""What a step keeps of some of its samples, or under their numbers and labels, and what is put together of batches."""

from __future__ import annotations

import textwrap
from pathlib import Path

import conftest
import pytest

from autodist.verify.launch import Zygote

SCRIPT = """\
import heapq
import itertools
from collections import Counter, defaultdict, deque
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Record(NamedTuple):
    best: float
    hit: bool


torch.manual_seed(0)
x = torch.randn(64, 6)
y = x[:, :3].argmax(1)
loader = DataLoader(TensorDataset(x, y, torch.arange(64)), batch_size=8, shuffle=True)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = torch.zeros(64)
scores = np.zeros(64)
for epoch in range(2):
{begin}
    for a, b, n in loader:
        out = model(a)
        loss = nn.functional.cross_entropy(out, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        guess = out.argmax(1)
        best = out.detach().max(1).values
{body}
{shown}
"""
PAIRS = "for g, t in zip(guess.tolist(), b.tolist()):\n    "
LISTS = "found = [[] for _ in range(3)]"
KEPT = {
    "lists of a dict by label": (
        "found = defaultdict(list)",
        PAIRS + "found[t].append(g == t)",
        "print({k: sum(v) / len(v) for k, v in sorted(found.items())}, np.mean([np.mean(v) for v in found.values()]))",
    ),
    "set by default": ("found = {}", PAIRS + "found.setdefault(t, []).append(g)", "print(found[0], len(found[1]))"),
    "lists by label": (LISTS, PAIRS + "found[t].append(g == t)", "print([np.mean(v) for v in found])"),
    "lists of fixed keys": (
        "found = {'a': [], 'b': [], 'c': []}",
        PAIRS + "found['abc'[t]].append(g == t)",
        "print({k: np.mean(v) for k, v in found.items()})",
    ),
    "lists by label, counted": (
        LISTS,
        PAIRS + "found[t].append(g)",
        "for k, v in enumerate(found):\n    print(k, sum(v), len(v), sum(v) / len(v))",
    ),
    "right and wrong": (
        "good, bad = [], []",
        "for g, t, o in zip(guess.tolist(), b.tolist(), out.tolist()):\n"
        "    if g == t:\n        good.append(o[0])\n    else:\n        bad.append(o[0])",
        "print(sum(good) / max(1, len(good)), np.mean(bad), len(bad))",
    ),
    "pairs": ("found = Counter()", PAIRS + "found[t, g] += 1", "print(found.most_common(2), sorted(found.items()))"),
    "pairs by get": ("found = {}", PAIRS + "found[(t, g)] = found.get((t, g), 0) + 1", "print(sorted(found.items()))"),
    "a number for each sample": (
        "found = {}",
        "for k, w in zip(n.tolist(), best.tolist()):\n    found[k] = w",
        "print(sum(found.values()), len(found))",
    ),
    "a dict of a batch": (
        "found = {}",
        "found |= {k: w for k, w in zip(n.tolist(), best.tolist())}",
        "print(sum(found.values()), len(found))",
    ),
    "a list by number": (
        "found = [0] * 64",
        "for k, w in zip(n.tolist(), best.tolist()):\n    found[k] = w",
        "print(sum(found))",
    ),
    "placed": (
        "seen.zero_()",
        "seen[n] = best\nscores[n.numpy()] = best.numpy()",
        "print(seen.sum(), np.median(scores))",
    ),
    "ticked off": ("seen.zero_()", "seen[n] = 1", "print(seen.sum())"),
    "placed by methods": (
        "seen.zero_()",
        "seen.index_copy_(0, n, best)\nnp.put(scores, n.numpy(), best.numpy())",
        "print(seen.sum(), (seen > 0.5).sum().item(), scores.sum())",
    ),
    "filled": ("seen.zero_()", "seen.index_fill_(0, n, 1)", "print(seen.sum())"),
    "put": ("seen.zero_()", "seen.index_put_((n,), best)", "print(seen.sum())"),
    "scattered": ("seen.zero_()", "seen.scatter_(0, n, best)", "print(seen.sum())"),
    "a heap": (
        "heap = []",
        "for v, r in zip(best.tolist(), a.tolist()):\n    heapq.heappush(heap, (v, r))",
        "print(heapq.nlargest(2, heap))",
    ),
    "appended arrays": (
        "found, truth = np.array([]), np.array([])",
        "found = np.append(found, guess.numpy())\ntruth = np.append(truth, b.numpy())",
        "print(np.histogram(found)[0], (found == truth).mean(), found.shape, np.corrcoef(found, truth)[0, 1])",
    ),
    "joined tensors": (
        "found = torch.tensor([], dtype=torch.long)",
        "found = torch.cat((found, guess))",
        "print(torch.histc(found.float(), 3), found.shape)",
    ),
    "joined from nothing": (
        "found = None",
        "if found is None:\n    found = out.detach()\nelse:\n    found = torch.cat([found, out.detach()], dim=0)",
        "print(found.median(0).values)",
    ),
    "joined lists": ("found = []", "found = found + guess.tolist()", "print(np.unique(found), len(found))"),
    "a shape": ("kept = []", "kept.append(out.detach())", "whole = torch.cat(kept)\nprint(whole.shape, len(whole))"),
    "a shape of some": ("kept = []", "kept.append(out.detach()[guess == b])", "print(torch.cat(kept).shape)"),
    "a shape as a list": ("", "", "print(list(b.shape), tuple(out.shape))"),
    "the best": (
        "first = (0, None)",
        "top = best.max()\nif top.item() > first[0]:\n    first = (top.item(), a[best.argmax()].sum().item())",
        "print(first)",
    ),
    "the last ones": ("last = deque(maxlen=16)", "last.extend((guess == b).tolist())", "print(sum(last) / len(last))"),
    "the last ones, one by one": ("last = deque([], 12)", PAIRS + "last.append(g)", "print(list(last))"),
    "the last losses": (
        "last = deque(maxlen=3)",
        "last.append(loss.item())",
        "print(sum(last) / len(last), len(last))",
    ),
    "pairs in a list": (
        "found = []",
        PAIRS + "found.append((g, t))",
        "print(len(found), sum(g == t for g, t in found) / len(found))",
    ),
    "dicts in a list": (
        "found = []",
        PAIRS + "found.append({'g': g, 't': t})",
        "print(len(found), sum(r['g'] == r['t'] for r in found) / len(found))",
    ),
    "records": (
        "found = []",
        "for v, h in zip(best.tolist(), (guess == b).tolist()):\n    found.append(Record(v, h))",
        "print(sum(r.best for r in found) / len(found), len(found))",
    ),
    "distances of sums": (
        "bins = np.zeros((3, 2))",
        PAIRS + "bins[t, 0] += 1\n    bins[t, 1] += g == t",
        "print(sum(abs(r[0] - 2 * r[1]) for r in bins), abs(bins[0, 0] - bins[1, 0]))",
    ),
    "shown one by one": ("", "for g, t in zip(guess, b):\n    print(g.item(), t.item())", ""),
    "the first ones shown": (
        "",
        "for k, (g, t) in enumerate(zip(guess, b)):\n    if k < 3:\n        print(k, g.item(), t.item())",
        "",
    ),
    "wrong ones shown": ("", "for g, t in zip(guess, b):\n    if g != t:\n        print(g.item(), t.item())", ""),
    "by numbers in a range": (
        "found = [0] * 64",
        "for j, k in enumerate(n):\n    if found[k] > best[j]:\n        found[k] = 0\n    found[k] = best[j].item()",
        "print(sum(found))",
    ),
    "a list by numbers in a range": (
        "found = {}",
        "rows = [o.max().item() for o in out.detach()]\nfor j, k in enumerate(n.tolist()):\n    found[k] = rows[j]",
        "print(sum(found.values()), len(found))",
    ),
    "counts that begin with ones": (
        "found = np.ones((3, 3))",
        PAIRS + "found[t, g] += 1",
        "print(found / found.sum(1, keepdims=True))",
    ),
    "bucket bound": (
        "found=[[], [], []]",
        PAIRS + "bucket = found[t]\n    bucket.append(g == t)",
        "print([len(v) for v in found], [sum(v) / len(v) for v in found])",
    ),
    "extend by label": (
        "found=[[], [], []]",
        "for k in range(3):\n    found[k].extend((guess[b == k] == k).tolist())",
        "print([np.mean(v) for v in found])",
    ),
    "tuple lists": (
        "good, bad = [], []",
        "for g, t in zip(guess.tolist(), b.tolist()):\n    (good if g == t else bad).append(g)",
        "print(len(good), len(bad), np.mean(good))",
    ),
    "dict of lists of dicts": (
        "found={k: {'n': [], 'h': []} for k in range(3)}",
        PAIRS + "found[t]['n'].append(g)\n    found[t]['h'].append(g == t)",
        "print({k: np.mean(v['h']) for k, v in found.items()})",
    ),
    "printed nested": ("found=[[], [], []]", PAIRS + "found[t].append(g)", "print(found)"),
    "numpy fill": ("scores.fill(0)", "scores[n.numpy()] = best.numpy()", "print(scores.sum(), scores.max())"),
    "whole slice": ("seen[:] = 0", "seen[n] = best", "print(seen.sum())"),
    "fill_ one": ("seen.fill_(1)", "seen[n] = best", "print(seen.sum())"),
    "view placed": ("seen.zero_()\nflat = seen.view(8, 8)", "seen[n] = best", "print(flat.sum(1))"),
    "sorted": ("found = []", "found.extend(best.tolist())", "print(sorted(found)[-3:], sorted(found)[0])"),
    "sorted whole": ("found = []", "found.extend(best.tolist())", "found.sort(reverse=True)\nprint(found[:5])"),
    "last slice": ("found = []", "found.extend(best.tolist())", "print(np.mean(found[-10:]), len(found[-10:]))"),
    "popped": (
        "last = []",
        "for v in best.tolist():\n    last.append(v)\n    if len(last) > 16:\n        last.pop(0)",
        "print(sum(last) / len(last))",
    ),
    "sliced window": ("last = []", "last = (last + best.tolist())[-16:]", "print(sum(last) / len(last))"),
    "loop over deque": (
        "last = deque(maxlen=16)",
        "last.extend(best.tolist())",
        "total = 0.0\nfor v in last:\n    total += v\nprint(total, len(last))",
    ),
    "two dim": (
        "table = torch.zeros(64, 2)",
        "table[n, 0] = best\ntable[n, 1] = (guess == b).float()",
        "print(table[:, 0].sum(), table[:, 1].mean())",
    ),
    "max by key": (
        "found = [0.0] * 3",
        "for t, w in zip(b.tolist(), best.tolist()):\n    found[t] = max(found[t], w)",
        "print(found)",
    ),
    "counts in list": ("found = [0] * 3", PAIRS + "found[t] += g == t", "print(found, sum(found))"),
    "set add": ("ids = set()", "ids.update(n.tolist())", "print(len(ids))"),
    "dict of first": (
        "first = {}",
        "for t, w in zip(b.tolist(), best.tolist()):\n    if t not in first:\n        first[t] = w",
        "print(sorted(first.items()))",
    ),
    "rows of some": (
        "kept = []",
        "kept.append(best[guess != b])",
        "whole = torch.cat(kept)\nprint(whole.mean(), len(whole), whole.shape[0], whole.median())",
    ),
    "list of bool": ("done = [False] * 64", "for k in n.tolist():\n    done[k] = True", "print(sum(done))"),
    "by enumerate": (
        "order = []",
        "for j, k in enumerate(n.tolist()):\n    order.append((k, best[j].item()))",
        "print(len(order), sum(v for _, v in order))",
    ),
    "the middle": ("", "k = best.argmax()", "print(a[k].sum().item(), a[len(a) // 2].sum().item())"),
}


def _script(begin: str, body: str, shown: str) -> str:
    parts = {"begin": textwrap.indent(begin, " " * 4), "body": textwrap.indent(body, " " * 8)}
    return SCRIPT.format(**parts, shown=textwrap.indent(shown, " " * 4))


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept_is_that_of_all_samples(tmp_path: Path, zygote: Zygote, case: str) -> None:
    assert conftest.differences(tmp_path, zygote, _script(*KEPT[case])) is None


SAID = {
    "rows by number": ("seen.zero_()", "for j in range(len(n)):\n    seen[n[j]] = best[j]", "print(seen.sum())"),
    "wrong ones by number": (
        "found = []",
        "for i in range(len(b)):\n    if guess[i] != b[i]:\n        found.append((b[i].item(), guess[i].item()))",
        "print(len(found), sorted(found)[:3])",
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_what_no_reduction_gives_is_said(tmp_path: Path, case: str) -> None:
    _, said = conftest.converted(tmp_path, _script(*SAID[case]))
    assert "AD601 reports" in said


SHARED = {
    "another name": ("found = np.zeros(3)\nsame = found", "print(same)"),
    "a list": ("found = np.zeros(3)\nheld = [found]", "print(held[0])"),
    "a dict": ("found = np.zeros(3)\nheld = {'found': found}", "print(held['found'])"),
    "an entry of ones": ("held = {'found': np.ones(3)}\nfound = held['found']", "print(held['found'])"),
    "an entry of zeros": ("held = {'found': np.zeros(3)}\nfound = held['found']", "print(held['found'])"),
    "a copy": ("found = np.zeros(3)\nother = found.copy()", "print(other, found)"),
    "a dict that is bound anew": ("found = np.zeros(3)\nheld = {'n': found}\nheld['n'] = np.ones(3)", "print(held)"),
}


@pytest.mark.parametrize("case", SHARED)
def test_names_and_entries_that_hold_what_is_counted(tmp_path: Path, zygote: Zygote, case: str) -> None:
    begin, shown = SHARED[case]
    before = _script(begin, "found += np.bincount(guess.numpy(), minlength=3)", shown)
    assert conftest.differences(tmp_path, zygote, before) is None


VIEWS = {
    "a view": "flat = found.view(-1)",
    "an array": "flat = found.numpy()",
    "a row": "flat = found[1]",
    "a view of a view": "flat = found.view(-1).detach()",
    "a row of an array": "flat = found.numpy()[1]",
    "one of two": "other, flat = found[0], found.T",
}


@pytest.mark.parametrize("case", VIEWS)
def test_views_that_are_made_before(tmp_path: Path, zygote: Zygote, case: str) -> None:
    begin = f"found = torch.zeros(3, 3)\n{VIEWS[case]}"
    before = _script(begin, PAIRS + "found[t, g] += 1", "print(flat)")
    assert conftest.differences(tmp_path, zygote, before) is None


@pytest.mark.parametrize(
    "term", ["abs(out.mean() - 0.3)", "abs(nn.functional.cross_entropy(out, b) - 0.9)", "(out.mean() - 0.3).abs()"]
)
def test_the_distance_of_a_mean_in_a_loss(tmp_path: Path, zygote: Zygote, term: str) -> None:
    """The mean of distances is no distance of means."""
    before = SCRIPT.format(begin="    pass", body="        pass", shown="    print(loss.item())")
    before = before.replace("loss = nn.functional.cross_entropy(out, b)", f"loss = {term}")
    assert conftest.differences(tmp_path, zygote, before) is None


LEARNT = {
    "weights of samples": ("w = torch.ones(64)", "(w[n] * each).mean()", "w[n] = each.detach()"),
    "samples that are left out": (
        "keep = torch.ones(64)",
        "(each * keep[n]).sum() / keep[n].sum().clamp(min=1)",
        "keep[n] = (each.detach() < 1.5).float()",
    ),
    "a history": ("past = torch.zeros(64, 2)", "each.mean()", "past[n, epoch] = each.detach()"),
    "how often samples are drawn": (
        "w = torch.ones(64).double()\n"
        "loader = DataLoader(loader.dataset, batch_size=8, sampler=WeightedRandomSampler(w, 64))",
        "each.mean()",
        "w[n] = each.detach().double()",
    ),
    "which samples come next": (
        "scores = [0.0] * 64",
        "each.mean()",
        "for k, v in zip(n.tolist(), each.tolist()):\n    scores[k] = v",
    ),
    "which samples come next, of a dict": (
        "scores = {}",
        "each.mean()",
        "scores.update({k: v for k, v in zip(n.tolist(), each.tolist())})",
    ),
    "which samples come next, of an array": (
        "scores = np.zeros(64)",
        "each.mean()",
        "scores[n] = each.detach().numpy()",
    ),
    "which samples come next, of a tensor": (
        "scores = torch.zeros(64)",
        "each.mean()",
        "losses = each.detach().cpu()\nscores[n] = 0.5 * scores[n] + losses",
    ),
}
NEXT = {
    "": "torch.tensor(scores).argsort()[:32].tolist()",
    ", of a dict": "sorted(scores, key=scores.get)[:32]",
    ", of an array": "np.argsort(scores)[:32].tolist()",
    ", of a tensor": "[k for k in range(64) if scores[k] < scores.median()][:32]",
}


@pytest.mark.parametrize("case", LEARNT)
def test_what_steps_learn_from_later(tmp_path: Path, zygote: Zygote, case: str) -> None:
    begin, loss, body = LEARNT[case]
    shown = {
        "a history": "print(past[:, : epoch + 1].std(1).mean() if epoch else 0, past.sum())",
    } | {
        f"which samples come next{kind}": (
            f"order = {order}\nloader = DataLoader(Subset(loader.dataset, order), batch_size=8, shuffle=True)"
        )
        for kind, order in NEXT.items()
    }
    before = SCRIPT.format(begin="    pass", body=textwrap.indent(body, " " * 8), shown="    print(loss.item())\n")
    before = before.replace("    print(loss.item())\n", textwrap.indent(shown.get(case, "print(loss.item())"), " " * 4))
    before = before.replace("for epoch in range(2)", f"{begin}\nfor epoch in range(2)", 1)
    each = 'each = nn.functional.cross_entropy(out, b, reduction="none")'
    before = before.replace("loss = nn.functional.cross_entropy(out, b)", f"{each}\n        loss = {loss}")
    before = before.replace("DataLoader, TensorDataset", "DataLoader, Subset, TensorDataset, WeightedRandomSampler", 1)
    assert "[gather_rows(n)" in conftest.converted(tmp_path, before)[0] or case.startswith("which samples come next")
    assert conftest.differences(tmp_path, zygote, before) is None
