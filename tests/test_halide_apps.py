"""The applications of `benchmarks.halide_apps` at tiny sizes: results as Halide's, gradients as the reference's."""

from __future__ import annotations

import numpy as np
import pytest

import tedsl as te
from benchmarks.halide_apps import APPS, by_halide
from benchmarks.halide_kit import App, largest_difference
from benchmarks.halide_said import SAID

each = pytest.mark.parametrize("app", APPS, ids=[a.name for a in APPS])


@pytest.mark.share(2)
@each
def test_results(app: App) -> None:
    arrays = app.arrays(app.small)
    inputs, out = app.program(arrays)
    found = te.build(inputs, out)(*arrays)
    want = np.zeros_like(found)
    by_halide(app, arrays, want)()
    assert not app.differs(found, want, 1e-5)


@pytest.mark.parametrize("name", SAID)
def test_the_schedule_of_the_expert_said_here(name: str) -> None:
    app = next(a for a in APPS if a.name == name)
    arrays = app.arrays(app.small)
    inputs, out = app.program(arrays)
    found, by_hand = (te.build(inputs, out, schedule=s)(*arrays) for s in (None, SAID[name](out)))
    assert found.tobytes() == by_hand.tobytes()


# To build, or for the reference.
SLOW = {"interpolation by a pyramid", "largest of a disk", "convolution layer", "local Laplacian filters"}


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "app",
    [pytest.param(a, marks=[pytest.mark.long] if a.name in SLOW else []) for a in APPS if a.differentiable],
    ids=lambda a: a.name,
)
def test_gradients(app: App) -> None:
    arrays = [a.astype("float64") for a in app.arrays((17, 22))]
    inputs, out = app.program(arrays)
    head = te.placeholder(out.shape, "float64", name="head")
    gradients = te.differentiate(out, inputs, head=head)
    feeds = dict(zip(inputs, arrays, strict=True))
    feeds[head] = np.random.default_rng(3).standard_normal([int(str(n)) for n in out.shape])
    for found, want in zip(
        te.build(list(feeds), gradients)(*feeds.values()), te.interpret(gradients, feeds), strict=True
    ):
        assert largest_difference(found, want) < 1e-12
