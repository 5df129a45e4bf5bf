"""A stand-in for Horovod in the tests: what `horovod.torch` documents, in small, over torch.distributed and gloo."""
