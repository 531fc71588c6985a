"""Programs compiled in this process, found again by their structure: building one twice compiles once.

A core is kept as long as a kernel uses it, and the last ones beyond that, so that `te.evaluate` in a loop compiles
once.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable

from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.executable import CompiledKernel, Executable, Shared
from tedsl.lang.locks import freed_in_children
from tedsl.lang.structure import structural_key

__all__ = ["cached_core", "clear_cache", "shared_kernel"]

MOST_UNUSED = 32

_known: weakref.WeakValueDictionary[tuple[object, ...], Executable] = weakref.WeakValueDictionary()
_recent: OrderedDict[tuple[object, ...], Executable] = OrderedDict()
_parts: weakref.WeakValueDictionary[tuple[object, ...], CompiledKernel] = weakref.WeakValueDictionary()
_lock = freed_in_children(threading.RLock())


def cached_core(program: Compilation, make: Callable[[str], Executable]) -> Shared:
    """The executable for a program, made before for one that is equal, or by `make`.

    `make` is given the structural key of the program, with its names.
    """
    structure = structural_key(program.outputs, program.inputs, names=True)
    key = (structure, program.name, program.target, program.planner)
    with _lock:
        core = _known.get(key)
        if core is None:
            core = _known[key] = make(structure)
        _recent[key] = core
        _recent.move_to_end(key)
        if len(_recent) > MOST_UNUSED:
            _recent.popitem(last=False)
    theirs = core.program
    if all(a is b for a, b in zip(theirs.outputs, program.outputs, strict=True)):
        return Shared(core)
    return Shared(core, dict(zip(program.sizes, theirs.sizes, strict=True)))


def shared_kernel(key: tuple[object, ...], make: Callable[[], CompiledKernel], *, whole: bool = True) -> CompiledKernel:
    """The kernel for a part of a program, which other programs that have such a part use too.

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
