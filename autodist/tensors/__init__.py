"""What tensors are made of, and what becomes of the axis that their samples lie along.

`operations.py` and `patterns.py` (einops) say what an operation makes of the axis that the ranks share out, and
`axes.py` how many axes there are. Rows of tensors that hold all of the data are followed one operation after the other
(`rowwise.py`, `torch_layers.py`, `shapes.py`), with what is known of these by name (`facts.py`, `calls.py`) and why
rows may have been mixed (`mixing.py`); `picking.py` knows samples that a condition picks.
"""
