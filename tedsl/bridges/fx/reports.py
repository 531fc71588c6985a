"""What became of the graphs given to torch.compile(backend="tedsl"): the nodes compiled, and those left to PyTorch.

Whatever is left is told once for each operation and reason, as a warning of the logger `tedsl.compile`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from tedsl.lang.dataclass import dataclass

__all__ = ["GraphReport", "forget", "new_report", "reason_of", "reports"]

log = logging.getLogger("tedsl.compile")


@dataclass
class GraphReport:
    """What became of one graph: nodes in our programs, and those left to PyTorch with the reason."""

    compiled: list[str] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)

    def compile(self, nodes: Iterable[Any]) -> None:
        """Note nodes that are in a program."""
        self.compiled += [n.name for n in nodes]

    def take_back(self, nodes: Iterable[Any]) -> None:
        """Note that a program of these nodes cannot be had."""
        names = {n.name for n in nodes}
        self.compiled = [n for n in self.compiled if n not in names]

    def leave(self, node: Any, reason: str) -> None:
        """Note a node, or the name of a graph, that PyTorch runs."""
        self.left.append((str(getattr(node, "name", node)), reason))
        key = str(getattr(node, "target", node)), reason
        if key not in _told:
            _told.add(key)
            log.warning("tedsl: %s is left to PyTorch: %s", *key)

    def __str__(self) -> str:
        left = "; ".join(f"{node}: {why}" for node, why in self.left) or "nothing"
        return f"{len(self.compiled)} nodes compiled, left to PyTorch: {left}"


reports: list[GraphReport] = []  # of the graphs compiled in this process, the last ones at the end
MOST_REPORTS = 256
_told: set[tuple[str, str]] = set()


def new_report() -> GraphReport:
    """A report at the end of the list."""
    reports.append(GraphReport())
    del reports[:-MOST_REPORTS]
    return reports[-1]


def forget() -> None:
    """Tell everything anew, as after torch._dynamo.reset()."""
    _told.clear()


def reason_of(failure: Exception) -> str:
    """An error in one line."""
    told = str(failure).partition("\n")[0]
    return f"{type(failure).__name__}: {told}"
