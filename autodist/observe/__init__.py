"""How the values of a script lie over ranks, measured: it is run on whole batches and on unequal shares of them."""

from __future__ import annotations
