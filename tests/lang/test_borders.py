"""One name for what lies beyond a border, wherever a border is named, and the words of other libraries for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.borders import SYNONYMS

ROW = np.arange(1.0, 6.0, dtype="float32")
IMAGE = np.arange(30.0, dtype="float32").reshape(5, 6) % 7
x, image = te.placeholder((5,), name="x"), te.placeholder((5, 6), name="image")
GRID = te.constant(np.linspace(-2.0, 2.0, 32, dtype="float32").reshape(1, 4, 4, 2))

TAKING: dict[str, Callable[[str], Any]] = {
    "at": lambda mode: te.compute((11,), lambda i: x.at(i - 3, mode=mode)),
    "te.pad": lambda mode: te.pad(x, 3, mode),
    "ops.pad": lambda mode: te.ops.pad(x, (2, 3), mode),
    "conv1d": lambda mode: te.ops.conv1d(
        x.reshape(1, 1, 5), te.ones((1, 1, 3)), padding=1, padding_mode=mode
    ),
    "gaussian_blur": lambda mode: te.ops.gaussian_blur(image, 0.5, mode=mode),
    "box_blur": lambda mode: te.ops.box_blur(image, 1, mode=mode),
    "unsharp_mask": lambda mode: te.ops.unsharp_mask(image, 0.5, mode=mode),
    "sobel": lambda mode: te.ops.sobel(image, mode=mode),
    "harris": lambda mode: te.ops.harris(image, mode=mode),
    "bilateral_filter": lambda mode: te.ops.bilateral_filter(image, 1.0, 1.0, 1, mode=mode),
    "heat_step": lambda mode: te.ops.heat_step(image, border=mode),
    "wave_step": lambda mode: te.ops.wave_step(image, image, border=mode),
}  # fmt: skip
FEEDS = {x: ROW, image: IMAGE}


def value(made: te.Tensor) -> Any:
    return te.interpret(made, FEEDS)


@pytest.mark.parametrize("taker", TAKING)
def test_synonyms_mean_the_same(taker: str) -> None:
    results = []
    for name, words in SYNONYMS.items():
        wanted = value(TAKING[taker](name))
        for word in words:
            np.testing.assert_array_equal(value(TAKING[taker](word)), wanted)
        results.append(wanted)
    for n, a in enumerate(results):
        assert all(not np.array_equal(a, b) for b in results[:n]), "four borders, four results"


def test_padding_by_a_value() -> None:
    for pad in (lambda mode: te.pad(x, 1, mode, 7.0), lambda mode: te.ops.pad(x, (1, 1), mode, 7.0)):
        assert value(pad("constant"))[0] == 7.0
        assert value(pad("zero"))[0] == value(pad("zeros"))[0] == 0.0


def test_grid_sample_has_the_two_borders_that_it_can_mean() -> None:
    source = image.reshape(1, 1, 5, 6)

    def sampled(word: str) -> Any:
        return value(te.ops.grid_sample(source, GRID, padding_mode=word))

    for words in (("zeros", "zero", "constant"), ("border", "clamp", "edge", "replicate")):
        for word in words[1:]:
            np.testing.assert_array_equal(sampled(word), sampled(words[0]))
    with pytest.raises(
        ValueError, match=r"te.ops.grid_sample at .*padding_mode must be one of zero \(.*\), reflection; found 'w"
    ):
        sampled("wrap")


@pytest.mark.parametrize("taker", TAKING)
def test_an_unknown_word_is_answered_by_those_there_are(taker: str) -> None:
    there = rf"test_borders.py:.*, reflect, wrap \(circular, periodic\){', symmetric' * (taker == 'te.pad')}; found"
    with pytest.raises(ValueError, match=f"{there} 'reflection'; did you"):
        TAKING[taker]("reflection")
    if taker != "te.pad":
        with pytest.raises(ValueError, match=f"{there} 'symmetric'; 'reflect' has the last element once"):
            TAKING[taker]("symmetric")


@pytest.mark.parametrize("taker", TAKING)
def test_each_word_is_listed_once(taker: str) -> None:
    with pytest.raises(ValueError, match="must be one of") as caught:
        TAKING[taker]("mean")
    words = re.findall(r"\w+", str(caught.value).partition("must be one of ")[2].partition(";")[0])
    assert len(words) == len(set(words)) >= 9


@pytest.mark.parametrize(
    ("word", "meant"),
    [("replicated", "clamp"), ("mirror", "reflect"), ("reflection", "reflect"), ("Wrap", "wrap"), ("nearest", "clamp")],
)
def test_a_word_that_is_nearly_one(word: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"found '{word}'; did you mean '{meant}'"):
        x.at(0, mode=word)


def test_what_is_no_word_at_all() -> None:
    for wrong in (None, 3, ["mirror"], np.zeros(3), "?"):
        with pytest.raises(ValueError, match=r"mode must be one of error, zero \(.*reflect, wrap \(.*\); found"):
            x.at(0, mode=wrong)
