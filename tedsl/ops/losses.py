"""Losses of predictions and targets, reduced to their mean or sum unless reduction="none"."""

from __future__ import annotations

from typing import Any

from tedsl.analysis.messages import meant
from tedsl.lang.broadcast import broadcast_to
from tedsl.lang.dtypes import promote
from tedsl.lang.elements import shape_text
from tedsl.ops import language as te
from tedsl.ops.arguments import (
    axis_of,
    check_extent,
    check_float,
    check_integer,
    check_same_shape,
    loops,
    one_of,
    refuse,
    size_of,
    vector,
    wide_of,
)
from tedsl.ops.op import op

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity", "cross_entropy", "huber_loss",
    "kl_div", "l1_loss", "mse_loss", "nll_loss", "smooth_l1_loss",
]  # fmt: skip

_REDUCTIONS = ("mean", "sum", "none")


def _reduced(loss: te.Tensor, reduction: str, what: str) -> te.Tensor:
    if one_of(reduction, _REDUCTIONS, what, "reduction") == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _each(
    what: str, x: te.Tensor, target: te.Tensor, reduction: str, function: Any, weight: te.Tensor | None = None
) -> te.Tensor:
    """function(x, target) element by element, times their weights where they have some, reduced."""
    check_float(x, what, "x")
    check_same_shape(x, target, what, ("x", "target"))
    if weight is not None:
        check_same_shape(x, weight, what, ("x", "weight"))

    def element(*i: Any) -> Any:
        value = function(x[i], _as_float(target[i], x))
        return value if weight is None else value * weight[i]

    return _reduced(te.compute(x.shape, element, name=what), reduction, what)


def _by_place(weight: te.Tensor | float | None, x: te.Tensor, what: str, name: str) -> Any:
    """The weight of the element of x at an index: a function of it."""
    if not isinstance(weight, te.Tensor):
        return lambda i: weight
    try:
        wide = broadcast_to(weight, x.extents)
    except ValueError:
        expected = f"expected a shape that broadcasts to that of x, {shape_text(x.extents)}"
        raise refuse(what, f"{name}: {expected}; found {weight!r}") from None
    return lambda i: wide[i]


def _as_float(label: Any, x: te.Tensor) -> Any:
    """A label; of integers and bools the number in the dtype of x."""
    return label if label.dtype.is_float else te.cast(label, x.dtype)


def _of_one(loss: Any, x: te.Tensor, target: te.Tensor, *options: Any) -> te.Tensor:
    """A loss of many, of one alone, which has no axis for them."""
    found = loss(x.expand_dims(0), target.expand_dims(0), *options)
    return found.reshape(()) if found.ndim else found  # type: ignore[no-any-return]


@op
def mse_loss(x: te.Tensor, target: te.Tensor, reduction: str = "mean", weight: te.Tensor | None = None) -> te.Tensor:
    """The mean of (x - target)^2, or their sum, or each, as `reduction` says. As torch.nn.functional.mse_loss.

    Elements count by their weights of the shape of x; the mean is over the weights.
    """
    return _over_weights("mse_loss", x, target, reduction, lambda a, b: (a - b) * (a - b), weight)


@op
def l1_loss(x: te.Tensor, target: te.Tensor, reduction: str = "mean", weight: te.Tensor | None = None) -> te.Tensor:
    """The mean of |x - target|, or their sum, or each, as `reduction` says. As torch.nn.functional.l1_loss.

    Elements count by their weights of the shape of x; the mean is over the weights.
    """
    return _over_weights("l1_loss", x, target, reduction, lambda a, b: te.abs(a - b), weight)


def _over_weights(
    what: str, x: te.Tensor, target: te.Tensor, reduction: str, function: Any, weight: te.Tensor | None
) -> te.Tensor:
    """The mean is divided by the sum of the weights."""
    if weight is None or reduction != "mean":
        return _each(what, x, target, reduction, function, weight)
    return _each(what, x, target, "sum", function, weight) / weight.sum()


@op
def huber_loss(
    x: te.Tensor, target: te.Tensor, reduction: str = "mean", delta: float = 1.0, weight: te.Tensor | None = None
) -> te.Tensor:
    """d^2 / 2 where d = |x - target| is at most delta, else delta (d - delta/2). As torch.nn.functional.huber_loss.

    Elements count by their weights of the shape of x; the mean is over the elements.
    """
    if not delta > 0:
        raise refuse("huber_loss", f"delta: expected a positive number, found {delta!r}")

    def element(a: Any, b: Any) -> Any:
        d = te.abs(a - b)
        return te.select(d <= delta, (a - b) * (a - b) * 0.5, (d - 0.5 * delta) * delta)

    return _each("huber_loss", x, target, reduction, element, weight)


@op
def smooth_l1_loss(x: te.Tensor, target: te.Tensor, reduction: str = "mean", beta: float = 1.0) -> te.Tensor:
    """d^2 / (2 beta) where d = |x - target| is below beta, else d - beta / 2. As torch.nn.functional.smooth_l1_loss."""
    if not beta > 0:
        raise refuse("smooth_l1_loss", f"beta: expected a positive number, found {beta!r}; use l1_loss for 0")

    def element(a: Any, b: Any) -> Any:
        d = te.abs(a - b)
        return te.select(d < beta, (a - b) * (a - b) * (0.5 / beta), d - 0.5 * beta)

    return _each("smooth_l1_loss", x, target, reduction, element)


@op
def binary_cross_entropy(
    x: te.Tensor, target: te.Tensor, reduction: str = "mean", weight: te.Tensor | float | None = None
) -> te.Tensor:
    """-(target log(x) + (1 - target) log(1 - x)) weight, each logarithm at least -100.

    x are probabilities. weight is a number, or broadcasts to the shape of x; the mean is over the elements. As
    torch.nn.functional.binary_cross_entropy.
    """
    what = "binary_cross_entropy"
    check_float(x, what, "x")
    check_same_shape(x, target, what, ("x", "target"))
    counted = _by_place(weight, x, what, "weight")

    def element(*i: Any) -> Any:
        p, t = x[i], _as_float(target[i], x)
        loss = t * te.maximum(te.log(p), -100.0) + (1.0 - t) * te.maximum(te.log(1.0 - p), -100.0)
        return -loss if weight is None else -loss * counted(i)

    return _reduced(te.compute(x.shape, element, name=what), reduction, what)


@op
def binary_cross_entropy_with_logits(
    x: te.Tensor, target: te.Tensor, reduction: str = "mean", pos_weight: te.Tensor | float | None = None,
    weight: te.Tensor | float | None = None,
) -> te.Tensor:  # fmt: skip
    """binary_cross_entropy of sigmoid(x), without overflow; positives count pos_weight times, elements weight times.

    Those are numbers, or broadcast to the shape of x: a vector lies along the last axis. As
    torch.nn.functional.binary_cross_entropy_with_logits.
    """
    what = "binary_cross_entropy_with_logits"
    check_float(x, what, "x")
    check_same_shape(x, target, what, ("x", "target"))
    positive = _by_place(pos_weight, x, what, "pos_weight")
    counted = _by_place(weight, x, what, "weight")

    def element(*i: Any) -> Any:
        v, t = x[i], _as_float(target[i], x)
        # log(1 + exp(-v)): each side where its exponential is at most 1
        tail = te.select(v < 0, te.log1p(te.exp(v)) - v, te.log1p(te.exp(-v)))
        loss = (1.0 - t) * v + tail * (1.0 if pos_weight is None else 1.0 + (positive(i) - 1.0) * t)
        return loss if weight is None else loss * counted(i)

    return _reduced(te.compute(x.shape, element, name="bce"), reduction, what)


@op
def kl_div(x: te.Tensor, target: te.Tensor, reduction: str = "mean", log_target: bool = False) -> te.Tensor:
    """target (log(target) - x) with x the logarithms of probabilities; 0 where the target is 0.

    reduction may also be "batchmean": the sum, divided by the first extent. As torch.nn.functional.kl_div.
    """
    one_of(reduction, (*_REDUCTIONS, "batchmean"), "kl_div", "reduction")

    def element(v: Any, t: Any) -> Any:
        if log_target:
            return te.exp(t) * (t - v)
        return te.select(t > 0, t * (te.log(t) - v), t * 0.0)

    if reduction != "batchmean":
        return _each("kl_div", x, target, reduction, element)
    total = _each("kl_div", x, target, "sum", element)
    return te.compute((), lambda: total[()] / size_of(x, (0,)), name="kl_div")  # type: ignore[no-any-return]


@op
def nll_loss(
    x: te.Tensor, target: te.Tensor, weight: te.Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> te.Tensor:
    """-x[n, target[n]] weight[target[n]] for x (n, classes, ...) of log-probabilities and target (n, ...) of integers.

    For a single sample x is (classes,) and target a scalar. A target equal to ignore_index adds nothing; the mean is
    over the weights. As torch.nn.functional.nll_loss.
    """
    if x.ndim == 1:
        return _of_one(nll_loss, x, target, weight, ignore_index, reduction)
    _check_classes(x, target, weight, "nll_loss")
    return _by_index(x, target, weight, ignore_index, reduction, 0.0, "nll_loss")


@op
def cross_entropy(
    x: te.Tensor, target: te.Tensor, weight: te.Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> te.Tensor:  # fmt: skip
    """nll_loss of log_softmax(x) for x (n, classes, ...); target integers (n, ...) or probabilities of the shape of x.

    For a single sample x is (classes,). label_smoothing mixes the target with the uniform distribution. As
    torch.nn.functional.cross_entropy.
    """
    what = "cross_entropy"
    if x.ndim == 1:
        return _of_one(cross_entropy, x, target, weight, ignore_index, reduction, label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise refuse(what, f"label_smoothing: expected a number from 0 to 1, found {label_smoothing!r}")
    if target.dtype.is_integer:
        _check_classes(x, target, weight, what)
        return _by_index(x.log_softmax(1), target, weight, ignore_index, reduction, label_smoothing, what)
    check_float(x, what, "x")
    if target.ndim == x.ndim - 1:
        raise refuse(
            what,
            f"target: expected integers, the classes (target.astype('int32')), or probabilities of the shape of x; "
            f"found {target!r} beside {x!r}",
        )
    check_same_shape(x, target, what, ("x", "target"))
    return _by_probability(x, target, weight, reduction, label_smoothing, what)


def _check_classes(x: te.Tensor, target: te.Tensor, weight: te.Tensor | None, what: str) -> None:
    check_float(x, what, "x")
    check_integer(target, what, "target")
    if x.ndim < 2 or target.ndim != x.ndim - 1:
        raise refuse(what, f"expected x (n, classes, ...) and target (n, ...), found {x!r} and {target!r}")
    for dim in range(target.ndim):
        check_extent(target, dim, x.shape[dim + (dim > 0)], what, "target", "that of x")
    vector(weight, x.shape[1], what, "weight", "the classes of x")


def _by_index(
    log_p: te.Tensor, target: te.Tensor, weight: te.Tensor | None, ignore: int, reduction: str, smooth: float, what: str
) -> te.Tensor:
    """The loss by class, as a sum over all of them: so its gradient is a gather."""
    classes = log_p.shape[1]
    (c,) = loops(classes, name="c")
    # Read at the target, which is how a target that is no class becomes an IndexError.
    factors = te.full((classes,), 1.0, log_p.dtype) if weight is None else weight

    def counted(*i: Any) -> Any:
        return te.select(target[i] == ignore, 0.0, factors[target[i]])

    def element(*i: Any) -> Any:
        at = (i[0], c, *i[1:])
        value = log_p[at]
        loss = counts[i] * te.sum(value, axis=c, where=target[i] == c) * (smooth - 1.0)
        if not smooth:
            return loss
        uniform = te.sum(value if weight is None else value * weight[c], axis=c)
        return loss - te.select(target[i] == ignore, 0.0, uniform * (smooth / classes))

    counts = te.compute(target.shape, counted, name="counts")
    meant(counts, f"te.ops.{what}", "target", f"the number of classes; a target of ignore_index={ignore} adds nothing")
    loss = te.compute(target.shape, element, name=what)
    if one_of(reduction, _REDUCTIONS, what, "reduction") != "mean":
        return _reduced(loss, reduction, what)
    return loss.sum() / counts.sum()  # type: ignore[no-any-return]


def _by_probability(
    x: te.Tensor, target: te.Tensor, weight: te.Tensor | None, reduction: str, smooth: float, what: str
) -> te.Tensor:
    if x.ndim < 2:
        raise refuse(what, f"x: expected 2 dimensions or more (n, classes, ...), found {x!r}")
    classes = x.shape[1]
    vector(weight, classes, what, "weight", "the classes of x")
    (c,) = loops(classes, name="c")
    log_p = x.log_softmax(1)

    def element(*i: Any) -> Any:
        at = (i[0], c, *i[1:])
        share = target[at] * (1.0 - smooth) + smooth / classes if smooth else target[at]
        return -te.sum(log_p[at] * (share if weight is None else share * weight[c]), axis=c)

    return _reduced(te.compute((x.shape[0], *x.shape[2:]), element, name=what), reduction, what)


@op
def cosine_similarity(x: te.Tensor, y: te.Tensor, axis: int = 1, eps: float = 1e-8) -> te.Tensor:
    """sum of x y / (|x| |y|) along an axis, each norm at least eps. As torch.nn.functional.cosine_similarity."""
    check_float(x, "cosine_similarity", "x")
    check_same_shape(x, y, "cosine_similarity", ("x", "y"))
    dim = axis_of(x, axis, "cosine_similarity")
    wide = [wide_of(t) for t in (x, y)]
    norms = [te.maximum(t.norm(axis=dim), eps) for t in wide]
    return te.cast((wide[0] * wide[1]).sum(dim) / (norms[0] * norms[1]), promote([x.dtype, y.dtype]))  # type: ignore[no-any-return]
