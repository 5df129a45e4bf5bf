"""Writes backbone.pt, once, before anything else."""

import torch

from net import Backbone


def main(path):
    torch.manual_seed(99)
    torch.save(Backbone().state_dict(), path)
