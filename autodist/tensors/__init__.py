"""What tensors are made of, and what becomes of the axis that their samples lie along.

`operations.py` says what an operation makes of the axis that the ranks share out, and
`axes.py` how many axes there are, with what is known of operations by name (`facts.py`, `calls.py`); `picking.py`
knows samples that a condition picks.
"""
