"""The site builds without a warning, its examples run, and every public name has a docstring and an example."""

from __future__ import annotations

import contextlib
import doctest
import functools
import html
import importlib.util
import io
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import tedsl
from docs.building import examples as shown, introductions, plots, reference, results, widths
from docs.building.pages import as_notebook, examples

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONG = {"checking", "operators", "ops"}
NEEDS = {
    "differentiating": "scipy",
    "dask": "dask.array", "gpu": "torch", "display": "matplotlib", "frameworks": "torch",
    "linear_algebra": "matplotlib",
}  # fmt: skip


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=pytest.mark.long if p.stem in LONG else ()) for p in PAGES]
)
def test_the_examples_of_a_page_run(path: Path) -> None:
    """In order, in one namespace, as a reader would paste them."""
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    space: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for tree in examples(path.read_text()):
            exec(compile(tree, str(path), "exec"), space)


def test_the_site_is_written_without_a_warning(tmp_path: Path) -> None:
    """Links, references and toctrees lead somewhere, no page loads anything from elsewhere; examples are not run."""
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_nb")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-D", "nb_execution_mode=off"]
    done = subprocess.run([*command, "docs", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pages = "".join(path.read_text() for path in sorted((tmp_path / "made" / "reference").glob("*.html")))
    for name in tedsl._HOME:
        assert f'id="tedsl.{name}"' in pages
    for name in (
        "schedules.stage_view.StageView.rfactor", "tedsl.testing.check_op", "tedsl.display.plot.roofline",
        "tedsl.Schedule.load", "tedsl.Tuned.best", "tedsl.ops.optim.Adam.update", "tedsl.display.WatchedLoop.plot",
    ):  # fmt: skip
        assert f'id="{name}"' in pages
    listed = (tmp_path / "made" / "reference" / "index.html").read_text()
    assert [name for name in tedsl._HOME if f'href="{home_of(name)}.html#tedsl.{name}"' not in listed] == []
    assert (tmp_path / "made" / "notebooks" / "00_five_minutes.html").exists()
    assert dead_links(tmp_path) == []
    assert '<input type="search" name="q"' in (tmp_path / "search.html").read_text()
    assert re.findall(r"The example of (?!<a )[^\n]{,60}", pages) == [], "examples below another name are linked"
    assert re.findall(r"=[“”]\w*", pages) == [], "texts of Python have straight quotes"
    told = html.unescape(re.sub(r"<[^>]+>", "", pages))
    assert re.findall(r"→\s*->.{,30}|.{,30}Callable\[\[\.\.\.\]", told) == [], "types stand as Python writes them"
    loads = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*')
    assert [(path.name, found) for path in tmp_path.rglob("*.html") for found in loads.findall(path.read_text())] == []


def home_of(name: str) -> str:
    """The page of the reference that a public name stands on."""
    return next(page for page, names in reference.areas().items() if name in names)


def dead_links(site: Path) -> list[tuple[str, str]]:
    """Links within a site that lead to no page of it, or to no place on the page."""
    texts = {path.resolve(): path.read_text() for path in site.rglob("*.html")}
    places = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in texts.items()}
    found = []
    for path, text in texts.items():
        for link in set(re.findall(r'<a [^>]*\bhref="([^"]+)"', text)):
            name, _, place = html.unescape(link).partition("#")
            target = (path.parent / unquote(name)).resolve() if name else path
            if ":" not in name and (not target.exists() or (place and unquote(place) not in places.get(target, ()))):
                found.append((path.name, link))
    return found


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="top"><a href="b.html#x"><a class="c" href="#top"><a href="https://d.e">')
    (tmp_path / "b.html").write_text('<p id="y"><a href="a.html#top"><a href="c.html">')
    assert sorted(dead_links(tmp_path)) == [("a.html", "b.html#x"), ("b.html", "c.html")]


def test_a_page_is_a_notebook_of_its_examples() -> None:
    pytest.importorskip("nbformat")
    made = as_notebook("# Title\n\nText.\n\n```python\nx = 1\n```\n\nMore.\n\n```\nnot run\n```\n")
    assert [(c.cell_type, c.source) for c in made.cells] == [
        ("markdown", "# Title\n\nText."), ("code", "x = 1"), ("markdown", "\nMore.\n\n```\nnot run\n```"),
    ]  # fmt: skip
    (linked,) = as_notebook("[a](../notebooks/00_five_minutes.ipynb)\n").cells
    assert linked.source == "[a](made/notebooks/00_five_minutes.ipynb)"


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.stem, marks=pytest.mark.long if p.stem in LONG else ()) for p in shown.files()],
)
def test_the_examples_of_the_reference_run(path: Path) -> None:
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    silent = [e.names for e in shown.run(path) if e.names and not (e.printed or e.page)]
    assert silent == [], "an example shows something"


def test_plots_are_shown_and_not_told() -> None:
    pytest.importorskip("matplotlib")
    found = {name: e.page for e in shown.run(ROOT / "docs" / "examples" / "display.py") for name in e.names}
    assert {name for name in found if ".plot." in name and "<img" not in found[name]} == set()
    assert 'class="wide"' in found["te.display.plot.index_map"]
    assert 'class=""' in found["te.display.plot.jacobian_sparsity"], "it fits a phone"
    assert "<input" in found["te.display.slider"]
    assert "<animate" in found["te.display.trace"]


def test_examples_begin_with_the_imports_that_they_use() -> None:
    ((scene, _),) = shown.scenes({"Gradients"})
    assert scene.startswith("import numpy as np\n\nimport tedsl as te\n\nx = ")
    ((scene, _),) = shown.scenes({"Kernel.export", "IndexInversion"})
    kept = ["import tempfile", "from pathlib import Path", "", "import numpy as np", "import sympy", ""]
    assert scene.splitlines()[:8] == [*kept, "import tedsl as te", "from autodiff import invert"]


def test_a_plot_is_drawn_or_a_photograph() -> None:
    image, draw = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageDraw")
    card = image.new("RGB", (100, 40), (246, 248, 250))
    assert plots.is_drawn(card)
    bar, photograph = card.copy(), card.copy()
    draw.Draw(bar).rectangle((10, 5, 80, 30), fill=(214, 69, 80))
    assert plots.is_drawn(bar)
    photograph.paste(image.linear_gradient("L").resize((60, 40)), (0, 0))
    assert not plots.is_drawn(photograph)


def test_names_in_tables_end_a_line_after_more_than_a_few_letters() -> None:
    def parts(name: str) -> list[str]:
        return widths.words(name, "/_:.,(=")

    assert parts("te.ops.segment_sum") == ["te.ops.", "segment_", "sum"]
    assert parts("te.compute(lambda i, j: ...)") == ["te.compute(", "lambda i,", " j:", " ...)"]
    assert parts("te.jvp(f, (x,), (v,))") == ["te.jvp(", "f,", " (", "x,", "),", " (", "v,))"]
    assert parts("te.") == ["te."]


def test_plots_with_many_panels_scroll_on_a_phone() -> None:
    assert [widths.class_of_plot(pixels) for pixels in (571, 702, 1111)] == [[], ["wide"], ["broad"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_of_the_readme_shows_what_notebooks_show(theme: str) -> None:
    image = pytest.importorskip("PIL.Image")
    from docs.building import picture

    about = image.open(picture.FOLDER / f"gradient-{theme}.png").text
    assert about.get(picture.TEXT) == picture.text_of(picture.shown()), "run python docs/building/picture.py"


def test_every_public_name_has_an_example() -> None:
    told = {name for path in shown.files() for names, _, _ in shown.cells(path) for name in names}
    wanted = set(reference.named())
    assert sorted(wanted - told) == []
    assert sorted(told - wanted) == [], "examples of what is not there"


def test_every_public_name_has_a_docstring() -> None:
    for name in tedsl._HOME:
        reference.documented(name, getattr(tedsl, name))
    for owner in (*results.CLASSES, *reference.CLASSES, reference.StageView):
        for name in (results if owner in results.CLASSES else reference).methods(owner):
            reference.documented(f"{owner.__name__}.{name}", getattr(owner, name))
    for package in reference.PACKAGES:
        for name in reference.members(package):
            reference.documented(name, functools.reduce(getattr, [*package.split("."), name], tedsl))

    def silent() -> None: ...

    with pytest.raises(reference.Broken, match="silent has no docstring"):
        reference.documented("silent", silent)


def test_what_public_functions_give_is_in_the_reference() -> None:
    """Classes of ours that a public function or method says it returns: each is told of, or is what nobody meets."""
    owners = (*reference.CLASSES, *results.CLASSES)
    told = {tedsl.__dict__.get(n, getattr(tedsl, n)) for n in tedsl._HOME} | set(owners) | {reference.StageView}
    asked = [getattr(tedsl, name) for name in tedsl._HOME]
    asked += [getattr(owner, name) for owner in owners for name in results.methods(owner)]
    found = set()
    for value in asked:
        value = value.fget if isinstance(value, property) else value
        given = getattr(value, "__annotations__", {}).get("return", "")
        for word in re.findall(r"[A-Z]\w+", given if isinstance(given, str) else ""):
            kind = getattr(sys.modules[value.__module__], word, None)
            if isinstance(kind, type) and kind.__module__.startswith(("tedsl", "autodiff", "schedules")):
                found.add(kind)
    missing = {kind.__name__ for kind in found if not any(issubclass(kind, t) for t in told if isinstance(t, type))}
    assert missing == set()


def test_environment_variables_and_commands_are_told() -> None:
    """Those that the code reads, each with a row; every subcommand, too."""
    source = "".join(path.read_text() for path in sorted((ROOT / "tedsl").rglob("*.py")))
    page = (ROOT / "docs" / "environment.md").read_text()
    rows = set(re.findall(r"^\| `(TEDSL_\w+)`", page, re.MULTILINE))
    assert set(re.findall(r"\bTEDSL_[A-Z_]+\b", source)) == rows
    assert {name for name in rows if page.count(name) < 2} == set(), "each stands in an example as well"
    page = (ROOT / "docs" / "commands.md").read_text()
    commands = set(re.findall(r'commands\.add_parser\(\s*"(\w+)"', source))
    assert "check" in commands
    assert {name for name in commands if not re.search(rf"^\$ tedsl {name}\b", page, re.MULTILINE)} == set()


def test_a_column_of_words_is_a_list_of_terms() -> None:
    lines = ["out   an array to write into", 'mode  "write" or', '      "add"']
    assert reference.as_rst(lines) == [
        "``out``",
        "   an array to write into",
        "",
        "``mode``",
        '   "write" or "add"',
        "",
    ]


def test_docstrings_are_prose_with_code_in_backticks() -> None:
    lines = ["sqrt(x*x + y*y) of a_b and c_d, as `f(*x, a_b)`, for x < y.", "", "  for i:", "    x"]
    assert reference.as_rst(lines) == [
        r"sqrt(x\*x + y\*y) of a\_b and c\_d, as ``f(*x, a_b)``, for x < y.", "",
        "::", "", "     for i:", "       x", "",
    ]  # fmt: skip
    code = [".. code-block:: text", "   :class: rewrite", ""]
    assert reference.as_rst(["for i: s   ->   for j: s*2"]) == [*code, "   for i: s", "   -> for j: s*2", ""]
    assert reference.as_rst(["A   ->   B = A; C = B; returns `B`, the copy"]) == [
        *code, "   A", "   -> B = A; C = B", "", "Returns ``B``, the copy.", "",
    ]  # fmt: skip
    assert reference.as_rst(["sizes (`te.var`), `Axis`es, a_b"]) == [r"sizes (``te.var``), ``Axis``\ es, a\_b", ""]
    assert reference.as_rst(["i     the first, `i`", "j, k  the", "      others"]) == [
        "``i``", "   the first, ``i``", "", "``j, k``", "   the others", "",
    ]  # fmt: skip
    assert reference.as_rst(["two", "", ">>> f(a_b)", "2*x"]) == ["two", ""]  # the page has an example of its own
    assert reference.as_rst(["A   ->   B, through `loop`"]) == [*code, "   A", "   -> B, through loop", ""]


def test_what_is_named_in_docstrings_is_code_or_a_link() -> None:
    for told, as_rst in (
        ("As torch.nn.functional.avg_pool2d.", "As ``torch.nn.functional.avg_pool2d``."),
        (
            "jax.random.bits(jax.random.key(seed), shape), for 2",
            "``jax.random.bits(jax.random.key(seed), shape)``, for 2",
        ),
        ('layout="NHWC", or a=None', '``layout="NHWC"``, or ``a=None``'),
        ("of log_softmax(x)", r"of :py:obj:`log_softmax <tedsl.ops.log_softmax>`\ (x)"),
        ("relu(x) of np.", "relu(x) of np."),
    ):
        assert reference.as_rst([told]) == [as_rst, ""]


def test_every_page_of_the_reference_says_first_what_stands_there() -> None:
    pages = {*reference.AREAS, *reference.PACKAGES, *reference.OTHERS}
    assert set(introductions.FIRST) == pages
    listed = [name for names in introductions.groups().values() for name in names]
    assert sorted(listed) == reference.members("ops")


def test_classes_that_nobody_calls_stand_without_what_makes_them() -> None:
    optim = tedsl.ops.optim
    made = (optim.TrainStep, optim.Optimizer, tedsl.Tensor, optim.Adam, tedsl.jit)
    assert [reference.is_made_elsewhere(value) for value in made] == [True, True, True, False, False]


@pytest.mark.parametrize("package", ["tedsl", "autodiff", "schedules"])
def test_doctests(package: str) -> None:
    """Examples in docstrings do what they say."""
    (folder,) = importlib.import_module(package).__path__
    for info in pkgutil.walk_packages([folder], f"{package}."):
        source = importlib.util.find_spec(info.name)
        assert source is not None
        if source.origin is None or "\n    >>> " not in Path(source.origin).read_text():
            continue
        result = doctest.testmod(importlib.import_module(info.name))
        assert result.failed == 0, info.name
