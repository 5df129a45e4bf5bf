"""Changes that people made to public scripts for one GPU, under the judge of DDP-Bench."""
