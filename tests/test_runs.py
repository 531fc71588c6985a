"""A run that is put together of two environments: what passed in the first is left out of the second."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import os, pytest

@pytest.mark.parametrize("text", ["a", "two words", "[x]"])
def test_passes(text):
    pass

def test_needs_more():
    if "MORE" not in os.environ:
        pytest.skip("without more")

def test_never_runs():
    if "ALL" not in os.environ:
        pytest.skip("without all")
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    (tmp_path / "test_some.py").write_text(TESTS)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "2",
             "--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path), *arguments],
            capture_output=True, text=True, cwd=ROOT, timeout=120,
        )  # fmt: skip

    return run


def test_what_passed_is_left_out_and_what_is_skipped_again_fails(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "passed"
    first = run("--passed-to", str(file))
    assert (first.returncode, len(file.read_text().splitlines())) == (0, 3), first.stdout
    second = run("--passed-in", str(file), "--fail-on-skip", MORE="1")
    assert second.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 passed, 1 skipped" in second.stdout
    third = run("--passed-in", str(file), "--fail-on-skip", ALL="1")
    assert third.returncode == 0
    assert "2 passed" in third.stdout
