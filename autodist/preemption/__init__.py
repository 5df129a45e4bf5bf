"""Where a training can end after a step that a signal has come in, and go on later: its loops, its checkpoint, and the
variables that a step hands on to the next."""

from autodist.preemption.places import preemption

__all__ = ["preemption"]
