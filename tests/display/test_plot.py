"""Plots draw what they are given on the axes they are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from autodiff import Report

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib.figure import Figure  # noqa: E402 - after the backend is chosen


@pytest.fixture
def ax() -> Any:
    return Figure().subplots()


def labels(ax: Any) -> list[str]:
    return [t.get_text() for t in ax.get_yticklabels()]


def test_gradcheck_errors(ax: Any) -> None:
    x = te.placeholder((3,), "float64", name="x")
    report = te.gradcheck(te.tanh(x), x, raise_exception=False)
    assert te.display.plot.gradcheck_errors(report, ax=ax) is ax
    assert labels(ax) == ["dtanh/dx"]
    assert len(ax.patches) == 1


def test_roofline(ax: Any) -> None:
    x = te.placeholder((64,), name="x")
    y = x * 2
    kernel = te.build(x, y)
    points = {"kernel": (kernel, 1e-6), "tensor": (y, 2e-6), "work": (te.work(y), 4e-6)}
    te.display.plot.roofline(points, peak_flops=1e11, bandwidth=1e10, ax=ax)
    roof, *marks = ax.lines
    assert max(roof.get_ydata()) == pytest.approx(100)
    rates = [float(m.get_ydata()[0]) for m in marks]
    assert rates == pytest.approx([0.064, 0.032, 0.016])


def test_tuning_history(ax: Any) -> None:
    te.display.plot.tuning_history([3e-3, np.inf, 1e-3, 2e-3], ax=ax)
    tried, best = ax.lines
    assert list(tried.get_ydata()) == pytest.approx([3, 1, 2])
    assert list(best.get_ydata()) == pytest.approx([3, 3, 1, 1])


def test_benchmark_table(ax: Any) -> None:
    te.display.plot.benchmark_table({"conv": {"tedsl": 1e-3, "torch": 2e-3}, "scan": {"tedsl": 5e-6}}, ax=ax)
    cells = ax.tables[0].get_celld()
    assert cells[1, 0].get_text().get_text() == "1 ms"
    assert cells[1, 0].get_text().get_fontweight() == "bold"
    assert cells[1, 1].get_text().get_fontweight() != "bold"
    assert cells[2, 1].get_text().get_text() == "–"


def test_jacobian_sparsity(ax: Any) -> None:
    x = te.placeholder((6,), "float64", name="x")
    y = te.compute((3,), lambda i: x[2 * i] + x[2 * i + 1], name="y")
    te.display.plot.jacobian_sparsity(y, x, {x: np.ones(6)}, ax=ax)
    assert np.asarray(ax.images[0].get_array()).sum() == 6
    assert ax.get_title() == "33.3% non-zero"


def test_index_map(ax: Any) -> None:
    te.display.plot.index_map([(i, 2 * i) for i in range(4)], ax=ax)
    arrows = [t for t in ax.texts if t.get_text() == ""]
    assert len(arrows) == 4


X = te.placeholder((0,), "float64", name="x")
NOTHING: list[Callable[[Any], Any]] = [
    lambda ax: te.display.plot.gradcheck_errors(te.gradcheck(X * 2, X), ax=ax),
    lambda ax: te.display.plot.gradcheck_errors(Report(()), ax=ax),
    lambda ax: te.display.plot.roofline({}, peak_flops=1e11, bandwidth=1e10, ax=ax),
    lambda ax: te.display.plot.tuning_history([], ax=ax),
    lambda ax: te.display.plot.tuning_history([np.inf], ax=ax),
    lambda ax: te.display.plot.benchmark_table({}, ax=ax),
    lambda ax: te.display.plot.benchmark_table({"case": {"who": float("nan")}}, ax=ax),
    lambda ax: te.display.plot.jacobian_sparsity(X * 2, X, {X: np.ones(0)}, ax=ax),
    lambda ax: te.display.plot.index_map([], ax=ax),
]


@pytest.mark.parametrize("plot", NOTHING)
def test_there_may_be_nothing_to_plot(plot: Callable[[Any], Any], ax: Any) -> None:
    plot(ax)
    ax.figure.canvas.draw()


def test_what_does_no_arithmetic_is_named_below_the_roof(ax: Any) -> None:
    x = te.placeholder((64,), name="x")
    copy = te.compute((64,), lambda i: x[i], name="y")
    te.display.plot.roofline({"copy": (copy, 1e-6), "twice": (x * 2, 1e-6)}, peak_flops=1e11, bandwidth=1e10, ax=ax)
    assert ax.get_xlabel().endswith("without arithmetic: copy")
    assert len(ax.lines) == 2  # the roof and one point


def test_axes_within_a_decade_have_several_numbers(ax: Any) -> None:
    te.display.plot.tuning_history([4.3e-3, 3.9e-3, 3.6e-3], ax=ax)
    ax.figure.canvas.draw()
    low, high = ax.get_ylim()
    shown = [t.get_text() for t in ax.get_yticklabels() if low <= t.get_position()[1] <= high]
    assert len(shown) >= 3
    assert all(float(t) for t in shown)


def test_an_infinite_derivative_is_dark(ax: Any) -> None:
    x = te.placeholder((2,), "float64", name="x")
    te.display.plot.jacobian_sparsity(te.sqrt(x), x, {x: np.array([0.0, 1.0])}, ax=ax)
    np.testing.assert_array_equal(np.asarray(ax.images[0].get_array()), np.eye(2))


def test_axes_are_made_where_none_are_given() -> None:
    import matplotlib.pyplot as plt

    ax = te.display.plot.tuning_history([1.0, 2.0])
    assert ax.figure is not None
    plt.close("all")


def test_names_at_about_one_place_stand_on_both_sides() -> None:
    y = te.tanh(te.placeholder((4,), name="x"))
    ax = te.display.plot.roofline(
        {"one": (y, 1e-6), "other": (y, 1.1e-6), "far": (y, 1e-3)}, peak_flops=1e11, bandwidth=1e10
    )
    assert [(t.get_text(), t.get_ha()) for t in ax.texts] == [("one", "left"), ("other", "right"), ("far", "left")]


def contrast(a: str, b: str) -> float:
    """How far two colors are from each other in lightness, as WCAG counts: from 1 to 21."""
    channels = [np.array(matplotlib.colors.to_rgb(color)) for color in (a, b)]
    linear = [np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in channels]
    dark, light = sorted(float(c @ (0.2126, 0.7152, 0.0722)) + 0.05 for c in linear)
    return light / dark


def test_lines_are_seen_on_white_and_on_black() -> None:
    plot = te.display.plot
    colors = (plot.BLUE, plot.RED, plot.TEAL, plot.GRAY, *plot.OTHERS)
    assert {c: contrast(c, ground) for c in colors for ground in ("white", "#131416") if contrast(c, ground) < 3} == {}


def test_plots_of_notebooks_are_legible() -> None:
    """Text as WCAG asks of text, lines as it asks of what is not text."""
    chosen = matplotlib.rc_params_from_file(Path(__file__).parents[2] / "notebooks" / "matplotlibrc")
    ground = chosen["figure.facecolor"]
    assert ground == chosen["axes.facecolor"] == chosen["savefig.facecolor"] == chosen["legend.facecolor"]
    texts = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor")
    assert min(contrast(chosen[name], ground) for name in texts) >= 4.5
    lines = [chosen["axes.edgecolor"], *chosen["axes.prop_cycle"].by_key()["color"]]
    assert min(contrast(line, ground) for line in (*lines, te.display.plot.GRAY, te.display.plot.TEAL)) >= 3
