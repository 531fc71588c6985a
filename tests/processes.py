"""Python processes of their own, for tests of what happens in a fresh one or ends one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_script(text: str, timeout: float = 60) -> str:
    """The output of a Python process of its own, which must end well."""
    script = textwrap.dedent(text)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
