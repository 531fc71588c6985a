"""The applications of `benchmarks.halide_apps` at tiny sizes: results as Halide's, gradients as the reference's."""

from __future__ import annotations

import numpy as np
import pytest

import tedsl as te
from benchmarks.halide_apps import APPS, by_halide
from benchmarks.halide_kit import App, largest_difference

each = pytest.mark.parametrize("app", APPS, ids=[a.name for a in APPS])


@each
def test_results(app: App) -> None:
    image = app.data(*app.small)
    a = te.placeholder(image.shape, image.dtype.name, name="image")
    found = te.build([a], app.ours(a))(image)
    want = np.zeros_like(found)
    by_halide(app, image, want)()
    assert not app.differs(found, want, 1e-5)


@pytest.mark.parametrize("app", [a for a in APPS if a.differentiable], ids=lambda a: a.name)
def test_gradients(app: App) -> None:
    image = app.data(17, 22).astype("float64")
    a = te.placeholder(image.shape, "float64", name="image")
    out = app.ours(a)
    head = te.placeholder(out.shape, "float64", name="head")
    gradient = te.differentiate(out, a, head=head)
    feeds = {a: image, head: np.random.default_rng(3).standard_normal([int(str(n)) for n in out.shape])}
    found = te.build([a, head], gradient)(*feeds.values())
    assert largest_difference(found, te.interpret(gradient, feeds)) < 1e-12
