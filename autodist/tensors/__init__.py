"""What tensors are made of, and what becomes of the axis that their samples lie along.

`operations.py` and `patterns.py` (einops) say what an operation makes of the axis that the ranks share out, `axes.py`
how many axes there are, and `rowwise.py` which operations keep the rows of a batch apart. How a batch is laid out where
a `collate_fn` makes it is told by `collation.py`, `laid_out.py` and `episodes.py`; `picking.py` knows samples that a
condition picks.
"""
