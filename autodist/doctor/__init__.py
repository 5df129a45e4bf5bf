"""What of this machine would make distributed training fail, and what to do about it."""

from autodist.doctor.checks import Check, State, examine, report

__all__ = ["Check", "State", "examine", "report"]
