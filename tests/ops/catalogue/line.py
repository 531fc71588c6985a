"""One line of the tables: an operator, its arguments, and the same function in another framework.

Shapes are functions of a size, as in the catalogue of `tests/autodiff`, whose entries these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tedsl import ops
from tests.autodiff.catalogue.entry import Entry, tensor

__all__ = ["entry", "like_torch"]

Shapes = Callable[[int], Mapping[str, tuple[int, ...]]]


def entry(
    name: str,
    function: Callable[..., Any],
    shapes: Shapes,
    torch: Callable[..., Any] | None = None,
    jax: Callable[..., Any] | None = None,
    feed: Mapping[str, Any] | None = None,
    integers: tuple[str, ...] = (),
    **kind: bool,
) -> Entry:
    """A line whose inputs are placeholders of float64, of int32 where named in `integers`."""

    def build(n: int) -> Any:
        inputs = [tensor(k, *s, dtype="int32" if k in integers else "float64") for k, s in shapes(n).items()]
        return function(*inputs), inputs

    return Entry(name, build, torch, jax, feed=dict(feed or {}), **kind)


def like_torch(
    name: str, shapes: Shapes, label: str = "", feed: Mapping[str, Any] | None = None, integers: tuple[str, ...] = (),
    affine: bool = True, theirs: str = "", **options: Any,
) -> Entry:  # fmt: skip
    """An operator and the function of torch.nn.functional that has its arguments, options and (unless given) name."""

    def function(*tensors: Any) -> Any:
        return getattr(ops, name)(*tensors, **options)

    def oracle(*arrays: Any) -> Any:
        from torch.nn import functional

        return getattr(functional, theirs or name)(*arrays, **options)

    return entry(f"{name} {label}".strip(), function, shapes, oracle, feed=feed, integers=integers, affine=affine)
