"""Plots draw what they are given on the axes they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te

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


def test_axes_are_made_where_none_are_given() -> None:
    import matplotlib.pyplot as plt

    ax = te.display.plot.tuning_history([1.0, 2.0])
    assert ax.figure is not None
    plt.close("all")
