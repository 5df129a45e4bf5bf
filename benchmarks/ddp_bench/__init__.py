"""DDP-Bench: make this single-GPU project train on several ranks, and be judged by what it leaves behind."""
