"""The zoo: every example runs, learns, and takes the steps that PyTorch takes."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "zoo"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py"))
# Example -> what is left of the first loss at the end, at most.
LEFT = {
    "bilateral_grid_hdr": 1e-3, "convnet": 0.05, "diffusion_step": 0.4, "gpt2_block": 0.1, "learned_isp": 0.01,
    "logistic_regression": 0.2, "nerf": 0.1, "renderer": 1e-3, "tomography": 1e-3, "wave_inversion": 0.01,
}  # fmt: skip


def example(name: str) -> Any:
    return importlib.import_module(f"examples.zoo.{name}")


def test_the_zoo_is_complete() -> None:
    assert set(NAMES) == set(LEFT)
    for name in NAMES:
        text = (FOLDER / f"{name}.py").read_text()
        assert len(text.splitlines()) < 80
        assert f"python examples/zoo/{name}.py" in text


@pytest.mark.share(2)
@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs(name: str) -> None:
    losses = example(name).main(2)
    assert len(losses) >= 2
    assert np.isfinite(losses).all()


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_an_example_learns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And prints what the page of the zoo says, but for figures and pictures."""
    losses = example(name).main()
    assert np.mean(losses[-10:]) < LEFT[name] * losses[0]
    assert _words(capsys.readouterr().out) == _words(on_page(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_what_an_example_prints(name: str) -> None:
    assert re.search(r"\d", on_page(name))


def on_page(name: str) -> str:
    """What the page shows below the code of an example."""
    page = (FOLDER.parents[1] / "docs" / "zoo.md").read_text()
    found = re.search(
        rf"examples/zoo/{name}\.py\n:class: dense\n```\n\n[^\n]+:\n\n```text\n(.*?)```\n", page, re.DOTALL
    )
    assert found is not None
    return found[1]


def _words(printed: str) -> list[str]:
    """The words of the last line but figures: of texts and pictures little is the same on another machine."""
    return re.findall(r"[a-z]{2,}", printed.rstrip().splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_its_steps_are_those_of_torch(name: str) -> None:
    pytest.importorskip("torch")
    from benchmarks.zoo.__main__ import steps

    ours, theirs = steps()[name]()
    for _ in range(3):
        np.testing.assert_allclose(_loss(ours), _loss(theirs), rtol=2e-4)


def _loss(step: Callable[[], Any]) -> float:
    found = step()
    return float(found[0] if isinstance(found, tuple) else found)
