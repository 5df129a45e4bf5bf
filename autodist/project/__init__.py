"""A training script and the local modules that it imports, wherever it finds them."""

from __future__ import annotations

from autodist.project.scripts import Project, absolute, console_script, located, module_of, starts
from autodist.project.search_path import Addition, added_folders, additions

__all__ = [
    "Addition",
    "Project",
    "absolute",
    "added_folders",
    "additions",
    "console_script",
    "located",
    "module_of",
    "starts",
]
