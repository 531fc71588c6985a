"""Programs of NPBench: in the language, and as functions of arrays for NumPy and JAX alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tedsl as te

__all__ = ["PROGRAMS", "Program"]

Array = Any


@dataclass(frozen=True)
class Program:
    """`ours` makes the result of tensors, `peer` of a module (NumPy or jax.numpy) and its arrays."""

    name: str
    data: Callable[..., Sequence[Array]]
    ours: Callable[..., Any]
    peer: Callable[..., Array]
    sizes: tuple[int, ...]
    small: tuple[int, ...]
    differentiable: bool = True


def _loop(xp: Any, steps: int, step: Callable[[Any, Any], Any], state: Any) -> Any:
    """The state after so many steps: a loop of Python, or one that JAX compiles and turns round."""
    if xp is np:
        for t in range(steps):
            state = step(t, state)
        return state
    import jax

    return jax.lax.fori_loop(0, steps, step, state)


def _at(t: Any, at: Sequence[Any]) -> tuple[Any, ...]:
    return t, *at


def _put(xp: Any, a: Array, at: Any, value: Array) -> Array:
    """The array with other numbers at a place; NumPy's own array is changed."""
    if xp is np:
        a[at] = value
        return a
    return a.at[at].set(value)


def _own(xp: Any, a: Array) -> Array:
    return a.copy() if xp is np else a


def _numbers(*shapes: tuple[int, ...]) -> list[Array]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal(shape) for shape in shapes]


def _definite(n: int) -> Array:
    (a,) = _numbers((n, n))
    return a @ a.T / n + 2 * np.eye(n)


def _last(begin: te.Tensor, step: Callable[..., Any], steps: int) -> Any:
    """The state after some steps; `step(s, t, *at)` reads what was before as `s[t - 1, ...]`."""
    made = te.scan(
        (steps + 1, *begin.shape), lambda s, t, *at: te.select(t == 0, begin[at], step(s, t, *at)), axis=0, name="state"
    )
    return te.compute(begin.shape, lambda *at: made[_at(steps, at)], name="last")


# Products with triangles


def _trmm(a: te.Tensor, b: te.Tensor) -> Any:
    return te.compute(
        b.shape, lambda i, j: 1.5 * (b[i, j] + te.sum(lambda k: a[k, i] * b[k, j], where=lambda k: k > i)), name="trmm"
    )


def _trmm_peer(xp: Any, a: Array, b: Array) -> Array:
    return 1.5 * (b + xp.tril(a, -1).T @ b)


def _symm(a: te.Tensor, b: te.Tensor, c: te.Tensor) -> Any:
    return te.compute(
        c.shape,
        lambda i, j: 1.2 * c[i, j] + 1.5 * te.sum(lambda k: te.select(k <= i, a[i, k], a[k, i]) * b[k, j]),
        name="symm",
    )


def _symm_peer(xp: Any, a: Array, b: Array, c: Array) -> Array:
    return 1.2 * c + 1.5 * (xp.tril(a) + xp.tril(a, -1).T) @ b


def _syrk(a: te.Tensor, c: te.Tensor) -> Any:
    return te.compute(
        c.shape,
        lambda i, j: te.select(j <= i, 1.2 * c[i, j] + 1.5 * te.sum(lambda k: a[i, k] * a[j, k]), c[i, j]),
        name="syrk",
    )


def _syrk_peer(xp: Any, a: Array, c: Array) -> Array:
    return xp.where(xp.tril(xp.ones_like(c)) > 0, 1.2 * c + 1.5 * a @ a.T, c)


def _syr2k(a: te.Tensor, b: te.Tensor, c: te.Tensor) -> Any:
    def element(i: Any, j: Any) -> Any:
        both = te.sum(lambda k: a[j, k] * b[i, k] + b[j, k] * a[i, k])
        return te.select(j <= i, 1.2 * c[i, j] + 1.5 * both, c[i, j])

    return te.compute(c.shape, element, name="syr2k")


def _syr2k_peer(xp: Any, a: Array, b: Array, c: Array) -> Array:
    return xp.where(xp.tril(xp.ones_like(c)) > 0, 1.2 * c + 1.5 * (b @ a.T + a @ b.T), c)


def _moments(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    n, m = x.shape
    mean = te.compute((m,), lambda j: te.sum(lambda k: x[k, j]) / n, name="mean")
    square = te.compute((m,), lambda j: te.sum(lambda k: (x[k, j] - mean[j]) * (x[k, j] - mean[j])) / n, name="square")
    return mean, square


def _correlation(x: te.Tensor) -> Any:
    n, m = x.shape
    mean, square = _moments(x)
    root = te.compute((m,), lambda j: te.select(square[j] <= 0.01, 1.0, te.sqrt(square[j])), name="root")
    y = te.compute((n, m), lambda k, j: (x[k, j] - mean[j]) / (float(n) ** 0.5 * root[j]), name="scaled")
    return te.compute(
        (m, m), lambda i, j: te.select(i == j, 1.0, te.sum(lambda k: y[k, i] * y[k, j])), name="correlation"
    )


def _correlation_peer(xp: Any, x: Array) -> Array:
    n, m = x.shape
    mean = x.mean(0)
    square = ((x - mean) ** 2).mean(0)
    root = xp.where(square <= 0.01, 1.0, xp.sqrt(square))
    y = (x - mean) / (float(n) ** 0.5 * root)
    return xp.where(xp.eye(m) > 0, 1.0, y.T @ y)


def _covariance(x: te.Tensor) -> Any:
    n, m = x.shape
    mean = te.compute((m,), lambda j: te.sum(lambda k: x[k, j]) / n, name="mean")
    return te.compute(
        (m, m), lambda i, j: te.sum(lambda k: (x[k, i] - mean[i]) * (x[k, j] - mean[j])) / (n - 1.0), name="covariance"
    )


def _covariance_peer(xp: Any, x: Array) -> Array:
    y = x - x.mean(0)
    return y.T @ y / (x.shape[0] - 1.0)


# Eliminations


def _lu(a: te.Tensor) -> Any:
    """Each element of the factors from those above it and to its left."""

    def element(s: Any, i: Any, j: Any) -> Any:
        rest = a[i, j] - te.sum(lambda k: s[i, k] * s[k, j], where=lambda k: (k < i) & (k < j))
        return te.select(j < i, rest / s[j, j], rest)

    return te.scan(a.shape, element, axis=(0, 1), name="lu")


def _lu_steps(a: te.Tensor) -> Any:
    def step(s: Any, t: Any, i: Any, j: Any) -> Any:
        k = t - 1
        old = s[t - 1, i, j]
        factor = s[t - 1, i, k] / s[t - 1, k, k]
        return te.select(i > k, te.select(j > k, old - factor * s[t - 1, k, j], te.select(j == k, factor, old)), old)

    return _last(a, step, a.shape[0] - 1)


def _lu_peer(xp: Any, a: Array) -> Array:
    n = a.shape[0]
    at = xp.arange(n)

    def step(k: Any, s: Array) -> Array:
        column = xp.where(at > k, s[:, k] / s[k, k], 0.0)
        s = s - column[:, None] * xp.where(at > k, s[k], 0.0)
        return _put(xp, s, (slice(None), k), xp.where(at > k, column, s[:, k]))

    return _loop(xp, n - 1, step, _own(xp, a))


def _ludcmp(a: te.Tensor, b: te.Tensor) -> Any:
    n = a.shape[0]
    s = _lu(a)
    y = te.scan(
        (n,), lambda y, i: b[i] - te.sum(lambda k: s[i, k] * y[k], where=lambda k: k < i), axis=0, name="forward"
    )
    return te.scan(
        (n,), lambda x, i: (y[i] - te.sum(lambda k: s[i, k] * x[k], where=lambda k: k > i)) / s[i, i],
        axis=0, reverse=True, name="backward",
    )  # fmt: skip


def _ludcmp_peer(xp: Any, a: Array, b: Array) -> Array:
    n = a.shape[0]
    s = _lu_peer(xp, a)
    low, up = xp.tril(s, -1), xp.triu(s, 1)
    y = _loop(xp, n, lambda i, y: _put(xp, y, i, b[i] - low[i] @ y), xp.zeros_like(b))
    return _loop(
        xp, n, lambda i, x: _put(xp, x, n - 1 - i, (y[n - 1 - i] - up[n - 1 - i] @ x) / s[n - 1 - i, n - 1 - i]),
        xp.zeros_like(b),
    )  # fmt: skip


def _cholesky(a: te.Tensor) -> Any:
    def element(s: Any, i: Any, j: Any) -> Any:
        rest = a[i, j] - te.sum(lambda k: s[i, k] * s[j, k], where=lambda k: (k < j) & (j <= i))
        return te.select(j < i, rest / s[j, j], te.select(j == i, te.sqrt(rest), 0.0))

    return te.scan(a.shape, element, axis=(0, 1), name="cholesky")


def _cholesky_steps(a: te.Tensor) -> Any:
    """Outer products taken from what is left, a column after another."""
    n = a.shape[0]

    def step(s: Any, t: Any, i: Any, j: Any) -> Any:
        k = t - 1
        old = s[t - 1, i, j]
        taken = old - s[t - 1, i, k] * s[t - 1, j, k] / s[t - 1, k, k]
        return te.select(j > k, taken, te.select(j == k, s[t - 1, i, k] / te.sqrt(s[t - 1, k, k]), old))

    whole = _last(a, step, n)
    return te.compute(a.shape, lambda i, j: te.select(j <= i, whole[i, j], 0.0), name="lower")


def _cholesky_peer(xp: Any, a: Array) -> Array:
    n = a.shape[0]
    at = xp.arange(n)

    def step(k: Any, s: Array) -> Array:
        column = xp.where(at >= k, s[:, k] / xp.sqrt(s[k, k]), 0.0)
        later = xp.where(at > k, column, 0.0)
        s = s - later[:, None] * later
        return _put(xp, s, (slice(None), k), column)

    return xp.tril(_loop(xp, n, step, a))


def _durbin(r: te.Tensor) -> Any:
    n = r.shape[0]

    def step(y: Any, alpha: Any, beta: Any, k: Any) -> Any:
        b = te.select(k == 0, 1.0, (1 - alpha[k - 1] * alpha[k - 1]) * beta[k - 1])
        total = te.compute((), lambda: te.sum(lambda m: r[k - 1 - m] * y[k - 1, m], axis=None, where=lambda m: m < k))
        a = te.compute((), lambda: te.select(k == 0, -r[0], -(r[k] + total[()]) / b), name="a")
        return (
            lambda i: te.select(i < k, y[k - 1, i] + a[()] * y[k - 1, k - 1 - i], te.select(i == k, a[()], 0.0)), a, b
        )  # fmt: skip

    y, _, _ = te.scan([(n, n), (n,), (n,)], step, axis=0, keep=1)
    return te.compute((n,), lambda i: y[0, i], name="durbin")


def _durbin_peer(xp: Any, r: Array) -> Array:
    n = r.shape[0]
    at = xp.arange(n)

    def step(k: Any, state: Any) -> Any:
        y, alpha, beta = state
        beta = (1 - alpha * alpha) * beta
        turned = xp.where(at < k, r[xp.maximum(k - 1 - at, 0)], 0.0)
        alpha = -(r[k] + turned @ y) / beta
        y = y + alpha * xp.where(at < k, y[xp.maximum(k - 1 - at, 0)], 0.0)
        return _put(xp, y, k, alpha), alpha, beta

    first = _put(xp, xp.zeros_like(r), 0, -r[0])
    return _loop(xp, n - 1, lambda k, state: step(k + 1, state), (first, -r[0], 1.0 + 0 * r[0]))[0]


def _gramschmidt(a: te.Tensor) -> Any:
    m, n = a.shape

    def step(w: Any, q: Any, k: Any) -> Any:
        def before(i: Any, j: Any) -> Any:
            return te.select(k == 0, a[i, j], w[k - 1, i, j])

        norm = te.compute((), lambda: te.sqrt(te.sum(lambda i: before(i, k) * before(i, k))), name="norm")
        unit = te.compute((m,), lambda i: before(i, k) / norm[()], name="unit")
        r = te.compute((n,), lambda j: te.sum(lambda i: unit[i] * before(i, j)), name="r")
        return lambda i, j: before(i, j) - te.select(j > k, unit[i] * r[j], 0.0), unit

    _, q = te.scan([(n, m, n), (n, m)], step, axis=0)
    return te.compute((m, n), lambda i, k: q[k, i], name="q")


def _gramschmidt_peer(xp: Any, a: Array) -> Array:
    m, n = a.shape
    at = xp.arange(n)

    def step(k: Any, state: Any) -> Any:
        w, q = state
        unit = w[:, k] / xp.sqrt(w[:, k] @ w[:, k])
        r = unit @ w
        return w - unit[:, None] * xp.where(at > k, r, 0.0), _put(xp, q, (slice(None), k), unit)

    return _loop(xp, n, step, (_own(xp, a), xp.zeros_like(a)))[1]


# Stencils through time


def _jacobi(a: te.Tensor, steps: int) -> Any:
    shape = a.shape

    def step(s: Any, t: Any, *at: Any) -> Any:
        inside = _inside(at, shape)
        around = [_moved(at, d, by) for d in range(len(at)) for by in (-1, 1)]
        total = sum((s[_at(t - 1, p)] for p in around), s[_at(t - 1, at)])
        return te.select(inside, total * (1.0 / (1 + 2 * len(at))), s[_at(t - 1, at)])

    return _last(a, step, steps)


def _inside(at: Sequence[Any], shape: Sequence[int]) -> Any:
    found = None
    for i, n in zip(at, shape, strict=True):
        own = (i >= 1) & (i < n - 1)
        found = own if found is None else found & own
    return found


def _moved(at: Sequence[Any], d: int, by: int) -> tuple[Any, ...]:
    return tuple(i + by if k == d else i for k, i in enumerate(at))


def _cut(a: Array, moves: Sequence[int]) -> Array:
    return a[tuple(slice(1 + m, n - 1 + m) for m, n in zip(moves, a.shape, strict=True))]


def _jacobi_peer(xp: Any, a: Array, steps: int) -> Array:
    rank = a.ndim
    moves = [tuple(by * (k == d) for k in range(rank)) for d in range(rank) for by in (-1, 1)]
    inner = (slice(1, -1),) * rank

    def step(_: Any, s: Array) -> Array:
        total = sum((_cut(s, m) for m in moves), s[inner])
        return _put(xp, s, inner, total * (1.0 / (1 + 2 * rank)))

    return _loop(xp, steps, step, _own(xp, a))


def _stencil(name: str, rank: int, sizes: tuple[int, ...], small: tuple[int, ...]) -> Program:
    """The number of steps is an argument of the data, and reaches the program as the length of an array."""

    def data(steps: int, n: int) -> list[Array]:
        return [*_numbers((n,) * rank), np.zeros(steps)]

    return Program(
        name, data, lambda a, t: _jacobi(a, t.shape[0]), lambda xp, a, t: _jacobi_peer(xp, a, t.shape[0]), sizes, small
    )


def _heat(a: te.Tensor, steps: te.Tensor) -> Any:
    def step(s: Any, t: Any, *at: Any) -> Any:
        now = s[_at(t - 1, at)]
        second = [s[_at(t - 1, _moved(at, d, 1))] - 2.0 * now + s[_at(t - 1, _moved(at, d, -1))] for d in range(3)]
        return te.select(_inside(at, a.shape), 0.125 * second[0] + 0.125 * second[1] + 0.125 * second[2] + now, now)

    return _last(a, step, steps.shape[0])


def _heat_peer(xp: Any, a: Array, steps: Array) -> Array:
    inner = (slice(1, -1),) * 3

    def second(s: Array, d: int) -> Array:
        move = tuple(int(k == d) for k in range(3))
        return 0.125 * (_cut(s, move) - 2.0 * s[inner] + _cut(s, tuple(-m for m in move)))

    def step(_: Any, s: Array) -> Array:
        return _put(xp, s, inner, second(s, 0) + second(s, 1) + second(s, 2) + s[inner])

    return _loop(xp, steps.shape[0], step, _own(xp, a))


def _fdtd(ex: te.Tensor, ey: te.Tensor, hz: te.Tensor, source: te.Tensor) -> Any:
    n, m = hz.shape

    def step(x: Any, y: Any, h: Any, t: Any) -> Any:
        def of(state: Any, begin: te.Tensor, i: Any, j: Any) -> Any:
            return te.select(t == 0, begin[i, j], state[t - 1, i, j])

        new_y = te.compute(
            (n, m),
            lambda i, j: te.select(
                i == 0, source[t], of(y, ey, i, j) - 0.5 * (of(h, hz, i, j) - of(h, hz, te.maximum(i - 1, 0), j))
            ),
            name="new_y",
        )
        new_x = te.compute(
            (n, m),
            lambda i, j: te.select(
                j == 0, of(x, ex, i, j), of(x, ex, i, j) - 0.5 * (of(h, hz, i, j) - of(h, hz, i, te.maximum(j - 1, 0)))
            ),
            name="new_x",
        )

        def new_h(i: Any, j: Any) -> Any:
            turned = new_x[i, te.minimum(j + 1, m - 1)] - new_x[i, j] + new_y[te.minimum(i + 1, n - 1), j] - new_y[i, j]
            return te.select((i < n - 1) & (j < m - 1), of(h, hz, i, j) - 0.7 * turned, of(h, hz, i, j))

        return new_x, new_y, new_h

    _, _, h = te.scan([(source.shape[0], n, m)] * 3, step, axis=0, keep=1)
    return te.compute((n, m), lambda i, j: h[0, i, j], name="field")


def _fdtd_peer(xp: Any, ex: Array, ey: Array, hz: Array, source: Array) -> Array:
    def step(t: Any, state: Any) -> Any:
        x, y, h = state
        y = _put(xp, y, (0, slice(None)), source[t])
        y = _put(xp, y, (slice(1, None), slice(None)), y[1:] - 0.5 * (h[1:] - h[:-1]))
        x = _put(xp, x, (slice(None), slice(1, None)), x[:, 1:] - 0.5 * (h[:, 1:] - h[:, :-1]))
        turned = x[:-1, 1:] - x[:-1, :-1] + y[1:, :-1] - y[:-1, :-1]
        return x, y, _put(xp, h, (slice(None, -1), slice(None, -1)), h[:-1, :-1] - 0.7 * turned)

    return _loop(xp, source.shape[0], step, (_own(xp, ex), _own(xp, ey), _own(xp, hz)))[2]


def _seidel(a: te.Tensor, steps: te.Tensor) -> Any:
    n = a.shape[0]

    def element(s: Any, t: Any, i: Any, j: Any) -> Any:
        def before(p: Any, q: Any) -> Any:
            return te.select(t == 0, a[p, q], s[t - 1, p, q])

        total = (
            s[t, i - 1, j - 1] + s[t, i - 1, j] + s[t, i - 1, j + 1] + s[t, i, j - 1] + before(i, j)
            + before(i, j + 1) + before(i + 1, j - 1) + before(i + 1, j) + before(i + 1, j + 1)
        )  # fmt: skip
        return te.select(_inside((i, j), a.shape), total / 9.0, before(i, j))

    made = te.scan((steps.shape[0], n, n), element, axis=(0, 1, 2))
    return te.compute((n, n), lambda i, j: made[steps.shape[0] - 1, i, j], name="seidel")


def _seidel_peer(xp: Any, a: Array, steps: Array) -> Array:
    n = a.shape[0]

    def row(i: Any, s: Array) -> Array:
        known = s[i, 1:-1] + s[i, 2:] + s[i - 1, :-2] + s[i - 1, 1:-1] + s[i - 1, 2:]
        known = known + s[i + 1, :-2] + s[i + 1, 1:-1] + s[i + 1, 2:]
        if xp is np:
            for j in range(1, n - 1):
                s[i, j] = (known[j - 1] + s[i, j - 1]) / 9.0
            return s
        import jax

        made = jax.lax.scan(lambda left, k: ((k + left) / 9.0,) * 2, s[i, 0], known)[1]
        return s.at[i, 1:-1].set(made)

    def step(_: Any, s: Array) -> Array:
        return _loop(xp, n - 2, lambda i, s: row(i + 1, s), s)

    return _loop(xp, steps.shape[0], step, _own(xp, a))


# Others


def _floyd(a: te.Tensor) -> Any:
    def step(s: Any, t: Any, i: Any, j: Any) -> Any:
        return te.minimum(s[t - 1, i, j], s[t - 1, i, t - 1] + s[t - 1, t - 1, j])

    return _last(a, step, a.shape[0])


def _floyd_peer(xp: Any, a: Array) -> Array:
    return _loop(xp, a.shape[0], lambda k, s: xp.minimum(s, s[:, k, None] + s[k]), a)


def _nbody(place: te.Tensor, speed: te.Tensor, mass: te.Tensor, steps: te.Tensor) -> Any:
    n = place.shape[0]

    def pull(p: Callable[[Any, Any], Any]) -> Any:
        def near(i: Any, j: Any) -> Any:
            squares = [(p(j, d) - p(i, d)) * (p(j, d) - p(i, d)) for d in range(3)]
            return te.pow(squares[0] + squares[1] + squares[2] + 0.01, -1.5)

        inverse = te.compute((n, n), near, name="inverse")
        return te.compute(
            (n, 3), lambda i, d: te.sum(lambda j: (p(j, d) - p(i, d)) * inverse[i, j] * mass[j]), name="a"
        )

    first = pull(lambda i, d: place[i, d])

    def step(x: Any, v: Any, a: Any, t: Any) -> Any:
        def of(state: Any, begin: te.Tensor) -> Any:
            return lambda i, d: te.select(t == 0, begin[i, d], state[t - 1, i, d])

        old, fast, force = of(x, place), of(v, speed), of(a, first)
        half = te.compute((n, 3), lambda i, d: fast(i, d) + 0.005 * force(i, d), name="half")
        new = te.compute((n, 3), lambda i, d: old(i, d) + 0.01 * half[i, d], name="new")
        later = pull(lambda i, d: new[i, d])
        return new, lambda i, d: half[i, d] + 0.005 * later[i, d], later

    _, v, _ = te.scan([(steps.shape[0], n, 3)] * 3, step, axis=0, keep=1)
    return te.compute((n, 3), lambda i, d: v[0, i, d], name="speed")


def _nbody_peer(xp: Any, place: Array, speed: Array, mass: Array, steps: Array) -> Array:
    def pull(p: Array) -> Array:
        away = p[None] - p[:, None]
        inverse = ((away**2).sum(2) + 0.01) ** -1.5
        return (away * (inverse * mass)[:, :, None]).sum(1)

    def step(_: Any, state: Any) -> Any:
        x, v, a = state
        v = v + 0.005 * a
        x = x + 0.01 * v
        a = pull(x)
        return x, v + 0.005 * a, a

    return _loop(xp, steps.shape[0], step, (place, speed, pull(place)))[1]


_EDGE = np.exp(-0.25)
_GAIN = (1 - _EDGE) ** 2 / (1 + 0.5 * _EDGE - np.exp(-0.5))
_ON = [float(v) for v in (_GAIN, _GAIN * _EDGE * (0.25 - 1), _GAIN * _EDGE * (0.25 + 1), -_GAIN * np.exp(-0.5))]
_BACK = [float(2.0**-0.25), float(-np.exp(-0.5))]


def _deriche(x: te.Tensor) -> Any:
    h, w = x.shape

    def along(a: te.Tensor, axis: int) -> Any:
        def at(t: Any, other: Any) -> Any:
            return (other, t) if axis else (t, other)

        n = (h, w)[axis]

        def ahead(y: Any, p: Any, q: Any) -> Any:
            t, o = (q, p) if axis else (p, q)
            known = _ON[0] * a[at(t, o)] + te.select(t > 0, _ON[1] * a[at(t - 1, o)], 0.0)
            known = known + te.select(t > 0, _BACK[0] * y[at(t - 1, o)], 0.0)
            return known + te.select(t > 1, _BACK[1] * y[at(t - 2, o)], 0.0)

        def back(y: Any, p: Any, q: Any) -> Any:
            t, o = (q, p) if axis else (p, q)
            known = te.select(t < n - 1, _ON[2] * a[at(t + 1, o)] + _BACK[0] * y[at(t + 1, o)], 0.0)
            return known + te.select(t < n - 2, _ON[3] * a[at(t + 2, o)] + _BACK[1] * y[at(t + 2, o)], 0.0)

        one = te.scan((h, w), ahead, axis=axis)
        two = te.scan((h, w), back, axis=axis, reverse=True)
        return te.compute((h, w), lambda i, j: one[i, j] + two[i, j])

    return along(along(x, 1), 0)


def _deriche_peer(xp: Any, x: Array) -> Array:
    def along(a: Array) -> Array:
        zero = a[0] * 0

        def filtered(rows: Array, c0: float, c1: float) -> Array:
            def step(carry: Any, known: Array) -> Any:
                now = known + _BACK[0] * carry[0] + _BACK[1] * carry[1]
                return (now, carry[0]), now

            known = c0 * rows[0] + c1 * rows[1]
            if xp is np:
                carry, made = (zero, zero), []
                for row in known:
                    carry, now = step(carry, row)
                    made.append(now)
                return np.stack(made)
            import jax

            return jax.lax.scan(step, (zero, zero), known)[1]

        empty = zero[None]
        one = filtered((a, xp.concatenate([empty, a[:-1]])), _ON[0], _ON[1])
        turned = xp.concatenate([empty, empty, a[::-1]])
        return one + filtered((turned[1:-1], turned[:-2]), _ON[2], _ON[3])[::-1]

    return along(along(x.T).T)


def _mandelbrot(x: te.Tensor, y: te.Tensor, steps: te.Tensor) -> Any:
    shape = (y.shape[0], x.shape[0])

    def step(re: Any, im: Any, count: Any, t: Any, i: Any, j: Any) -> Any:
        a, b = (te.select(t == 0, 0.0, s[t - 1, i, j]) for s in (re, im))
        n = te.select(t == 0, 0.0, count[t - 1, i, j])
        inside = a * a + b * b < 4.0
        return (
            te.select(inside, a * a - b * b + x[j], a), te.select(inside, 2.0 * a * b + y[i], b),
            te.select(inside, n + 1.0, n),
        )  # fmt: skip

    _, _, count = te.scan((steps.shape[0], *shape), step, axis=0, dtype="float64", keep=1)
    return te.compute(shape, lambda i, j: count[0, i, j], name="count")


def _mandelbrot_peer(xp: Any, x: Array, y: Array, steps: Array) -> Array:
    zero = xp.zeros((y.shape[0], x.shape[0]))

    def step(_: Any, state: Any) -> Any:
        a, b, n = state
        inside = a * a + b * b < 4.0
        return (
            xp.where(inside, a * a - b * b + x, a), xp.where(inside, 2.0 * a * b + y[:, None], b),
            xp.where(inside, n + 1.0, n),
        )  # fmt: skip

    return _loop(xp, steps.shape[0], step, (zero, zero, zero))[2]


def _stockham(re: te.Tensor, im: te.Tensor) -> Any:
    n = re.shape[0]
    half, length = n // 2, 1
    while length < n:
        angle = -np.pi * np.arange(length) / length
        turn = te.constant(np.cos(angle)), te.constant(np.sin(angle))

        def stage(p: Any, q: Any, x: Any = (re, im), turn: Any = turn, length: int = length) -> Any:
            # element q of block p of the next stage, from block p of both halves
            k = q % length
            a, b = (z[p * length + k] for z in x)
            c, d = (z[half + p * length + k] for z in x)
            u, v = c * turn[0][k] - d * turn[1][k], c * turn[1][k] + d * turn[0][k]
            return te.select(q < length, a + u, a - u), te.select(q < length, b + v, b - v)

        twice = 2 * length
        re, im = te.compute((n,), lambda i, stage=stage, twice=twice: stage(i // twice, i % twice))
        length = twice
    return te.compute((2, n), lambda s, i: te.select(s == 0, re[i], im[i]), name="fft")


def _stockham_peer(xp: Any, re: Array, im: Array) -> Array:
    found = xp.fft.fft(re + 1j * im)
    return xp.stack([found.real, found.imag])


def _trisolv(low: te.Tensor, b: te.Tensor) -> Any:
    return te.scan(
        b.shape, lambda x, i: (b[i] - te.sum(lambda k: low[i, k] * x[k], where=lambda k: k < i)) / low[i, i], axis=0
    )


def _trisolv_peer(xp: Any, low: Array, b: Array) -> Array:
    if xp is np:
        x = np.zeros_like(b)
        for i in range(len(b)):
            x[i] = (b[i] - low[i, :i] @ x[:i]) / low[i, i]
        return x
    import jax.scipy.linalg

    return jax.scipy.linalg.solve_triangular(low, b, lower=True)


_A, _B, _D, _F = -0.4, 1.8, -0.3, 1.6


def _row(field: te.Tensor, other: float, i: Any, j: Any) -> Any:
    return -other * field[i - 1, j] + (1 + 2 * other) * field[i, j] - other * field[i + 1, j]


def _adi(u: te.Tensor, steps: te.Tensor) -> Any:
    n = u.shape[0]

    def half(field: te.Tensor, side: float, middle: float, other: float) -> Any:
        """A tridiagonal system along each column of the field's transpose."""
        p, q = te.scan(
            (n, n),
            lambda p, q, j, i: (
                te.select(j == 0, 0.0, -side / (side * p[j - 1, i] + middle)),
                te.select(
                    (j == 0) | (i == 0) | (i == n - 1), 1.0,
                    (_row(field, other, i, j) - side * q[j - 1, i]) / (side * p[j - 1, i] + middle),
                ),
            ),
            axis=0, dtype="float64",
        )  # fmt: skip
        return te.scan(
            (n, n),
            lambda v, j, i: te.select(
                (j == 0) | (j == n - 1) | (i == 0) | (i == n - 1), 1.0, p[j, i] * v[j + 1, i] + q[j, i]
            ),
            axis=0, reverse=True, dtype="float64",
        )  # fmt: skip

    for _ in range(steps.shape[0]):
        v = half(u, _A, _B, _D)
        u = half(v, _D, _F, _A)
    return u


def _adi_peer(xp: Any, u: Array, steps: Array) -> Array:
    n = u.shape[0]
    ones = xp.ones((1, n - 2))

    def half(field: Array, side: float, middle: float, other: float) -> Array:
        known = (-other * field[:-2] + (1 + 2 * other) * field[1:-1] - other * field[2:])[:, 1:-1].T

        def ahead(carry: Any, row: Array) -> Any:
            p, q = carry
            under = side * p + middle
            return (-side / under, (row - side * q) / under), (p, q)

        def back(v: Array, row: Any) -> Any:
            v = row[0] * v + row[1]
            return v, v

        start = xp.zeros(n - 2), xp.ones(n - 2)
        if xp is np:
            carry, kept = start, []
            for row in known:
                carry, _ = ahead(carry, row)
                kept.append(carry)
            v, made = np.ones(n - 2), []
            for pair in kept[::-1]:
                v, _ = back(v, pair)
                made.append(v)
            inner = np.stack(made[::-1])
        else:
            import jax

            last, before = jax.lax.scan(ahead, start, known)
            pairs = tuple(xp.concatenate([b[1:], z[None]]) for b, z in zip(before, last, strict=True))
            inner = jax.lax.scan(back, xp.ones(n - 2), pairs, reverse=True)[1]
        inner = xp.concatenate([ones, inner, ones])
        return xp.pad(inner, ((0, 0), (1, 1)), constant_values=1.0)

    return _loop(xp, steps.shape[0], lambda _, u: half(half(u, _A, _B, _D), _D, _F, _A), u)


def _square(n: int) -> list[Array]:
    return [_definite(n)]


PROGRAMS = (
    Program("trmm", lambda m, n: _numbers((m, m), (m, n)), _trmm, _trmm_peer, (200, 250), (7, 5)),
    Program("symm", lambda m, n: _numbers((m, m), (m, n), (m, n)), _symm, _symm_peer, (120, 150), (7, 5)),
    Program("syrk", lambda m, n: _numbers((n, m), (n, n)), _syrk, _syrk_peer, (150, 200), (5, 7)),
    Program("syr2k", lambda m, n: _numbers((n, m), (n, m), (n, n)), _syr2k, _syr2k_peer, (110, 140), (5, 7)),
    Program("correlation", lambda m, n: _numbers((n, m)), _correlation, _correlation_peer, (500, 600), (6, 9)),
    Program("covariance", lambda m, n: _numbers((n, m)), _covariance, _covariance_peer, (500, 600), (6, 9)),
    Program("lu", _square, _lu, _lu_peer, (120,), (9,)),
    Program("lu_steps", _square, _lu_steps, _lu_peer, (60,), (9,)),
    Program("ludcmp", lambda n: [_definite(n), *_numbers((n,))], _ludcmp, _ludcmp_peer, (120,), (9,)),
    Program("cholesky", _square, _cholesky, _cholesky_peer, (150,), (9,)),
    Program("cholesky2", _square, _cholesky_steps, _cholesky_peer, (100,), (9,)),
    Program("durbin", lambda n: [_numbers((n,))[0] / n], _durbin, _durbin_peer, (1000,), (9,)),
    Program("gramschmidt", lambda m, n: _numbers((m, n)), _gramschmidt, _gramschmidt_peer, (110, 90), (9, 6)),
    _stencil("jacobi_1d", 1, (800, 3200), (5, 12)),
    _stencil("jacobi_2d", 2, (50, 150), (5, 9)),
    Program("heat_3d", lambda t, n: [*_numbers((n, n, n)), np.zeros(t)], _heat, _heat_peer, (25, 25), (4, 6)),
    Program(
        "fdtd_2d", lambda t, n, m: [*_numbers((n, m), (n, m), (n, m)), np.arange(t) * 0.1],
        _fdtd, _fdtd_peer, (20, 200, 220), (4, 6, 7),
    ),
    Program("seidel_2d", lambda t, n: [*_numbers((n, n)), np.zeros(t)], _seidel, _seidel_peer, (8, 50), (3, 6)),
    Program("floyd_warshall", lambda n: [np.abs(_numbers((n, n))[0])], _floyd, _floyd_peer, (200,), (8,)),
    Program(
        "nbody", lambda t, n: [*_numbers((n, 3), (n, 3)), np.full(n, 20 / n), np.zeros(t)],
        _nbody, _nbody_peer, (40, 25), (3, 5),
    ),
    Program("deriche", lambda w, h: _numbers((h, w)), _deriche, _deriche_peer, (400, 200), (9, 7)),
    Program(
        "mandelbrot", lambda t, n: [np.linspace(-2.25, 0.75, n), np.linspace(-1.25, 1.25, n), np.zeros(t)],
        _mandelbrot, _mandelbrot_peer, (60, 125), (8, 9), differentiable=False,
    ),
    Program("stockham_fft", lambda k: _numbers((2**k,), (2**k,)), _stockham, _stockham_peer, (15,), (4,)),
    Program("trisolv", lambda n: [np.tril(_definite(n)), *_numbers((n,))], _trisolv, _trisolv_peer, (1000,), (9,)),
    Program("adi", lambda t, n: [*_numbers((n, n)), np.zeros(t)], _adi, _adi_peer, (3, 100), (2, 7)),
)  # fmt: skip
