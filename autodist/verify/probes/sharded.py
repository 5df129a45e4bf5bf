"""Distributed checkpoints: what all ranks have written is read back as a whole, as if one had saved it."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autodist.verify.probes.files import FilesProbe

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

MODULE = "distributed.checkpoint"
MOST_SOURCES = 500
WAITING = ("result", "exception", "done")
LONGEST_SECONDS = 10.0
"""How long what is written beside the training is held back where the script waits for it in a way of its own."""


@dataclass
class Pending:
    """A checkpoint that is still being written, where and when the script asked for it."""

    future: Future[Any]
    folder: str
    site: str
    step: int


class ShardedCheckpointProbe:
    """Patches `save` and `async_save` of `torch.distributed.checkpoint`, where the script speaks of that module at all.

    What is written beside the training is read back once it is there: when the script waits for it, saves again, or
    ends. It is not written before, so that who does not wait for it finds none, and what was not copied has changed.
    """

    def __init__(self, context: ProbeContext, files: FilesProbe) -> None:
        self._context = context
        self._files = files
        self._pending: list[Pending] = []
        self._awaited = threading.Event()

    def install(self) -> None:
        """Importing the module takes time, so that it is left alone where it is not needed."""
        script = Path(self._context.plan.script)
        sources = [script, *sorted(script.parent.rglob("*.py"))[:MOST_SOURCES]]
        if not any(MODULE in path.read_text(encoding="utf-8", errors="replace") for path in sources if path.is_file()):
            return
        import torch.distributed.checkpoint

        checkpoint: Any = torch.distributed.checkpoint
        checkpoint.save = checkpoint.state_dict_saver.save = self._saving(checkpoint.save)
        checkpoint.async_save = checkpoint.state_dict_saver.async_save = self._beginning(checkpoint.async_save)

    def _saving(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def save(state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            context = self._context
            beside = threading.current_thread() is not threading.main_thread()
            outer, context.probing = context.probing, True
            try:
                if beside:
                    self._awaited.wait(LONGEST_SECONDS)
                result = plain(state_dict, *args, **kwargs)
            finally:
                context.probing = outer
            if not beside:
                self._record(folder_of(kwargs), context.trace.site(), context.steps)
            return result

        return save

    def _beginning(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def async_save(state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            self.settle()
            context = self._context
            site, step = context.trace.site(), context.steps
            self._awaited = threading.Event()
            outer, context.probing = context.probing, True
            try:
                response = plain(state_dict, *args, **kwargs)
            finally:
                context.probing = outer
            future = getattr(response, "upload_completion", response)
            self._pending.append(Pending(future, folder_of(kwargs), site, step))
            for name in WAITING:
                setattr(future, name, self._waiting(getattr(future, name)))
            return response

        return async_save

    def _waiting(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A method of a future by which the script asks whether it is done."""

        def wait(*args: Any) -> Any:
            self._awaited.set()
            if threading.current_thread() is threading.main_thread():
                self.settle()
            return plain(*args)

        return wait

    def settle(self) -> None:
        """Read back what was still being written; what failed is the script's to hear of."""
        self._awaited.set()
        while self._pending:
            pending = self._pending.pop()
            if pending.future.exception() is None:
                self._record(pending.folder, pending.site, pending.step)

    def _record(self, folder: str, site: str, step: int) -> None:
        if not folder or self._context.plan.rank != 0:
            return
        if not os.path.isdir(folder):  # it was written beside its place, and has been put there
            folder = self._files.moved.get(os.path.abspath(folder), folder)
        self._files.moved.clear()
        self._context.probing = True
        try:
            whole = read_back(folder)
        finally:
            self._context.probing = False
        self._files.record_save(whole, folder, site, step)


def folder_of(arguments: Mapping[str, Any]) -> str:
    """Where a checkpoint is written: what the call says, or the writer that it is given."""
    place = arguments.get("checkpoint_id") or getattr(arguments.get("storage_writer"), "path", None)
    return os.fspath(place or "")


def read_back(folder: str) -> Any:
    """A distributed checkpoint as one state, in this process alone."""
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    state: dict[str, Any] = {}
    planner: Any = _EmptyStateDictLoadPlanner  # it has no types
    _load_state_dict(state, storage_reader=FileSystemReader(folder), planner=planner(), no_dist=True)
    return unpacked(state)


def unpacked(state: Any) -> Any:
    """Dicts and lists are kept whole in a tuple where the format would turn their keys into texts."""
    if isinstance(state, tuple) and len(state) == 1 and isinstance(state[0], (dict, list)):
        return state[0]
    return {key: unpacked(value) for key, value in state.items()} if isinstance(state, dict) else state
