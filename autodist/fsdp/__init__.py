"""Models that the ranks have shares of, by `fully_shard`.

`sharding.py` says where and in which units, `meta.py` which are made without memory. `shards.py`, `weights.py` and
`mixed.py` find where a script means whole tensors, and `unshardable.py` what cannot be had of shares.
"""
