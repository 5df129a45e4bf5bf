"""Where values are made global that are printed, written or decided by: what is asked for, and at the least cost."""

from __future__ import annotations

import pytest
from made_global import EPOCH, HEAD, STEP, found, told
from programs import CATALOG, traced

from autodist.placement.propagate import propagate
from autodist.solve.alone import Alone
from autodist.solve.cuts import cuts, solved
from autodist.solve.sources import sources


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (STEP + "print(loss.item())", ["mean loss.item()"]),
        (STEP + "print(f'{epoch}: {loss:.4f}')", ["mean loss"]),
        (STEP + "print('%d %.4f' % (epoch, loss.item()))", ["mean loss.item()"]),
        (STEP + "total += loss.item()\n" + EPOCH + "print(total / len(loader))", ["mean total / len(loader)"]),
        (STEP + "correct += (out.argmax(1) == y).sum().item()\nprint(100 * correct / 64)", ["sum correct"]),
        (STEP + "print(math.exp(loss.item()))", ["mean loss.item()"]),
        (STEP + "print(accuracy(out, y).item())", ["mean accuracy(out, y).item()"]),
        (STEP + "print(out[1])\n", ["rows out"]),
        (STEP + "print(out[0], out[0].shape)\n", []),  # rank 0 has it
        (STEP + "print(out.max(1)[0], loss.item())", ["rows out.max(1)[0]", "mean loss.item()"]),
        (STEP + "meter.update(loss.item(), 1)\nprint('%s after %d' % (meter, 3))", ["mean self.total / self.n"]),
        (
            STEP + "value = loss.item()\n" + STEP + "history.append(value)\nprint(json.dumps(sorted(history)))",
            ["mean loss.item()"],
        ),
        (STEP + "print(out.max().item())", ["max out.max().item()"]),
        (STEP + "print(step, len(loader), x.shape[1])", []),
        (STEP + "history.append(loss.item())\njson.dump(history, open('h.json', 'w'))", ["mean loss.item()"]),
        (STEP + "losses['ce'] = loss.item()\n" + STEP + "print(losses)", ["mean loss.item()"]),
        (STEP + "torch.save({'net': net.state_dict(), 'loss': loss}, 'c.pt')", ["mean loss"]),
        (
            STEP + "mask = y > 0\n" + STEP + "print((out * mask[:, None]).sum() / mask.sum())",
            ["sum (out * mask[:, None]).sum()", "sum mask.sum()"],
        ),
    ],
)
def test_what_is_shown_is_made_global(text: str, wanted: list[str]) -> None:
    assert [told(each) for each in found(text)[1]] == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (STEP + "value = loss.item()\n" + STEP + "if step % 100 == 0:\n" + STEP + "    print(value)", ["mean value"]),
        (STEP + "value = loss.item()\n" + STEP + "print(value)\n" + STEP + "print(value, epoch)", ["mean loss.item()"]),
        (STEP + "meter.update(loss.item(), len(x))\n" + EPOCH + "print(f'{meter}')", ["mean self.total / self.n"]),
        (
            STEP
            + "total += loss.item()\n"
            + EPOCH
            + "history.append(total / len(loader))\n"
            + EPOCH
            + "print(history[-1])",
            ["mean total / len(loader)"],
        ),
    ],
    ids=[
        "every hundred steps",
        "once for two that print it",
        "of a meter where it is shown",
        "where a list is given it",
    ],
)
def test_it_is_made_global_where_that_costs_least(text: str, wanted: list[str]) -> None:
    assert [told(each) for each in found(text)[1]] == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (STEP + "if loss < 0.1:\n" + STEP + "    break", ["mean loss"]),
        (STEP + "if loss is None or x.shape[0] != y.shape[0] or len(x) == len(y):\n" + STEP + "    break", []),
        (STEP + "if out.dim() != 2 or not isinstance(out, torch.Tensor):\n" + STEP + "    break", []),
    ],
)
def test_ranks_decide_alike(text: str, wanted: list[str]) -> None:
    assert [told(each) for each in found(text)[1]] == wanted


EVALUATE = """
def evaluate(batches):
    hits = error = 0
    with torch.no_grad():
        for x, y in batches:
            hits += (net(x).argmax(1) == y).sum().item()
            error += F.cross_entropy(net(x), y).item()
    print(RESULT)


evaluate(loader)
evaluate(test_loader)
"""


def test_means_of_equal_values_are_those_values_and_sums_are_not() -> None:
    _, means = found(EVALUATE.replace("RESULT", "error / len(batches)"))
    assert [told(each) for each in means] == ["mean error / len(batches)"]
    _, sums = found(EVALUATE.replace("RESULT", "hits / 64"))
    assert [told(each) for each in sums] == ["sum hits"]
    assert sums[0].switch == "isinstance(batches.sampler, DistributedSampler)"  # in the passes over shared loaders


def test_evaluation_on_all_ranks_needs_nothing() -> None:
    text = EVALUATE.replace("RESULT", "hits, error / len(batches)").replace("evaluate(loader)\n", "")
    assert found(text)[1] == []


def test_what_gradients_flow_through_is_reduced_where_it_is_shown() -> None:
    text = HEAD.replace("        loss.backward()\n", "        losses['ce'] = loss\n        losses['ce'].backward()\n")
    program = traced(text + STEP + "print(losses)\n")
    placements = propagate(program, sources(program, CATALOG).plan, catalog=CATALOG)
    (cut,) = cuts(program, placements)
    assert told(cut) == "mean losses"


def test_rank_zero_is_given_what_is_global() -> None:
    text = STEP + "history.append(loss.item())\n"
    one = "open('h.txt', 'w').write(str(loss.item()))"
    assert [told(each) for each in found(text + one, one)[1]] == ["mean loss.item()"]
    several = "open('h.txt', 'w').write(', '.join(str(value) for value in history))"
    (cut,) = found(text + several, several)[1]
    assert told(cut) == "mean loss.item()" and cut.node.lineno < (cut.source.text.count("\n"))


def test_what_is_computed_from_global_values_is_global() -> None:
    """A list whose entries are global, and their mean: reduced once."""
    text = (
        STEP
        + "history.append(loss.item())\n"
        + EPOCH
        + "print(history)\n"
        + EPOCH
        + "print(sum(history) / len(history))"
    )
    assert [told(each) for each in found(text)[1]] == ["mean loss.item()"]


def test_loaders_do_not_communicate() -> None:
    start = """
def collate(batch):
    return torch.stack([x for x, _ in batch]), torch.stack([y for _, y in batch])


loader = DataLoader(data, batch_size=8, collate_fn=collate)"""
    text = STEP + "for i in range(4):\n" + STEP + "    print(x[i].tolist())"
    assert [told(each) for each in found(text, start=start)[1]] == ["rows x"]


def test_functions_that_rank_zero_runs_alone_do_not_communicate() -> None:
    start = """
def used(out):
    share = out.softmax(1).mean(0)
    return -(share * share.log()).sum()


"""
    alone = "open('h.txt', 'w').write(str(used(net(torch.zeros(8, 4)))))"
    text = STEP + "print(used(out))\n" + alone
    assert found(text, alone, start)[1] and not any(each.is_met for each in found(text, alone, start)[1])
    assert [told(each) for each in found(STEP + "print(used(out))", start=start)[1]] == ["mean out.softmax(1).mean(0)"]


def test_a_function_that_rank_zero_calls_alone_is_given_what_is_global() -> None:
    start = """
def show(images, title):
    with open("seen.txt", "w") as file:
        file.write(f"{images} {title}")


"""
    alone = "show(x, loss.item())"
    assert [told(each) for each in found(STEP + alone, alone, start)[1]] == ["rows x", "mean loss.item()"]


def test_arguments_of_a_function_where_they_are_put_together() -> None:
    text = STEP + "total += loss.item() * len(x)\n" + EPOCH + "print(' '.join(map(str, (total, epoch))))"
    assert [told(each) for each in found(text)[1]] == ["sum total"]


CLOSURE = """
steps = torch.optim.LBFGS(net.parameters())
best = {start}
def again({given}):
    global best
    steps.zero_grad()
    found = F.cross_entropy(net(x), y, reduction="{reduction}")
    found.backward()
    if found.item() < best:
        best = found.item()
    return found{as_told}
for x, y in loader:
    print(steps.step({told}).item())
print(best)
"""


@pytest.mark.parametrize(
    ("given", "told", "as_told"),
    [
        ("", "again", ""),
        ("", "closure=again", ""),
        ("times", "functools.partial(again, 3)", ""),
        ("", "again", " / 2"),
    ],
)
@pytest.mark.parametrize("start", ["1e10", "float('inf')", "math.inf"])
@pytest.mark.parametrize(("reduction", "word"), [("sum", "sum"), ("mean", "mean")])
def test_what_a_closure_gives_an_optimizer(
    given: str, told: str, as_told: str, start: str, reduction: str, word: str
) -> None:
    text = CLOSURE.format(given=given, told=told, as_told=as_told, start=start, reduction=reduction)
    program = traced("import functools\n" + HEAD.partition("correct, seen")[0] + text)
    given_to = solved(program, sources(program, CATALOG).plan, CATALOG, Alone())
    codes = [each.source.code(each.node) for each in given_to]
    assert all(each.is_met for each in given_to), codes
    assert {"found", "found" + as_told} & {*codes} and {*codes} <= {"found", "found.item()", "found" + as_told}
    assert {each.placement.reduce for each in given_to} == {word}  # type: ignore[union-attr]


MASKED = """
for x, y in loader:
    mask = (y > 0).float()
    each = F.cross_entropy(net(x), y, reduction="none")
    {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        ("mask /= mask.mean()\n    loss = (each * mask).mean()", ["mask.mean()"]),
        ("loss = (each * (mask / torch.mean(mask))).mean() + 0.1 * each.mean()", ["torch.mean(mask)"]),
        ("rare = mask.mean()\n    loss = (each * torch.exp(-rare)).mean()", ["-rare"]),
        ("with torch.no_grad():\n        scale = each.mean()\n    loss = (each / scale).mean()", ["scale"]),
        ("loss = (each / each.mean()).mean()", []),
        ("loss = each.mean() + each.max()", []),
        ("loss = (each * mask / mask.sum()).sum()", ["mask.sum()"]),
        ("loss = (each * mask).mean()", []),
        ("loss = (each * mask / mask.std()).sum() / len(x)", []),
        ("loss = each.mean() * torch.exp(mask.mean())", ["mask.mean()"]),
    ],
)
def test_numbers_without_gradients_that_losses_are_computed_with(loss: str, wanted: list[str]) -> None:
    program = traced(HEAD.partition("correct, seen")[0] + MASKED.format(loss=loss))
    given_to = solved(program, sources(program, CATALOG).plan, CATALOG, Alone())
    assert [each.source.code(each.node) for each in given_to if each.is_met] == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (STEP + "done = step * loader.batch_size\n" + STEP + "print(done)", ["done"]),
        (STEP + "print(loader.batch_size * step / 64)", ["loader.batch_size * step / 64"]),
        (STEP + "print(test_loader.batch_size * step)", []),
        (
            STEP + "done = step\n" + STEP + "if epoch > 0:\n" + STEP + "    done = step * loader.batch_size\n"
            + STEP + "print(done)",
            ["step * loader.batch_size"],
        ),
    ],
)  # fmt: skip
def test_the_batch_size_of_a_loader_is_each_ranks(text: str, wanted: list[str]) -> None:
    assert [each.source.code(each.node) for each in found(text)[1] if each.is_met] == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (EPOCH + "torch.save(x.reshape(8, 2, 2), 'x.pt')", ["rows x.reshape(8, 2, 2)"]),
        (EPOCH + "torch.save(x.view(loader.batch_size, 2, 2), 'x.pt')", []),
        (EPOCH + "torch.save(torch.zeros(8, 2), 'x.pt')", []),
        (EPOCH + "torch.save(net.weight.reshape(8, -1), 'w.pt')", []),
    ],
)
def test_views_of_a_batch_that_write_its_size_down(text: str, wanted: list[str]) -> None:
    assert [told(each) for each in found(text)[1] if each.is_met] == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            EPOCH + "right = correct / seen\n" + EPOCH + "print(right)\n" + EPOCH + "print(correct)",
            ["mean right", "sum correct"],
        ),
        (EPOCH + "table = counts.diag() / counts.sum(1)\n" + EPOCH + "print(table, counts)", ["sum counts"] * 3),
    ],
)
def test_what_several_are_computed_from_is_reduced_once(text: str, wanted: list[str]) -> None:
    """And not again where what is computed of it is shown."""
    counting = STEP + "correct += (out.argmax(1) == y).sum().item()\n" + STEP + "seen += len(x)\n"
    counting += STEP + "counts += torch.bincount(3 * y + out.argmax(1), minlength=9).view(3, 3)\n"
    assert [told(each) for each in found(counting + text, begun="counts = torch.zeros(3, 3)")[1]] == wanted


ALONE = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
    def forward(self, x):
        used = self.body(x).softmax(1).mean(0)
        return self.body(x), (used * used.log()).sum()
net = Net()
"""


@pytest.mark.parametrize(
    ("shown", "met"),
    [
        ("writer.add_graph(net, x)", False),
        ("torch.save(net.state_dict(), 'net.pt')", True),
        ("print(x.shape[1])", True),
    ],
)
def test_a_model_that_rank_zero_runs_alone_does_not_communicate(shown: str, met: bool) -> None:
    steps = ALONE + "opt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor x, y in loader:\n    out, spread = net(x)\n"
    steps += "    F.cross_entropy(out, y).backward()\n    opt.step()\n    print(spread.item())\n"
    _, chosen = found("writer = object()\n" + steps + f"{shown}\n", alone=shown)
    inside = [each for each in chosen if "forward" in str(getattr(each.source.function(each.node), "name", ""))]
    assert inside and all(each.is_met == met for each in inside)


WRITERS = """
from torch.utils.tensorboard import SummaryWriter


class Writer(SummaryWriter):
    pass


class Quiet:
    def add_scalar(self, name, value):
        pass


writer = Writer() if torch.cuda.is_available() else Quiet()
import reporting
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("writer.add_scalar('loss', loss.item())", ["mean loss.item()"]),  # one class has it from a library
        ("writer.add_graph(net, x)", []),  # a rank's own samples show as well what a model is
        ("reporting.stop(net, loss.item())", ["mean loss.item()"]),
        ("reporting.stop(loss.item(), net, x)", ["mean loss.item()"]),
        ("reporting.draw(x)", ["rows x"]),
    ],
)
def test_what_libraries_are_given(text: str, wanted: list[str]) -> None:
    assert [told(each) for each in found(STEP + text, start=WRITERS)[1]] == wanted


GATES = """
class Scaled(nn.Module):
    def forward(self, x, scale=True):
        return 2 * x if scale else x


class Added(nn.Module):
    def forward(self, x, state):
        return x + state


gate = Scaled() if torch.cuda.is_available() else Added()
"""


@pytest.mark.parametrize(
    ("text", "wanted"), [("gate(x, out)", []), ("if out:\n" + STEP + "    break", ["none net(x)"])]
)
def test_what_a_model_decides_is_its_own_matter(text: str, wanted: list[str]) -> None:
    """Of several models that may be called, one asks whether it is told to, and is not given a state of another."""
    assert [told(each) for each in found(STEP + text, start=GATES)[1]] == wanted


RANKED = """\
        scores.append(out[:, 0].detach())
        targets.append(y)
    s, t = torch.cat(scores), torch.cat(targets)
    places = torch.empty_like(s)
    places[s.argsort()] = torch.arange(1.0, len(s) + 1)
    positive, negative = (t == 1).sum().item(), (t != 1).sum().item()
    print((places[t == 1].sum() - positive * (positive + 1) / 2) / (positive * negative))
"""


def test_sums_over_what_is_gathered_are_the_same_on_all_ranks() -> None:
    """Reduced as well they would count all samples as often as there are ranks."""
    chosen = found(RANKED, begun="scores, targets = [], []")[1]
    assert [told(each) for each in chosen] == ["rows out[:, 0].detach()", "rows y"]


def test_sums_beside_what_is_gathered_are_reduced() -> None:
    text = STEP + "scores.append(out.detach())\n" + STEP + "correct += (out.argmax(1) == y).sum().item()\n"
    chosen = found(text + EPOCH + "print(torch.cat(scores).sort(0)[0][0], correct)", begun="scores = []")[1]
    assert {told(each) for each in chosen} == {"rows out.detach()", "sum correct"}
