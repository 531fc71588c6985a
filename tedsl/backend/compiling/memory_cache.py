"""Programs compiled in this process, found again by their structure: building one twice compiles once.

A core is kept as long as a kernel uses it, and the last ones beyond that, so that `te.evaluate` in a loop compiles
once.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence

from tedsl.backend.compiling.core import Core
from tedsl.backend.lowering.pipeline import sizes_of
from tedsl.lang.expr import Var
from tedsl.lang.locks import freed_in_children
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Tensor

__all__ = ["cached_core", "clear_cache", "shared_core"]

MOST_UNUSED = 32

_known: weakref.WeakValueDictionary[tuple[object, ...], Core] = weakref.WeakValueDictionary()
_recent: OrderedDict[tuple[object, ...], Core] = OrderedDict()
_parts: weakref.WeakValueDictionary[tuple[object, ...], Core] = weakref.WeakValueDictionary()
_lock = freed_in_children(threading.RLock())


def cached_core(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], options: tuple[object, ...], make: Callable[[str], Core]
) -> tuple[Core, dict[Var, Var] | None]:
    """The core for a program, and which of its variables stands for which of the program's, if they differ.

    `make` is given the structural key of the program, with its names.
    """
    structure = structural_key(outputs, inputs, names=True)
    key = (structure, *options)
    with _lock:
        core = _known.get(key)
        if core is None:
            core = _known[key] = make(structure)
        _recent[key] = core
        _recent.move_to_end(key)
        if len(_recent) > MOST_UNUSED:
            _recent.popitem(last=False)
    if all(a is b for a, b in zip(core.outputs, outputs, strict=True)):
        return core, None
    return core, dict(zip(sizes_of(inputs, outputs), sizes_of(core.inputs, core.outputs), strict=True))


def shared_core(key: tuple[object, ...], make: Callable[[], Core], *, whole: bool = True) -> Core:
    """The core for a part of a program, which other programs that have such a part use too.

    `whole`: one that was found on the disk, without its schedule, is given the one that `make` makes.
    """
    with _lock:
        core = _parts.get(key)
        if core is None:
            core = _parts[key] = make()
        return core.settled(make) if whole else core


def clear_cache() -> None:
    """Forget every program that no kernel uses."""
    with _lock:
        _recent.clear()
