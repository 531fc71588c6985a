"""What an operator is called with: arrays whose extents are named, static arguments that are constant or drawn.

Extents that share a name are equal: `"c h w"` and `"f c 3 3"` are an image and the filters that fit it. One may follow
from others: beside `"n c h w"`, `"n s 2*h 2*w"` is an image of twice the height and width. A shape may begin with
`...`, which stands for the same few extents everywhere it is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.errors import user_location
from tedsl.lang.keywords import own_arguments
from tedsl.testing.extents import is_name, names_of, value_of
from tedsl.testing.misuse import check_described, check_descriptions

__all__ = ["Arguments", "ArraySpec", "SampledCall", "array"]

Array = np.ndarray[Any, Any]
# The extents that a name takes unless sizes= says otherwise.
SMALLEST, LARGEST = 1, 5
MOST_LEADING = 3


@dataclass(frozen=True)
class ArraySpec:
    """An array argument: a shape of names and numbers, a dtype (None: the float type of the case), a range of values.

    `below` bounds integers by an extent: the values are an index into it.
    """

    shape: tuple[str | int, ...]
    dtype: str | None = None
    low: float = -2.0
    high: float = 2.0
    below: str | int | None = None

    def __post_init__(self) -> None:
        if "..." in self.shape[1:]:
            raise ValueError(
                f"te.testing.array: `...` stands first in a shape, found {' '.join(map(str, self.shape))!r}"
            )
        self.names()  # refuses what is no extent
        if self.below is not None and (self.dtype is None or not as_dtype(self.dtype).is_integer):
            raise TypeError(f"te.testing.array: below= is for integers, found dtype {self.dtype}")
        if not self.low < self.high:
            raise ValueError(f"te.testing.array: expected low < high, found {self.low} and {self.high}")

    def names(self) -> list[str]:
        """The names in its extents."""
        extents = [n for n in (*self.shape, self.below) if n is not None and n != "..."]
        return [name for extent in extents for name in names_of(extent)]


@own_arguments("te.testing.array")
def array(
    shape: str | Sequence[str | int],
    dtype: str | None = None,
    *,
    low: float = -2.0,
    high: float = 2.0,
    below: str | int | None = None,
) -> ArraySpec:
    """An array argument of `check_op`: `array("n m", low=0.1)`, `array("k", "int32", below="n")`."""
    names = shape.replace(",", " ").split() if isinstance(shape, str) else [str(n) for n in shape]
    return ArraySpec(tuple(int(n) if n.isdigit() else n for n in names), dtype, low, high, below)


@dataclass(frozen=True, eq=False)
class SampledCall:
    """One call: the arrays by parameter, the static arguments, and the seed of heads and directions.

    Compiling and second derivatives take longer than all else, so not every case drawn has them. In an edge case some
    elements are equal, and some are 0: there may be kinks, where differences tell nothing, but forward and reverse
    derivatives still have to agree.
    """

    arrays: Mapping[str, Array]
    static: Mapping[str, Any]
    dtype: str
    seed: int
    compiled: bool = True
    second: bool = True
    edge: bool = False

    def __repr__(self) -> str:
        shapes = [f"{name}: {a.dtype}{list(a.shape)}" for name, a in self.arrays.items()]
        return ", ".join([*shapes, *(f"{name}={value!r}" for name, value in self.static.items())])


@dataclass(frozen=True)
class Arguments:
    """The parameters of an operator and what each is drawn from."""

    specs: Mapping[str, ArraySpec]
    static: Mapping[str, Any]
    sizes: Mapping[str, tuple[int, int]]
    dtypes: Sequence[str]

    @classmethod
    def of(
        cls,
        op: Callable[..., Any],
        given: Sequence[Any],
        named: Mapping[str, Any],
        sizes: Mapping[str, int | tuple[int, int]] | None,
        dtypes: Sequence[str],
    ) -> Arguments:
        """The arguments by parameter name; if none is described, those without default are arrays of any shape."""
        bound = _bound(op, given, named)
        specs = {name: _as_spec(value) for name, value in bound.items() if isinstance(value, (str, ArraySpec))}
        static = {name: value for name, value in bound.items() if name not in specs}
        check_descriptions(_title(op), op, static, bool(specs))
        if not isinstance(sizes, Mapping | None):
            raise TypeError(f'check_op: sizes= takes the extents of names, as {{"n": (3, 9)}}; found {sizes!r:.40}')
        ranges = {name: (n, n) if isinstance(n, int) else n for name, n in (sizes or {}).items()}
        used = {name for spec in specs.values() for name in spec.names()}
        for name, (low, high) in ranges.items():
            if name not in used:
                known = ", ".join(sorted(used)) or "none"
                raise ValueError(f"check_op: sizes= names {name!r}, which is in no shape; the extents are {known}")
            if not 0 <= low <= high:
                raise ValueError(f"check_op: sizes[{name!r}]: expected 0 <= smallest <= largest, found {low}, {high}")
        return cls(specs, static, ranges, dtypes)

    def cases(self, one_compiled_in: int) -> st.SearchStrategy[SampledCall]:
        """A strategy of cases, simpler if smaller; the seed says which are compiled, and which differentiated twice."""

        @st.composite
        def drawn(draw: Any) -> SampledCall:
            leading = draw(st.lists(st.integers(1, 4), max_size=MOST_LEADING)) if self._has_leading else []
            extents = {name: draw(st.integers(*self.sizes.get(name, (SMALLEST, LARGEST)))) for name in self._names}
            static = {k: draw(v) if isinstance(v, st.SearchStrategy) else v for k, v in self.static.items()}
            dtype = draw(st.sampled_from(list(self.dtypes)))
            seed = draw(st.integers(0, 2**16))
            compiled, second, edge = seed % one_compiled_in == one_compiled_in - 1, seed % 2 == 0, seed % 4 == 1
            rng = np.random.default_rng(seed)
            arrays = {name: _values(spec, leading, extents, dtype, rng) for name, spec in self.specs.items()}
            arrays = self._on_edge(arrays, rng) if edge else arrays
            return SampledCall(arrays, static, dtype, seed, compiled, second, edge)

        return drawn()

    def at_least(self, arrays: Mapping[str, Array]) -> list[str]:
        """The extents that are the smallest drawn, where `sizes` says nothing of them."""
        found: dict[str, None] = {}
        for name, spec in self.specs.items():
            behind = takewhile(lambda n: n != "...", reversed(spec.shape))
            for extent, held in zip(behind, reversed(arrays[name].shape), strict=False):
                if is_name(extent) and extent not in self.sizes and held == SMALLEST:
                    found[str(extent)] = None
        return sorted(found)

    def _on_edge(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Half of the floats take the value of a neighbor, or of an array of the same shape before; an eighth is 0."""
        made: dict[str, Array] = {}
        for name, a in arrays.items():
            made[name] = a
            if a.dtype.kind in "iub":
                continue  # whole numbers are often equal as they are
            alike = [b for b in made.values() if b is not a and b.shape == a.shape and b.dtype == a.dtype]
            along = int(rng.integers(a.ndim)) if a.ndim else None
            neighbor = alike[-1] if alike and rng.integers(2) else np.roll(a, 1, along)
            spec, drawn = self.specs[name], rng.integers(0, 8, a.shape)
            made[name] = np.where(drawn < 4, neighbor, a)
            if spec.low <= 0.0 <= spec.high:
                made[name] = np.where(drawn == 7, np.zeros_like(a), made[name])
        return made

    @property
    def _has_leading(self) -> bool:
        return any("..." in spec.shape for spec in self.specs.values())

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for spec in self.specs.values() for name in spec.names()))


def _bound(op: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    signature = inspect.signature(op)
    try:
        bound = dict(signature.bind_partial(*given, **named).arguments)
    except TypeError as error:
        raise TypeError(f"check_op at {user_location()}: {error}; the operator is {_title(op)}{signature}") from None
    check_described(
        _title(op), signature.parameters, bound, sum(isinstance(v, (str, ArraySpec)) for v in bound.values())
    )
    result: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(
                f"check_op at {user_location()}: {_title(op)}{signature} takes *{name}; wrap it in a function of named "
                "arguments"
            )
        if name in bound:
            result[name] = bound[name]
        elif parameter.default is parameter.empty:
            result[name] = "..."
    return result


def _title(op: Callable[..., Any]) -> str:
    return getattr(op, "__name__", type(op).__name__)


def _as_spec(value: str | ArraySpec) -> ArraySpec:
    return array(value) if isinstance(value, str) else value


def _values(
    spec: ArraySpec, leading: Sequence[int], extents: Mapping[str, int], dtype: str, rng: np.random.Generator
) -> Array:
    """Values with three decimals, so that a failing case can be written down; two equal ones are rare."""
    shape: list[int] = []
    for n in spec.shape:
        shape += leading if n == "..." else [value_of(n, extents)]
    kind = as_dtype(spec.dtype or dtype)
    if spec.below is not None:
        return np.asarray(rng.integers(0, max(value_of(spec.below, extents), 1), shape), kind.numpy)
    if kind.is_bool:
        return np.asarray(rng.integers(0, 2, shape), bool)
    if kind.is_integer:
        low = max(spec.low, 0) if kind.kind == "u" else spec.low
        return np.asarray(rng.integers(int(low), int(spec.high) + 1, shape), kind.numpy)
    return np.asarray(np.clip(rng.uniform(spec.low, spec.high, shape).round(3), spec.low, spec.high), kind.numpy)
