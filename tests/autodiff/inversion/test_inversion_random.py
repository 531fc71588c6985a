"""Random index maps against enumeration: every z with f(z) = s comes out exactly once, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.autodiff.inversion.enumeration import IndexMap, forward_pairs, gathered_pairs, index_maps


def agrees(m: IndexMap) -> None:
    answer = m.invert()
    if answer.opaque:
        assert answer.reason
        return
    found, _ = gathered_pairs(m, answer)
    expected = forward_pairs(m)
    assert found == expected, f"missing {expected - found}, superfluous {found - expected}\n{answer}"


@settings(max_examples=150)
@given(index_maps())
def test_random_maps(m: IndexMap) -> None:
    agrees(m)


@pytest.mark.long
@settings(max_examples=20_000)
@given(index_maps())
def test_20000_random_maps(m: IndexMap) -> None:
    agrees(m)
