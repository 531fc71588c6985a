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

    def body(b: Any, i: Any, f: Any, g: Any, o: Any, t: Any, n: Any, k: Any) -> Any:
        last = t == steps - 1
        state = dh[t, n, k] + _sent_back((i, f, g, o), weight, units, t, n, k, last)
        kept = te.select(last, 0.0, b[t + 1, n, k] * forget[t + 1, n, k])
        here = dc[t, n, k] + state * through[t, n, k] + kept
        return (here, *(here * d[t, n, k] for d in (di, df, dg)), state * do[t, n, k])

    sent_names = ("dc", "dgate_i", "dgate_f", "dgate_g", "dgate_o")
    b, *sent = te.scan(h.shape, body, reverse=True, dtype=(h.dtype,) * 5, name=sent_names)
    da = _side_by_side(sent, a, "da")
    first = te.compute(c0.shape, lambda n, k: b[0, n, k] * forget[0, n, k], name="dc0")
    return da, _to_first(da, weight, h0), first, te.einsum("tnq,tnk->qk", da, before)


def _sent_back(later: Any, weight: te.Tensor, units: Any, t: Any, n: Any, k: Any, last: Any) -> Any:
    """What the gates of the step after send back to a state: a product for each of them, `later` their adjoints."""
    (j,) = loops(units, name="j")
    sums = [te.sum(gate[t + 1, n, j] * weight[q * units + j, k], axis=j) for q, gate in enumerate(later)]
    return te.select(last, 0.0, sum(sums[1:], sums[0]))


def _side_by_side(gates: Any, like: te.Tensor, name: str) -> te.Tensor:
    """Tensors (steps, n, hidden) as one of all gates."""
    units = gates[0].shape[-1]

    def element(t: Any, n: Any, q: Any) -> Any:
        found = gates[-1][t, n, q % units]
        for number, gate in reversed(list(enumerate(gates[:-1]))):
            found = te.select(q // units == number, gate[t, n, q % units], found)
        return found

    return te.compute(like.shape, element, name=name)  # type: ignore[no-any-return]


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

    def body(e: Any, r: Any, z: Any, p: Any, t: Any, n: Any, k: Any) -> Any:
        last = t == steps - 1
        direct = te.select(last, 0.0, e[t + 1, n, k] * kept[t + 1, n, k])
        here = dh[t, n, k] + _sent_back((r, z, p), weight, units, t, n, k, last) + direct
        return (here, *(here * d[t, n, k] for d in (dr, dz, dp)))

    e, *sent = te.scan(h.shape, body, reverse=True, dtype=(h.dtype,) * 4, name=("dh", "dgate_r", "dgate_z", "dgate_n"))
    through = te.compute(h.shape, lambda t, n, j: e[t, n, j] * dn[t, n, j], name="dgate_a")
    da, products = _side_by_side([*sent[:2], through], a, "da"), _side_by_side(sent, a, "dproducts")
    direct = _to_first(products, weight, h0)
    first = te.compute(h0.shape, lambda n, k: direct[n, k] + e[0, n, k] * kept[0, n, k], name="dh0")
    return da, first, te.einsum("tnq,tnk->qk", products, before), products.sum((0, 1))
