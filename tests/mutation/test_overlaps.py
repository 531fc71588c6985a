"""Random programs under random schedules over shared memory: the result without overlap, or a refusal."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.compiling import variant
from tests.mutation.overlaps import draw, run


def check_several(seed: int, count: int) -> Counter[str]:
    rng, became = random.Random(seed), Counter[str]()
    while became.total() < count:
        triple = draw(rng)
        try:
            kind, found, want = run(triple, rng.randrange(1000))
        except te.ScheduleError:
            continue
        became[kind] += 1
        for one, other in zip(found, want, strict=True):
            assert np.array_equal(one, other), f"{kind}:\n{triple.note}\nexpected {other}\nfound {one}"
    return became


@pytest.mark.parametrize("seed", range(2))
def test_results_are_those_without_overlap(seed: int) -> None:
    became = check_several(seed, 16)
    assert became["in place"] >= 3
    assert became["refused"] + became["copied"] >= 2


def test_the_suite_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the proof switched off, some result is wrong."""

    def proven(*args: Any, **kwargs: Any) -> None:
        return None

    monkeypatch.setattr(variant, "hazard_of", proven)
    with pytest.raises(AssertionError, match="in place"):
        check_several(0, 60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_results_are_those_without_overlap(seed: int) -> None:
    check_several(seed, 50)
