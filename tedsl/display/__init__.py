"""What notebooks show: pages in HTML, formulas in LaTeX, the stage graph, plots, the progress of a loop.

`import tedsl` loads nothing of this: the objects of the library find their page by name when a notebook asks for it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tedsl.display import plot
    from tedsl.display.stops import Slider, slider
    from tedsl.display.traces import ScheduleTrace, trace
    from tedsl.display.training import WatchedLoop, WatchedTuning, progress, tuning
    from tedsl.display.views import Shown, graph, html, latex, program

# Name -> where it is defined.
_HOME = {
    "html": "views", "latex": "views", "program": "views", "graph": "views", "Shown": "views",
    "WatchedLoop": "training", "progress": "training", "Slider": "stops", "slider": "stops",
    "WatchedTuning": "training", "tuning": "training", "ScheduleTrace": "traces", "trace": "traces",
}  # fmt: skip

__all__ = [
    "ScheduleTrace", "Shown", "Slider", "WatchedLoop", "WatchedTuning", "graph", "html", "latex", "plot", "program",
    "progress", "slider", "trace", "tuning",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "plot":
        return import_module("tedsl.display.plot")
    if name not in _HOME:
        from tedsl.lang.names import OF_DISPLAY, spelled

        own = spelled(name, __all__) or OF_DISPLAY.get(name, "")
        told = f": it is te.display.{own}" if own else ""
        raise AttributeError(
            f"module 'tedsl.display' has no attribute {name!r}{told}", name=name, obj=sys.modules[__name__]
        )
    value = getattr(import_module(f"tedsl.display.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
