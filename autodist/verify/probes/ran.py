"""Sets the marks in the code of changed files as it is loaded: in the script, and in the modules that it imports."""

from __future__ import annotations

import builtins
import importlib.machinery
import mmap
import os
from types import CodeType
from typing import Any

from autodist.verify.marks import MAP, marked
from autodist.verify.plan import ProcessPlan


class RanProbe:
    """Which marks of a conversion's code this process comes to."""

    def __init__(self, plan: ProcessPlan) -> None:
        self._changed = {os.path.abspath(path): numbers for path, numbers in plan.changed.items()}
        self._map = plan.map

    def install(self) -> None:
        """Share the map of the run, and mark what is imported from now on."""
        if not self._changed:
            return
        with open(self._map, "r+b") as file:
            vars(builtins)[MAP] = mmap.mmap(file.fileno(), 0)
        loader: Any = importlib.machinery.SourceFileLoader
        plain = loader.source_to_code

        def source_to_code(own: Any, data: Any, path: Any, **options: Any) -> Any:
            if not isinstance(data, bytes) or os.path.abspath(os.fsdecode(path)) not in self._changed:
                return plain(own, data, path, **options)
            return self.compiled(data, os.fsdecode(path))

        loader.source_to_code = source_to_code

    def compiled(self, data: bytes, path: str) -> CodeType:
        """The code of a file, with marks where it has changed."""
        first, *lines = self._changed.get(os.path.abspath(path), (0,))
        tree = marked(data, lines, first)[0] if lines else data
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code
