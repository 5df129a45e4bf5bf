"""What becomes of a loss if each rank has a share of the batch, where values of the interpreter decide.

What weighs means, joins sums and gathers rows is found on placements (`solve/gradients.py`). `own_gradients.py` knows
gradients of samples, `untaken.py` branches that training does not take. Steps without a loader are shared out by the
rows of their tensors where placements say so (`wholes.py`, `refilled.py`), or by the rounds of a loop over their
samples (`by_turn.py`, `rounds.py`), or not (`unbatched.py`).
"""
