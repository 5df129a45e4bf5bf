"""What loops over a rank's samples count and keep, and where rows are gathered for it."""

from __future__ import annotations

import pytest
from made_global import EPOCH, STEP, found, told

PAIRS = STEP + "for guess, label in zip(out.argmax(1).tolist(), y.tolist()):\n" + STEP + "    "
BOTH = ["rows out.argmax(1)", "rows y"]


def step(*lines: str) -> str:
    """Lines of a step."""
    return "".join(f"{STEP}{each}\n" for each in lines)


def wanted(text: str, start: str = "") -> list[str]:
    return [told(each) for each in found(text, start=start)[1]]


@pytest.mark.parametrize(
    ("start", "count"),
    [
        ("counts = 0", PAIRS + "if guess == label:\n" + STEP + "        counts += 1"),
        ("counts = 0", PAIRS + "counts += guess == label"),
        ("counts = torch.zeros(3, 3)", PAIRS + "counts[label, guess] += 1"),
        ("counts = torch.zeros(3, 3)", PAIRS + "counts[label][guess] += 1"),
        ("counts = torch.zeros(3, 3)", PAIRS + "counts[label][guess] = counts[label][guess] + 1"),
        ("counts = np.zeros(9)", PAIRS + "counts[3 * label + guess] += 1"),
        ("counts = [0] * 3", PAIRS + "counts[label] += guess == label"),
        ("counts = {0: 0, 1: 0, 2: 0}", PAIRS + "counts[label] += 1"),
        ("counts = {k: 0 for k in range(3)}", PAIRS + "counts[label] += 1"),
        ("counts = torch.zeros(3)", STEP + "for k in range(3):\n" + STEP + "    counts[k] += (y == k).sum()"),
    ],
)
def test_counts_are_added_up_where_they_are_shown(start: str, count: str) -> None:
    assert wanted(count + "\n" + EPOCH + "print(counts)", start) == ["sum counts"]


@pytest.mark.parametrize(
    "count",
    [
        "counts += torch.bincount(y, minlength=3)",
        "counts.add_(torch.bincount(y, minlength=3))",
        "torch.add(counts, torch.bincount(y, minlength=3), out=counts)",
        "counts.data += torch.bincount(y, minlength=3)",
        "counts.index_add_(0, y, torch.ones(len(y)))",
        "counts.index_put_((y,), torch.ones(len(y)), accumulate=True)",
        "counts.scatter_add_(0, y, torch.ones(len(y)))",
        "counts.view(-1).scatter_add_(0, y, torch.ones(len(y)))",
        "counts.numpy()[:] += np.bincount(y.numpy(), minlength=3)",
        "np.add.at(counts.numpy(), y.numpy(), 1)",
        "held = counts; held += torch.bincount(y, minlength=3)",
    ],
)
def test_other_names_and_views_of_counts(count: str) -> None:
    assert wanted(f"{STEP}{count}\n{EPOCH}print(counts)", "counts = torch.zeros(3)") == ["sum counts"]


@pytest.mark.parametrize(
    "count",
    [
        "counts += len(torch.nonzero(out.argmax(1) == y))",
        "counts += (out.argmax(1) == y).nonzero().size(0)",
        "counts += torch.where(out.argmax(1) == y)[0].shape[0]",
        "counts += len(np.where(out.argmax(1).numpy() == y.numpy())[0])",
        "counts += len([1 for guess, label in zip(out.argmax(1), y) if guess == label])",
        "counts += len(list(filter(None, (out.argmax(1) == y).tolist())))",
        "counts += len([*filter(lambda pair: pair[0] == pair[1], zip(out.argmax(1), y))])",
    ],
)
def test_samples_that_are_found_are_counted(count: str) -> None:
    (cut,) = found(f"{STEP}{count}\n{EPOCH}print(counts)", start="counts = 0")[1]
    assert told(cut) == "count counts" and "of rows" not in str(cut.placement)


@pytest.mark.parametrize(
    "shown", ["counts", "sorted(counts.items())", "[(k, v) for k, v in counts.items()]", "len(counts)"]
)
@pytest.mark.parametrize(
    ("start", "count"),
    [
        ("counts = {}", "for label in y.tolist():\n            counts[label] = counts.get(label, 0) + 1"),
        ("counts = Counter()", "for label in y.tolist():\n            counts[label] += 1"),
        ("counts = Counter()", "counts.update(y.tolist())"),
        ("counts = Counter()", "counts += Counter(y.tolist())"),
        ("counts = defaultdict(list)", "for label in y.tolist():\n            counts[label].append(1)"),
        ("counts = {}", "for label in y.tolist():\n            counts.setdefault(label, []).append(1)"),
    ],
)
def test_rows_are_gathered_that_are_the_keys_of_a_dict(start: str, count: str, shown: str) -> None:
    assert wanted(f"{STEP}{count}\n{EPOCH}print({shown})", start) == ["rows y"]


def test_all_lists_are_gathered_that_a_loop_goes_over_side_by_side() -> None:
    count = PAIRS + "counts[label] = counts.get(label, 0) + (guess == label)\n"
    assert wanted(count + EPOCH + "print(counts)", "counts = {}") == BOTH


@pytest.mark.parametrize("shown", ["len(set(y.tolist()))", "len(set(y.tolist()) & {1, 2})", "sorted(set(y.tolist()))"])
def test_which_samples_are_alike_all_ranks_tell_together(shown: str) -> None:
    assert wanted(step(f"print({shown})")) == ["rows y"]
    assert wanted(step("seen.update(y.tolist())") + EPOCH + "print(len(seen))", "seen = set()") == ["rows y"]


@pytest.mark.parametrize(
    "lines",
    [
        ("pairs.append((out.argmax(1), y))",),
        ("pairs.extend(zip(out.argmax(1).tolist(), y.tolist()))",),
    ],
)
def test_rows_are_gathered_where_lists_are_given_them(lines: tuple[str, ...]) -> None:
    assert wanted(step(*lines) + EPOCH + "print(pairs)", "pairs = []") == BOTH


def test_parts_of_samples_are_gathered_with_their_samples() -> None:
    """Ranks' samples take turns, the numbers in them do not."""
    text = step("flat.append(out.flatten().detach().numpy())") + EPOCH + "print(np.sort(np.concatenate(flat)))"
    assert wanted(text, "flat = []") == ["rows out"]


def test_a_number_is_made_global_before_samples_are_gathered_for_it() -> None:
    text = step("centred = ((out - out.mean()) ** 2).sum()", "print(centred.item())")
    assert wanted(text) == ["mean out.mean()", "sum centred.item()"]


def test_no_rank_communicates_for_one_sample_after_the_other() -> None:
    (cut,) = found(STEP + "for i in range(len(y)):\n" + STEP + "    print(y[i].item())")[1]
    assert not cut.is_met and "one sample after the other" in str(cut.placement)


def test_a_sum_that_begins_with_another_number_is_reduced_where_it_is_added() -> None:
    text = step("counts += (out.argmax(1) == y).sum().item()") + EPOCH + "print(counts)"
    assert wanted(text, "counts = 1") == ["sum (out.argmax(1) == y).sum().item()"]


SHOW = """\
def show(counts):
    print(counts.trace() / counts.sum())


counts, others = torch.zeros(3, 3), torch.zeros(3, 3)"""


def test_a_function_is_given_what_is_global_where_it_is_given_other_things_too() -> None:
    text = PAIRS + "counts[label, guess] += 1\n" + EPOCH + "show(counts)\n" + EPOCH + "show(others)"
    assert wanted(text, SHOW) == ["sum counts"]
    text = step("total += loss.item() * len(x)") + EPOCH + "for each in (total, 5):\n" + EPOCH + "    print(each)"
    assert wanted(text) == ["sum total"]


@pytest.mark.parametrize(
    ("shown", "global_"),
    [("*(names[y[i]] for i in range(4))", ["rows y"]), ("[names[each] for each in y.tolist()]", ["rows y"])],
)
def test_texts_that_samples_choose_are_theirs(shown: str, global_: list[str]) -> None:
    assert wanted(step(f"print({shown})"), "names = ['cat', 'dog', 'cow']") == global_


@pytest.mark.parametrize(
    "places",
    ["range(len(y))", "range(x.shape[0])", "list(range(y.size(0)))", "torch.arange(len(x))", "np.arange(0, len(x))"],
)
def test_a_number_of_each_sample_is_taken_by_the_places_of_all(places: str) -> None:
    text = step(
        f"print(out[{places}, y].max())", f"kept = out.clone()\n    kept[{places}, y] = 0\n    print(kept.sum())"
    )
    assert wanted(text) == [f"max out[{places}, y].max()", "sum kept.sum()"]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (
            "sum(2 for a, b in zip(out.argmax(1).tolist(), y.tolist()))",
            ["sum sum(2 for a, b in zip(out.argmax(1).tolist(), y.tolist()))"],
        ),
        ("sum(1 for _ in y)", ["sum sum(1 for _ in y)"]),
        ("sum(0.5 for _ in y.tolist())", ["sum sum(0.5 for _ in y.tolist())"]),
        ("len([1 for _ in range(len(y))])", ["count len([1 for _ in range(len(y))])"]),
        ("sum(1 for _ in range(int(y.shape[1])))", []),
        ("sum(1 for _ in range(len(loader)))", []),
    ],
)
def test_one_number_for_each_sample(shown: str, expected: list[str]) -> None:
    assert wanted(f"{STEP}print({shown})") == expected


@pytest.mark.parametrize("loop", ["for _ in x:", "for a, b in zip(out, y):", "for i in range(len(x)):"])
def test_a_number_that_is_put_into_a_list_for_each_sample(loop: str) -> None:
    """`counts.append(1)`"""
    text = f"{STEP}counts = []\n{STEP}{loop}\n{STEP}    counts.append(1)\n{STEP}print(sum(counts))"
    assert wanted(text) == ["sum sum(counts)"]


def test_a_number_that_is_put_into_a_list_for_each_batch() -> None:
    assert wanted(f"{STEP}counts.append(1)\n{EPOCH}print(sum(counts))", "counts = []") == []


def test_zeros_of_as_many_as_there_are_are_what_counts_begin_with() -> None:
    start = "counts = [0 for _ in range(int(labels.max()))]"
    assert wanted(f"{PAIRS}counts[label] += 1\n{EPOCH}print(counts)", start) == ["sum counts"]


def test_what_is_divided_where_it_stands_decides() -> None:
    """`best` is a number that all ranks have at first, and is what the losses came to later."""
    lines = ["total /= 64", "if total < best:", "    best = total", "else:", "    break"]
    text = f"{STEP}total += loss.item() * len(x)\n" + "".join(f"{EPOCH}{each}\n" for each in lines)
    cuts = found(text, start="best = 1e9", begun="total = 0")[1]
    assert [told(each) for each in cuts] == ["sum loss.item() * len(x)"]
