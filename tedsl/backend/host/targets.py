"""What to compile for: the user's word for a target, Halide's target, and the few figures that schedules ask about it.

A target is a processor (see `processors`) and maybe a GPU's interface beside it. Compiling needs neither. A call of
code that cannot run here would end the process, so `problem_here` looks first and says what is missing.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import replace
from typing import Literal

import halide as hl

from schedules.automatic import on_machines
from schedules.machine import Machine
from tedsl.backend.host.processors import HOST_VARIABLE, figures_here, figures_of, host_words, misfit_here, words_of
from tedsl.lang.dataclass import dataclass

# How far back LLVM looks within Halide for an earlier load of what is loaded: a hundred instructions otherwise, and a
# stage of several results is computed again for each, as they are stored in between. Halide asks at its first kernel.
os.environ.setdefault("HL_LLVM_ARGS", "-memdep-block-scan-limit=1000")

__all__ = [
    "Target",
    "cuda_target",
    "device_problem",
    "driver",
    "has_device",
    "machine_of",
    "parse_target",
    "problem_here",
    "refusal",
]

_DEVICE_NAMES = ("cuda", "opencl")
_CUDA_CAPABILITIES = (30, 32, 35, 50, 61, 70, 75, 80, 86)  # what Halide 21 emits; newer GPUs run the newest of them
_CAPABILITY_WITHOUT_GPU = 70
_ALWAYS = ("no_runtime", "user_context", "no_bounds_query")
_NOT_OURS = frozenset(["d3d12compute", "jit", "metal", "no_asserts", "vulkan", "webgpu"])


@dataclass(frozen=True)
class Target:
    """One thing to compile for: `name` as the user gave it, `text` for Halide, without its runtime.

    `backend` is the GPU's interface, or "host" where all code is for a processor. `is_here`: made for the very
    processor that compiles, whose figures count.
    """

    name: str
    backend: Literal["host", "cuda", "opencl"]
    text: str
    is_here: bool = True

    @property
    def halide(self) -> hl.Target:
        return hl.Target(self.text)

    @property
    def problem(self) -> str | None:
        """Why what is compiled for it cannot run here; None where it can."""
        return problem_here(self.text)

    def with_features(self, *features: str) -> Target:
        """The same target with more of Halide's features, such as strict_float or large_buffers."""
        return replace(self, text=str(hl.Target("-".join((self.text, *features)))))


def parse_target(name: str) -> Target:
    """A processor, `host` or by name, `cuda` or `opencl`; options after dashes: `cuda-capability_80`."""
    if not isinstance(name, str):
        raise TypeError(f"target: a string such as 'host' was expected, found {name!r}")
    return _parsed(name.strip(), os.environ.get(HOST_VARIABLE, "").strip())


@functools.lru_cache(maxsize=64)
def _parsed(name: str, here: str) -> Target:
    """The target, where `here` is what TEDSL_HOST says."""
    begin, *options = name.split("-")
    words = [*host_words(), begin, *options] if begin in _DEVICE_NAMES else words_of(name)
    features = [_feature(word, name) for word in words[3:]]
    backend: Literal["host", "cuda", "opencl"] = "cuda" if "cuda" in features else "host"
    if "opencl" in features:
        backend = "opencl"
    if backend == "cuda" and not any(feature.startswith("cuda_capability") for feature in features):
        features.append(f"cuda_capability_{_cuda_capability()}")
    try:
        text = str(hl.Target("-".join([*words[:3], *features, *_ALWAYS])))
    except hl.HalideError as error:
        raise ValueError(f"target {name!r}: {str(error).strip().splitlines()[0]}") from None
    is_here = begin in ("host", *_DEVICE_NAMES) and here in ("", "host")
    return Target(name, backend, text, is_here)


def _feature(option: str, name: str) -> str:
    feature = f"cuda_{option}" if option.startswith("capability_") else option
    if feature.startswith("cuda_capability_"):
        known = [f"capability_{number}" for number in _CUDA_CAPABILITIES]
        if feature.removeprefix("cuda_") not in known:
            raise ValueError(f"target {name!r}: {option!r} is not one of {', '.join(known)} (newer GPUs run the last)")
    elif feature in _NOT_OURS:
        raise ValueError(f"target {name!r}: {option!r} is a feature of Halide's that kernels here do not have")
    elif not hl.Target.validate_target_string(f"x86-64-linux-{feature}"):
        raise ValueError(f"target {name!r}: {option!r} is not a feature that Halide knows")
    return feature


def machine_of(target: Target) -> Machine:
    """The figures that schedules for `target` are made for."""
    figures = figures_here(target.text) if target.is_here else figures_of(target.text)
    return figures if target.backend == "host" else replace(figures, gpu=target.backend)


def refusal(kernel: str, problem: str) -> RuntimeError:
    """The error of calling a kernel that cannot run here."""
    return RuntimeError(f"kernel {kernel!r}: {problem}; build it with target='host' to run it here")


def problem_here(text: str) -> str | None:
    """Why a kernel for Halide's target `text` cannot run here; None when it can."""
    return misfit_here(text) or device_problem(text)


def has_device(text: str) -> bool:
    """Whether kernels for Halide's target `text` run on a GPU."""
    return not _DEVICES.keys().isdisjoint(text.split("-"))


def device_problem(text: str) -> str | None:
    """Why a kernel for Halide's target `text` cannot run here; None when it can."""
    problems = (probe() for feature, probe in _DEVICES.items() if feature in text.split("-"))
    return next((problem for problem in problems if problem is not None), None)


@functools.cache
def driver(name: str) -> ctypes.CDLL | None:
    """A driver's library, made visible to Halide, which looks for its functions in the process."""
    if os.name != "posix":
        return None
    try:
        return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None


def _cuda_problem() -> str | None:
    library = driver("libcuda.so.1")
    if library is None:
        return "the CUDA driver (libcuda.so.1) is not installed"
    count = ctypes.c_int(0)
    code = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return f"the CUDA driver cannot be used (error {code})"
    return None if count.value > 0 else "the CUDA driver finds no GPU"


def _opencl_problem() -> str | None:
    library = driver("libOpenCL.so.1")
    if library is None:
        return "OpenCL (libOpenCL.so.1) is not installed"
    count = ctypes.c_uint(0)
    code = library.clGetPlatformIDs(0, None, ctypes.byref(count))
    return None if code == 0 and count.value > 0 else "OpenCL finds no platform"


on_machines(lambda target: machine_of(parse_target(target)))

_DEVICES = {"cuda": _cuda_problem, "opencl": _opencl_problem}


@functools.cache
def _cuda_capability() -> int:
    """The newest capability that both Halide and the first GPU have."""
    if _cuda_problem() is not None:
        return _CAPABILITY_WITHOUT_GPU
    library = driver("libcuda.so.1")
    assert library is not None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), 0)
    library.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # COMPUTE_CAPABILITY_MAJOR, _MINOR
    library.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    return _newest(major.value, minor.value)


def cuda_target(major: int, minor: int) -> str:
    """The target for GPUs of a compute capability."""
    return f"cuda-capability_{_newest(major, minor)}"


def _newest(major: int, minor: int) -> int:
    """The newest capability that both Halide and a GPU have."""
    found = 10 * major + minor
    return max((number for number in _CUDA_CAPABILITIES if number <= found), default=_CUDA_CAPABILITIES[0])
