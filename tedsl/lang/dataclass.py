"""Dataclasses that are quick to define: the library has some 400 of them, and the first kernel of a process needs 240.

`dataclasses.dataclass` writes six methods of a frozen class as text and compiles each of them, a millisecond together.
Here what compares, hashes and prints are functions over the fields that all classes share; the rest is the standard
library's, and what is made is a dataclass in every other respect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass  # noqa: TID251 - what the other one stands for
else:

    def dataclass(
        cls: type | None = None, /, *, eq: bool = True, frozen: bool = False, kw_only: bool = False, slots: bool = False
    ) -> type | Callable[[type], type]:
        """As `dataclasses.dataclass`, with these of its options."""

        def defined(cls: type) -> type:
            own = dict(cls.__dict__)
            options = {"frozen": frozen, "kw_only": kw_only, "slots": slots}
            made = dataclasses.dataclass(cls, eq=False, repr=False, **options)  # noqa: TID251 - likewise
            methods = {"__repr__": _repr, **(_comparing(made, is_hashed=frozen) if eq else {})}
            for name, method in methods.items():
                if own.get(name) is None:  # where a class compares in its own way, `__hash__` is None
                    setattr(made, name, method)
            return made

        return defined if cls is None else defined(cls)


@recursive_repr()
def _repr(self: Any) -> str:
    fields = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _comparing(cls: Any, *, is_hashed: bool) -> dict[str, Any]:
    """Equality by the fields, and a hash where these stay."""
    fields = dataclasses.fields(cls)
    compared = _values([f.name for f in fields if f.compare])
    hashed = _values([f.name for f in fields if (f.compare if f.hash is None else f.hash)])

    def are_equal(self: Any, other: object) -> Any:
        return compared(self) == compared(other) if type(other) is type(self) else NotImplemented

    return {"__eq__": are_equal, "__hash__": (lambda self: hash(hashed(self))) if is_hashed else None}


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Some attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    one = attrgetter(names[0])
    return lambda self: (one(self),)
