"""What a trace keeps: the storages and their present values, the copies made, the arrays captured.

A storage is memory as the traced program sees it. It holds one pure tensor, its value now; a write through any view
replaces that tensor, a read through any view is taken from it, so values read before a write stay what they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any

import numpy as np

from tedsl.lang.compute import placeholder
from tedsl.lang.constants import constant
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import DType, dtype_of_array
from tedsl.lang.errors import AliasError, user_location
from tedsl.lang.tensor import Tensor
from tedsl.mutation.layouts import Ghost, Layout
from tedsl.mutation.outlines import Outline
from tedsl.mutation.views import ViewMap, view_map

__all__ = ["Origin", "Storage", "Trace", "active_trace"]

_ACTIVE: ContextVar[Trace | None] = ContextVar("tedsl_trace", default=None)


@dataclass(eq=False)
class Origin:
    """An argument of the traced function: what a write through it, or through a view of it, must know."""

    name: str
    position: int
    is_writable: bool = True
    refusal: str | None = None  # why it cannot be mutated
    is_written: bool = False


@dataclass(eq=False)
class Trace:
    """One run of a function on traced arrays; `torch` chooses the rules of views and values.

    `is_inlined`: it becomes a part of another program, in which arrays that it captures are constants.
    """

    torch: bool = False
    is_inlined: bool = False
    copies: list[tuple[str, str]] = field(default_factory=list)
    captured: dict[Tensor, np.ndarray[Any, Any]] = field(default_factory=dict)
    known: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)

    @contextmanager
    def active(self) -> Iterator[None]:
        """While the function runs: te.copy makes arrays of this trace."""
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)

    def capture(self, array: np.ndarray[Any, Any]) -> Tensor:
        """A NumPy array met during the trace: an input of the program, fed with a copy of its value now."""
        if id(array) not in self.known:
            name = f"captured_{len(self.captured)}"
            tensor = constant(array, name) if self.is_inlined else placeholder(array.shape, dtype_of_array(array), name)
            self.captured[tensor] = np.array(array, order="C")
            self.known[id(array)] = (array, tensor)  # the array is held, so that its id stays its own
            return tensor
        known, tensor = self.known[id(array)]
        value = self.captured[tensor]
        if not np.array_equal(known, value, equal_nan=known.dtype.kind == "f"):
            del self.known[id(array)]  # changed since
            return self.capture(array)
        return tensor


def active_trace() -> Trace | None:
    """The trace in which the caller runs."""
    return _ACTIVE.get()


@dataclass(eq=False)
class Storage:
    """Memory of a traced program: `value` is what it holds now, laid out as `base` in `memory`."""

    trace: Trace
    memory: Ghost | Outline
    base: Layout | Outline
    value: Tensor
    placeholder: Tensor | None = None
    undecided: str | None = None  # why it may not be written: nobody knows whether another storage is a view of it
    _maps: dict[Layout, ViewMap] = field(default_factory=dict)
    _reads: dict[Layout | Outline, Tensor] = field(default_factory=dict)

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    def layout(self, ghost: Ghost | Outline) -> Layout | Outline:
        """Where a view lies in the memory."""
        if isinstance(ghost, Outline):
            return ghost
        assert not isinstance(self.memory, Outline)
        return Layout.of(ghost, self.memory)

    def read(self, ghost: Ghost | Outline) -> Tensor:
        """The elements of a view as they are now."""
        self._check_alive()
        layout = self.layout(ghost)
        if layout not in self._reads:
            self._reads[layout] = self._map(layout).read(self.value, f"{self.value.name}_view")
        return self._reads[layout]

    def write(self, ghost: Ghost | Outline, new: Tensor) -> None:
        """The elements of a view replaced by `new`, which has its shape and the dtype of the storage."""
        self._check_alive()
        if self.undecided is not None:
            raise TypeError(
                f"assignment at {user_location()} to memory that may be that of two arrays: {self.undecided}"
            )
        layout = self.layout(ghost)
        found = self._map(layout)
        if not found.is_injective:
            raise AliasError(
                f"assignment at {user_location()}: several elements of the view of shape {layout.shape} are one "
                "element of memory; assign to a te.copy of it"
            )
        self.value = found.write(self.value, new, f"{new.name}_into")
        self._reads.clear()

    def _check_alive(self) -> None:
        """TypeError for an array that another trace left behind, in a list outside of the function for instance."""
        running = active_trace()
        if running is not None and running is not self.trace:
            raise TypeError(
                f"a traced array is used at {user_location()}, outside of the call in which it was made; return it "
                "from that function, and give it to this one as an argument"
            )

    def _map(self, layout: Layout | Outline) -> ViewMap | Outline:
        if isinstance(layout, Outline):
            return layout
        assert not isinstance(self.base, Outline)
        if layout not in self._maps:
            found = view_map(self.base, layout, is_inside=True)
            if found is None:
                raise AliasError(
                    f"the view of shape {layout.shape} and strides {layout.strides} at {user_location()} does not lie "
                    f"inside the array of shape {self.base.shape} and strides {self.base.strides}; copy it first"
                )
            self._maps[layout] = found
        return self._maps[layout]
