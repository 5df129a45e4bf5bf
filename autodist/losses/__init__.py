"""What becomes of a loss if each rank has a share of the batch, where values of the interpreter decide.

What weighs means and joins sums is found on placements (`solve/gradients.py`). `pairing.py` knows losses over pairs
of samples, `scaling.py` what is divided by the size of the batch ahead of the loss, `joining.py` samples that every
rank has all of. Steps without a loader are shared out by the rows of their tensors where placements say so
(`wholes.py`, `refilled.py`), or by the rounds of a loop over their samples (`by_turn.py`, `rounds.py`), or not
(`unbatched.py`).
"""
