"""Products of matrices."""

from __future__ import annotations

from tedsl.ops import language as te
from tedsl.ops.arguments import check_extent, check_rank, refuse, vector
from tedsl.ops.op import op

__all__ = ["bilinear", "dense", "einsum", "matmul"]


@op
def dense(x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None) -> te.Tensor:
    """y[..., o] = sum over i of x[..., i] weight[o, i], plus bias[o].

    x (..., in), weight (out, in), bias (out,) -> (..., out). As torch.nn.functional.linear.
    """
    check_rank(weight, 2, "dense", "weight", "(out, in)")
    if not x.ndim:
        raise refuse("dense", f"x: expected 1 dimension or more (..., in), found {x!r}")
    check_extent(x, -1, weight.shape[1], "dense", "x", "the second of weight")
    vector(bias, weight.shape[0], "dense", "bias", "the first of weight")
    product = te.matmul(x, te.transpose(weight))
    return product if bias is None else product + bias


@op
def bilinear(x: te.Tensor, y: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None) -> te.Tensor:
    """z[n, o] = sum over i and j of x[n, i] weight[o, i, j] y[n, j], plus bias[o].

    x (n, in1), y (n, in2), weight (out, in1, in2), bias (out,) -> (n, out). As torch.nn.functional.bilinear.
    """
    check_rank(weight, 3, "bilinear", "weight", "(out, in1, in2)")
    for tensor, name, dim in ((x, "x", 1), (y, "y", 2)):
        check_rank(tensor, 2, "bilinear", name, "(n, in)")
        check_extent(tensor, 1, weight.shape[dim], "bilinear", name, f"dimension {dim} of weight")
    vector(bias, weight.shape[0], "bilinear", "bias", "the first of weight")
    product = te.einsum("ni,oij,nj->no", x, weight, y)
    return product if bias is None else product + bias


@op
def matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """c[..., i, j] = sum over k of a[..., i, k] b[..., k, j]; leading axes broadcast. As numpy.matmul."""
    return te.matmul(a, b)


@op
def einsum(subscripts: str, *operands: te.Tensor) -> te.Tensor:
    """Einstein summation as numpy.einsum writes it, two operands at a time, in the order of the least work."""
    return te.einsum(subscripts, *operands)
