"""What may have happened to a value of JSON: every single change of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

__all__ = ["DEEP", "changes"]

DEEP = b"[" * 100_000 + b"]" * 100_000
OTHER: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 2**70, 10**4000, 1.5, math.nan, math.inf, "", "x", "\ud800", "cuda", [], [0],
    [[]], {}, {"x": 0},
]  # fmt: skip


def changes(value: Any) -> list[Any]:
    """Every value that differs from this one in one place: another value, one more, one less, two of them swapped."""
    text = json.dumps(value)
    return [changed for changed in _changes(value) if json.dumps(changed) != text]


def _changes(value: Any) -> Iterator[Any]:
    yield from OTHER
    if isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
            yield {("x" if k == key else k): v for k, v in value.items()}
            yield from ({**value, key: other} for other in _changes(value[key]))
        yield {**value, "x": 1}
    if isinstance(value, list):
        for k in range(len(value)):
            yield value[:k] + value[k + 1 :]
            yield [*value[: k + 1], *value[k:]]
            yield from ([*value[:k], other, *value[k + 1 :]] for other in _changes(value[k]))
        for k in range(len(value) - 1):
            yield [*value[:k], value[k + 1], value[k], *value[k + 2 :]]
        yield value[::-1]
