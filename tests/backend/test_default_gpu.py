"""The schedule of GPU kernels without one: every construct compiles, here without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.targets import device_problem, parse_target

N = te.var("n")
A, INDEX = te.placeholder((N, 8, 3), name="A"), te.placeholder((N,), "int32", name="index")


def network(y: Any, t: Any, i: Any) -> Any:
    k = te.reduce_axis(8, "k")
    return te.select(t == 0, A[0, i, 0], te.tanh(te.sum(y[t - 1, k], axis=k)) + A[t, i, 0])


def programs() -> dict[str, Any]:
    k, j, m = te.reduce_axis(N, "k"), te.reduce_axis(8, "j"), te.reduce_axis(3, "m")
    return {
        "four axes": te.compute((N, 8, 3, 2), lambda a, b, c, d: te.exp(A[a, b, c]) + d),
        "no axes": te.compute((), lambda: A[0, 0, 0] * 2),
        "reduction": te.compute((N,), lambda i: te.argmax(A[i, j, m], axis=(j, m))),
        "gather": te.compute((N, 8), lambda a, b: A[INDEX[a], b, 0]),
        "scatter of rows": te.scatter((7, 8), [k, j], (INDEX[k], j), A[k, j, 0]),
        "scatter": te.scatter((7,), [k], (INDEX[k],), A[k, 0, 0]),
        "scan": te.scan((N, 8), lambda y, t, i: te.select(t == 0, 0.0, y[t - 1, i] + A[t, i, 0]), axis=0),
        "network": te.scan((N, 8), network, axis=0),
    }


@pytest.mark.parametrize("construct", programs())
def test_every_construct_compiles_for_cuda(construct: str) -> None:
    kern = te.build([A, INDEX], programs()[construct], target="cuda")
    assert ".visible .entry" in kern.source("ptx")
    assert "gpu_block" in kern.loop_nest()


def test_opencl_knows_double_precision() -> None:
    product = te.compute((N, 8), lambda i, j: te.cast(A[i, j, 0], "float64") * 2)
    assert "double" in te.build([A], product, target="opencl").source("opencl")


def test_a_call_without_a_driver_says_what_is_missing() -> None:
    kern = te.build([A], te.compute((N,), lambda i: A[i, 0, 0] + 1), target="cuda")
    a = np.ones((4, 8, 3), "f4")
    if device_problem(parse_target("cuda").text) is None:
        np.testing.assert_array_equal(kern(a), a[:, 0, 0] + 1)
    else:
        with pytest.raises(RuntimeError, match="build it with target='host'"):
            kern(a)
