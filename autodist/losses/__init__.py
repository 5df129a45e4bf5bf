"""What becomes of a loss if each rank has a share of the batch, and what makes it that of the whole batch again.

A mean over the batch needs nothing. `weighing.py` knows means over other numbers than those of the samples, `terms.py`
sums that are added to means, `batchwise.py` what is computed from sums in another way than by adding up, `pairing.py`
losses over pairs of samples, `scaling.py` what is divided by the size of the batch ahead of the loss, `joining.py`
samples that every rank has all of. Steps without a loader are shared out by the rows of their tensors (`wholes.py`,
`refilled.py`) or by the rounds of a loop over their samples (`by_turn.py`, `rounds.py`), or not (`unbatched.py`).
"""
