"""A training script and the local modules that it imports, wherever it finds them."""

from __future__ import annotations

from autodist.project.scripts import Project, absolute

__all__ = ["Project", "absolute"]
