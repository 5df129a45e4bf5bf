"""Distributed checkpoints: what all ranks have written is read back as a whole, as if one had saved it."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autodist.verify.probes.files import FilesProbe

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

MODULE = "distributed.checkpoint"
MOST_SOURCES = 500


class ShardedCheckpointProbe:
    """Patches `torch.distributed.checkpoint.save`, where the script speaks of that module at all."""

    def __init__(self, context: ProbeContext, files: FilesProbe) -> None:
        self._context = context
        self._files = files

    def install(self) -> None:
        """Importing the module takes time, so that it is left alone where it is not needed."""
        script = Path(self._context.plan.script)
        sources = [script, *sorted(script.parent.rglob("*.py"))[:MOST_SOURCES]]
        if not any(MODULE in path.read_text(encoding="utf-8", errors="replace") for path in sources if path.is_file()):
            return
        import torch.distributed.checkpoint

        checkpoint: Any = torch.distributed.checkpoint
        plain = checkpoint.save

        @functools.wraps(plain)
        def save(state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            context = self._context
            outer, context.probing = context.probing, True
            try:
                result = plain(state_dict, *args, **kwargs)
                folder = os.fspath(kwargs.get("checkpoint_id") or "")
                whole = read_back(folder) if folder and context.plan.rank == 0 else None
            finally:
                context.probing = outer
            if whole is not None:
                self._files.record_save(whole, folder)
            return result

        checkpoint.save = save
        checkpoint.state_dict_saver.save = save


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
