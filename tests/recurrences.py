"""Recurrences of every kind, drawn: several axes, states, conditions, look-backs, reductions inside, stages in a step.

All values are finite on both sides of a choice, and no two that a maximum compares are equal by construction, so that
gradients are those of any library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tedsl as te

__all__ = ["Recurrence", "recurrences"]

FORMS = ("one", "one", "states", "walk", "walk", "matrix", "apart", "stages", "integers", "growing")


@dataclass(frozen=True)
class Recurrence:
    """A program, the inputs that it is differentiated by, and arrays for a seed."""

    form: str
    inputs: list[te.Tensor]
    outputs: list[te.Tensor]

    @property
    def sources(self) -> list[te.Tensor]:
        """The inputs of floats, which there is a gradient by."""
        return [t for t in self.inputs if t.dtype.is_float]

    def feeds(self, seed: int) -> dict[te.Tensor, Any]:
        rng = np.random.default_rng(seed)
        return {t: _numbers(rng, t) for t in self.inputs}


def _numbers(rng: np.random.Generator, tensor: te.Tensor) -> Any:
    """Floats about 1; indices below the extent that `places` holds; other integers."""
    shape = tuple(map(int, tensor.shape))
    if tensor.dtype.is_float:
        return rng.uniform(0.5, 1.5, shape).astype(str(tensor.dtype))
    return rng.integers(0, int(tensor.name.rpartition("_")[2]), shape).astype(str(tensor.dtype))


@st.composite
def recurrences(draw: st.DrawFn, *, large: bool = False, forms: Sequence[str] = FORMS) -> Recurrence:
    """A recurrence and what is made of it; `large`: of the sizes at which schedules are not plain loops."""
    form = draw(st.sampled_from(list(forms)))
    drawing = _Drawing(draw, large, form)
    outputs = getattr(drawing, form)()
    if form != "integers":
        outputs = drawing.followed(outputs)
    return Recurrence(form, drawing.inputs, outputs)


class _Drawing:
    """One program on its way."""

    def __init__(self, draw: st.DrawFn, large: bool, form: str) -> None:
        self.draw, self.large, self.form = draw, large, form
        self.inputs: list[te.Tensor] = []
        self.dtype = "float64" if form == "integers" else self.pick(("float64",) * 6 + ("float32", "float16"))
        self.reverse = self.chance(3)

    # What is drawn.

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def chance(self, times: int) -> bool:
        """True once in so many times."""
        return bool(self.draw(st.integers(1, times)) == times)

    def size(self) -> int:
        return int(self.pick((5, 8, 16, 33, 64) if self.large else (1, 2, 3, 4, 5)))

    def steps(self) -> int:
        return int(self.pick((9, 17, 40) if self.large else (2, 3, 4, 5, 7)))

    def source(self, shape: Sequence[int], dtype: str | None = None) -> te.Tensor:
        made = te.placeholder(tuple(shape), dtype or self.dtype, name=f"x{len(self.inputs)}")
        self.inputs.append(made)
        return made

    def places(self, shape: Sequence[int], below: int) -> te.Tensor:
        made = te.placeholder(tuple(shape), "int32", name=f"p{len(self.inputs)}_{below}")
        self.inputs.append(made)
        return made

    # Parts of a body.

    def place(self, t: Any, axis: Any, others: Sequence[Any], extent: int, steps: int) -> tuple[Any, Any]:
        """Where something is read along an axis, and the condition under which it is there (None: always)."""
        kind = self.pick(
            ("own",) * 4 + ("turned", "fixed", "time", "clamped", "ring", "below", "above", "other", "data")
        )
        last = extent - 1
        if kind == "other":
            fitting = [o for o in others if int(o.extent.value) <= extent]
            return (self.pick(fitting) if fitting else axis), None
        if kind == "data":
            table = self.places((steps,), extent)
            return table[t], None
        if kind in ("below", "above"):
            there = axis - 1 if kind == "below" else axis + 1
            return there, (axis >= 1 if kind == "below" else axis < last)
        return {
            "own": lambda: axis,
            "turned": lambda: last - axis,
            "fixed": lambda: axis * 0 + extent // 2,
            "time": lambda: te.minimum(t, last),
            "clamped": lambda: te.clip(axis + self.pick((-1, 1)), 0, last),
            "ring": lambda: (axis + self.pick((1, extent - 1))) % extent,
        }[kind](), None

    def condition(self, t: Any, places: Sequence[Any], x: Callable[[], Any]) -> Any:
        """Something that holds at some points."""
        i = self.pick(places) if places else t
        j = self.pick([*places, t])
        kinds: dict[str, Callable[[], Any]] = {
            "before": lambda: i < j,
            "behind": lambda: i >= j,
            "at": lambda: i == j - 1 if j is not i else i == 1,
            "apart": lambda: ~(i == j) if j is not i else i != 0,
            "parity": lambda: (i + j) % 2 == 0,
            "data": lambda: x() > 1.0,
            "late": lambda: t >= 2,
            "band": lambda: (i <= j) & (i + 2 > j),
            "either": lambda: (i == 0) | (j > i),
        }
        return kinds[self.pick(sorted(kinds))]()

    def earlier(self, t: Any) -> Callable[[Any], Any]:
        """Which steps are done: all of them, or the last few."""
        near = self.chance(2)

        def condition(k: Any) -> Any:
            done, gap = (k > t, k - t) if self.reverse else (k < t, t - k)
            return done & (gap < 3) if near else done

        return condition

    def ranged(self, t: Any, i: Any) -> Callable[[Any], Any]:
        """A condition on the loop of a reduction."""
        return self.pick((  # type: ignore[no-any-return]
            lambda k: k <= i,
            lambda k: k > i,
            lambda k: k <= t,
            lambda k: k != i,
            lambda k: k == t,
            lambda k: (k + t) % 2 == 0,
            lambda k: (k < i) | (k == t),
        ))  # fmt: skip

    def smooth(self, value: Any) -> Any:
        """A function that is finite everywhere."""
        functions: Sequence[Callable[[Any], Any]] = (
            te.tanh,
            te.sigmoid,
            te.sin,
            lambda v: v / (1.0 + v * v),
            lambda v: te.sqrt(1.0 + v * v) - 1.0,
            lambda v: te.log(1.0 + v * v),
        )
        return self.pick(functions)(value)

    def fold(self, extent: int, value: Callable[[Any], Any], where: Callable[[Any], Any] | None) -> Any:
        """A reduction of values, small where there are many of them."""
        kind = self.pick(("sum", "sum", "sum", "max", "min", "prod", "logsumexp", "position"))
        k = te.reduce_axis(extent, name="k")
        condition = {} if where is None else {"where": where(k)}
        if kind == "sum":
            return te.sum(value(k), axis=k, **condition) / extent
        if kind in ("max", "min"):
            made = getattr(te, kind)(value(k), axis=k, **condition)
            return te.clip(made, -3.0, 3.0) if condition else made
        if kind == "prod":
            return te.prod(1.0 + 0.1 * value(k), axis=k, **condition)
        if kind == "position":
            found = te.argmax(value(k), axis=k, **condition)
            return te.cast(found, self.dtype) / extent
        most = te.clip(te.max(value(k), axis=k, **condition), -3.0, 3.0)
        m = te.reduce_axis(extent, name="m")
        again = {} if where is None else {"where": where(m)}
        return 0.3 * (most + te.log(1e-3 + te.sum(te.exp(value(m) - most), axis=m, **again)))

    # Forms.

    def one(self, states: int = 1) -> list[te.Tensor]:
        """One state or several of one shape, that step along one axis."""
        rank, steps = self.draw(st.integers(0, 2)), self.steps()
        extents = [self.size() for _ in range(rank)]
        extents = [min(n, 24) for n in extents] if rank == 2 else extents
        if rank == 2 and self.chance(2):
            extents[1] = extents[0]
        along = self.draw(st.integers(0, rank))
        shape = [*extents[:along], steps, *extents[along:]]
        x = self.source(shape)
        start = self.source(extents)
        w = [self.source((n, n)) for n in extents]

        def body(*arguments: Any) -> Any:
            own, axes = arguments[:states], arguments[states:]
            t, places = axes[along], [a for d, a in enumerate(axes) if d != along]
            made = [self.element(own, t, places, x, start, w, along, steps, extents) for _ in own]
            return tuple(made) if states > 1 else made[0]

        return self.scanned(states, tuple(shape), body, along)

    def scanned(self, states: int, shape: tuple[int, ...], body: Callable[..., Any], axis: Any) -> list[te.Tensor]:
        """`te.scan`, which asks by name how many states there are."""
        functions: dict[int, Callable[..., Any]] = {
            1: lambda a, *at: body(a, *at),
            2: lambda a, b, *at: body(a, b, *at),
            3: lambda a, b, c, *at: body(a, b, c, *at),
        }
        found = te.scan(shape, functions[states], axis=axis, reverse=self.reverse, dtype=self.dtype)
        return list(found) if isinstance(found, tuple) else [found]

    def states(self) -> list[te.Tensor]:
        return self.one(self.pick((2, 3)))

    def matrix(self) -> list[te.Tensor]:
        """A square state with sums over rows and columns of itself."""
        steps, n = self.steps(), min(24, self.size())
        x, a, w = self.source((steps, n, n)), self.source((n, n)), self.source((n, n))

        def body(s: Any, t: Any, i: Any, j: Any) -> Any:
            return self.element((s,), t, [i, j], x, a, [w, w], 0, steps, [n, n])

        return [te.scan((steps, n, n), body, axis=0, reverse=self.reverse, dtype=self.dtype)]

    def element(
        self, own: Sequence[Any], t: Any, places: list[Any], x: Any, start: Any, w: Sequence[Any], along: int,
        steps: int, extents: Sequence[int],
    ) -> Any:  # fmt: skip
        """An element of a state: terms that read earlier steps, chosen among under conditions."""

        def joined(step: Any, rest: Sequence[Any]) -> tuple[Any, ...]:
            return (*rest[:along], step, *rest[along:])

        def before(s: Any, at: Sequence[Any], back: int) -> Any:
            first = (t >= steps - back) if self.reverse else (t < back)
            read = s[joined(t + back if self.reverse else t - back, at)]
            beginning = start[tuple(at)] if self.chance(2) else 0.7
            if self.chance(2):
                return te.select(first, beginning, read)
            return te.select(~first, read, beginning)

        def moved(value: Callable[[Sequence[Any]], Any], at: Sequence[Any]) -> Any:
            """Something at other places, where these are there."""
            there = [self.place(t, a, [o for o in at if o is not a], n, steps) for a, n in zip(at, extents)]
            read = value([p for p, _ in there])
            for _, condition in there:
                read = read if condition is None else te.select(condition, read, 0.4)
            return read

        def here() -> Any:
            return x[joined(t, places)]

        def term() -> Any:
            s, back = self.pick(own), min(self.pick((1, 1, 1, 2, 3)), steps - 1)
            kind = self.pick(("own", "moved", "smooth", "fold", "fold", "history", "given", "chosen"))
            if kind == "own":
                return before(s, places, back)
            if kind == "moved":
                return moved(lambda at: before(s, at, back), places)
            if kind == "smooth":
                return self.smooth(moved(lambda at: before(s, at, back), places) + here())
            if kind == "given":
                return moved(lambda at: x[joined(t, at)], places)
            if kind == "chosen":
                return te.select(self.condition(t, places, here), moved(lambda at: before(s, at, back), places), 0.3)
            at = [self.place(t, a, (), n, steps) for a, n in zip(places, extents)]
            there = [a if condition is not None else p for (p, condition), a in zip(at, places)]
            if kind == "history" or not places:
                return self.fold(steps, lambda k: s[joined(k, there)] * x[joined(k, places)], self.earlier(t))
            d = self.draw(st.integers(0, len(places) - 1))
            where = self.ranged(t, places[d]) if self.chance(2) else None
            weight, use_state, use_x = self.pick(("", "row", "column")), not self.chance(4), self.chance(3)
            beginning = start if self.chance(2) else None

            def value(k: Any) -> Any:
                place = [k if e == d else p for e, p in enumerate(there)]
                first = (t >= steps - back) if self.reverse else (t < back)
                read = s[joined(t + back if self.reverse else t - back, place)]
                read = te.select(first, 0.7 if beginning is None else beginning[tuple(place)], read)
                read = read if use_state else x[joined(t, place)]
                if weight:
                    read = read * (w[d][k, places[d]] if weight == "column" else w[d][places[d], k])
                return read * x[joined(t, place)] if use_x else read

            folded = self.fold(extents[d], value, where)
            return te.select(self.condition(t, places, here), folded, 0.1) if self.chance(3) else folded

        total = 0.3 * here()
        for _ in range(self.pick((1, 2, 2, 3))):
            total = total + self.pick((0.4, -0.3, 0.2)) * term()
        if self.chance(3):
            total = te.select(self.condition(t, places, here), total, 0.2 * here() + 0.1 * term())
        return te.tanh(total) if self.large or self.chance(2) else te.clip(total, -4.0, 4.0)

    def walk(self) -> list[te.Tensor]:
        """A table filled along two axes or three."""
        count, apart = self.pick((2, 2, 3)), self.chance(3)
        extents = [max(3, (self.steps() if count == 2 else self.steps() // 3)) for _ in range(count)]
        extents += [self.size()] if apart else []
        order = self.draw(st.permutations(range(count)))
        x = self.source(extents)
        states = self.pick((1, 1, 2))

        def earlier() -> list[int]:
            """How far away something is along each axis: before this place in the order."""
            away = [0] * count
            lead = self.draw(st.integers(0, count - 1))
            away[order[lead]] = -self.pick((1, 1, 2))
            for d in order[lead + 1 :]:
                away[d] = self.pick((-1, 0, 0, 1))
            return away

        def near(s: Any, axes: Sequence[Any], otherwise: Any) -> Any:
            away = [-a if self.reverse else a for a in earlier()]
            there = [a + o for a, o in zip(axes, away)]
            inside: list[Any] = []
            for p, a, o, n in zip(there, axes, away, extents):
                inside += [a >= -o if self.chance(2) else p >= 0] if o < 0 else [a < n - o] if o > 0 else []
            read = s[(*there, *axes[count:])]
            if self.chance(2):
                for condition in inside:
                    read = te.select(condition, read, otherwise)
                return read
            every = inside[0]
            for condition in inside[1:]:
                every = every & condition
            return te.select(every, read, otherwise) if self.chance(2) else te.select(~every, otherwise, read)

        def body(*arguments: Any) -> Any:
            own, axes = arguments[:states], arguments[states:]
            made = []
            for _ in own:
                cost, fold = x[axes], self.pick(("min", "max", "soft", "sum"))
                reads = [near(self.pick(own), axes, self.pick((0.0, 3.0, 0.5))) for _ in range(self.pick((1, 2, 3)))]
                reads = [r + 0.1 * (k + 1) * cost for k, r in enumerate(reads)]
                value = reads[0]
                for r in reads[1:]:
                    value = {
                        "min": te.minimum, "max": te.maximum, "sum": lambda a, b: 0.5 * a + 0.4 * b,
                        "soft": lambda a, b: te.log(te.exp(a) + te.exp(b)) - 0.5,
                    }[fold](value, r)  # fmt: skip
                if self.chance(3):
                    value = te.select(self.condition(axes[0], axes[1:], lambda: x[axes]), value, cost)
                made.append(te.tanh(0.5 * value) + 0.2 * cost)
            return tuple(made) if states > 1 else made[0]

        return self.scanned(states, tuple(extents), body, list(order))

    def growing(self) -> list[te.Tensor]:
        """Reductions over ranges that grow with an axis, also of what is a recurrence itself."""
        rows, n, m = self.size(), self.steps(), self.steps()
        x, y = self.source((rows, n)), self.source((n, m))
        kinds = ("sum", "max", "min", "prod")
        compare = self.pick((lambda k, j: k <= j, lambda k, j: k < j, lambda k, j: k >= j, lambda k, j: k > j))
        away = self.pick((0, 0, 1, -1, 2))

        def ranged(kind: str, ends: int, terms: int, value: Callable[..., Any], name: str) -> te.Tensor:
            k = te.reduce_axis(terms, name="k")

            def element(i: Any, j: Any) -> Any:
                term = value(i, k)
                term = term / terms if kind == "sum" else 1.0 + 0.3 / terms * term if kind == "prod" else term
                if self.chance(2):
                    return te.clip(getattr(te, kind)(term, axis=k, where=compare(k, j + away)), -9.0, 9.0)
                nothing = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}[kind]
                return te.clip(getattr(te, kind)(te.select(compare(k, j + away), term, nothing), axis=k), -9.0, 9.0)

            return te.compute((rows, ends), element, name=name)

        first = ranged(self.pick(kinds), n, n, lambda i, k: x[i, k], "first")
        inner = te.reduce_axis(n, name="q")
        second = ranged(
            self.pick(kinds),
            self.pick((n, m)),
            m,
            lambda i, k: te.sum(x[i, inner] * y[inner, k], axis=inner) / n,
            "second",
        )
        if self.chance(2):
            third = ranged(self.pick(("sum", "max", "min")), n, n, lambda i, k: first[i, k] * x[i, k], "third")
            return [third, second]
        return [first, second]

    def apart(self, staged: bool = False) -> list[te.Tensor]:
        """States of their own shapes: a matrix, a vector and a number."""
        steps, n = self.steps(), self.size()
        m = n if self.chance(2) else self.size()
        x, y, w = self.source((steps, n)), self.source((steps, m)), self.source((n, m))
        u = self.source((n, n))
        reverse = self.reverse

        def step(s: Any, v: Any, c: Any, t: Any) -> Any:
            back = min(self.pick((1, 1, 2)), steps - 1)
            first = (t >= steps - back) if reverse else (t < back)
            there = t + back if reverse else t - back
            old_s = lambda i, j: te.select(first, w[i, j], s[there, i, j])  # noqa: E731
            old_v = lambda i: te.select(first, x[0, i], v[there, i])  # noqa: E731
            old_c = te.select(first, 0.5, c[there])
            row: Any = lambda i: self.fold(m, lambda k: old_s(i, k) * y[t, k], None)  # noqa: E731
            col: Any = lambda j: self.fold(n, lambda k: old_s(k, j) * old_v(k), None)  # noqa: E731
            norm: Any = 0.1 + self.fold(n, lambda k: old_v(k) * old_v(k), None)
            if staged:
                rows = te.compute((n,), row, name="rows")
                cols = te.compute((m,), col, name="cols")
                size = te.compute((), lambda: te.sqrt(1.0 + norm * norm), name="size")
                row, col, norm = (lambda i: rows[i]), (lambda j: cols[j]), size[()]
                if self.chance(2):
                    mixed = te.compute((n,), lambda i: te.sum(lambda k: u[i, k] * rows[k]) / n / size[()], name="mixed")
                    row = lambda i: mixed[i]  # noqa: E731
            form = self.pick(("decay", "outer", "chosen"))

            def matrix(i: Any, j: Any) -> Any:
                if form == "decay":
                    return te.tanh(0.6 * old_s(i, j) + 0.2 * col(j) * x[t, i])
                if form == "outer":
                    return te.tanh(0.5 * old_s(i, j) - 0.3 * row(i) * y[t, j] + 0.1 * old_c)
                return te.tanh(te.select(i <= t, old_s(i, j) * 0.7 + row(i) * 0.1, col(j)) - 0.1 * old_c)

            number = te.tanh(0.5 * old_c + 0.1 * self.fold(n, lambda k: old_v(k) * x[t, k], None))
            return matrix, lambda i: te.tanh(0.5 * old_v(i) + 0.2 * row(i) / (1.0 + norm * norm)), number

        return list(te.scan([(steps, n, m), (steps, n), (steps,)], step, reverse=reverse, dtype=self.dtype))

    def stages(self) -> list[te.Tensor]:
        return self.apart(staged=True)

    def integers(self) -> list[te.Tensor]:
        """States of integers, exact."""
        self.dtype = dtype = self.pick(("int32", "int64", "uint8", "int16"))
        steps, n = self.steps(), self.size()
        x = te.placeholder((steps, n), dtype, name="x0_100")
        self.inputs.append(x)
        walk, mod = self.chance(2), te.const(self.pick((97, 13)), dtype)

        def body(s: Any, t: Any, i: Any) -> Any:
            back = min(self.pick((1, 1, 2)), steps - 1)
            first = (t >= steps - back) if self.reverse else (t < back)
            there = t + back if self.reverse else t - back
            at, condition = self.place(t, i, (), n, steps)
            read = te.select(first, x[t, i], s[there, at if condition is None else i])
            value = self.pick((
                lambda: read * te.const(3, dtype) + x[t, i],
                lambda: te.maximum(read, x[t, i]) - te.minimum(read, mod),
                lambda: (read ^ x[t, i]) + (read >> 1),
                lambda: te.select(read % te.const(2, dtype) == 0, read // te.const(2, dtype), read + x[t, i]),
                lambda: te.max(lambda k: te.select(first, x[t, k], s[there, k])) - read,
                lambda: te.cast(te.argmax(lambda k: te.select(first, x[t, k], s[there, k]) * x[t, k]), dtype) + read,
            ))()  # fmt: skip
            if walk:
                side = i + 1 if self.reverse else i - 1
                ends = (i == n - 1) if self.reverse else (i == 0)
                value = value + te.select(ends, te.const(1, dtype), s[t, side])
            return value % mod

        made = te.scan((steps, n), body, axis=(0, 1) if walk else 0, reverse=self.reverse, dtype=dtype)
        return [made]

    # What is made of a recurrence.

    def followed(self, made: list[te.Tensor]) -> list[te.Tensor]:
        """The states, some of their steps, sums of them, or another recurrence over them."""
        found = []
        for y in made:
            shape = tuple(map(int, y.shape))
            kind = self.pick(("all", "all", "last", "total", "scanned", "squared"))
            if kind == "last" and shape:
                d = self.draw(st.integers(0, len(shape) - 1))
                fixed = self.pick((0, shape[d] - 1, shape[d] // 2))
                rest = shape[:d] + shape[d + 1 :]
                y = te.compute(rest, lambda *at, y=y, d=d, f=fixed: y[(*at[:d], f, *at[d:])] * 2.0, name="last")
            elif kind == "total":
                y = y.sum(axis=self.draw(st.integers(0, len(shape) - 1))) / prod(shape) ** 0.5
            elif kind == "scanned":
                d = self.draw(st.integers(0, len(shape) - 1))
                back = self.chance(2)

                def body(z: Any, *at: Any, y: Any = y, d: int = d, back: bool = back, n: int = shape[d]) -> Any:
                    there = [a + (1 if back else -1) if e == d else a for e, a in enumerate(at)]
                    ends = at[d] == (n - 1 if back else 0)
                    return te.select(ends, y[at], 0.6 * z[tuple(there)] + y[at])

                y = te.scan(shape, body, axis=d, reverse=back, dtype=self.dtype, name="again")
            elif kind == "squared":
                y = te.compute(shape, lambda *at, y=y: y[at] * y[at] + 0.1 * y[at], name="squared")
            found.append(y)
        return found[: self.draw(st.integers(1, len(found)))] if self.chance(2) else found
