"""The property suites compiled for older processors, which every machine that runs them can stand for.

Random programs and schedules draw a processor where they are (`test_equivalence`, `schedules.test_random`). Gradients
and in-place code, which are held against the reference there, are compiled here.
"""

from __future__ import annotations

import functools
import random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from tests.equivalence import PHASES
from tests.levels import LEVELS_HERE
from tests.suites import BATCH, FEW, Build, check_gradients, check_mutation, check_programs

GRADIENTS, IN_PLACE = 4, 8
MANY_PROGRAMS, MANY_GRADIENTS, MANY_IN_PLACE = 4000, 500, 1000
CHECKS = list(HealthCheck)


def for_level(level: str) -> Build:
    return functools.partial(te.build, target=level)


@pytest.mark.parametrize("level", LEVELS_HERE)
@settings(max_examples=GRADIENTS // FEW, phases=PHASES, suppress_health_check=CHECKS)
@given(data=st.data())
def test_gradients(level: str, data: st.DataObject) -> None:
    check_gradients(data, for_level(level))


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_in_place_code(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(IN_PLACE // BATCH):
        check_mutation(random.Random(seed), monkeypatch, for_level(level))


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS_HERE)
@settings(max_examples=MANY_PROGRAMS // BATCH, phases=PHASES, suppress_health_check=CHECKS)
@given(data=st.data())
def test_many_programs(level: str, data: st.DataObject) -> None:
    check_programs(data, for_level(level))


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS_HERE)
@settings(max_examples=MANY_GRADIENTS // FEW, phases=PHASES, suppress_health_check=CHECKS)
@given(data=st.data())
def test_many_gradients(level: str, data: st.DataObject) -> None:
    check_gradients(data, for_level(level))


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("part", range(4))
def test_much_in_place_code(level: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(MANY_IN_PLACE // BATCH // 4):
        check_mutation(random.Random(1000 * part + seed), monkeypatch, for_level(level), length=12)
