"""What operations do to the axes of what they are given: a table of names, read from the ``.toml`` files beside this.

To add an operation, find the file of its library and the section of its module, and write one line: its name and its
class, with the parameters of the class if they are not the usual ones. `classes.py` says what the classes mean.
"""

from autodist.operations.classes import CLASSES
from autodist.operations.table import Operation, Table, load, problem, shipped

__all__ = ["CLASSES", "Operation", "Table", "load", "problem", "shipped"]
