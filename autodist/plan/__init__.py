"""What distributed training will need and give, before the money is spent: memory per rank, and the speed of N devices.

Nothing here imports torch. What only a run can tell is measured by `autodist.verify`, in a process of its own.
"""
