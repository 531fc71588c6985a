"""Operators on their way to other processes: by name where they can be imported there, by value where they cannot.

An operator of a notebook or a script lives in `__main__`, which on a worker is another module.
"""

from __future__ import annotations

import io
from typing import Any

from tedsl.ops.op import Op

__all__ = ["packed", "unpacked"]


def packed(value: Any) -> bytes:
    """Anything with operators in it, as bytes."""
    import cloudpickle

    class Carrier(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, Op) and not _importable(obj):
                return Op.__new__, (Op,), _state(obj), None, None, _restore
            return super().reducer_override(obj)

    buffer = io.BytesIO()
    Carrier(buffer).dump(value)
    return buffer.getvalue()


def unpacked(data: bytes) -> Any:
    """What was packed by this user's own client: Dask moves functions the same way."""
    import cloudpickle

    return cloudpickle.loads(data)


def _importable(op: Op) -> bool:
    if op.__module__ == "__main__":
        return False
    try:
        op.__reduce__()
    except Exception:  # pickle.PicklingError, or whatever importing its module raises
        return False
    return True


def _state(op: Op) -> dict[str, Any]:
    author = op.author
    rules = {"vjp": author.vjp, "jvp": author.jvp, "schedules": author.schedules}
    return {"function": op.function, "name": op.name, "save": author.save, "symbolic": op.symbolic, "rules": rules}


def _restore(op: Op, state: dict[str, Any]) -> None:
    Op.__init__(op, state["function"], state["name"], state["save"], state["symbolic"])
    for name, rule in state["rules"].items():
        setattr(op.author, name, rule)
