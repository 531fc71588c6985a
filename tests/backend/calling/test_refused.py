"""Programs whose default schedule Halide refuses are compiled all the same."""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest

import tedsl as te
from tedsl.backend.compiling.variant_source import VariantSource

x = te.placeholder((12, 20), "float32", name="x")
RUNNING = te.scan((12, 20), lambda s, t, i: te.select(t == 0, x[0, i], s[t - 1, i] + x[t, i]), axis=0)
PLACES = te.reduce_axis(12, name="p"), te.reduce_axis(20, name="q")
COUNTS = te.scatter((5,), PLACES, (te.cast(te.abs(x[PLACES]), "int32") % 5,), 1)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = VariantSource.compiled

    def refuse(origin: VariantSource) -> Any:
        if not origin.program.planner.simple:
            raise hl.HalideError("Error: Cannot replace variable t1 of type uint1x2")
        return compiled(origin)

    monkeypatch.setattr(VariantSource, "compiled", refuse)
    monkeypatch.setenv("TEDSL_CACHE", "off")


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(
    "outputs",
    [
        [te.exp(x - x.max(axis=1, keepdims=True)) / x.sum()],
        [x @ x.T, te.argmax(x, axis=1)],
        [RUNNING],
        [COUNTS, RUNNING * 2.0],
        te.differentiate((te.tanh(x @ x.T)).sum(), [x]),
    ],
)
def test_what_halide_refuses_is_compiled_plainly(outputs: Any) -> None:
    outputs = list(outputs)
    with pytest.warns(UserWarning, match="Halide refuses what the default schedule makes of it .Error: Cannot replace"):
        kernel = te.build([x], outputs)
    a = np.random.default_rng(0).standard_normal((12, 20)).astype("float32")
    found = kernel(a)
    for one, expected in zip(found, te.interpret(outputs, {x: a}), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)
    assert "parallel" not in kernel.loop_nest()


@pytest.mark.usefixtures("refusing")
def test_a_schedule_of_the_user_is_refused_as_it_is() -> None:
    y = x * 2.0
    s = te.Schedule([y])
    s[y].parallel(y.op.axes[0])
    with pytest.raises(hl.HalideError, match="Cannot replace variable"):
        te.build([x], y, schedule=s)
