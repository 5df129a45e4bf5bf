"""Settings of a small GAN on pictures of 32 x 32 (GAN_stability)."""

from __future__ import annotations

from pathlib import Path

SETTINGS = """\
data:
  type: image
  train_dir: pictures
  img_size: 32
  nlabels: 1
generator:
  name: resnet
  kwargs: {nfilter: 4, nfilter_max: 8, embed_size: 1}
discriminator:
  name: resnet
  kwargs: {nfilter: 4, nfilter_max: 8, embed_size: 1}
z_dist:
  type: gauss
  dim: 8
training:
  out_dir: output
  batch_size: 16
  nworkers: 0
  monitoring: none
  sample_every: 2
  sample_nlabels: 1
  backup_every: 2
  save_every: 100000
"""


def write(folder: Path) -> None:
    """``small.yaml``."""
    (folder / "small.yaml").write_text(SETTINGS)
