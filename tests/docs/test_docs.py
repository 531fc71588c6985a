"""The documentation builds, its examples run, and what would mislead a reader is an error."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tedsl

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONG = {"checking", "operators"}
NEEDS = {"dask": "dask.array", "gpu": "torch"}


def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD = builder()


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=pytest.mark.long if p.stem in LONG else ()) for p in PAGES]
)
def test_the_examples_of_a_page_run(path: Path) -> None:
    """In order, in one namespace, as a reader would paste them."""
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    space: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for tree in BUILD.examples(path.read_text()):
            exec(compile(tree, str(path), "exec"), space)


def test_pages_are_written(tmp_path: Path) -> None:
    pytest.importorskip("markdown_it")
    pytest.importorskip("pygments")
    written = BUILD.build(tmp_path)
    assert {p.stem for p in written} == {"index", "reference", *BUILD.GUIDE}
    text = (tmp_path / "reference.html").read_text()
    for name in tedsl._HOME:
        assert f'id="te.{name}"' in text
    assert 'id="te.testing.check_op"' in text
    assert 'id="te.display.plot.roofline"' in text


def test_a_link_that_leads_nowhere_is_an_error() -> None:
    with pytest.raises(BUILD.Broken, match="leads to no page"):
        BUILD.check_links("a", '<a href="b.html">', {"a": ""})
    with pytest.raises(BUILD.Broken, match="leads to no place"):
        BUILD.check_links("a", '<a href="a.html#x">', {"a": ""})
    with pytest.raises(BUILD.Broken, match="does not exist"):
        BUILD.check_links("a", '<img src="docs/pictures/none.svg">', {"a": ""})


def test_a_name_without_a_docstring_is_an_error() -> None:
    def silent() -> None: ...

    with pytest.raises(BUILD.Broken, match="silent has no docstring"):
        BUILD.documented("silent", silent)


def test_docstrings_are_prose_with_code_in_backticks() -> None:
    def hypot() -> None:
        """sqrt(x*x + y*y) of a_b and c_d, as `f(*x, a_b)`, for x < y."""

    assert BUILD.documented("hypot", hypot) == (r"sqrt(x\*x + y\*y) of a\_b and c\_d, as `f(*x, a_b)`, for x &lt; y.")


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
