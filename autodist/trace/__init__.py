"""The abstract interpreter: it runs a project symbolically, once, and records what it does as a program.

It knows Python: names, calls, classes, containers, branches and loops. It knows nothing of ranks.
"""

from autodist.trace.tracer import trace

__all__ = ["trace"]
