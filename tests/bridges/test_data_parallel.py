"""Operators under PyTorch's DistributedDataParallel: two processes learn what one does with the whole batch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "data_parallel.py"


def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.fail("this PyTorch has no gloo")
    kept = {**os.environ, "TEDSL_CACHE": "on", "TEDSL_CACHE_DIR": str(tmp_path / "kernels")}  # shared by the processes
    done = subprocess.run([sys.executable, str(SCRIPT), "2"], capture_output=True, text=True, timeout=500, env=kept)
    assert done.returncode == 0, done.stderr
    losses = np.array([re.findall(r"\d\.\d+", line) for line in done.stdout.splitlines()], float)
    assert losses.shape == (5, 2)
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], atol=1e-5)
    assert losses[-1, 0] < losses[0, 0]
