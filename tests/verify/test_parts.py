"""The pieces: layouts of batches, digests, traces, scratch copies, stacks, explanations."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from autodist.verify.compare import (
    TOLERANCES,
    StepComparison,
    assembled,
    compare_step,
    distance,
    gradient_ratio,
    spread,
)
from autodist.verify.contents import content_difference, understood
from autodist.verify.explain import CAUSES, KINDS, guarded
from autodist.verify.outputs import compare_save, stable
from autodist.verify.plan import ProcessPlan
from autodist.verify.replay import RankDraws, Replay, batch_dimension, build_replay, in_turns, union
from autodist.verify.scratch import Scratch
from autodist.verify.stall import Sample, cpu_seconds, is_runnable, position_in, ready_seconds
from autodist.verify.trace import Pass, RunTrace, Save, Step, TraceWriter, read_trace
from autodist.verify.verdict import Outcome, Verdict

torch = pytest.importorskip("torch")

from autodist.verify.probes.batchnorm import guards_conversion  # noqa: E402
from autodist.verify.probes.data import KeyedRows, as_float64, content_key, identity, leading_sizes  # noqa: E402
from autodist.verify.probes.digest import Digester  # noqa: E402
from autodist.verify.probes.generators import kept_by, reseed  # noqa: E402
from autodist.verify.probes.parts import Layout  # noqa: E402
from autodist.verify.probes.streams import RandomStreams  # noqa: E402


def test_layouts_put_rows_back_where_the_original_has_them() -> None:
    whole = torch.arange(24).reshape(6, 4)
    for batches in ([], [6], [3], [5, 3]):
        layout = Layout([3, 3], batches)
        parts = [layout.take(whole, 0, rank) for rank in range(2)]
        assert torch.equal(layout.join(parts, 0), whole)
    assert Layout([3, 3], [6]).positions == [[0, 2, 4], [1, 3, 5]]
    assert Layout([3, 2], []).positions == [[0, 2, 4], [1, 3]]
    assert Layout([6, 6], [8, 4]).positions == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]  # of two loaders, joined
    assert Layout([5, 4], [4, 5]).positions == [[0, 2, 4, 5, 7], [1, 3, 6, 8]]
    assert Layout([4, 4], [4]).positions == [[0, 1, 4, 5], [2, 3, 6, 7]], "two rows of one sample stay together"
    assert Layout([4, 4], [4], stacked=True).positions == [[0, 2, 4, 6], [1, 3, 5, 7]], "two batches, joined"


def test_layouts_put_rows_of_joined_samples_back() -> None:
    pieces = [3, 1, 2, 2]  # rows of four samples, dealt out to two ranks
    assert Layout([5, 3], [4], pieces=[[4, 4], pieces]).positions == [[0, 1, 2, 4, 5], [3, 6, 7]]
    assert Layout([4, 4], [4], pieces=[pieces]).positions == [[0, 1, 4, 5], [2, 3, 6, 7]], "these are other rows"


def test_what_a_sample_draws_while_it_is_collated_is_keyed_to_it() -> None:
    told: list[tuple[bool, object, int]] = []
    rows = KeyedRows(["a", "b"], [7, 8], lambda *what: told.append(what))
    assert rows[1] == "b" and len(rows) == 2 and not told
    assert list(zip(*[iter(rows)], strict=True)) == [("a",), ("b",)]
    assert told == [(True, 7, 1), (True, 8, 1), (False, None, 1)]
    first = next(iter(rows))
    assert first == "a" and told[-1] == (False, None, 2), "also where the loop is left"


def test_rows_of_parts_of_samples() -> None:
    samples = [(torch.ones(3, 2), [1, 2], 5), (torch.ones(4, 2), [1], 6)]
    assert leading_sizes(samples) == [[3, 4], [2, 1]]
    assert leading_sizes([{"x": torch.ones(2), "y": 1}]) == [[2]]
    assert leading_sizes([torch.ones(()), torch.ones(())]) == []


def test_streams_go_apart_where_different_amounts_were_drawn() -> None:
    def order(draws: int, counts: bool = True) -> list[int]:
        streams = RandomStreams(0)
        random.seed(5)
        streams.put_aside()
        streams.reseed("step", 1, counts=counts)
        for _ in range(draws):
            random.random()
        streams.take_up()
        kept = streams.exchange(streams.branch(parted=True))
        drawn = random.sample(range(100), 5)
        streams.exchange(kept)
        return drawn

    assert order(3) == order(3) != order(4)
    assert order(3, counts=False) == order(4, counts=False), "a worker would have drawn it"


def test_ranks_take_turns() -> None:
    assert in_turns([2, 1]) == [(0, 0), (0, 1), (1, 0)]
    passes = [Pass(0, 0, "", [[1, 3], [5]]), Pass(0, 0, "", [[2, 4], [6]])]
    assert union(passes) == [[1, 2, 3, 4], [5, 6]]


def test_the_batch_dimension_is_the_one_that_adds_up() -> None:
    assert batch_dimension([8, 3], [[4, 3], [4, 3]]) == 0
    assert batch_dimension([5, 8], [[5, 5], [5, 3]]) == 1
    assert batch_dimension([8, 3], [[8, 3], [8, 3]]) is None
    assert batch_dimension([8], [[4, 1], [4, 1]]) is None


def test_digests_measure_distance_and_add_up() -> None:
    digester = Digester()
    first = torch.randn(40, 30, dtype=torch.float64)
    second = first + 1e-6 * torch.randn(40, 30, dtype=torch.float64)
    one, two, none = digester.all([first, second, None])
    assert none is None and one is not None and two is not None
    assert one[0] == pytest.approx(first.norm().item())
    expected = (first - second).norm().item()
    assert expected / 20 < distance(one, two) < expected * 5
    small = digester.all([torch.ones(5)])[0]
    assert small == Digester().all([torch.ones(5)])[0], "directions must not depend on what was asked before"


def test_shards_are_assembled_and_copies_of_one_must_agree() -> None:
    first, second = [3.0, 1.0, 2.0, 3.0, 1.0], [4.0, 1.0, 1.0, 1.0, 2.0]
    assert assembled([first, second]) == [5.0, 2.0, 3.0, 4.0]
    assert spread([first, second], 0.0) == 0.0
    assert assembled([first, second, first, second]) == [5.0, 2.0, 3.0, 4.0], "two nodes hold each a copy"
    assert spread([first, second, first, second], 0.0) == 0.0
    assert spread([first, second, first, [4.0, 1.0, 1.0, 1.5, 2.0]], 0.0) > 0.0
    assert spread([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.5]], 0.0) > 0.2
    assert assembled([None, None]) is None


def test_items_of_a_stream_are_known_by_their_content() -> None:
    item = {"x": torch.ones(3), "y": (1, "a")}
    assert content_key(item) == content_key({"x": torch.ones(3), "y": (1, "a")})
    assert content_key(item) != content_key({"x": torch.ones(3), "y": (2, "a")})
    assert content_key(torch.ones(2)) != content_key(torch.ones(2, dtype=torch.float64))


def test_generators_that_a_data_set_keeps() -> None:
    """Wherever below it they are, but for those of the whole process."""
    own = [random.Random(1), np.random.RandomState(2), np.random.default_rng(3), torch.Generator()]
    held = SimpleNamespace(
        transform=SimpleNamespace(steps=[SimpleNamespace(rng=own[0])]), a=own[1], b=own[2:], c=random
    )
    found = kept_by(held)
    assert {id(each) for each in found} == {id(each) for each in own}

    def drawn() -> list[float]:
        for generator in own:
            reseed(generator, 12345678901)
        numbers = [own[0].random(), own[1].rand(), own[2].random(), torch.rand(1, generator=own[3]).item()]
        return [float(number) for number in numbers]

    assert drawn() == drawn()


def test_generators_of_transforms_among_which_one_is_chosen() -> None:
    """`Compose([OneOf([Blur()])])`: each has generators of its own."""
    blur = SimpleNamespace(rng=random.Random(1))
    one_of = SimpleNamespace(rng=random.Random(2), transforms=[blur])
    held = SimpleNamespace(transform=SimpleNamespace(rng=random.Random(3), transforms=[one_of]))
    assert {id(each) for each in kept_by(held)} == {id(each.rng) for each in (blur, one_of, held.transform)}


DRAWS = SimpleNamespace(rng=random.Random(4))
"""A transform as a module of a script keeps it, with a generator of its own."""


class Augmented:
    """A data set whose samples are drawn by what its method names."""

    def __getitem__(self, index: int) -> float:
        return index + float(DRAWS.rng.random())


def test_generators_that_a_method_of_a_data_set_names() -> None:
    assert kept_by(Augmented()) == [DRAWS.rng]


def test_samples_keep_their_identity_through_subsets() -> None:
    dataset = torch.utils.data.TensorDataset(torch.arange(10))
    half = torch.utils.data.Subset(dataset, [9, 7, 5, 3])
    assert identity(torch.utils.data.Subset(half, [1, 2]), 1) == 5


def test_batches_become_float64() -> None:
    batch = as_float64({"x": torch.ones(2), "y": [torch.ones(2, dtype=torch.int64)], "z": (torch.ones(1).half(),)})
    assert batch["x"].dtype == torch.float64
    assert batch["y"][0].dtype == torch.int64
    assert batch["z"][0].dtype == torch.float64


SYNCHRONISE = "def synchronise(m):\n    return nn.SyncBatchNorm.convert_sync_batchnorm(m)\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if torch.cuda.is_available():\n    m = nn.SyncBatchNorm.convert_sync_batchnorm(m)\n", True),
        ("if torch.cuda.is_available():\n    m = m.cuda()\n", False),
        ("if torch.cuda.is_available():\n    m = convert_sync_batchnorm(m)\n    m.cuda()\n", False),
        ("m = convert_sync_batchnorm(m) if torch.cuda.is_available() else m\n", True),
        ("d = 'cuda' if torch.cuda.is_available() else 'cpu'\n", False),
        ("if torch.cuda.is_available():\n    m = synchronise(m)\n" + SYNCHRONISE, True),
        ("if torch.cuda.is_available():\n    synchronise(m)\n" + SYNCHRONISE, False),
        ("if torch.cuda.is_available():\n    m = other(m)\n" + SYNCHRONISE, False),
    ],
)
def test_only_the_question_before_a_conversion_is_answered(source: str, expected: bool) -> None:
    assert guards_conversion(source, 1) is expected


def test_a_trace_survives_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "rank0.trace"
    writer = TraceWriter(path, str(tmp_path))
    writer.emit("pass", loader=0, number=0, site="a.py:1")
    writer.emit("batch", loader=0, number=0, samples=[3, 4])
    writer.emit("backward", loss=0.5, site="a.py:2")
    group = {"settings": {"lr": 0.1}, "gradients": [None], "parameters": [[1.0, 0.0, 0.0, 0.0]]}
    writer.emit("step", optimizer=0, site="a.py:3", groups=[group])
    writer.flush()
    with path.open("a") as file:
        file.write('{"kind": "batch", "loa')
    run = read_trace(path)
    assert run.passes[0, 0].trains
    assert run.steps[0].losses == [0.5]
    assert run.steps[0].batches == [(0, 0, 0)]
    assert run.end is None


def test_plans_and_replays_travel(tmp_path: Path) -> None:
    plan = ProcessPlan("conversion", 1, 2, "a.py", ("x",), "/o/r", "/o", "/o/r", "/t", shared_draws=("randn a.py:1",))
    assert ProcessPlan.from_json(plan.to_json()) == plan
    replay = Replay(2, ["Data"], {(0, 1): [[1, 2]]}, {"torch": {0: [(0, 0, 3)], 12: [(0, 0, 5)]}}, {(0, 1)})
    replay.own_rows[4] = RankDraws([[2], [2]], False, "a.py:3", [[], []], [8, None], [7, 8])
    replay.write(tmp_path / "replay.json")
    assert Replay.read(tmp_path / "replay.json") == replay
    assert build_replay([RunTrace("rank0"), RunTrace("rank1")]).passes == {}


def test_scratch_copies_hold_links_to_large_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "data").mkdir(parents=True)
    (source / "data" / "big.bin").write_bytes(b"0" * (2 << 20))
    (source / "train.py").write_text("")
    (source / "__pycache__").mkdir()
    scratch = Scratch(tmp_path / "copy")
    scratch.fill(source)
    scratch.seal()
    assert (scratch.root / "data" / "big.bin").is_symlink()
    assert not (scratch.root / "train.py").is_symlink()
    assert not (scratch.root / "__pycache__").exists()
    (scratch.root / "out.txt").write_text("new")
    assert list(scratch.changed()) == ["out.txt"]


def test_a_script_without_a_suffix_takes_the_place_of_the_original(tmp_path: Path) -> None:
    for folder, text in (("source", "old"), ("converted", "new")):
        (tmp_path / folder).mkdir()
        for name in ("train", "utils.py", "notes"):
            (tmp_path / folder / name).write_text(text)
    scratch = Scratch(tmp_path / "copy")
    scratch.fill(tmp_path / "source")
    scratch.overlay(tmp_path / "converted", scratch.root, tmp_path / "converted" / "train")
    found = {path.name: path.read_text() for path in scratch.root.iterdir()}
    assert found == {"train": "new", "utils.py": "new", "notes": "old"}


STACKS = """Thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 1 in wait

Current thread 0x00007e (most recent call first):
  File "/lib/torch/distributed/distributed_c10d.py", line 4000 in barrier
  File "/lib/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/lib/autodist/verify/probes/group.py", line 70 in collective
  File "/scratch/pkg/train.py", line 88 in main
  File "/scratch/run.py", line 3 in <module>
  File "/lib/autodist/verify/bootstrap.py", line 130 in _execute
"""


def test_stacks_say_where_a_rank_waits() -> None:
    position = position_in(STACKS, "/scratch")
    assert position is not None
    assert str(position) == "waits in barrier at pkg/train.py:88"
    working = STACKS.replace("torch/distributed/distributed_c10d.py", "x.py").replace("in barrier", "in load")
    working = working.replace("torch/distributed/c10d_logger.py", "y.py")
    assert "is at pkg/train.py:88 in main" in str(position_in(working, "/scratch"))
    assert position_in("nothing", "/scratch") is None


def test_guards_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "if rank == 0:\n    a()\nb()\nfor x in y if get_rank() == 0 else []:\n    c()\nif loss > 1:\n    d()\n"
    )
    assert [guarded(path, line) for line in (2, 3, 5, 7)] == [True, False, True, False]


def test_every_cause_has_advice_and_every_kind_a_cause() -> None:
    assert set(KINDS.values()) <= set(CAUSES)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("runs/20240105-101112/model.pt", "runs/20260229-235959/model.pt"),
        ("runs/2024-01-05_10-11-12/a.txt", "runs/2026-02-28_23-59-59/a.txt"),
        ("runs/Nov21_07-21-14_host/events.out.tfevents.1763.a.1", "runs/Dec01_17-00-00_b/events.out.tfevents.1.c.2"),
        ("runs/20240105-101112.123456/a.pt", "runs/20260229-235959.000001/a.pt"),
        ("runs/f51847aeee3b4bb4bdb31245444d7a0f", "runs/d1df2229157646f4a799b76d9297261b"),
        ("runs/0b7f3c1e-9a52-4d35-8a91-8f0f6f6f9d11/a", "runs/693f969c-ff9d-4c1f-a097-62278ab758d1/a"),
        ("run/Sunday_22_November_2026_17h_15m_29s", "run/Monday_01_May_2023_01h_00m_03s"),
        ("/tmp/tmpf2pmyoi9/best.pt", "/tmp/tmp_kgaz0p1/best.pt"),
        ("best_11|24-09:31:15.pt", "best_11|24-09:32:47.pt"),
        ("runs/11-24-09-31-15/a.pt", "runs/12-01-23-59-03/a.pt"),
    ],
)
def test_paths_without_their_date(first: str, second: str) -> None:
    assert stable(first) == stable(second)


def test_file_contents(tmp_path: Path) -> None:
    left, right = tmp_path / "a.json", tmp_path / "b.json"
    left.write_text(json.dumps({"loss": [0.1, 0.2], "name": "x"}))
    right.write_text(json.dumps({"loss": [0.1, 0.2 + 1e-12], "name": "x"}))
    roots = str(tmp_path), str(tmp_path)
    assert content_difference(left, right, roots, TOLERANCES["float64"], frozenset()) is None
    right.write_text(json.dumps({"loss": [0.1, 0.3], "name": "x"}))
    assert "/loss/1" in (content_difference(left, right, roots, TOLERANCES["float64"], frozenset()) or "")
    (tmp_path / "a.txt").write_text(f"saved to {tmp_path}/x\n")
    (tmp_path / "b.txt").write_text("saved to ./x\n")
    assert content_difference(tmp_path / "a.txt", tmp_path / "b.txt", roots, TOLERANCES["float64"], frozenset()) is None
    (tmp_path / "plot.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert not understood(tmp_path / "plot.png")


def test_findings_keep_the_first_step() -> None:
    result = StepComparison()
    result.add(4, "loss", "later", None)
    result.add(2, "gradient", "earlier", None)
    result.add(5, "loss", "again", None)
    assert result.first == 2
    assert [finding.kind for finding in result.findings] == ["loss", "gradient"]
    assert gradient_ratio.__doc__


@pytest.mark.parametrize(
    ("ranks", "kinds"),
    [
        ([[2.0, 6.0], [4.0, 8.0]], []),  # shared out, each pass counted twice since gradients are averaged over two
        ([[2.0, 6.0, 4.0], [8.0]], []),
        ([[1.0, 3.0], [2.0, 4.0]], ["loss"]),
        ([[10.0], [10.0]], []),  # a pass for all of its pieces
        ([[2.0, 6.0, 4.0, 8.0], []], []),
        ([[9.0], [9.0]], ["backward-count", "loss"]),
        ([[], [2.0, 6.0, 4.0]], ["backward-count", "loss"]),
    ],
)
def test_passes_that_ranks_share_out(ranks: list[list[float]], kinds: list[str]) -> None:
    def step(losses: list[float]) -> Step:
        return Step(0, "a.py:1", [], losses, ["a.py:1"] * len(losses), [], [], [], None, 0)

    result = StepComparison()
    compare_step(0, step([1.0, 2.0, 3.0, 4.0]), [step(each) for each in ranks], TOLERANCES["float64"], 4.0, result)
    assert [finding.kind for finding in result.findings] == kinds


@pytest.mark.parametrize(
    ("original", "ranks", "differs"),
    [
        (-2.3e-18, [9e-18, 3e-18], False),  # what advantages that add up to nothing leave
        (0.0, [3e-17, -1e-17], False),
        (2e-7, [2e-7, 4e-7], True),
        (0.5, [0.5, 0.5 + 1e-8], True),
    ],
)
def test_losses_that_cancel_out_are_rounding(original: float, ranks: list[float], differs: bool) -> None:
    def step(loss: float) -> Step:
        return Step(0, "a.py:1", [], [loss], ["a.py:1"], [], [], [], None, 0)

    result = StepComparison()
    compare_step(0, step(original), [step(each) for each in ranks], TOLERANCES["float64"], abs(original), result)
    assert any(finding.kind == "loss" for finding in result.findings) == differs


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([(0.0, 4e-12), (4e-12, 4e-10), (7e-11, 1e-8)], False),  # a hundred times the gap in each step
        ([(0.0, 4e-12), (4e-12, 4e-11), (7e-11, 1e-8)], True),
        ([(0.0, 1e-16), (1e-16, 1e-12), (1e-12, 1e-6)], True),  # too near to rounding to tell what is usual
    ],
)
def test_networks_that_amplify_rounding(steps: list[tuple[float, float]], found: bool) -> None:
    comparison = StepComparison()
    tolerance = TOLERANCES["float64"]
    for number, (gap, deviation) in enumerate(steps):
        comparison.gaps[0] = gap
        exceeds = comparison.exceeds(number, "gradient", deviation, tolerance.gradient, tolerance)
    assert exceeds == found


def test_nothing_compared_is_not_equal() -> None:
    verdict = Verdict("a.py", "b.py", ())
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert verdict.exit_code == 1


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not say who waits for a core")
def test_a_process_without_a_core_is_not_idle() -> None:
    """On a busy machine a rank that does not get on is not taken for one that waits for the others."""
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{{{core}}}}}); os.nice({{}})\n{{}}"
    busy = [subprocess.Popen([sys.executable, "-c", code.format(nice, "while True: pass")]) for nice in (0, 19)]
    asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        time.sleep(0.5)
        pids = busy[1].pid, asleep.pid
        first = {pid: Sample(time.monotonic(), cpu_seconds(pid) or 0.0, ready_seconds(pid)) for pid in pids}
        latest = time.monotonic() + 20
        time.sleep(0.7)
        while ready_seconds(pids[0]) == first[pids[0]].ready and time.monotonic() < latest:
            time.sleep(0.1)  # how long it was ready is counted when it gets a core
        second = {pid: Sample(time.monotonic(), cpu_seconds(pid) or 0.0, ready_seconds(pid)) for pid in pids}
        assert [second[pid].idle_since(first[pid]) for pid in pids] == [False, True]
        before, after = first[pids[0]], second[pids[0]]
        assert Sample(after.time, before.used, after.ready).idle_since(before) is False, "it had no core"
        assert [is_runnable(pid) for pid in pids] == [True, False]
        assert not Sample(after.time, before.used, before.ready, True).idle_since(before), "nor did it ever get one"
    finally:
        for process in (*busy, asleep):
            process.kill()
            process.wait()


def test_batch_means_that_are_nothing_but_rounding() -> None:
    """They are measured by the deviation of the samples, and what is not synchronised is found all the same."""

    def saved(mean: float) -> Save:
        tensor = {"type": "Tensor", "shape": [4], "dtype": "torch.float64"}
        content = {
            "/bn.running_mean": {**tensor, "digest": [abs(mean), mean, mean, mean]},
            "/bn.running_var": {**tensor, "digest": [4.0, 1.0, 2.0, 3.0]},
        }
        return Save("model.pt", "train.py:9", 3, content)

    tolerance = TOLERANCES["float64"]
    assert compare_save(saved(1.0e-9), saved(1.1e-9), tolerance) is None
    finding = compare_save(saved(1.0e-2), saved(1.1e-2), tolerance)
    assert finding is not None and finding.kind == "saved-statistics"
