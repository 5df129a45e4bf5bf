"""Files: what rank 0 writes alone or prepares first, and where the other ranks wait for it."""
