"""Where GPU schedules run in the tests: an OpenCL device, which PoCL makes of the CPU.

With TEDSL_DEVICE=cuda they run on a real one. PoCL's compiler takes most of the time of a test, so it is asked not to
optimise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from tedsl.backend.host.targets import device_problem, parse_target

__all__ = ["DEVICE", "MARKS", "on_opencl", "optimised"]

Test = TypeVar("Test", bound=Callable[..., None])

os.environ.setdefault("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")
DEVICE = os.environ.get("TEDSL_DEVICE", "opencl")
PROBLEM = device_problem(parse_target(DEVICE).text)


MARKS = [
    pytest.mark.opencl,
    pytest.mark.skipif(PROBLEM is not None, reason=f"{PROBLEM}: apt-get install pocl-opencl-icd ocl-icd-libopencl1"),
]


@contextmanager
def optimised() -> Iterator[None]:
    """Let PoCL optimise: of loops that are written out, as in tiles of products, it is eight times faster then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_EXTRA_BUILD_FLAGS", "")
        yield


def on_opencl(test: Test) -> Test:
    """Mark a test that runs on an OpenCL device."""
    for mark in MARKS:
        test = mark(test)
    return test
