"""The loop that is watched: what it keeps, what it draws, and that nothing is loaded where nobody looks on."""

from __future__ import annotations

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
    assert repr(bar) == "WatchedLoop(5 shown: loss 0.2, rate 4)"


def test_any_iterable_may_be_walked() -> None:
    assert list(te.display.progress(iter("abc"))) == ["a", "b", "c"]
    assert repr(te.display.progress([])) == "WatchedLoop(0 shown)"


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
    assert repr(search) == "WatchedTuning(nothing told yet)"
    for k, best in enumerate((4e-3, 2e-3, 1e-3)):
        search(Progress(float(k), 3.0, k, 4e-3, best))
    assert search.seconds == [4e-3, 2e-3, 1e-3]
    assert repr(search) == "WatchedTuning(1 ms, 4.00 times as fast as by default)"
    ax = search.plot()
    assert list(ax.lines[0].get_ydata()) == [4.0, 2.0, 1.0]
    assert ax.get_xlabel() == "seconds of search"
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
