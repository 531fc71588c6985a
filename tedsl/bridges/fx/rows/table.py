"""The operations of ATen on traced arrays: one table, a row for each name without its overload.

A row takes what the operation takes, arrays as traced ones, positional arguments in the order of the schema and the
others by its names; what no result depends on (`fx.arguments`) it does not get. Views are views, in-place operations
write through them; everything else makes arrays of its own. What has a decomposition into these is not listed:
`fx.decomposed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tedsl.bridges.fx.rows.arrays import Row
from tedsl.bridges.fx.rows.attention import ATTENTION
from tedsl.bridges.fx.rows.creation import CREATION
from tedsl.bridges.fx.rows.elements import ELEMENTS
from tedsl.bridges.fx.rows.indexing import INDEXING
from tedsl.bridges.fx.rows.layers import LAYERS
from tedsl.bridges.fx.rows.reductions import REDUCTIONS
from tedsl.bridges.fx.rows.views import VIEWS, WRITTEN_VIEWS

__all__ = ["ROWS", "is_known", "is_view_in_place", "row_of", "run_row"]

ROWS: dict[str, Row] = {
    **ELEMENTS, **VIEWS, **WRITTEN_VIEWS, **REDUCTIONS, **CREATION, **INDEXING, **LAYERS, **ATTENTION
}  # fmt: skip


def row_of(name: str) -> Row | None:
    """The row of a name; `name_` without one of its own is that of `name`, written in place."""
    row = ROWS.get(name)
    if row is None and name.endswith("_") and not name.startswith("_"):
        row = ROWS.get(name[:-1])
    return row


def is_known(name: str) -> bool:
    """Whether there is a row for a name, or one that is written in place."""
    return row_of(name) is not None


def is_view_in_place(name: str) -> bool:
    """Whether an operation changes how a tensor sees its memory (t_, unsqueeze_), and not what is there."""
    return name not in ROWS and name.removesuffix("_") in VIEWS


def run_row(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operation by its name, on arguments as its row takes them, and `out=`."""
    options = dict(kwargs)
    out = options.pop("out", None)
    row = row_of(name)
    assert row is not None
    found = row(*args, **options)
    target = out if out is not None else None if name in ROWS else args[0]
    if target is None:
        return found
    target.assign(found)
    return target
