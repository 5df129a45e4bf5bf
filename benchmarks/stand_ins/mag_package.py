"""Takes the place of the package ``mag`` (settings of an experiment and folders for its results), which cannot be
installed: `links = { "mag" = "mag_package" }`."""

from __future__ import annotations

from pathlib import Path

EXPERIMENT = '''"""Settings of an experiment, and folders for its results."""

import os
import types


class Experiment:
    def __init__(self, config):
        self.config = types.SimpleNamespace(**config)

    def register_directory(self, name):
        os.makedirs(name, exist_ok=True)
        setattr(self, name, name)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass
'''


def write(folder: Path) -> None:
    """``__init__.py`` and ``experiment.py`` with ``Experiment``, as a script on normalizing flows uses it."""
    (folder / "__init__.py").write_text("")
    (folder / "experiment.py").write_text(EXPERIMENT)
