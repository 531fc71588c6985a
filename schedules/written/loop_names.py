"""What loops are called in print: one that was split and kept its name is `jo`, as `j` is what it makes with `jv`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from schedules.loops import Nest

__all__ = ["known_as", "printed_lets", "printed_names"]


def printed_names(nest: Nest) -> dict[str, str]:
    """Loop -> its name in print, of those that have another one."""
    names, _ = _printed(nest)
    return {level: names[level] for level in nest.names if level in names}


def printed_lets(nest: Nest) -> list[str]:
    """How the loops in print make the axes, to be read from the last one."""
    return _printed(nest)[1]


def known_as(nest: Nest, name: str) -> str:
    """The loop that is called so in print, else the name as it was given."""
    if name in nest.names or not nest.lets:
        return name
    return {printed: loop for loop, printed in printed_names(nest).items()}.get(name, name)


def _printed(nest: Nest) -> tuple[dict[str, str], list[str]]:
    now: dict[str, str] = {}
    taken = {*nest.names, *re.findall(r"\w+", " ".join(nest.lets))}
    lets = []
    for let in nest.lets:  # "j = j*8 + jv   if j < n", "i = ij // 8, j = ij % 8"
        assigned, mark, guard = let.partition("   if ")
        _, *parts = re.split(r"(?:^|, )(\w+) = ", assigned)
        axes, values = parts[::2], parts[1::2]
        before = dict(now)
        for axis in axes:
            if _renamed(values, {axis: ""}) != values:
                now[axis] = _fresh(f"{before.get(axis, axis)}o", taken)
        heads, values, (guard,) = _renamed(axes, before), _renamed(values, now), _renamed([guard], before)
        lets.append(", ".join(map(" = ".join, zip(heads, values, strict=True))) + mark + guard)
    return now, lets


def _renamed(texts: list[str], names: Mapping[str, str]) -> list[str]:
    return [re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text) for text in texts]


def _fresh(name: str, taken: set[str]) -> str:
    free, number = name, 0
    while free in taken:
        number += 1
        free = f"{name}{number}"
    taken.add(free)
    return free
