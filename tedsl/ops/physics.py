"""Steps of simulations on grids and of particles: pure functions of a state, so that a whole run has a gradient."""

from __future__ import annotations

from typing import Any

from tedsl.lang.borders import border_of
from tedsl.ops import language as te
from tedsl.ops.arguments import check_extent, check_float, check_rank, check_same_shape, loops, refuse
from tedsl.ops.op import op

__all__ = ["heat", "heat_step", "nbody_forces", "nbody_step", "shallow_water_step", "wave_step"]


def _check(x: te.Tensor, what: str, name: str, border: str) -> None:
    check_rank(x, 2, what, name, "(h, w)")
    check_float(x, what, name)
    border_of(border, f"te.ops.{what}", "border")


def _laplacian(u: te.Tensor, i: Any, j: Any, border: str) -> Any:
    """The sum of the four neighbors less four times the element."""
    up, down = u.at(i - 1, j, mode=border), u.at(i + 1, j, mode=border)
    left, right = u.at(i, j - 1, mode=border), u.at(i, j + 1, mode=border)
    return up + down + left + right - u[i, j] * 4.0


@op
def heat_step(u: te.Tensor, alpha: Any = 0.25, border: str = "wrap") -> te.Tensor:
    """u + alpha laplacian(u): one explicit step of the heat equation, stable for alpha up to 1/4.

    u (h, w); alpha = diffusivity dt / dx^2, a number, a 0-rank tensor, or one value per element (h, w); border "wrap",
    "clamp" (no flux), "zero" (cold) or "reflect".
    """
    _check(u, "heat_step", "u", border)
    rate = _rate(u, alpha, "heat_step")
    return te.compute(u.shape, lambda i, j: u[i, j] + _laplacian(u, i, j, border) * rate(i, j), name="heat_step")  # type: ignore[no-any-return]


def _rate(u: te.Tensor, alpha: Any, what: str) -> Any:
    """The coefficient at a place."""
    if not isinstance(alpha, te.Tensor):
        return lambda i, j: float(alpha)
    if alpha.ndim == 0:
        return lambda i, j: alpha[()]
    check_same_shape(alpha, u, what, ("alpha", "u"))
    return lambda i, j: alpha[i, j]


@op
def heat(u: te.Tensor, steps: int, alpha: Any = 0.25) -> te.Tensor:
    """The states (steps + 1, h, w) of heat_step with wrapping borders, from u on, as one scan."""
    _check(u, "heat", "u", "wrap")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise refuse("heat", f"steps: expected an integer of 0 or more, found {steps!r}")
    h, w = u.shape
    rate = _rate(u, alpha, "heat")

    def body(y: te.Tensor, t: Any, i: Any, j: Any) -> Any:
        up, down = y[t - 1, (i - 1) % h, j], y[t - 1, (i + 1) % h, j]
        left, right = y[t - 1, i, (j - 1) % w], y[t - 1, i, (j + 1) % w]
        here = y[t - 1, i, j]
        return te.select(t == 0, u[i, j], here + (up + down + left + right - here * 4.0) * rate(i, j))

    return te.scan((steps + 1, h, w), body, dtype=u.dtype, name="heat")  # type: ignore[no-any-return]


@op
def wave_step(u: te.Tensor, before: te.Tensor, courant: Any = 0.5, border: str = "wrap") -> te.Tensor:
    """2 u - before + courant^2 laplacian(u): the next state of the wave equation, stable for courant up to 1 / sqrt(2).

    u and before (h, w); courant = speed dt / dx, a number, a 0-rank tensor, or one value per element.
    """
    _check(u, "wave_step", "u", border)
    check_same_shape(before, u, "wave_step", ("before", "u"))
    rate = _rate(u, courant, "wave_step")

    def element(i: Any, j: Any) -> Any:
        return u[i, j] * 2.0 - before[i, j] + _laplacian(u, i, j, border) * rate(i, j) * rate(i, j)

    return te.compute(u.shape, element, name="wave_step")  # type: ignore[no-any-return]


@op
def shallow_water_step(
    h: te.Tensor, hu: te.Tensor, hv: te.Tensor, dt: float = 0.01, dx: float = 1.0, gravity: float = 9.81
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """One step of the shallow water equations by Lax and Friedrichs on a grid that wraps.

    h (rows, columns) is the depth, hu and hv the momentum along columns and rows. A state q becomes the mean of its
    neighbors less dt / (2 dx) times the differences of the fluxes F = (hu, hu^2/h + g h^2/2, hu hv/h) along columns
    and G = (hv, hu hv/h, hv^2/h + g h^2/2) along rows. Stable where dt (|u| + sqrt(g h)) <= dx / 2.
    """
    what = "shallow_water_step"
    for q, name in ((h, "h"), (hu, "hu"), (hv, "hv")):
        _check(q, what, name, "wrap")
        check_same_shape(q, h, what, (name, "h"))
    rate = dt / (2.0 * dx)

    def element(i: Any, j: Any) -> Any:
        def state(p: int, q: int) -> tuple[Any, Any, Any]:
            return tuple(s.at(i + p, j + q, mode="wrap") for s in (h, hu, hv))  # type: ignore[return-value]

        def flux(q: tuple[Any, Any, Any], along: int) -> tuple[Any, ...]:
            depth, *momentum = q
            speed, pressure = momentum[along] / depth, depth * depth * (0.5 * gravity)
            terms = [m * speed for m in momentum]
            terms[along] = terms[along] + pressure
            return (momentum[along], *terms)

        west, east, north, south = state(0, -1), state(0, 1), state(-1, 0), state(1, 0)
        across = [b - a for a, b in zip(flux(west, 0), flux(east, 0), strict=True)]
        down = [b - a for a, b in zip(flux(north, 1), flux(south, 1), strict=True)]
        means = [(a + b + c + d) * 0.25 for a, b, c, d in zip(west, east, north, south, strict=True)]
        return tuple(m - (a + d) * rate for m, a, d in zip(means, across, down, strict=True))

    return te.compute(h.shape, element, name=("h", "hu", "hv"))  # type: ignore[no-any-return]


@op
def nbody_forces(position: te.Tensor, mass: te.Tensor, gravity: float = 1.0, softening: float = 0.01) -> te.Tensor:
    """f[i] = sum over j of gravity m[i] m[j] (x[j] - x[i]) / (|x[j] - x[i]|^2 + softening^2)^(3/2).

    position (n, d), mass (n,) -> (n, d), without any array of n x n elements.
    """
    check_rank(position, 2, "nbody_forces", "position", "(n, d)")
    check_float(position, "nbody_forces", "position")
    check_rank(mass, 1, "nbody_forces", "mass", "(n,)")
    check_extent(mass, 0, position.extents[0], "nbody_forces", "mass", "the bodies of position")
    if not isinstance(position.shape[1], int):
        raise refuse("nbody_forces", f"position: expected a known second extent, found {position!r}")
    soft = te.full((), softening * softening, position.dtype)
    pull = _pull(position, mass, soft)
    return te.compute(position.shape, lambda i, d: pull[i, d] * mass[i] * gravity, name="nbody_forces")  # type: ignore[no-any-return]


def _pair(position: te.Tensor, soft: te.Tensor, i: Any, j: Any) -> tuple[list[Any], Any]:
    """From i to j: the difference, and its softened square."""
    apart = [position[j, c] - position[i, c] for c in range(position.shape[1])]
    square: Any = soft[()]
    for r in apart:
        square = square + r * r
    return apart, square


@op
def _pull(position: te.Tensor, mass: te.Tensor, soft: te.Tensor) -> te.Tensor:
    """p[i] = sum over j of m[j] (x[j] - x[i]) / (|x[j] - x[i]|^2 + soft)^(3/2)."""
    (j,) = loops(position.shape[0], name="j")

    def element(i: Any, d: Any) -> Any:
        _, square = _pair(position, soft, i, j)
        return te.sum(mass[j] * (position[j, d] - position[i, d]) * te.pow(square, -1.5), axis=j)

    return te.compute(position.shape, element, name="pull")  # type: ignore[no-any-return]


@_pull.def_vjp
def _pull_vjp(output: te.Tensor, inputs: Any, head: te.Tensor) -> tuple[te.Tensor, te.Tensor, None]:
    """Both places of a pair at once, where one gather per read would visit all pairs again for each coordinate.

    With r = x[j] - x[i] and k = m[j] h[i] - m[i] h[j]: dx[i] = sum over j of (3 (k.r) r / s - k) / s^(3/2), and
    dm[i] = -(sum over j of h[j].r) / s^(3/2).
    """
    position, mass, soft = inputs
    dims = range(position.shape[1])
    (j,) = loops(position.shape[0], name="j")

    def place(i: Any, d: Any) -> Any:
        apart, square = _pair(position, soft, i, j)
        along: Any = 0.0
        for c in dims:
            along = (mass[j] * head[i, c] - mass[i] * head[j, c]) * apart[c] + along
        own = mass[j] * head[i, d] - mass[i] * head[j, d]
        term = along * (position[j, d] - position[i, d]) * 3.0 / square - own
        return te.sum(term * te.pow(square, -1.5), axis=j)

    def weight(i: Any) -> Any:
        apart, square = _pair(position, soft, i, j)
        along: Any = 0.0
        for c in dims:
            along = head[j, c] * apart[c] + along
        return -te.sum(along * te.pow(square, -1.5), axis=j)

    return te.compute(position.shape, place, name="dposition"), te.compute(mass.shape, weight, name="dmass"), None


@op
def nbody_step(
    position: te.Tensor, velocity: te.Tensor, mass: te.Tensor, dt: float = 0.01, gravity: float = 1.0,
    softening: float = 0.01,
) -> tuple[te.Tensor, te.Tensor]:  # fmt: skip
    """The state dt later: velocities first, by nbody_forces / mass, then positions (symplectic Euler)."""
    check_same_shape(velocity, position, "nbody_step", ("velocity", "position"))
    force = nbody_forces(position, mass, gravity, softening)
    moved = te.compute(velocity.shape, lambda i, d: velocity[i, d] + force[i, d] / mass[i] * dt, name="velocity")
    place = te.compute(position.shape, lambda i, d: position[i, d] + moved[i, d] * dt, name="position")
    return place, moved
