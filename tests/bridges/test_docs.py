"""The examples about operators run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
def test_the_examples_about_operators_run() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert examples
    exec("\n".join(examples), {"__name__": "examples"})
