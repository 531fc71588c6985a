"""What functions on PyTorch's tensors return, as a list."""

from __future__ import annotations

from typing import Any


def leaves(value: Any) -> list[Any]:
    """The tensors of nested lists and tuples, in order."""
    return [v for part in value for v in leaves(part)] if isinstance(value, (list, tuple)) else [value]
