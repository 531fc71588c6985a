"""The forms of a kernel that were compiled so far, and argument blocks for further calls; safe from several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tedsl.analysis.overflow import check_limits
from tedsl.analysis.pointwise import Array
from tedsl.backend.arguments.blocks import BoundFunction
from tedsl.backend.compiling.disk_cache import is_kept
from tedsl.backend.compiling.facts import KnownFacts
from tedsl.backend.compiling.forms import ArrayLayout, Form, Numbers, layout_of, usual_layout
from tedsl.backend.compiling.variant import Variant
from tedsl.backend.host.phases import Spent, added
from tedsl.lang.expr import Var
from tedsl.lang.locks import freed_in_children

__all__ = ["ArraysOfCall", "CompiledForms"]

MOST_BINDINGS = 256  # argument blocks kept for further calls on the same shapes


class ArraysOfCall(Protocol):
    """Of the memory of a call, its arrays."""

    @property
    def inputs(self) -> Sequence[Array]: ...
    @property
    def outputs(self) -> Mapping[int, Array]: ...
    @property
    def previous(self) -> Mapping[int, Array]: ...
    @property
    def arrays(self) -> list[Array]: ...


class CompiledForms:
    """What `make` made of a form stays; `key` is the name under which its code is kept on the disk.

    `usual` is the layout of what it is called with, where that is not what its facts say.
    """

    def __init__(
        self, name: str, facts: KnownFacts, make: Callable[[Form], Variant], key: Callable[[Form], str | None],
        usual: ArrayLayout | None = None,
    ) -> None:  # fmt: skip
        self.variants: dict[Form, Variant] = {}
        self._name, self._facts, self._make, self._key, self._usual = name, facts, make, key, usual
        self._bindings: dict[Any, tuple[Variant, BoundFunction]] = {}
        self._lock = freed_in_children(threading.Lock())

    def variant(self, form: Form) -> Variant:
        """The code for a form."""
        found = self.variants.get(form)
        if found is None:
            with self._lock:
                found = self.variants.get(form)
                if found is None:
                    found = self.variants[form] = self._make(form)
        return found

    def is_ready(self, form: Form) -> bool:
        """Whether the code for a form is there, in memory or on the disk."""
        return form in self.variants or is_kept(self._key(form))

    @property
    def first(self) -> Variant | None:
        """The form compiled first, if there is one."""
        return next(iter(self.variants.values()), None)

    @property
    def compile_ms(self) -> float:
        """Milliseconds of compiling so far."""
        return sum(v.compile_ms for v in self.variants.values())

    @property
    def phases(self) -> Spent:
        """Where that went."""
        return added(v.phases for v in self.variants.values())

    def usual(self, modes: tuple[str, ...], numbers: Numbers = Numbers.FINITE) -> Form:
        """The form for contiguous arrays, below two gigabytes where their shapes are not known, or as was told."""
        return Form(modes, self._usual or usual_layout(self._facts), numbers)

    def form(
        self, memory: ArraysOfCall, modes: tuple[str, ...], sizes: Mapping[Var, int], numbers: Numbers = Numbers.FINITE
    ) -> Form:
        """The form that these arrays need."""
        has_large_stage = self._facts.has_large_stage(sizes)
        return Form(modes, layout_of(self._facts, memory.arrays, has_large_stage=has_large_stage), numbers)

    def bind(
        self, memory: ArraysOfCall, modes: tuple[str, ...], sizes: Mapping[Var, int], numbers: Numbers = Numbers.FINITE
    ) -> tuple[Variant, BoundFunction]:
        """The code for these arrays, and an argument block for their shapes and strides."""
        key = (modes, numbers, tuple(sizes.values()), tuple((a.shape, a.strides) for a in memory.arrays))
        found = self._bindings.get(key)
        if found is None:
            if sizes:
                check_limits(self._facts.limits, sizes, f"kernel {self._name!r}")
            variant = self.variant(self.form(memory, modes, sizes, numbers))
            layouts = [(a.shape, a.strides) for a in variant.arguments(memory.inputs, memory.outputs, memory.previous)]
            found = variant, variant.function.bind(layouts, variant.scalars(sizes))
            if len(self._bindings) >= MOST_BINDINGS:
                self._bindings.clear()
            self._bindings[key] = found
        return found
