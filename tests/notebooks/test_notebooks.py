"""Every notebook runs and shows what it claims; kept as percent files, without outputs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from notebooks.cells import cells, missing, notebooks, run

QUICK = {"01", "03", "12", "13"}


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=() if p.stem[:2] in QUICK else pytest.mark.long) for p in notebooks()]
)
def test_notebook(path: Path) -> None:
    if lacking := missing(path):
        pytest.skip(f"{', '.join(lacking)} not installed")
    assert any(hasattr(value, "_repr_html_") for value in run(path))


@pytest.mark.parametrize("path", notebooks(), ids=lambda p: p.stem)
def test_a_notebook_is_prose_and_assertions(path: Path) -> None:
    listed = list(cells(path))
    assert listed[0].kind == "markdown"
    assert listed[0].text.startswith("# ")
    code = "\n".join(c.text for c in listed if c.kind == "code")
    assert "assert" in code
    assert sum(c.kind == "markdown" for c in listed) >= 5


def test_cells_of_a_percent_file(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        textwrap.dedent("""\
        # %% [markdown]
        # # Title
        #
        # Text.

        # %%
        x = 1

        # %%
        x + 1
        """)
    )
    assert [(c.kind, c.text, c.line) for c in cells(path)] == [
        ("markdown", "# Title\n\nText.", 2), ("code", "x = 1", 7), ("code", "x + 1", 10),
    ]  # fmt: skip
    assert run(path) == [2]


def test_an_error_points_at_the_line_of_the_notebook(tmp_path: Path) -> None:
    path = tmp_path / "b.py"
    path.write_text("# %%\nx = 1\n\n# %%\ny = 2\nassert x == y\n")
    with pytest.raises(AssertionError) as caught:
        run(path)
    assert caught.traceback[-1].lineno + 1 == 6


def test_what_a_notebook_imports_and_is_not_installed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "99_made.py"
    path.write_text("# %%\nimport numpy as np\nimport no_such_module.part\n\n# %%\nfrom nor_this import that\n")
    assert missing(path) == ["no_such_module", "nor_this"]
