"""The same input gives the same bytes, whatever the hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_goldens import CASES, settings


def output(seed: int, entries: list[Path]) -> bytes:
    """All that the command says about these scripts."""
    command = [sys.executable, "-m", "autodist", "convert", "--diff", "--output-format", "json", *map(str, entries)]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(command, capture_output=True, env=environment)
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.stdout


@pytest.mark.timeout(900)  # it converts all fixtures three times
@pytest.mark.skipif(not CASES, reason="no fixtures")
def test_hash_seed() -> None:
    """Several processes, because what hangs on the addresses of objects differs between them too."""
    entries = [case / "before" / settings(case)["entry"] for case in CASES]
    with ThreadPoolExecutor() as pool:
        first, *others = (json.loads(said)["scripts"] for said in pool.map(output, (0, 1, 4711), [entries] * 3))
    for other in others:
        assert [run["entry"] for run, twin in zip(first, other, strict=True) if run != twin] == []
