"""The code of a routine by its symbol, which says all that it depends on.

te_native_order__float32_1_0_up_both    the routine, then its options
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from tedsl.backend.host.emit import optimized
from tedsl.backend.native.order import order
from tedsl.backend.native.places import places, runs

__all__ = ["definitions", "processor_in", "symbol_of", "symbols_in"]

_DEFINED = re.compile(r"^(define [^\n]*\))$", re.MULTILINE)
_PROCESSOR = re.compile(r'"(?:target-cpu|target-features|tune-cpu)"="[^"]*"')
_SYMBOL = re.compile(r"^declare [^\n]*@(te_native_\w+)\(", re.MULTILINE)

ROUTINES: dict[str, Callable[..., None]] = {"order": order, "places": places, "runs": runs}


def symbol_of(routine: str, options: tuple[Any, ...]) -> str:
    """The name of a routine's function."""
    return f"te_native_{routine}__{'_'.join(map(str, options))}"


def symbols_in(assembly: str) -> list[str]:
    """The routines that a module calls."""
    return _SYMBOL.findall(assembly)


def processor_in(assembly: str) -> str:
    """The attributes of a module's functions that say for which processor they are."""
    return " ".join(dict.fromkeys(_PROCESSOR.findall(assembly)))


@functools.cache
def definitions(symbol: str, triple: str, layout: str, processor: str) -> str:
    """The function, and those that it calls, optimised: LLVM's assembly. `processor` are attributes of functions."""
    routine, _, options = symbol.removeprefix("te_native_").partition("__")
    module = ir.Module(symbol)
    module.triple, module.data_layout = triple, layout
    made = (int(o) if o.isdigit() else o for o in options.split("_"))
    ROUTINES[routine](module, symbol, *made)
    return optimized(_DEFINED.sub(rf"\1 {processor}", str(module)))
