"""`tedsl info`: versions, processor, targets, threads and caches, as a bug report needs them."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
from collections.abc import Iterator

HARD = ("halide", "numpy", "sympy", "hypothesis", "llvmlite")
OPTIONAL = ("torch", "jax", "dask", "matplotlib")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options."""
    parser = commands.add_parser("info", help="versions, processor, targets, threads and caches")
    parser.set_defaults(run=lambda options: _show())


def _show() -> int:
    lines = [*_rows()]
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:{width}}  {value}")
    return 0


def _rows() -> Iterator[tuple[str, str]]:
    import tedsl as te
    from tedsl.backend.compiling.disk_cache import FOLDER, entries, is_off
    from tedsl.backend.host.files import folder_or_problem
    from tedsl.backend.host.loaders import loader
    from tedsl.backend.host.processors import features_of, figures_here
    from tedsl.backend.host.targets import device_problem, parse_target

    host = parse_target("host").text
    figures = figures_here(host)
    yield "tedsl", te.__version__
    yield "Python", f"{platform.python_version()} on {platform.platform()}"
    yield "packages", ", ".join(f"{name} {_version(name)}" for name in (*HARD, *OPTIONAL))
    yield "processor", ", ".join(sorted(features_of(host))) or host
    yield "vectors", f"{figures.vector_bytes} bytes, {figures.vector_registers} registers"
    yield "caches", f"L1 {figures.l1 >> 10} KB, L2 {figures.l2 >> 10} KB, L3 {figures.l3 >> 10} KB"
    yield "threads", f"{te.get_num_threads()} of {figures.cores} cores"
    yield "code by", {"objects": "object files, linked here", "jit": "Halide's JIT"}[loader()]
    for name in ("cuda", "opencl"):
        yield name, device_problem(parse_target(name).text) or "can run here"
    folder = folder_or_problem(FOLDER)
    if is_off():
        yield "kernels on disk", "none are kept"
    elif isinstance(folder, str):
        yield "kernels on disk", f"none are kept: {folder}"
    else:
        kept = entries()
        size = sum(entry.bytes for entry in kept) / 2**20
        yield "kernels on disk", f"{len(kept)}, {size:.1f} MB, in {folder}"


def version() -> str:
    """That of the library."""
    import tedsl as te

    return te.__version__


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
