"""``autodist bench``: how fast a script and its conversions are on this machine, at several numbers of ranks."""
