"""Scripts that distribute themselves, checked by reading: which ranks reach a line, what they have of their own there,
and where they wait for each other."""

from autodist.ranks.concerns import concerns, standing

__all__ = ["concerns", "standing"]
