"""Nests of arrays in files: `.npz` as NumPy has it, or `.safetensors`.

Each array stands under the name of its place, as `layers.0.w`; what else the nest holds, and how it is built, stands
beside them as JSON. Nothing in a file is run when it is read.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tedsl.analysis.arrays.nests import rebuilt
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.errors import brief, user_location
from tedsl.lang.expr import Expr
from tedsl.lang.foreign import is_torch, values_of
from tedsl.lang.keywords import own_arguments
from tedsl.lang.tensor import Tensor

__all__ = ["load", "save"]

NEST = "__nest__"  # the entry that tells how the arrays are put together
_PLAIN = (bool, int, float, str, type(None))


@own_arguments()
def save(path: str | os.PathLike[str], values: Any) -> None:
    """Write a nest of arrays, numbers and strings into a file `.npz` or `.safetensors`.

    Nests are dicts, lists, tuples, and records: dataclasses and namedtuples, of which the fields are written. Arrays
    may be those of any framework. The file is written beside its place and then moved there, so that a crash
    leaves the older one.
    """
    what = f"te.save at {user_location()}"
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{what}: expected the path first, te.save(path, values), found {type(path).__name__}")
    target = Path(path)
    write = _WRITERS.get(target.suffix)
    if write is None:
        raise ValueError(f"{what}: expected a path that ends in .npz or .safetensors, found {str(path)!r:.80}")
    arrays: dict[str, Any] = {}
    text = json.dumps(_described(values, "", arrays, what))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{what}: there is no folder {str(target.parent)!r}; os.makedirs makes it")
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        write(partial, arrays, text)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


@own_arguments()
def load(path: str | os.PathLike[str], like: Any = None) -> Any:
    """What `te.save` wrote. A file that another program wrote gives a dict of arrays by name.

    Records come back as dicts of their fields, since nothing in a file is run; `like` is a nest of the same structure,
    whose records are made again: `state = te.load(path, like=state)`. Shapes are those in the file, and arrays are
    NumPy's: those of PyTorch or JAX are made by `torch.from_numpy` and `jnp.asarray`.
    """
    found = _read(path)
    return found if like is None else _put(like, found, "", f"te.load of {str(path)!r:.80} at {user_location()}")


def _read(path: str | os.PathLike[str]) -> Any:
    target, what = Path(path), f"te.load at {user_location()}"
    read = _READERS.get(target.suffix)
    if read is None:
        raise ValueError(f"{what}: expected a path that ends in .npz or .safetensors, found {str(path)!r:.80}")
    try:
        arrays, text = read(target)
        return arrays if text is None else _built(json.loads(text), arrays)
    except (OSError, ImportError, MemoryError):
        raise
    except Exception as error:  # whatever the readers say of what is no such file
        problem = f"{type(error).__name__}: {error!s:.60}"
        raise ValueError(
            f"{what}: {str(path)!r:.80} is damaged, or holds more than arrays, and nothing in it is run: {problem}"
        ) from None


def _described(value: Any, name: str, arrays: dict[str, Any], what: str) -> Any:
    """How a nest is built; its arrays are put aside under their names."""

    def inner(key: Any, part: Any) -> Any:
        return _described(part, f"{name}.{key}" if name else str(key), arrays, what)

    if (fields := _fields(value)) is not None:
        return {"dict": [[f, inner(f, v)] for f, v in fields.items()]}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [inner(k, v) for k, v in enumerate(value)]}
    if isinstance(value, Mapping):
        if not all(isinstance(key, (str, int)) for key in value):
            raise TypeError(f"{what}: keys of dicts must be strings or integers, found {list(value)!r:.60}")
        return {"dict": [[key, inner(key, part)] for key, part in value.items()]}
    if isinstance(value, _PLAIN):
        return {"plain": value}
    if isinstance(value, (Tensor, Expr)):
        raise TypeError(
            f"{what}: {name or 'the value'} is a tensor of a program, {brief(repr(value))}, which has no elements yet; "
            "te.evaluate(x, feeds) computes them"
        )
    try:
        array = values_of(value.detach().cpu() if is_torch(value) else value, f"{what}: {name or 'the value'}")
    except ValueError as error:
        raise TypeError(str(error)) from None
    try:
        dtype = str(as_dtype(array.dtype.name))
    except (TypeError, ValueError):
        found = f"{type(value).__name__} ({value!r:.40}), expected an array, a number or text"
        if np.iscomplexobj(value):
            found = f"{np.asarray(value).dtype}; save its parts, x.real and x.imag, as two arrays"
        raise TypeError(f"{what}: {name or 'the value'} is {found}") from None
    name = name or "value"
    while name in arrays or name in ("file", "allow_pickle", NEST):  # words of np.savez
        name += "_"
    arrays[name] = array
    return {"array": name, "dtype": dtype}


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a record; None of anything else."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    return None


def _put(like: Any, found: Any, name: str, what: str) -> Any:
    """What was found in the structure of another nest."""
    fields = _fields(like)
    parts = like if isinstance(like, Mapping) else fields
    if parts is None:
        if not isinstance(like, (list, tuple)):
            return found
        parts = dict(enumerate(like))
    given = dict(enumerate(found)) if isinstance(found, (list, tuple)) else found
    if not isinstance(given, Mapping) or given.keys() != parts.keys():
        there = f"{list(given)!r:.60}" if isinstance(given, Mapping) else type(found).__name__
        raise ValueError(f"{what}: {name or 'the nest'}: expected {list(parts)!r:.60} as in like=, found {there}")
    made = {key: _put(part, given[key], f"{name}.{key}" if name else str(key), what) for key, part in parts.items()}
    if isinstance(like, Mapping):
        return made
    if fields is None:
        return rebuilt(like, made.values())
    return rebuilt(like, made.values()) if isinstance(like, tuple) else dataclasses.replace(like, **made)


def _built(description: Any, arrays: Mapping[str, Any]) -> Any:
    if not isinstance(description, dict):
        raise TypeError(f"{description!r:.20} describes nothing")
    kind, content = next(iter(description.items()))
    if kind == "dict":
        return {key: _built(part, arrays) for key, part in content}
    if kind in ("list", "tuple"):
        parts = [_built(part, arrays) for part in content]
        return parts if kind == "list" else tuple(parts)
    if kind == "plain":
        return content
    array = arrays[content]
    return array.view(_numpy(description["dtype"])) if array.dtype.name != description["dtype"] else array


def _numpy(dtype: str) -> Any:
    if dtype != "bfloat16":
        return np.dtype(dtype)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def _write_npz(path: Path, arrays: dict[str, Any], text: str) -> None:
    # NumPy's format knows bfloat16 only as two bytes.
    plain = {name: a.view("uint16") if a.dtype.name == "bfloat16" else a for name, a in arrays.items()}
    with path.open("wb") as file:
        np.savez(file, **plain, **{NEST: np.array(text)})  # type: ignore[arg-type]  # the names are not its own


def _read_npz(path: Path) -> tuple[dict[str, Any], str | None]:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:  # np.load keeps a bad file open
        arrays = {name: file[name] for name in file.files}
    text = arrays.pop(NEST, None)
    return arrays, None if text is None else str(text)


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise ImportError("files of safetensors need the package of that name: pip install safetensors") from None
    return safetensors


def _write_safetensors(path: Path, arrays: dict[str, Any], text: str) -> None:
    whole = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    _safetensors().numpy.save_file(whole, path, metadata={NEST: text})


def _read_safetensors(path: Path) -> tuple[dict[str, Any], str | None]:
    with _safetensors().safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, (file.metadata() or {}).get(NEST)  # noqa: SIM118


_WRITERS: dict[str, Callable[[Path, dict[str, Any], str], None]] = {
    ".npz": _write_npz, ".safetensors": _write_safetensors,
}  # fmt: skip
_READERS: dict[str, Callable[[Path], tuple[dict[str, Any], str | None]]] = {
    ".npz": _read_npz, ".safetensors": _read_safetensors,
}  # fmt: skip
