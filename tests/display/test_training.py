"""The loop that is watched: what it keeps, what it draws, and that nothing is loaded where nobody looks on."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te


def test_numbers_are_kept() -> None:
    seen = []
    for k in (bar := te.display.progress(5)):
        seen.append(k)
        bar.show(loss=1 / (1 + k), rate=k)
    assert seen == [0, 1, 2, 3, 4]
    assert bar.history == {"loss": [1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5], "rate": [0.0, 1.0, 2.0, 3.0, 4.0]}
    assert len(bar) == 5
    assert repr(bar) == "te.display.progress(5), 5 shown: loss 0.2, rate 4"


def test_any_iterable_may_be_walked() -> None:
    assert list(te.display.progress(iter("abc"))) == ["a", "b", "c"]
    assert repr(te.display.progress([])) == "te.display.progress([]), 0 shown"


def test_the_curve() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    bar = te.display.progress(3)
    for k in bar:
        bar.show(loss=k + 1)
    ax = bar.plot(yscale="log")
    assert ax.get_yscale() == "log"
    assert ax.get_ylabel() == "loss"
    assert list(ax.lines[0].get_ydata()) == [1, 2, 3]
    bar.show(other=1)
    assert [t.get_text() for t in bar.plot().get_legend().get_texts()] == ["loss", "other"]
    matplotlib.pyplot.close("all")


def test_a_bar_where_a_terminal_looks_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for _ in (bar := te.display.progress(3, every=0.0)):
        bar.show(loss=0.25)
    told = capsys.readouterr().err
    assert "3/3" in told
    assert "loss=0.25" in told


def test_a_search_is_watched() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from tedsl.backend.host.progress import Progress

    search = te.display.tuning()
    assert repr(search) == "te.display.tuning(), nothing told yet"
    for k, best in enumerate((4e-3, 2e-3, 1e-3)):
        search(Progress(float(k), 3.0, k, 4e-3, best))
    assert search.seconds == [4e-3, 2e-3, 1e-3]
    assert repr(search) == "te.display.tuning(), 1 ms, 4.00 times as fast as by default"
    ax = search.plot()
    assert list(ax.lines[0].get_ydata()) == [4.0, 2.0, 1.0]
    assert ax.get_xlabel() == "seconds of search"
    assert ax.get_ylim()[0] == 0
    assert ax.get_ylim()[1] > 4.3  # the first line is not on the frame
    assert te.display.tuning().plot().get_ylim()[0] == 0
    matplotlib.pyplot.close("all")


def test_the_bar_ends_with_the_last_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for k in (bar := te.display.progress(range(7), every=60)):
        bar.show(loss=10.0 - k)
    assert "7/7" in (last := capsys.readouterr().err.splitlines()[-1])
    assert last.rstrip().endswith("loss=4]")


def test_what_is_shown_beside_numbers() -> None:
    bar = te.display.progress(np.int64(2))
    assert list(bar) == [0, 1]
    bar.show(loss=np.float32(0.5), note="warmup", test=None)
    bar.show(loss=np.array([0.25]), note="steady", test=te.evaluate(te.ones(())))
    assert bar.history["loss"] == [0.5, 0.25]
    assert math.isnan(bar.history["test"][0])
    assert bar.history.keys() == {"loss", "test"}
    assert repr(bar) == "te.display.progress(2), 2 shown: loss 0.25, note steady, test 1"
    bar.show(test=None)
    assert "test -" in repr(bar)


def test_text_stands_behind_the_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for k in (bar := te.display.progress(3, every=0.0)):
        bar.show(loss=0.25, note="warmup" if k < 2 else "steady", test=None)
    assert "loss=0.25, note=steady, test=-" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda bar: bar.show(0.5), r"show at .*each value has a name, as bar.show\(loss=loss\); found 0.5"),
        (lambda bar: bar.show(loss=np.ones(3)), r"loss: expected a number, .* found an array of \(3,\); .*mean"),
        (lambda bar: bar.show(loss=[0.5]), r"loss: expected a number, text or None, found list \[0.5\]"),
        (lambda bar: bar.show(loss=1j), "loss: expected a number, text or None, found complex 1j"),
        (lambda bar: bar.show(loss=te.ones(())), "loss: expected a number, text or None, found Tensor ones : float32"),
        (lambda bar: bar.set_postfix(loss=1), r"no attribute 'set_postfix'; it is show\(loss=loss\)"),
        (lambda bar: bar.set_description("x"), r"it is te.display.progress\(steps, desc=text\)"),
        (lambda bar: bar.foo, "'WatchedLoop' has no attribute 'foo'$"),
        (lambda bar: te.display.progress(-1), "expected a number of steps of 0 or more, found -1"),
        (lambda bar: te.display.progress(2.5), "expected a number of steps, or what to iterate over, found 2.5"),
        (lambda bar: te.display.progress(True), "expected a number of steps, or what to iterate over, found True"),
        (lambda bar: te.display.progress(3, total=4), "te.display.progress at .*found total="),
        (lambda bar: te.progress, "it is te.display.progress"),
        (lambda bar: te.tqdm, "it is te.display.progress"),
        (lambda bar: te.display.trange, "it is te.display.progress"),
        (lambda bar: te.latex, "it is te.display.latex"),
    ],
)  # fmt: skip
def test_what_a_bar_does_not_have_is_said(call: Callable[[Any], Any], words: str) -> None:
    with pytest.raises((AttributeError, TypeError, ValueError)) as caught:
        call(te.display.progress(3))
    assert re.search(words, str(caught.value))


def _drawn(bar: Any) -> dict[str, tuple[list[float], list[float], int]]:
    """Of each line of the plot its x, its y, and the number of points that are marked."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    lines = {str(line.get_label()): line for line in bar.plot().lines}
    matplotlib.pyplot.close("all")
    return {
        name: (
            list(line.get_xdata()),
            list(line.get_ydata()),
            len(line.get_markevery() or ()) * (line.get_marker() != "None"),
        )
        for name, line in lines.items()
    }


@pytest.mark.parametrize("as_none", [True, False])
def test_a_number_that_few_steps_have_is_drawn_at_these_and_joined(as_none: bool) -> None:
    for k in (bar := te.display.progress(50)):
        missing: dict[str, Any] = {"test": None} if as_none else {}
        bar.show(loss=k, **(missing if k % 10 else {"test": 2 * k}))
    drawn = _drawn(bar)
    assert drawn["loss"] == (list(range(50)), list(range(50)), 0)
    assert drawn["test"] == ([0, 10, 20, 30, 40], [0, 20, 40, 60, 80], 5)


def test_the_steps_of_a_plot_are_those_of_the_loop() -> None:
    for k in (bar := te.display.progress(range(100, 106))):
        if k % 2:  # not shown at each step
            bar.show(loss=k)
        if k == 104:
            bar.show(test=1)
        bar.show(rate=k)  # of the same step
    drawn = _drawn(bar)
    assert drawn["loss"][0] == [1, 3, 5]
    assert drawn["test"] == ([4], [1], 1)  # a single point would not be seen as a line
    assert drawn["rate"][0] == [0, 1, 2, 3, 4, 5]
    bar.show(test=2)  # after the loop
    assert _drawn(bar)["test"][0] == [4, 6]
    for _ in bar:  # and once more
        bar.show(rate=0)
    assert _drawn(bar)["rate"][0] == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12]


def test_several_numbers_of_one_step_lie_within_it() -> None:
    for _ in (bar := te.display.progress(2)):
        for batch in range(4):
            bar.show(loss=batch)
        bar.show(test=1)
    drawn = _drawn(bar)
    assert drawn["loss"][0] == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]
    assert drawn["test"][0] == [0, 1]
    assert drawn["loss"][2] == drawn["test"][2] == 0


def test_numbers_shown_without_a_loop_are_a_step_each() -> None:
    bar = te.display.progress(3)
    for k in range(3):
        bar.show(loss=k)
    assert _drawn(bar)["loss"][0] == [0, 1, 2]


def test_a_nan_that_was_computed_is_a_gap() -> None:
    for k in (bar := te.display.progress(6)):
        bar.show(loss=math.nan if k in (2, 4) else k)
    x, y, marked = _drawn(bar)["loss"]
    assert x == [0, 1, 2, 3, 4, 5]
    assert [k for k, v in enumerate(y) if math.isnan(v)] == [2, 4]
    assert marked == 2  # 3 and 5 stand alone


def test_the_page_of_a_bar() -> None:
    bar = te.display.progress(20)
    assert "nothing shown yet" in te.display.html(bar)
    for k in bar:
        bar.show(loss=1 / (1 + k), note="warm", **({} if k % 5 else {"test": k, "bad": math.nan}))
    page = te.display.html(bar)
    assert page == bar._repr_html_()
    assert page.count("<polyline") == 2  # of numbers; what is all NaN has no curve
    assert page.count("<circle") == 4
    assert all(word in page for word in ("loss", "test", "bad", "warm", "0.05", "20 steps"))
