"""Scripts that distribute themselves, checked by reading: which ranks reach a line, what they have of their own there,
and where they wait for each other."""

from autodist.ranks.concerns import concerns, settled

__all__ = ["concerns", "settled"]
