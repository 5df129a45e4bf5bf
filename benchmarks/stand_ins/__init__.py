"""Small stand-ins for public data sets, in the form in which training scripts expect to find them.

    python -m benchmarks.stand_ins DATA [NAME ...]

Each module writes one data set into a folder of its name (or its `NAME`) below DATA: nothing is downloaded, and
nothing of the real data is in it. Pictures show a pattern of their class under noise, so that training lowers a loss.
"""
