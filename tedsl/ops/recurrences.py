"""The recurrent parts of `lstm` and `gru` with their adjoints written by hand.

Differentiated by rule, each of the gates is computed again for each of the weights it meets. Here the gates of all
steps are computed once from the states that the forward pass left, one reverse scan finds what reaches the states, and
the weights get a product of matrices.
"""

from __future__ import annotations

from typing import Any

from tedsl.ops import language as te
from tedsl.ops.arguments import loops
from tedsl.ops.op import op

__all__ = ["gru_states", "lstm_states"]


def _before(state: te.Tensor, first: te.Tensor) -> te.Tensor:
    """The states from which the steps start: `first`, then all but the last."""
    return te.compute(  # type: ignore[no-any-return]
        state.shape, lambda t, n, k: te.select(t == 0, first[n, k], state[t - 1, n, k]), name="before"
    )


def _recurrent(weight: te.Tensor, before: te.Tensor) -> te.Tensor:
    """p[t, n, q] = sum over k of weight[q, k] before[t, n, k]."""
    return te.einsum("qk,tnk->tnq", weight, before)


@op
def lstm_states(a: te.Tensor, h0: te.Tensor, c0: te.Tensor, weight: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """h and c (steps, n, hidden) of an LSTM whose gates get a (steps, n, 4 hidden) from outside."""
    units = h0.shape[1]
    (k,) = loops(units, name="k")

    def body(h: te.Tensor, c: te.Tensor, t: Any, n: Any, j: Any) -> Any:
        known = te.select(t == 0, h0[n, k], h[t - 1, n, k])

        def gate(g: int) -> Any:
            return a[t, n, g * units + j] + te.sum(weight[g * units + j, k] * known, axis=k)

        return lstm_step(gate, te.select(t == 0, c0[n, j], c[t - 1, n, j]))

    dtype = (a.dtype, a.dtype)
    return te.scan((*a.shape[:2], units), body, dtype=dtype, name=("h", "c"))  # type: ignore[no-any-return]


def lstm_step(gate: Any, c: Any) -> tuple[Any, Any]:
    cell = te.sigmoid(gate(1)) * c + te.sigmoid(gate(0)) * te.tanh(gate(2))
    return te.sigmoid(gate(3)) * te.tanh(cell), cell


@lstm_states.def_vjp
def _lstm_vjp(output: Any, inputs: Any, head: Any) -> tuple[te.Tensor, ...]:
    """With b the adjoint of the cell and e that of the state:

    e[t] = de[t] + sum over gates of w^T (adjoint of the gate at t + 1), b[t] = db[t] + e[t] o (1 - tanh(c)^2) + b[t +
    1] f.
    """
    (h, c), (a, h0, c0, weight), (dh, dc) = output, inputs, head
    steps, _, units = h.shape
    before, cell = _before(h, h0), _before(c, c0)
    sums = _recurrent(weight, before)

    def slopes(t: Any, n: Any, j: Any) -> Any:
        """What the adjoints of i, f, g are by that of the cell, o by that of the state, c by that of h; and f."""
        i, f, g, o = (a[t, n, q * units + j] + sums[t, n, q * units + j] for q in range(4))
        i, f, g, o = te.sigmoid(i), te.sigmoid(f), te.tanh(g), te.sigmoid(o)
        bent = te.tanh(c[t, n, j])
        return (
            g * i * (1.0 - i), cell[t, n, j] * f * (1.0 - f), i * (1.0 - g * g), bent * o * (1.0 - o),
            o * (1.0 - bent * bent), f,
        )  # fmt: skip

    names = ("di", "df", "dg", "do", "dcell", "forget")
    di, df, dg, do, through, forget = te.compute(h.shape, slopes, name=names)
    (j,) = loops(units, name="j")

    def body(e: te.Tensor, b: te.Tensor, t: Any, n: Any, k: Any) -> Any:
        s = t + 1
        by_cell = (
            di[s, n, j] * weight[j, k] + df[s, n, j] * weight[units + j, k] + dg[s, n, j] * weight[2 * units + j, k]
        )
        term = b[s, n, j] * by_cell + e[s, n, j] * do[s, n, j] * weight[3 * units + j, k]
        last = t == steps - 1
        state = dh[t, n, k] + te.select(last, 0.0, te.sum(term, axis=j))
        here = dc[t, n, k] + state * through[t, n, k]
        return state, here + te.select(last, 0.0, b[s, n, k] * forget[s, n, k])

    e, b = te.scan(h.shape, body, reverse=True, dtype=(h.dtype, h.dtype), name=("dh", "dc"))

    def gates(t: Any, n: Any, q: Any) -> Any:
        at = (t, n, q % units)
        kind = q // units
        by_cell = te.select(kind == 0, di[at], te.select(kind == 1, df[at], dg[at]))
        return te.select(kind == 3, e[at] * do[at], b[at] * by_cell)

    da = te.compute(a.shape, gates, name="da")
    first = te.compute(c0.shape, lambda n, k: b[0, n, k] * forget[0, n, k], name="dc0")
    return da, _to_first(da, weight, h0), first, te.einsum("tnq,tnk->qk", da, before)


def _to_first(da: te.Tensor, weight: te.Tensor, h0: te.Tensor) -> te.Tensor:
    """What reaches the state before the first step through its gates."""
    (q,) = loops(weight.shape[0], name="q")
    return te.compute(h0.shape, lambda n, k: te.sum(da[0, n, q] * weight[q, k], axis=q), name="dh0")  # type: ignore[no-any-return]


@op
def gru_states(a: te.Tensor, h0: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
    """h (steps, n, hidden) of a GRU whose gates get a (steps, n, 3 hidden) from outside."""
    units = h0.shape[1]
    (k,) = loops(units, name="k")

    def body(h: te.Tensor, t: Any, n: Any, j: Any) -> Any:
        known = te.select(t == 0, h0[n, k], h[t - 1, n, k])

        def product(g: int) -> Any:
            return te.sum(weight[g * units + j, k] * known, axis=k) + bias[g * units + j]

        return gru_step(lambda g: a[t, n, g * units + j], product, te.select(t == 0, h0[n, j], h[t - 1, n, j]))

    return te.scan((*a.shape[:2], units), body, dtype=a.dtype, name="gru")  # type: ignore[no-any-return]


def gru_step(a: Any, b: Any, h: Any) -> Any:
    r, z = te.sigmoid(a(0) + b(0)), te.sigmoid(a(1) + b(1))
    new = te.tanh(a(2) + r * b(2))
    return new + z * (h - new)


@gru_states.def_vjp
def _gru_vjp(output: Any, inputs: Any, head: Any) -> tuple[te.Tensor, ...]:
    """With e the adjoint of the state: e[t] = de[t] + e[t + 1] z + sum over gates of w^T (adjoint of the gate at t +
    1).
    """
    h, (a, h0, weight, bias), dh = output, inputs, head
    steps, _, units = h.shape
    before = _before(h, h0)
    sums = _recurrent(weight, before)

    def slopes(t: Any, n: Any, j: Any) -> Any:
        """What the adjoints of r, z, and n (as a and as product) are by that of the state; and z."""
        s = [sums[t, n, q * units + j] + bias[q * units + j] for q in range(3)]
        r, z = (te.sigmoid(a[t, n, q * units + j] + s[q]) for q in (0, 1))
        new = te.tanh(a[t, n, 2 * units + j] + r * s[2])
        down = (1.0 - z) * (1.0 - new * new)
        return down * s[2] * r * (1.0 - r), (before[t, n, j] - new) * z * (1.0 - z), down, down * r, z

    dr, dz, dn, dp, kept = te.compute(h.shape, slopes, name=("dr", "dz", "dn", "dp", "kept"))
    (j,) = loops(units, name="j")

    def body(e: te.Tensor, t: Any, n: Any, k: Any) -> Any:
        s = t + 1
        w = [weight[q * units + j, k] for q in range(3)]
        gate = dr[s, n, j] * w[0] + dz[s, n, j] * w[1] + dp[s, n, j] * w[2]
        later = te.sum(e[s, n, j] * gate, axis=j) + e[s, n, k] * kept[s, n, k]
        return dh[t, n, k] + te.select(t == steps - 1, 0.0, later)

    e = te.scan(h.shape, body, reverse=True, dtype=h.dtype, name="dh")

    def gates(last: te.Tensor, name: str) -> te.Tensor:
        def element(t: Any, n: Any, q: Any) -> Any:
            at = (t, n, q % units)
            return e[at] * te.select(q // units == 0, dr[at], te.select(q // units == 1, dz[at], last[at]))

        return te.compute(a.shape, element, name=name)  # type: ignore[no-any-return]

    da, products = gates(dn, "da"), gates(dp, "dproducts")
    direct = _to_first(products, weight, h0)
    first = te.compute(h0.shape, lambda n, k: direct[n, k] + e[0, n, k] * kept[0, n, k], name="dh0")
    return da, first, te.einsum("tnq,tnk->qk", products, before), products.sum((0, 1))
