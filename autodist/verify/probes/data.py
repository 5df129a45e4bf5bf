"""Which samples a process reads, each computed the same way wherever it is read, and steering of the original."""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data as torch_data
from torch.utils.data import dataloader as torch_dataloader

from autodist.verify.probes import generators
from autodist.verify.probes.held_batches import HeldBatches
from autodist.verify.probes.streams import key_seed
from autodist.verify.trace import PassKey

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

IN_PROCESS = {
    "num_workers": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
    "pin_memory": False,
    "timeout": 0,
    "multiprocessing_context": None,
}
"""Loading happens in the process itself: workers would keep samples and their seeds out of sight."""
DRAWS_NOTHING = (torch_data.default_collate, torch_data.default_convert)
LOOKED_AT = 2
"""Batches of a pass of which it is looked whether their samples draw."""
LOOKAHEAD = 20_000
"""Items of a stream that the original reads ahead to find those the ranks read."""


def content_key(item: Any) -> str:
    """Identity of a streamed item: items of an IterableDataset have no index."""
    digest = hashlib.blake2b(digest_size=8)

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            add((str(value.dtype), tuple(value.shape)))
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif isinstance(value, dict):
            for key in value:
                add(key)
                add(value[key])
        elif isinstance(value, (list, tuple)):
            digest.update(f"{len(value)}".encode())
            for each in value:
                add(each)
        elif hasattr(value, "tobytes"):
            digest.update(value.tobytes())
        elif isinstance(value, (str, int, float, bool, bytes)) or value is None:
            digest.update(repr(value).encode())
        else:
            try:
                digest.update(pickle.dumps(value))
            except Exception:
                digest.update(type(value).__qualname__.encode())

    add(item)
    return digest.hexdigest()


def plain_index(index: Any) -> Any:
    """An index as JSON can hold it: NumPy and tensor integers become plain ones."""
    if isinstance(index, (str, int)):
        return index
    if isinstance(index, (list, tuple)):
        return [plain_index(each) for each in index]
    try:
        return int(index)
    except (TypeError, ValueError):
        return repr(index)


def identity(dataset: Any, index: Any) -> Any:
    """The sample behind nested Subsets, so that splits and shards of one data set can be compared."""
    while isinstance(dataset, torch_data.Subset) and isinstance(index, int):
        index = plain_index(dataset.indices[index])
        dataset = dataset.dataset
    return index


def identities(dataset: Any, indices: list[Any]) -> list[Any]:
    """The samples behind the indices of a batch."""
    if not isinstance(dataset, torch_data.Subset) and all(type(index) is int for index in indices):
        return indices
    return [identity(dataset, plain_index(index)) for index in indices]


def innermost_dataset(dataset: Any) -> Any:
    """The data set behind any wrappers, to recognise it where a conversion adds one."""
    seen = 0
    while isinstance(getattr(dataset, "dataset", None), torch_data.Dataset) and seen < 20:
        dataset, seen = dataset.dataset, seen + 1
    return dataset


def size_of(dataset: Any) -> int | None:
    """The number of samples where the data set knows it."""
    try:
        return len(dataset)
    except Exception:
        return None


def may_draw(dataset: Any) -> bool:
    """False for tensors alone, whose samples need no seed."""
    while type(dataset) is torch_data.Subset:
        dataset = dataset.dataset
    return type(dataset) is not torch_data.TensorDataset


def draws_first(samplers: Sequence[Any]) -> bool:
    """Torch's own samplers draw one seed, or all of their indices, before they give the first."""
    known = (type(None), torch_data.RandomSampler, torch_data.SequentialSampler, torch_data.BatchSampler)
    return all(type(each) in (*known, torch_data.DistributedSampler) for each in samplers)


@dataclass
class OpenPass:
    """One iteration over a loader while it runs."""

    loader: int
    number: int
    dataset: Any
    samplers: tuple[Any, ...] = ()
    taken: int = 0
    before: int = 0
    """Batches that were read of it before the training was interrupted."""
    replay: list[list[Any]] | None = None
    located: dict[Any, int] | None = None
    buffer: list[tuple[str, Any]] = field(default_factory=list)
    plain_sampler: bool = False
    """All that the sampler draws from global generators it draws before its first index."""
    draws: bool = True
    """Computing a sample may draw random numbers."""
    branch: dict[str, Any] = field(default_factory=dict)
    """The random stream of the sampler."""
    in_workers: bool = False
    """Without the probes, workers compute and collate the samples."""
    noise: dict[str, str] = field(default_factory=dict)
    """The states from which steps and samples draw, when it was begun."""
    generators: list[Any] = field(default_factory=list)
    """Those that the data set keeps for itself."""
    ended: bool = False
    stream_started: bool = False
    exhausted: bool = False
    held: HeldBatches = field(default_factory=HeldBatches)

    @property
    def key(self) -> PassKey:
        return self.loader, self.number

    def locate(self, sample: Any) -> Any:
        """The index of ``sample`` in the data set of this loader, None where it has no such sample."""
        if not isinstance(self.dataset, torch_data.Subset):
            return None if isinstance(sample, int) and sample >= (size_of(self.dataset) or sample + 1) else sample
        if self.located is None:
            self.located = {identity(self.dataset, index): index for index in range(len(self.dataset))}
        return self.located.get(sample)


class KeyedRows(list[Any]):
    """The samples that are collated. What is drawn while one of them is walked over is keyed to that sample, what is
    drawn before and afterwards to the batch."""

    def __init__(self, samples: Sequence[Any], names: Sequence[Any], entered: Callable[[bool, Any, int], None]) -> None:
        """``entered`` is told whether a sample is being looked at, its name, and how often the samples were walked."""
        super().__init__(samples)
        self._names, self._entered, self._walks = names, entered, 0

    def __iter__(self) -> Iterator[Any]:
        self._walks += 1
        walk = self._walks
        try:
            for sample, name in zip(super().__iter__(), self._names, strict=True):
                self._entered(True, name, walk)
                yield sample
        finally:
            self._entered(False, None, walk)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(super().__iter__()),)


class Unheard(io.TextIOBase):
    """Takes what is printed while a sample is made, and notes it once."""

    def __init__(self, context: ProbeContext) -> None:
        self._context, self._noted = context, False

    def write(self, text: str) -> int:
        """Drop the text."""
        if not self._noted:
            self._noted = True
            message = "what the data set prints while it makes a sample is not compared"
            self._context.trace.emit("note", topic="printed-by-sample", message=message, site=None)
        return len(text)


class DataProbe:
    """Patches torch's DataLoader: records what is read, seeds each sample, and steers the original."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._numbers: dict[int, int] = {}
        self._passes: dict[int, int] = {}
        self._unmatched = list(enumerate(context.replay.datasets)) if context.replay else []
        self._kept: list[Any] = []
        self._unheard = Unheard(context)

    def install(self) -> None:
        """Patch the construction of loaders and their iteration in the process."""
        self._patch_construction()
        self._patch_weights()
        iteration: Any = torch_dataloader._SingleProcessDataLoaderIter
        plain_start, plain_next = iteration.__init__, iteration._next_data

        @functools.wraps(plain_start)
        def start(this: Any, loader: Any) -> None:
            self._context.streams.take_up()
            plain_start(this, loader)
            record = this._autodist_pass = self._open(loader)
            weakref.finalize(this, self._abandoned, record).atexit = False

        @functools.wraps(plain_next)
        def following(this: Any) -> Any:
            record = getattr(this, "_autodist_pass", None)
            return plain_next(this) if record is None else self._next(this, record)

        iteration.__init__ = start
        iteration._next_data = following

    def _patch_construction(self) -> None:
        loader_class: Any = torch_data.DataLoader
        plain = loader_class.__init__
        signature = inspect.signature(plain)

        @functools.wraps(plain)
        def construct(this: Any, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(this, *args, **kwargs)
            workers = bound.arguments.get("num_workers", 0)
            for name, value in IN_PROCESS.items():
                if name in bound.arguments:
                    bound.arguments[name] = value
            plain(*bound.args, **bound.kwargs)
            this._autodist_workers = workers
            self._register(this)

        loader_class.__init__ = construct

    def _patch_weights(self) -> None:
        """By what samples are drawn: ranks that draw alike from other weights draw other samples."""
        sampler: Any = torch_data.WeightedRandomSampler
        plain = sampler.__init__

        @functools.wraps(plain)
        def construct(this: Any, weights: Any, *args: Any, **kwargs: Any) -> None:
            plain(this, weights, *args, **kwargs)
            context = self._context
            context.probing = True
            key = content_key(this.weights.double())
            context.probing = False
            site = context.trace.site()
            context.trace.emit("weights", count=len(this.weights), content=key, site=site)

        sampler.__init__ = construct

    # loaders and passes

    def _register(self, loader: Any) -> None:
        context = self._context
        context.probing = True
        try:
            if (number := self._parted(loader)) is not None:
                self._numbers[id(loader)] = number
                self._kept.append(loader)
                return
            name = type(innermost_dataset(loader.dataset)).__qualname__
            number = self._remade(loader)
            if number is None:
                number = self._match(name)
                context.loaders += 1
            self._numbers[id(loader)] = number
            self._kept.append(loader)
            sampler = getattr(loader, "sampler", None)
            batch_sampler = getattr(loader, "batch_sampler", None)
            batch_size = loader.batch_size
            if batch_size is None:
                batch_size = getattr(batch_sampler, "batch_size", None)
            context.trace.emit(
                "loader",
                number=number,
                dataset=name,
                samples=size_of(loader.dataset),
                batch_size=batch_size if isinstance(batch_size, int) else None,
                sampler=type(sampler).__name__,
                shuffled=isinstance(sampler, torch_data.RandomSampler) or bool(getattr(sampler, "shuffle", False)),
                drop_last=bool(getattr(loader, "drop_last", False) or getattr(batch_sampler, "drop_last", False)),
                length=None,
                site=context.trace.site(),
            )
        finally:
            context.probing = False

    def _remade(self, loader: Any) -> int | None:
        """The number of the loader that a library puts another in place of, as `accelerator.prepare(loader)` does."""
        if not self._context.trace.in_library(("autodist", "torch")):
            return None
        numbers = [self._numbers[id(each)] for each in self._kept if each.dataset is loader.dataset]
        return next((number for number in numbers if number not in self._passes), None)

    def _parted(self, loader: Any) -> int | None:
        """The number of the loader of whose batches a rank takes some by another one, as an evaluation that is shared
        out does: they are listed."""
        batches = getattr(loader, "batch_sampler", None)
        if not self._context.distributed or type(batches) is not list:
            return None
        longest = max(map(len, batches), default=0)
        for each in reversed(self._kept):
            listed = type(getattr(each, "batch_sampler", None)) is list
            if each.dataset is loader.dataset and not listed and longest <= (each.batch_size or longest):
                return self._numbers[id(each)]
        return None

    def _match(self, dataset: str) -> int:
        """The number that the corresponding loader of the conversion has; loaders are matched in order of creation."""
        if self._context.replay is None:
            return self._context.loaders
        found = next((entry for entry in self._unmatched if entry[1] == dataset), None)
        if found is None and self._unmatched:
            found = self._unmatched[0]
        if found is None:
            return len(self._context.replay.datasets) + self._context.loaders
        self._unmatched.remove(found)
        return found[0]

    def _open(self, loader: Any) -> OpenPass:
        if id(loader) not in self._numbers:
            self._register(loader)  # it was copied, or its class does not call ours
        number = self._numbers[id(loader)]
        context = self._context
        steps, passes = context.plan.first
        begun, before = next(((each, taken) for loader, each, taken in passes if loader == number), (0, 0))
        count = self._passes.get(number, begun)
        if count == begun and before:  # a training that is gone on with
            context.steps = max(context.steps, steps)
        self._passes[number] = count + 1
        samplers = (getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None))
        record = OpenPass(number, count, loader.dataset, samplers, draws=may_draw(loader.dataset))
        record.before = before if count == begun else 0
        record.in_workers = bool(getattr(loader, "_autodist_workers", 0))
        record.generators = generators.kept_by(loader.dataset) if record.draws else []
        if context.replay is not None:
            record.replay = context.replay.passes.get(record.key)
            if record.replay is not None and record.key not in context.replay.training:
                batches = size_of(getattr(loader, "_index_sampler", None)) or 0
                ordered = isinstance(samplers[0], torch_data.SequentialSampler)
                fits = (
                    batches >= len(record.replay)
                    if record.key in context.replay.begun and not ordered
                    else batches == len(record.replay)
                )
                record.replay = record.replay if fits else None
        noise = record.noise = self._noise(loader, record) if context.distributed else {}
        part = context.distributed and type(samplers[1]) is list
        context.trace.emit("pass", loader=number, number=count, site=context.trace.site(), noise=noise, part=part)
        return record

    def _noise(self, loader: Any, record: OpenPass) -> dict[str, str]:
        """The states from which steps draw their noise, and samples theirs: workers are seeded by torch's generator, or
        by that of the loader."""
        context = self._context
        context.probing = True
        found = self._known(context.streams.fingerprints())
        own = getattr(loader, "generator", None)
        workers = found.get("torch") if own is None else content_key(own.get_state())
        init = getattr(loader, "worker_init_fn", None)
        in_samples = found
        if record.in_workers:
            in_samples = {}
            if workers is not None:
                in_samples = self._in_first_worker(init, key_seed(workers)) if init else dict.fromkeys(found, workers)
        context.probing = False
        return {**found, **{f"samples by {library}": state for library, state in in_samples.items()}}

    def _known(self, states: dict[str, str]) -> dict[str, str]:
        """Those that no sample has set."""
        return {library: state for library, state in states.items() if library not in self._context.seeded_by_samples}

    def _in_first_worker(self, init: Callable[[int], Any], seed: int) -> dict[str, str]:
        """The states from which a worker draws that is seeded with ``seed``, and then by what the script has for it;
        none where that asks for more than the numbers of a worker."""
        streams, worker = self._context.streams, torch_data._utils.worker
        left, outside = streams.exchange({}), worker._worker_info
        try:
            worker._worker_info = worker.WorkerInfo(id=0, num_workers=1, seed=seed, dataset=None)  # type: ignore[arg-type]
            streams.start_from(dict.fromkeys(("torch", "python", "numpy"), seed))
            with redirect_stdout(io.StringIO()):
                init(0)
            return streams.fingerprints()
        except Exception:
            return {}
        finally:
            worker._worker_info = outside
            streams.exchange(left)

    def _noise_since(self, record: OpenPass) -> None:
        """Where ranks are seeded apart between `iter(loader)` and the first batch, their noise is what it is then."""
        self._context.probing = True
        found = self._known(self._context.streams.of_script())
        self._context.probing = False
        changed = {library: state for library, state in found.items() if state != record.noise.get(library)}
        if changed and not record.in_workers:
            changed |= {f"samples by {library}": state for library, state in changed.items()}
        if changed:
            self._context.trace.emit("pass-noise", loader=record.loader, number=record.number, noise=changed)

    # one batch

    def _next(self, iteration: Any, record: OpenPass) -> Any:
        context = self._context
        streams = context.streams
        if context.distributed and record.taken == 0:
            self._noise_since(record)
        fetcher = iteration._dataset_fetcher
        try:
            if record.taken and record.plain_sampler and streams.settled:
                natural = listed(iteration._next_index())
            else:
                streams.take_up()
                natural = listed(self._next_index(iteration, record))
                streams.put_aside()
            if isinstance(record.dataset, torch_data.IterableDataset):
                data = self._stream_batch(fetcher, record, natural)
            else:
                data = self._batch(fetcher, record, natural)
        except StopIteration:
            if not streams.settled:
                streams.put_aside()
            record.exhausted, context.apart = True, False
            left = self._left_by(record)
            context.trace.emit("exhausted", loader=record.loader, number=record.number, left=left)
            context.left(record.loader)
            if record.held.alive:
                context.held[record.key] = record.held
            streams.reseed("end", *record.key)
            streams.start_from({library: key_seed("end", *record.key, state) for library, state in left.items()})
            raise
        record.taken += 1
        context.apart, context.left_apart = record.key in context.plan.apart, False
        streams.reseed("step", *record.key, record.before + record.taken)
        batch = as_float64(data) if context.plan.dtype == "float64" else data
        record.held.add(batch, context.batch_rows[record.loader])
        return batch

    def _left_by(self, record: OpenPass) -> dict[str, str]:
        """Where the script's own streams are when a pass has come to its end, by library, which ranks that are seeded
        apart go on from: the original goes on as the first of them."""
        context = self._context
        if context.replay is not None and record.key in context.replay.ends:
            return context.replay.ends[record.key]
        context.probing = True
        try:
            return context.streams.of_script()
        finally:
            context.probing = False

    def _abandoned(self, record: OpenPass) -> None:
        """The script has left the loop over a loader before its end."""
        if not record.exhausted:
            self._context.left_apart = self._context.left_apart or record.key in self._context.plan.apart
            self._context.trace.emit("abandoned", loader=record.loader, number=record.number)

    def _next_index(self, iteration: Any, record: OpenPass) -> Any:
        """What the sampler gives. It draws from a branch of the script's stream, one for each pass: whatever a sampler
        draws, and DistributedSampler draws nothing, what the script draws later is the same.
        """
        context, streams = self._context, self._context.streams
        if record.taken == 0:
            context.probing = True
            own, record.branch = streams.fingerprints(), streams.branch(context.distributed)
            context.probing = False
        trunk = streams.exchange(record.branch)
        try:
            if record.taken:
                return iteration._next_index()
            record.plain_sampler = draws_first(record.samplers)
            before, talked = streams.fingerprints(), context.collectives
            natural = iteration._next_index()
            after = streams.fingerprints()
            drawn = [f"{own[library]}+{streams.spent(library)}" for library in own if after[library] != before[library]]
            if drawn and context.collectives == talked:  # else the ranks have agreed on what one of them drew
                context.trace.emit("sampler-draws", loader=record.loader, number=record.number, stream=" ".join(drawn))
            return natural
        finally:
            record.branch = streams.exchange(trunk)

    def _batch(self, fetcher: Any, record: OpenPass, natural: Any) -> Any:
        context = self._context
        several = isinstance(natural, (list, tuple)) and (fetcher.auto_collation or len(natural) > 0)
        wanted = natural
        steered = False
        if record.replay is not None and record.taken < len(record.replay):
            located = [record.locate(sample) for sample in record.replay[record.taken]]
            if None not in located:
                wanted = located if several else located[0]
                steered = True
            else:
                context.trace.emit(
                    "note",
                    topic="foreign",
                    message=f"{located.count(None)} samples of batch {record.taken} are not in this data set",
                    loader=record.loader,
                    site=context.trace.site(),
                )
        indices = list(wanted) if several else [wanted]
        if fetcher.auto_collation:
            samples: Any = self._samples(fetcher.dataset, record, indices)
        else:
            samples = self._sample(fetcher.dataset, record, wanted)
        joins = several and fetcher.auto_collation and fetcher.collate_fn not in DRAWS_NOTHING
        context.fetched(record.loader, len(indices), leading_sizes(samples) if joins else None)
        self._emit_batch(record, indices, list(natural) if several else [natural], steered)
        if fetcher.collate_fn in DRAWS_NOTHING:
            return fetcher.collate_fn(samples)
        key = ("collate", *record.key, record.before + record.taken)
        context.streams.reseed(*key, counts=not record.in_workers)
        if type(samples) is not list or not joins:
            return fetcher.collate_fn(samples)

        def entered(inside: bool, name: Any, walk: int) -> None:
            context.inside_sample = inside
            context.streams.reseed(*key, walk, name, counts=not record.in_workers)

        try:
            return fetcher.collate_fn(KeyedRows(samples, identities(record.dataset, indices), entered))
        finally:
            context.inside_sample = False

    def _samples(self, dataset: Any, record: OpenPass, indices: list[Any]) -> list[Any]:
        if record.draws:
            return [self._sample(dataset, record, index) for index in indices]
        with self._inside_sample(record):
            return [dataset[index] for index in indices]

    def _sample(self, dataset: Any, record: OpenPass, index: Any) -> Any:
        context = self._context
        before: dict[str, int] | None = None
        if record.draws:
            key = ("sample", *record.key, identity(dataset, plain_index(index)))
            context.streams.reseed(*key, counts=not record.in_workers)
            for generator in record.generators:
                generators.reseed(generator, key_seed(*key))
            before = context.streams.positions() if context.distributed and record.taken < LOOKED_AT else None
        context.seeded_in_sample.clear()
        with self._inside_sample(record):
            sample = dataset[index]
        if before is not None and (drawn := before.items() ^ context.streams.positions().items()):
            libraries = sorted({library for library, _ in drawn} - context.seeded_in_sample)
            context.trace.emit("sample-noise", loader=record.loader, number=record.number, libraries=libraries)
        return sample

    @contextmanager
    def _inside_sample(self, record: OpenPass) -> Iterator[None]:
        """While a data set makes a sample. What it prints is left out: each rank would print that of its own samples,
        and workers do so in any order."""
        self._context.inside_sample, self._context.inside_worker = True, record.in_workers
        try:
            with redirect_stdout(self._unheard):
                yield
        finally:
            self._context.inside_sample = self._context.inside_worker = False

    def _emit_batch(self, record: OpenPass, indices: list[Any], natural: list[Any], steered: bool) -> None:
        context = self._context
        fields: dict[str, Any] = {"samples": identities(record.dataset, indices)}
        if context.replay is not None:
            fields["natural"] = identities(record.dataset, natural)
            fields["steered"] = steered
        context.trace.emit("batch", loader=record.loader, number=record.number, **fields)

    # streams of an IterableDataset

    def _stream_batch(self, fetcher: Any, record: OpenPass, natural: Any) -> Any:
        """One batch of a stream. The original looks ahead for the items that the ranks read."""
        context = self._context
        pulled: list[str] = []
        if not record.stream_started:
            context.streams.reseed("stream", *record.key, counts=not record.in_workers)
            record.stream_started = True
        count = len(natural) if fetcher.auto_collation else 1
        wanted = (
            record.replay[record.taken] if record.replay is not None and record.taken < len(record.replay) else None
        )
        while not record.ended and (
            len(record.buffer) < count
            or (wanted is not None and len(record.buffer) < LOOKAHEAD and not self._buffered(record, wanted))
        ):
            self._pull(fetcher, record, pulled)
        if not record.buffer or (fetcher.drop_last and len(record.buffer) < count and wanted is None):
            raise StopIteration
        taken = record.buffer[:count]
        steered = wanted is not None and self._buffered(record, wanted)
        if steered and wanted is not None:
            left = list(record.buffer)
            taken = []
            for key in wanted:
                found = next(entry for entry in left if entry[0] == key)
                left.remove(found)
                taken.append(found)
            record.buffer = left
        else:
            record.buffer = record.buffer[count:]
            if wanted is not None:
                context.trace.emit(
                    "note",
                    topic="stream",
                    message=f"the ranks read items in batch {record.taken} that the original's stream does not give",
                    loader=record.loader,
                    site=context.trace.site(),
                )
        context.fetched(record.loader, len(taken))
        fields: dict[str, Any] = {"samples": [key for key, _ in taken]}
        if context.replay is not None:
            fields |= {"natural": pulled, "steered": steered}
        context.trace.emit("batch", loader=record.loader, number=record.number, **fields)
        context.streams.reseed("collate", *record.key, record.taken, counts=not record.in_workers)
        items = [item for _, item in taken]
        return fetcher.collate_fn(items if fetcher.auto_collation else items[0])

    @staticmethod
    def _buffered(record: OpenPass, wanted: list[str]) -> bool:
        available = [key for key, _ in record.buffer]
        return all(available.count(key) >= wanted.count(key) for key in set(wanted))

    def _pull(self, fetcher: Any, record: OpenPass, pulled: list[str]) -> None:
        try:
            with self._inside_sample(record):
                item = next(fetcher.dataset_iter)
        except StopIteration:
            record.ended = True
            return
        key = content_key(item)
        pulled.append(key)
        record.buffer.append((key, item))


def leading_sizes(samples: Sequence[Any]) -> list[list[int]]:
    """For each part of some samples, how many rows it has in each: what they are where a `collate_fn` joins them."""
    first = samples[0] if samples else None
    columns: list[Any] = [samples]
    if isinstance(first, dict):
        columns = [[sample.get(key) for sample in samples] for key in first]
    elif isinstance(first, (tuple, list)):
        columns += zip(*samples, strict=False)
    elif type(first).__module__.startswith("torch_geometric"):
        return [[getattr(graph, name, None) or 0 for graph in samples] for name in ("num_nodes", "num_edges")]
    return [[len(each) for each in column] for column in columns if all(map(has_rows, column))]


def has_rows(value: Any) -> bool:
    """Whether it is a tensor, an array or a list."""
    return isinstance(value, list) or (hasattr(value, "__array__") and getattr(value, "ndim", 0) > 0)


def listed(indices: Any) -> Any:
    """The indices of a batch, which a batch sampler may yield as a tensor."""
    several = isinstance(indices, torch.Tensor) and indices.dim() > 0
    return indices.tolist() if several else indices


def as_float64(data: Any) -> Any:
    """The batch with every floating-point tensor in float64."""
    if isinstance(data, torch.Tensor):
        return data.double() if data.is_floating_point() else data
    if isinstance(data, dict):
        converted = {key: as_float64(value) for key, value in data.items()}
        return converted if type(data) is dict else _rebuilt(data, converted)
    if isinstance(data, tuple):
        return type(data)(*map(as_float64, data)) if hasattr(data, "_fields") else type(data)(map(as_float64, data))
    if isinstance(data, list):
        return [as_float64(value) for value in data]
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(data, numpy.ndarray) and data.dtype.kind == "f":
        return data.astype(numpy.float64)
    if callable(getattr(data, "apply", None)) and type(data).__module__.startswith("torch_geometric"):
        return data.apply(as_float64)
    return data


def _rebuilt(data: Any, content: dict[Any, Any]) -> Any:
    try:
        return type(data)(content)
    except Exception:
        return data
