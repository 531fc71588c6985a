"""What holds a function of its author's, in other processes: found by its own name, or made again of the function.

pickle carries a function by its name. Of one without a name it says only where that lies in memory, so it is refused
here, in words; other picklers (cloudpickle, dill) carry functions by value and are left to do so.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from importlib import import_module
from types import FrameType, FunctionType
from typing import Any

__all__ = ["by_name", "found", "made_again"]


def found(module: str, qualname: str) -> Any:
    """The object of a name, as pickle finds functions."""
    value: Any = sys.modules.get(module) or import_module(module)
    for part in qualname.split("."):
        value = getattr(value, part, None)
    return value


def by_name(thing: Any) -> tuple[Any, ...] | None:
    """What `__reduce__` returns for a thing that its own name leads to: one that decorates its function, say."""
    module, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return (found, (module, qualname)) if module and qualname and found(module, qualname) is thing else None


def made_again(what: str, make: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """What `__reduce__` returns for `make(*arguments)`; PicklingError for functions among them that have no name."""
    options = (o for a in arguments if is_dataclass(a) for o in vars(a).values())
    nameless = [f for f in (*arguments, *options) if isinstance(f, FunctionType) and by_name(f) is None]
    if nameless and not _carries_functions(sys._getframe(1)):
        raise pickle.PicklingError(
            f"{what} cannot be pickled: it is made of {nameless[0].__qualname__}, and pickle finds functions by their "
            "names; define that with def at the top of a module, or use cloudpickle"
        )
    return make, arguments


def _carries_functions(frame: FrameType | None) -> bool:
    """Whether who pickles is more than the pickler of the standard library, which calls without a frame of its own."""
    while frame is not None:
        pickler = frame.f_locals.get("self")
        if isinstance(pickler, pickle._Pickler) or hasattr(pickler, "reducer_override"):
            return True
        frame = frame.f_back
    return False
