"""What autodist knows about PyTorch: one rule per file, facts about libraries in ``catalog/``."""
