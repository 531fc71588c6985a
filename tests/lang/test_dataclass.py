"""Dataclasses that are quick to define are what the standard library's are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from tedsl.lang.dataclass import dataclass


class Empty:
    pass


class One:
    a: Any


class Several:
    a: int
    b: str = "x"
    c: Any = field(default_factory=list, compare=False)
    d: Any = field(default=0, repr=False)
    e: Any = field(default=0, hash=False)


class Own:
    a: int

    def __eq__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "own"


class Hashed:
    a: int

    def __hash__(self) -> int:
        return 7


VALUES: list[tuple[type, list[tuple[Any, ...]]]] = [
    (Empty, [(), ()]),
    (One, [(1,), (1.0,), (2,), (float("nan"),), ((),)]),
    (Several, [(1,), (1, "y"), (1, "x", [3]), (1, "x", [], 2), (1, "x", [], 0, 5), (1, "x", None, 0, [])]),
    (Own, [(1,), (2,)]),
    (Hashed, [(1,), (2,)]),
]


def made(define: Callable[..., Any], base: type, **options: bool) -> Any:
    """A class of its own with the body of another one."""
    body = {k: v for k, v in vars(base).items() if k not in ("__dict__", "__weakref__")}
    return define(**options)(type(base.__name__, (), body))


def answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except (TypeError, FrozenInstanceError) as error:
        return type(error)


@pytest.mark.parametrize(("base", "values"), VALUES, ids=lambda v: getattr(v, "__name__", ""))
@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False}], ids=str)
def test_they_compare_hash_and_print_as_the_standard_ones(
    base: type, values: list[tuple[Any, ...]], options: dict[str, bool]
) -> None:
    ours, theirs = (made(define, base, **options) for define in (dataclass, dataclasses.dataclass))
    found, want = ([kind(*v) for v in values] for kind in (ours, theirs))
    assert [[a == b for b in found] for a in found] == [[a == b for b in want] for a in want]
    assert [str(a) for a in found] == [str(a) for a in want]
    assert [a == 1 for a in found] == [a == 1 for a in want]
    hashed = options.get("eq", True) or base is Hashed  # else by where an object lies
    if hashed:
        assert [answer(lambda a=a: hash(a)) for a in found] == [answer(lambda a=a: hash(a)) for a in want]
    assert answer(lambda: setattr(found[0], "a", 3)) == answer(lambda: setattr(want[0], "a", 3))
    assert dataclasses.asdict(found[0]) == dataclasses.asdict(want[0])


def test_heirs_compare_what_they_inherit() -> None:
    @dataclass(frozen=True)
    class Base:
        a: int

    @dataclass(frozen=True, kw_only=True)
    class Heir(Base):
        b: int = 0

    assert Heir(1, b=2) == Heir(1, b=2) != Heir(2, b=2)
    assert hash(Heir(1)) == hash((1, 0))
    assert Base(1) != Heir(1)
    assert "Heir(a=1, b=0)" in repr(dataclasses.replace(Heir(2), a=1))


def test_slots() -> None:
    @dataclass(slots=True)
    class Slim:
        a: int

    assert Slim(1) == Slim(1)
    assert not hasattr(Slim(1), "__dict__")
    with pytest.raises(TypeError):
        hash(Slim(1))


def test_what_holds_itself_is_printed() -> None:
    @dataclass
    class Ring:
        other: Any = None

    ring = Ring()
    ring.other = ring
    assert repr(ring).endswith("Ring(other=...)")
