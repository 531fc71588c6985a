"""Recurrent cells, and whole sequences of them by scan: the inputs of all steps are multiplied at once beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tedsl.ops import language as te
from tedsl.ops.arguments import check_extent, check_rank, loops, one_of, vector
from tedsl.ops.op import op
from tedsl.ops.recurrences import gru_states, gru_step, lstm_states, lstm_step

__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell"]

Optional = te.Tensor | None


def _check(
    what: str, gates: int, x: te.Tensor, states: dict[str, te.Tensor], w_ih: te.Tensor, w_hh: te.Tensor, b_ih: Optional,
    b_hh: Optional, rank: int,
) -> int:  # fmt: skip
    """The number of hidden units; all shapes are those of `gates` gates."""
    check_rank(x, rank, what, "x", "(n, in)" if rank == 2 else "(steps, n, in)")
    check_rank(w_hh, 2, what, "w_hh", f"({gates} hidden, hidden)")
    hidden = w_hh.shape[1]
    check_extent(w_hh, 0, gates * hidden, what, "w_hh", f"{gates} gates")
    check_rank(w_ih, 2, what, "w_ih", f"({gates} hidden, in)")
    check_extent(w_ih, 0, gates * hidden, what, "w_ih", f"{gates} gates of {hidden} units")
    check_extent(w_ih, 1, x.extents[-1], what, "w_ih", "the features of x")
    for name, state in states.items():
        check_rank(state, 2, what, name, "(n, hidden)")
        check_extent(state, 0, x.extents[-2], what, name, "the batch of x")
        check_extent(state, 1, hidden, what, name, "the hidden units of w_hh")
    for name, bias in (("b_ih", b_ih), ("b_hh", b_hh)):
        vector(bias, gates * hidden, what, name, f"{gates} gates of {hidden} units")
    return int(hidden) if isinstance(hidden, int) else hidden


def _product(x: te.Tensor, weight: te.Tensor, bias: Optional, other: Optional = None) -> te.Tensor:
    """x weight^T plus biases."""
    z = te.matmul(x, te.transpose(weight))
    for b in (bias, other):
        z = z if b is None else z + b
    return z


@op
def rnn_cell(
    x: te.Tensor, h: te.Tensor, w_ih: te.Tensor, w_hh: te.Tensor, b_ih: Optional = None, b_hh: Optional = None,
    nonlinearity: str = "tanh",
) -> te.Tensor:  # fmt: skip
    """f(w_ih x + b_ih + w_hh h + b_hh) with f tanh or relu. As torch.nn.RNNCell."""
    _check("rnn_cell", 1, x, {"h": h}, w_ih, w_hh, b_ih, b_hh, 2)
    f = _nonlinearity(nonlinearity, "rnn_cell")
    a, b = _product(x, w_ih, b_ih, b_hh), _product(h, w_hh, None)
    return te.compute(h.shape, lambda n, j: f(a[n, j] + b[n, j]), name="rnn_cell")  # type: ignore[no-any-return]


def _nonlinearity(name: str, what: str) -> Callable[[Any], Any]:
    return {"tanh": te.tanh, "relu": te.relu}[one_of(name, ("tanh", "relu"), what, "nonlinearity")]


@op
def lstm_cell(
    x: te.Tensor, h: te.Tensor, c: te.Tensor, w_ih: te.Tensor, w_hh: te.Tensor, b_ih: Optional = None,
    b_hh: Optional = None,
) -> tuple[te.Tensor, te.Tensor]:  # fmt: skip
    """(h', c') with c' = f c + i g, h' = o tanh(c'), and (i, f, g, o) rows of w_ih x + b_ih + w_hh h + b_hh.

    i, f and o go through sigmoid, g through tanh. x (n, in), h and c (n, hidden), w_ih (4 hidden, in), w_hh (4 hidden,
    hidden). As torch.nn.LSTMCell.
    """
    units = _check("lstm_cell", 4, x, {"h": h, "c": c}, w_ih, w_hh, b_ih, b_hh, 2)
    a, b = _product(x, w_ih, b_ih, b_hh), _product(h, w_hh, None)

    def element(n: Any, j: Any) -> Any:
        return lstm_step(lambda g: a[n, g * units + j] + b[n, g * units + j], c[n, j])

    return te.compute(h.shape, element, name=("h", "c"))  # type: ignore[no-any-return]


@op
def gru_cell(
    x: te.Tensor, h: te.Tensor, w_ih: te.Tensor, w_hh: te.Tensor, b_ih: Optional = None, b_hh: Optional = None
) -> te.Tensor:
    """(1 - z) n + z h, n = tanh(a_n + r b_n), r and z sigmoid(a + b), (a_r, a_z, a_n) rows of w_ih x + b_ih.

    (b_r, b_z, b_n) are rows of w_hh h + b_hh. x (n, in), h (n, hidden), w_ih (3 hidden, in), w_hh (3 hidden, hidden).
    As torch.nn.GRUCell.
    """
    units = _check("gru_cell", 3, x, {"h": h}, w_ih, w_hh, b_ih, b_hh, 2)
    a, b = _product(x, w_ih, b_ih), _product(h, w_hh, b_hh)

    def element(n: Any, j: Any) -> Any:
        return gru_step(lambda g: a[n, g * units + j], lambda g: b[n, g * units + j], h[n, j])

    return te.compute(h.shape, element, name="gru_cell")  # type: ignore[no-any-return]


@op
def rnn(
    x: te.Tensor, h0: te.Tensor, w_ih: te.Tensor, w_hh: te.Tensor, b_ih: Optional = None, b_hh: Optional = None,
    nonlinearity: str = "tanh", reverse: bool = False,
) -> te.Tensor:  # fmt: skip
    """The states (steps, n, hidden) of rnn_cell along x (steps, n, in), from h0. As one layer of torch.nn.RNN."""
    units = _check("rnn", 1, x, {"h0": h0}, w_ih, w_hh, b_ih, b_hh, 3)
    f, a = _nonlinearity(nonlinearity, "rnn"), _product(x, w_ih, b_ih, b_hh)
    (k,) = loops(units, name="k")

    def body(h: te.Tensor, t: Any, n: Any, j: Any) -> Any:
        before = _before(h, h0, t, reverse)
        return f(a[t, n, j] + te.sum(w_hh[j, k] * before(n, k), axis=k))

    return te.scan((*x.shape[:2], units), body, reverse=reverse, dtype=x.dtype, name="rnn")  # type: ignore[no-any-return]


def _before(state: te.Tensor, first: te.Tensor, t: Any, reverse: bool) -> Callable[[Any, Any], Any]:
    """The state of the step before."""
    if reverse:
        return lambda n, k: te.select(t == state.shape[0] - 1, first[n, k], state[t + 1, n, k])
    return lambda n, k: te.select(t == 0, first[n, k], state[t - 1, n, k])


@op
def lstm(
    x: te.Tensor, h0: te.Tensor, c0: te.Tensor, w_ih: te.Tensor, w_hh: te.Tensor, b_ih: Optional = None,
    b_hh: Optional = None, reverse: bool = False,
) -> tuple[te.Tensor, te.Tensor]:  # fmt: skip
    """The states and cells (steps, n, hidden) of lstm_cell along x (steps, n, in), from h0 and c0.

    The last of each is what torch.nn.LSTM returns beside the states. As one layer of torch.nn.LSTM.
    """
    _check("lstm", 4, x, {"h0": h0, "c0": c0}, w_ih, w_hh, b_ih, b_hh, 3)
    a = _product(te.flip(x, 0) if reverse else x, w_ih, b_ih, b_hh)
    h, c = lstm_states(a, h0, c0, w_hh)
    return (te.flip(h, 0), te.flip(c, 0)) if reverse else (h, c)


@op
def gru(
    x: te.Tensor, h0: te.Tensor, w_ih: te.Tensor, w_hh: te.Tensor, b_ih: Optional = None, b_hh: Optional = None,
    reverse: bool = False,
) -> te.Tensor:  # fmt: skip
    """The states (steps, n, hidden) of gru_cell along x (steps, n, in), from h0. As one layer of torch.nn.GRU."""
    _check("gru", 3, x, {"h0": h0}, w_ih, w_hh, b_ih, b_hh, 3)
    a = _product(te.flip(x, 0) if reverse else x, w_ih, b_ih)
    bias = te.zeros(w_hh.extents[:1], x.dtype) if b_hh is None else b_hh
    h = gru_states(a, h0, w_hh, bias)
    return te.flip(h, 0) if reverse else h
