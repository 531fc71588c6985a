"""Every notebook runs and shows what its `.ipynb` has stored."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jupytext")
pytest.importorskip("nbclient")

from notebooks.pairs import CHANGING, differences, execute, missing, notebooks, read, steady, stored

QUICK = {"00", "03", "12"}


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=() if p.stem[:2] in QUICK else pytest.mark.long) for p in notebooks()]
)
def test_a_notebook_shows_what_is_stored(path: Path) -> None:
    if lacking := missing(path):
        pytest.skip(f"{', '.join(lacking)} not installed")
    new = execute(path)
    assert differences(stored(path), new) == [], f"run: python -m notebooks.pairs {path.stem}"
    assert any("text/html" in output.get("data", {}) for cell in new.cells for output in cell.get("outputs", ()))


@pytest.mark.parametrize("path", notebooks(), ids=lambda p: p.stem)
def test_a_pair_has_the_same_cells(path: Path) -> None:
    cells = [
        [(c.cell_type, c.source, c.metadata.get("tags", [])) for c in made.cells] for made in (read(path), stored(path))
    ]
    assert cells[0] == cells[1], f"run: python -m notebooks.pairs {path.stem}"


@pytest.mark.parametrize("path", notebooks(), ids=lambda p: p.stem)
def test_a_notebook_is_prose_and_assertions(path: Path) -> None:
    cells = read(path).cells
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    assert any("assert" in c.source for c in cells if c.cell_type == "code")
    assert sum(c.cell_type == "markdown" for c in cells) >= 5


@pytest.mark.parametrize("path", notebooks(), ids=lambda p: p.stem)
def test_no_time_and_no_address_is_stored(path: Path) -> None:
    text = path.with_suffix(".ipynb").read_text()
    outputs = "".join(
        str(output.get("text", "")) + str({k: v for k, v in output.get("data", {}).items() if k != "image/png"})
        for cell in stored(path).cells
        for output in cell.get("outputs", ())
    )
    assert [found for pattern, _ in CHANGING for found in pattern.findall(outputs)] == []
    assert len(text) < 1_000_000


def test_what_differs_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        textwrap.dedent("""\
        # %% [markdown]
        # # Title

        # %%
        print("1.5 ms", object())

        # %% tags=["machine"]
        import time
        time.perf_counter()

        # %%
        1 + 1
        """)
    )
    old, new = execute(path), execute(path)
    assert differences(old, new) == []
    assert old.cells[1].outputs[0].text == "… ms <object object at 0x…>\n"
    new.cells[3].outputs[0].data["text/plain"] = "3"
    assert differences(old, new)[-2:] == ["-2", "+3"]
    new.cells[3].source = "1 + 2"
    assert "cell 3 is another one:" in differences(old, new)


def test_an_error_shows_its_line(tmp_path: Path) -> None:
    path = tmp_path / "b.py"
    path.write_text("# %%\nx = 1\n\n# %%\ny = 2\nassert x == y\n")
    with pytest.raises(Exception, match="assert x == y"):
        execute(path)


def test_what_a_notebook_imports_and_is_not_installed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "99_made.py"
    path.write_text("# %%\nimport numpy as np\nimport no_such_module.part\n\n# %%\nfrom nor_this import that\n")
    assert missing(path) == ["no_such_module", "nor_this"]


def test_jupyter_finds_the_other_file_of_a_pair() -> None:
    """As JupyterLab asks when it opens one, started here or in the folder: a pair that it cannot find is not opened."""
    from jupytext.config import find_jupytext_configuration_file, load_jupytext_configuration_file, notebook_formats
    from jupytext.paired_paths import paired_paths

    path = notebooks()[0]
    config = load_jupytext_configuration_file(find_jupytext_configuration_file(str(path.parent)))
    for name in (path.with_suffix(".ipynb").name, f"notebooks/{path.stem}.ipynb"):
        pair = paired_paths(name, "ipynb", notebook_formats(stored(path), config, name))
        assert [found for found, _ in pair] == [name, name.replace(".ipynb", ".py")]


def test_times_become_dots_and_animations_keep_theirs() -> None:
    assert steady("best  12.5 ms, 3 GFLOP/s") == "best … ms, … GFLOP/s"
    assert steady('<animate dur="3.6s"/> at In[2]:8') == '<animate dur="3.6s"/> at In[2]:8'
    moving = "".join(str(output) for cell in stored(notebooks()[1]).cells for output in cell.get("outputs", ()))
    assert 'dur="' in moving
    assert 'dur="…' not in moving
