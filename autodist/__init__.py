"""Convert single-GPU PyTorch training scripts to distributed ones, and prove the result."""
