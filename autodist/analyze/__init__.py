"""From a project to its training script: run it in the mind, decide, and run it again with what was decided."""

from autodist.analyze.analysis import analyze, as_distributed

__all__ = ["analyze", "as_distributed"]
