"""What holds for every test: the hypothesis profiles, and how a run is put together of several environments.

The first run, with nothing but the library installed, writes down what passed (--passed-to); the second, with every
framework, takes the rest (--passed-in) and fails where one is skipped (--fail-on-skip).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from schedules.default import assuming

# What a test compiles, it compiles: nothing comes from an earlier run.
os.environ["TEDSL_CACHE"] = "off"
# Draws are the same on every run, so that a red test is about the change and not about luck. A deadline would time the
# compiler: the first kernel of a process takes seconds, the next ones milliseconds.
settings.register_profile("default", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Other draws on every run, printed so that a failure can be replayed.
settings.register_profile(
    "long", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
settings.load_profile("default")
# Hypothesis also draws constants that it finds in the modules imported so far: draws would depend on which tests ran
# before.
providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture
def cut_everywhere() -> Iterator[None]:
    """Every program becomes as many kernels as the default schedule makes of a large one."""
    with assuming({"kernels": 2}):
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test fails the run (used by .ci/run)")
    parser.addoption("--passed-to", type=Path, metavar="FILE", help="write down there which tests passed")
    parser.addoption("--passed-in", type=Path, metavar="FILE", help="leave out the tests that passed by that file")
    parser.addoption("--without-opencl", action="store_true", help="leave out the tests that need an OpenCL device")


@pytest.hookimpl(tryfirst=True)  # before those that are long are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on OpenCL, the longest, come first, so that processes end together; what is left out is deselected.

    Deselected is not skipped.
    """
    _share(items)
    items.sort(key=lambda item: item.get_closest_marker("opencl") is None)
    file, without = config.getoption("--passed-in"), config.getoption("--without-opencl")
    passed = frozenset(file.read_text().splitlines()) if file else frozenset()
    out = {item for item in items if item.nodeid in passed or (without and item.get_closest_marker("opencl"))}
    config.hook.pytest_deselected(items=[item for item in items if item in out])
    items[:] = [item for item in items if item not in out]


def _share(items: list[pytest.Item]) -> None:
    """Of a test that is shared, one of so many runs by default; the others are long."""
    places: dict[tuple[Path, str], int] = {}
    for item in items:
        if (mark := item.get_closest_marker("share")) is not None and item.get_closest_marker("long") is None:
            key = item.path, getattr(item, "originalname", item.name)
            places[key] = place = places.get(key, -1) + 1
            if place % mark.args[0]:
                item.add_marker(pytest.mark.long)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With --fail-on-skip, a run that passed but skipped tests ends as failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    if file := session.config.getoption("--passed-to"):
        file.write_text("".join(f"{report.nodeid}\n" for report in reporter.stats.get("passed", [])))
    if not session.config.getoption("--fail-on-skip") or session.exitstatus != pytest.ExitCode.OK:
        return
    if reporter.stats.get("skipped"):
        reporter.write_line("")
        reporter.write_line("ERROR: tests were skipped, which --fail-on-skip forbids", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
