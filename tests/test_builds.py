"""`benchmarks.builds`: its programs can be built, in a first process and in a second one."""

from __future__ import annotations

import pytest

from benchmarks.builds import OURS, PROGRAMS, WARM, row


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("chain of 50", "chain of 100")])
def test_programs(name: str) -> None:
    exec(OURS + WARM + PROGRAMS[name].ours, {})


def test_row() -> None:
    cells = [cell.strip() for cell in row(PROGRAMS["a small kernel"], has_jax=False).strip("|").split("|")]
    assert cells[0] == "a small kernel"
    assert 0 < float(cells[4]) < float(cells[1])
