"""What to compile for: the user's word for a target, Halide's target, and the few figures that schedules ask about it.

Compiling for a GPU needs no GPU. Running without a driver would end the process inside Halide, so `device_problem`
looks first and says what is missing.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass
from pathlib import Path

import halide as hl

from schedules.automatic import on_this_machine
from schedules.default import Machine
from tedsl.backend.threads import available_cpus

__all__ = [
    "BACKENDS",
    "Machine",
    "Target",
    "cuda_target",
    "device_problem",
    "driver",
    "has_device",
    "machine_of",
    "parse_target",
]

BACKENDS = ("host", "cuda", "opencl")
_CUDA_CAPABILITIES = (30, 32, 35, 50, 61, 70, 75, 80, 86)  # what Halide 21 emits; newer GPUs run the newest of them
_CAPABILITY_WITHOUT_GPU = 70
_ALWAYS = ("no_runtime", "user_context", "no_bounds_query")


@dataclass(frozen=True)
class Target:
    """One thing to compile for: `name` as the user gave it, `text` for Halide, without its runtime."""

    name: str
    backend: str
    text: str

    @property
    def halide(self) -> hl.Target:
        return hl.Target(self.text)

    def with_features(self, *features: str) -> Target:
        """The same target with more of Halide's features, such as strict_float or large_buffers."""
        return Target(self.name, self.backend, str(hl.Target("-".join((self.text, *features)))))


@functools.lru_cache(maxsize=64)
def parse_target(name: str) -> Target:
    """`host`, `cuda` or `opencl`, with options after dashes: `cuda-capability_80`, `host-large_buffers`."""
    if not isinstance(name, str):
        raise TypeError(f"target: a string such as 'host' was expected, found {name!r}")
    backend, *options = name.strip().split("-")
    if backend not in BACKENDS:
        raise ValueError(f"target: {name!r} does not begin with one of {', '.join(BACKENDS)}")
    features = [_feature(option, name) for option in options]
    if backend == "cuda" and not any(feature.startswith("cuda_capability") for feature in features):
        features.append(f"cuda_capability_{_cuda_capability()}")
    words = ["host", *_ALWAYS, *([] if backend == "host" else [backend]), *features]
    return Target(name, backend, str(hl.Target("-".join(words))))


def _feature(option: str, name: str) -> str:
    feature = f"cuda_{option}" if option.startswith("capability_") else option
    if feature.startswith("cuda_capability_"):
        known = [f"capability_{number}" for number in _CUDA_CAPABILITIES]
        if feature.removeprefix("cuda_") not in known:
            raise ValueError(f"target {name!r}: {option!r} is not one of {', '.join(known)} (newer GPUs run the last)")
    elif not hl.Target.validate_target_string(f"host-{feature}"):
        raise ValueError(f"target {name!r}: {option!r} is not a feature that Halide knows")
    return feature


def machine_of(target: Target) -> Machine:
    """The figures of the machine that this process runs on, as seen by `target`."""
    features = hl.Target(target.text)
    avx512 = features.has_feature(hl.TargetFeature.AVX512_Skylake) or features.has_feature(hl.TargetFeature.AVX512)
    l1, l2, l3 = _cache_sizes()
    return Machine(
        vector_bytes=features.natural_vector_size(hl.UInt(8)),
        vector_registers=32 if avx512 or features.arch == hl.TargetArch.ARM else 16,
        l1=l1,
        l2=l2,
        l3=l3,
        cores=available_cpus(),
        gpu=None if target.backend == "host" else target.backend,  # type: ignore[arg-type]
    )


@functools.cache
def _cache_sizes() -> tuple[int, int, int]:
    """Bytes of the data caches; those of a common small core where the system does not tell."""
    sizes = {1: 32 << 10, 2: 1 << 20, 3: 8 << 20}
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        level, kind, size = (_text(entry / part) for part in ("level", "type", "size"))
        if kind != "Instruction" and level.isdecimal() and size.endswith("K"):
            sizes[int(level)] = int(size[:-1]) << 10
    return sizes[1], sizes[2], sizes[3]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


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


on_this_machine(lambda: machine_of(parse_target("host")))

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
