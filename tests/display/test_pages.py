"""Pages: small, self-contained, escaped, the same every time, readable on light and on dark."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import sympy

import tedsl as te
from autodiff import invert
from tedsl.backend.calling.stats import Stats
from tedsl.display.markup import MOST_BYTES, page, style
from tedsl.display.views import MOST_OPEN

VOID = {"br", "mspace"}
# Where `nbconvert` made a site, `pre` has the font of its surroundings, and only `code` one whose columns are aligned.
TEXT = re.compile(r'<pre class="te-text"><code>(.*?)</code></pre>', re.DOTALL)


def layer() -> tuple[te.Tensor, ...]:
    x, w = te.placeholder((3, 8, 8), name="x"), te.placeholder((4, 3, 3, 3), name="w")
    conv = te.compute(
        (4, 8, 8),
        lambda f, i, j: te.sum(lambda c, di, dj: x.at(c, i + di - 1, j + dj - 1, mode="zero") * w[f, c, di, dj]),
        name="conv",
    )
    loss = te.compute((), lambda: te.sum(lambda f, i, j: te.tanh(conv[f, i, j])), name="loss")
    return x, w, conv, loss


def of_scan() -> te.Tensor:
    x = te.placeholder((9,), name="x")
    return te.scan((9,), lambda y, t: te.select(t == 0, x[0], 0.5 * y[t - 1] + x[t]), axis=0, name="y")


def of_scatter() -> te.Tensor:
    index, x = te.placeholder((9,), "int32", name="index"), te.placeholder((9,), name="x")
    r = te.reduce_axis(9, "r")
    return te.scatter((4,), [r], (index[r],), x[r], name="h")


def of_schedule() -> te.Schedule:
    _, _, conv, _ = layer()
    s = te.Schedule(conv)
    s[conv].vectorize("j", 4).parallel("f")
    return s


def of_trace() -> str:
    x = te.placeholder((4, 4), name="x")
    return te.display.trace(te.Schedule(te.compute((4, 4), lambda i, j: x[j, i], name="y")))._repr_html_()


def of_slider() -> str:
    return te.display.slider(split_by, [2, 4], name="rows")._repr_html_()


def of_kernel() -> Any:
    x = te.placeholder((32,), name="x")
    return te.build(x, te.compute((32,), lambda i: x[i] * 2, name="y"))


def of_stats() -> Stats:
    phases = {"Halide": 30.0, "<LLVM>": 60.0}
    return Stats(98.0, [("x", "its elements are float64, converted to float32")], 2048, lambda: (64, 64), phases=phases)


def of_gradients() -> Any:
    x, w, _, loss = layer()
    return te.differentiate(loss, [x, w])


def of_report() -> Any:
    x = te.placeholder((3,), "float64", name="x")
    return te.gradcheck(te.tanh(x), x)


def of_failure() -> Any:
    return te.testing.check_op(te.tanh, "n", vjp=lambda y, xs, h: h, checks="gradient", raise_exception=False)


@te.op
def softened(x: Any, w: Any, by: float = 2.0) -> Any:
    return te.tanh(x @ w) * by


def of_op() -> Any:
    softened(np.ones((3, 4), "float32"), np.ones((4, 2), "float32"), by=1.5)
    return softened


def of_jit() -> Any:
    f = te.jit(lambda a: a["left"] * 2 + a["right"])
    f({"left": np.ones(3), "right": np.ones(3)})
    return f


def of_step() -> Any:
    step = te.ops.optim.train_step(lambda p, x: ((x * p["w"]) ** 2).sum(), optimizer=te.ops.optim.SGD(0.1))
    step(step.start({"w": np.ones(3, "float32")}), np.ones(3, "float32"))
    return step


def of_inversion() -> Any:
    y, r, n = sympy.symbols("y r n", integer=True)
    return invert([2 * y + r], {y: (0, n), r: (0, 3)}, [2 * n + 1])


PAGES: dict[str, Callable[[], Any]] = {
    "input": lambda: layer()[0], "tensor": lambda: layer()[2], "several stages": lambda: layer()[3], "scan": of_scan,
    "scatter": of_scatter, "symbolic": lambda: te.exp(te.placeholder((te.var("n"),))),
    "program": lambda: te.display.program(layer()[3]), "graph": lambda: te.display.graph([layer()[3]]),
    "gradients": of_gradients, "explanation": lambda: of_gradients().explain(), "schedule": of_schedule,
    "stage": lambda: of_schedule()["conv"], "kernel": of_kernel, "stats": of_stats, "work": lambda: te.work(layer()[2]),
    "report": of_report, "check": of_failure, "inversion": of_inversion,
    "op": of_op, "op not called": lambda: te.op(te.ops.group_norm.function), "jit": of_jit, "train step": of_step,
}  # fmt: skip


@cache
def rendered(name: str) -> str:
    return PAGES[name]()._repr_html_()  # type: ignore[no-any-return]


class Balance(HTMLParser):
    """Raises where tags do not close in order; gathers the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)


def text_of(page: str) -> str:
    """What a page says, but for the text that stands for it where its style is taken away."""
    parser = Balance()
    parser.feed(TEXT.sub("", page))
    assert parser.open == []
    return "".join(parser.text)


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str) -> None:
    shown = rendered(name)
    assert len(shown.encode()) < MOST_BYTES
    assert text_of(shown).strip()
    assert not re.search(r"<script|javascript:|https?://|url\(|@import|\bon\w+=|0x[0-9a-f]{6}", shown)


@pytest.mark.parametrize("name", ["gradients", "program", "schedule", "scan", "inversion"])
def test_a_program_made_again_has_the_same_page(name: str) -> None:
    assert PAGES[name]()._repr_html_() == rendered(name)


@pytest.mark.parametrize("name", PAGES)
def test_text_stands_where_a_style_is_taken_away(name: str) -> None:
    text = TEXT.search(rendered(name))
    assert text
    assert html.unescape(text[1]).split("\n")[0] in str(PAGES[name]())
    assert rendered(name).count('<div class="te-page" hidden style="display:none">') == 1
    assert ".te .te-text{display: none;}.te .te-page{display: block !important;}" in style()


@pytest.mark.parametrize("made", [lambda: rendered("inversion"), lambda: rendered("graph"), of_trace, of_slider])
def test_words_of_a_picture_stay_apart_where_tags_are_taken_away(made: Callable[[], str]) -> None:
    page = re.sub(r"<style>.*?</style>", "", made(), flags=re.DOTALL)
    assert re.findall(r"\w(?:</span>)?</(?:text|title|label)>(?:<(?!/?div)[^>]*>)*\w", page) == []
    assert re.search(r"</(?:text|title|label)>", page)


def test_the_text_has_formulas_of_adjoints_and_loops_of_kernels() -> None:
    told = TEXT.search(rendered("gradients"))
    assert told
    assert re.search(r"^dconv_loss\[.*\] = .*tanh", told[1], re.MULTILINE)
    assert re.search(r"^dw\[.*\] = sum\(", told[1], re.MULTILINE)
    loops = TEXT.search(rendered("kernel"))
    assert loops
    assert PAGES["kernel"]().loop_nest() in html.unescape(loops[1])


def test_what_pages_say() -> None:
    assert "for jv < 4 vectorized" in text_of(rendered("schedule"))
    assert "for f < 4 parallel" in text_of(rendered("schedule"))
    assert "gather" in text_of(rendered("gradients"))
    assert "sums 4*3*3 per element" in text_of(rendered("gradients"))
    assert "wrong" in text_of(rendered("check"))
    assert "te.testing.check_case(te.tanh" in text_of(rendered("check"))
    assert "agrees" in text_of(rendered("report"))
    assert "flops per byte" in text_of(rendered("work"))


def test_stats_show_phases_memory_and_copies() -> None:
    shown = text_of(rendered("stats")).replace("\u202f", " ")
    told = ("compiled in 98 ms", "2 KiB", "its own: 2 buffers128", "together, at most2.12", "xits elements are float64")
    assert [part for part in (*told, "<LLVM>60") if part not in shown] == []
    assert "copied" not in text_of(Stats()._repr_html_())
    assert "on the GPU" in text_of(Stats(bytes=4, on_device=True)._repr_html_())
    kernel = of_kernel()
    kernel(np.ones(32), casting="same_kind")
    assert "converted to float32" in text_of(kernel.stats._repr_html_())


def test_names_are_escaped() -> None:
    hostile = '<img src=x onerror="alert(1)">&'
    x = te.placeholder((4,), name=hostile)
    y = te.compute((4,), lambda i: x[i] * 2, name=hostile)
    schedule = te.Schedule(y)
    gradients = te.differentiate(y.sum(), [x])
    for thing in (x, y, te.display.program(y), gradients, schedule, te.display.graph(y)):
        assert "<img" not in thing._repr_html_()
        text_of(thing._repr_html_())


def test_names_are_the_same_all_over_a_page() -> None:
    x = te.placeholder((4,), name="x")
    page = te.display.program(te.tanh(te.tanh(x)))
    shown = text_of(page._repr_html_())
    assert len(re.findall(r"tanh_1 ?float32\[4\]", shown)) == 2  # in the graph and in the table
    assert te.display.latex(page) == (
        "$\\displaystyle \\begin{aligned}\n"
        r"\mathrm{tanh}_{i} &= \operatorname{tanh}\left( x_{i} \right) && i<4 " + "\\\\\n"
        r"\mathrm{tanh\_1}_{i} &= \operatorname{tanh}\left( \mathrm{tanh}_{i} \right) && i<4" + "\n"
        "\\end{aligned}$"
    )


@pytest.mark.parametrize("name", PAGES)
def test_formulas_stand_where_there_are_some(name: str) -> None:
    found = PAGES[name]()._repr_latex_()
    assert (found is None) == (
        name
        in (
            "input",
            "explanation",
            "schedule",
            "stage",
            "kernel",
            "stats",
            "work",
            "report",
            "check",
            "op",
            "op not called",
            "jit",
            "train step",
        )
    )


def test_nothing_to_show_has_a_page() -> None:
    constant = te.compute((), lambda: te.const(1.0), name="c")
    for thing in (te.differentiate(constant), te.display.program([]), te.display.graph([])):
        text_of(thing._repr_html_())
        assert thing._repr_latex_() is None


def test_a_long_nest_is_opened_by_the_reader() -> None:
    x = te.placeholder((8, 8), name="x")
    short = te.build(x, te.compute((8, 8), lambda i, j: x[i, j] * 2, name="y"))
    y = x
    for _ in range(12):
        y = te.compute((8, 8), lambda i, j, y=y: te.sum(lambda k: y[i, k] * y[k, j]), name="y")
    long = te.build(x, y)
    assert long.loop_nest().count("\n") > MOST_OPEN
    assert "<details open><summary>loops" in short._repr_html_()
    assert "<details><summary>loops" in long._repr_html_()


def test_a_large_program_has_a_page_within_bounds() -> None:
    x = te.placeholder((4, 4), name="x")
    y = x
    for k in range(30):
        y = te.tanh(y @ x + float(k))
    for thing in (y, te.display.program(y), te.differentiate(y.sum(), [x]), te.Schedule(y)):
        assert len(thing._repr_html_().encode()) < MOST_BYTES


def test_parts_that_do_not_fit_are_left_out_and_counted() -> None:
    shown = page(["<p>first</p>", "x" * MOST_BYTES, "<p>last</p>"], "first\n" * MOST_BYTES)
    assert len(shown.encode()) < MOST_BYTES
    assert "first" in shown
    assert "more parts do not fit" in shown


class _ShownAsItIs:
    def __init__(self, told: str | None) -> None:
        self.told = told

    def _repr_html_(self) -> str | None:
        return self.told


def test_what_shows_itself_has_a_page() -> None:
    y = te.exp(te.placeholder((4, 37), name="a"))
    slider = te.display.slider(lambda k: te.Schedule(y + k), (1, 2))
    shown = (te.display.program(y), te.display.graph(y), te.display.trace(te.Schedule(y)), slider, _ShownAsItIs("<p>"))
    for thing in shown:
        assert te.display.html(thing) == thing._repr_html_()


def test_what_shows_itself_stands_in_other_pages() -> None:
    y = te.exp(te.placeholder((4, 37), name="a"))
    slid = te.display.slider([te.display.graph(y), _ShownAsItIs("<p>own</p>")].__getitem__, (0, 1))._repr_html_()
    assert slid.count("<svg") == 1
    assert slid.count("<p>own</p>") == 1
    assert slid.count("te-page") == te.display.html(y).count("te-page"), "one page"


def test_what_shows_nothing_of_itself_is_refused() -> None:
    with pytest.raises(TypeError, match="no page for _ShownAsItIs"):
        te.display.html(_ShownAsItIs(None))


def test_a_thing_without_a_page_is_refused() -> None:
    with pytest.raises(TypeError, match="no page for int; there are pages for Tensor"):
        te.display.html(3)


def luminance(colour: str) -> float:
    parts = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_read_on_light_and_on_dark() -> None:
    """A contrast of 4.5, as accessibility guidelines ask, on the notebook's ground and on the badge's own."""
    found = {n: (a, b) for n, a, b in re.findall(r"--([\w-]+): ?light-dark\((#\w{6}), ?(#\w{6})\)", style())}
    assert {"ink", "mute", "blue", "wash-blue"} <= set(found)
    for name, colours in found.items():
        if name.startswith("wash") or name in ("line", "soft"):
            continue
        grounds = found.get(f"wash-{name}", found["soft"])
        for colour, notebook, ground in zip(colours, ("#ffffff", "#111111"), grounds, strict=True):
            assert contrast(colour, notebook) >= 4.5, name
            assert contrast(colour, ground) >= 4.5, name


def test_a_tuned_schedule_shows_its_trials() -> None:
    x = te.placeholder((64,), name="x")
    tuned = te.tune(te.compute((64,), lambda i: te.exp(x[i]), name="y"), budget=0.5, progress=False)
    assert "times as fast as by default" in text_of(tuned._repr_html_())
    assert "trials" in text_of(tuned._repr_html_())


def split_by(factor: int) -> te.Schedule:
    _, _, _, loss = layer()
    schedule = te.Schedule(loss)
    schedule["conv"].split("i", factor)
    return schedule


def test_a_slider_has_a_page_for_every_value() -> None:
    made = te.display.slider(split_by, [2, 4, 8], name="rows", begin=1)
    page = made._repr_html_()
    text = text_of(page.replace(" checked", ""))
    assert [f"rows = {n}" in text and f"ii < {n}" in text for n in (2, 4, 8)] == [True] * 3
    assert [bool(c) for c in re.findall(r'<input type="radio" name="stop"( checked)?/>', page)] == [False, True, False]
    for k in (1, 2, 3):  # the style alone shows the page of the stop that is chosen
        assert f":has(label:nth-of-type({k}) :checked)>.te-frame:nth-of-type({k + 1})" in page
    assert "<script" not in page
    assert page == made._repr_html_()
    assert repr(made).startswith("rows = 2:\nfor f < 4:")
    assert str(split_by(8)) in repr(made)


def test_a_slider_shows_whatever_has_a_page_and_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    escaped = te.display.slider(lambda v: layer()[2], ["<b>", "&"])
    assert "&lt;b&gt;" in escaped._repr_html_()
    assert "value = &amp;" in escaped._repr_html_()
    monkeypatch.setattr("tedsl.display.markup.MOST_BYTES", 9000)
    assert "2 pages are too much for one output" in escaped._repr_html_()
    for mistake, said in (
        (lambda: te.display.slider(split_by, []), "expected 1 to 24 values, found 0"),
        (lambda: te.display.slider(split_by, [2], begin=1), "expected begin from 0 to 0"),
        (lambda: te.display.slider([2], [2]), "expected a function of one value, found list"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            mistake()


def test_a_function_of_arrays_shows_its_signature_its_arrays_and_its_formulas() -> None:
    shown = text_of(rendered("op"))
    for said in ("softened", "by: float = 2.0", "float32[3, 4]", "by1.5", "tanh", "compiled in"):
        assert said in shown
    assert "te.jit of <lambda>" in text_of(rendered("jit"))
    assert "not called on arrays yet" in text_of(rendered("op not called"))
    assert "train_step of <lambda>" in text_of(rendered("train step"))
