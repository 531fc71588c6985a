"""Everything about GPUs in one run of under nine minutes: `python -m benchmarks.gpu` prints a table in Markdown.

Each program is built for CUDA, compared with PyTorch's result, run twice for the same bits, and timed beside PyTorch on
arrays that stay on the GPU; one operator is called through PyTorch and its autograd, and from a CUDA graph. Then the
property suites run there, for as long as there is time. With `--small --target opencl` the same programs run in small
sizes on any OpenCL device, on arrays of the CPU: a rehearsal without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import tedsl as te
import tedsl.bridges.torch.memory as torch_memory
from benchmarks.imaging import bilateral_arrays, imaging, sliced, sliced_in_torch
from benchmarks.workload import Workload, both, floats, tensor

SECONDS = 530.0  # for all
SUITES = 200.0  # of them for the property suites, at least
ENOUGH_MS = 50.0  # of measuring a program
HEAD = (
    "| program | build ms | ms | PyTorch ms | ratio | of copy bandwidth | GFLOP/s | same bits | arrays |\n"
    + "|---" * 9
    + "|"
)
SLICING = "bilateral slicing, forward + backward"
SUITE = [
    "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/bridges/test_torch_cuda.py", "tests/test_gpu.py",
    "tests/backend/scheduling/test_default_gpu.py",
]  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Extents of the programs."""

    square: int
    rows: int
    line: int
    image: int
    batch: int
    channels: int


SLICE, SMALL_SLICE = (512, 16, 8, 12), (32, 4, 4, 3)  # pixels of a side, cells of a side, depth and channels
FULL, SMALL = Sizes(4096, 16384, 1 << 26, 102, 5, 128), Sizes(72, 24, 1 << 14, 20, 2, 16)


def workloads(sizes: Sizes, *, small: bool) -> Iterator[Workload]:
    """The programs whose speed is wanted; `small` ones take a moment on a CPU."""
    n, rows = sizes.square, sizes.rows
    x, a, b = tensor("x", rows, n), tensor("a", n, n), tensor("b", n, n)
    yield forward(
        "pointwise", [x], te.compute(x.shape, lambda i, j: te.tanh(x[i, j]) * 2 + 1), lambda v: v.tanh() * 2 + 1
    )
    yield forward("stencil 5 points", [x], _five_points(x), _five_points_in_torch)
    yield forward("row sums", [x], x.sum(1), lambda v: v.sum(1))
    yield forward("softmax", [x], te.ops.softmax(x), lambda v: v.softmax(-1))
    yield forward(
        "layer norm", [x], te.ops.layer_norm(x, (n,)), lambda v: torch.nn.functional.layer_norm(v, v.shape[-1:])
    )
    line = tensor("line", sizes.line)
    yield forward("total", [line], te.compute((), lambda: te.sum(lambda k: line[k])), lambda v: v.sum())
    product = te.compute((n, n), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j]))
    yield replace(forward("matmul", [a, b], product, lambda p, q: p @ q), flops=2.0 * n**3)
    yield from _convolution(sizes)
    yield from _embedding(sizes)
    if small:
        return
    yield from (w for w in imaging() if w.name.startswith(("bilateral", "soft histogram")))


def forward(name: str, inputs: Sequence[te.Tensor], y: te.Tensor, peer: Callable[..., Any]) -> Workload:
    return Workload("gpu", name, 1.0, list(inputs), [y], floats(inputs), peer)


def _five_points(x: te.Tensor) -> te.Tensor:
    n, m = (int(e) - 2 for e in x.shape)
    made: te.Tensor = te.compute(
        (n, m), lambda i, j: x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2] - 4 * x[i + 1, j + 1]
    )
    return made


def _five_points_in_torch(x: Any) -> Any:
    return x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4 * x[1:-1, 1:-1]


def _convolution(sizes: Sizes) -> Iterator[Workload]:
    """A layer of 3x3 taps, forward and with its gradients."""
    side, channels = sizes.image, sizes.channels
    pixels, weights = tensor("pixels", sizes.batch, channels, side, side), tensor("weights", channels, channels, 3, 3)
    y = te.compute(
        (sizes.batch, channels, side - 2, side - 2),
        lambda m, o, i, j: te.sum(lambda c, u, v: pixels[m, c, i + u, j + v] * weights[o, c, u, v]),
        name="convolution",
    )
    flops = 2.0 * sizes.batch * channels**2 * 9 * (side - 2) ** 2
    for made in both("gpu", "convolution", 0.5, [pixels, weights], y, torch.nn.functional.conv2d):
        yield replace(made, flops=flops * (3 if made.step else 1))


def _embedding(sizes: Sizes) -> Iterator[Workload]:
    """The gradient of looking rows up, whose sums PyTorch takes in its deterministic mode."""
    count, width = sizes.rows, sizes.channels
    head, tokens = tensor("head", count, width), te.placeholder((count,), "int32", name="tokens")
    rows = count // 4
    i, j = te.reduce_axis(count, "i"), te.reduce_axis(width, "j")
    place = te.clip(tokens[i], 0, rows - 1)
    summed = te.scatter((rows, width), axes=[i, j], index=(place, j), value=head[i, j])
    arrays = [*floats([head]), np.random.default_rng(1).integers(0, rows, count).astype("int32")]

    def peer(g: Any, at: Any) -> Any:
        return torch.zeros(rows, width, device=g.device).index_add_(0, at.long(), g)

    yield Workload("gpu", "embedding gradient", 1.0, [head, tokens], [summed], arrays, peer)


class Bench:
    """The table, line by line."""

    def __init__(self, target: str) -> None:
        self.target, self.is_cuda = target, target.startswith("cuda")
        self.device = "cuda" if self.is_cuda else "cpu"
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self.bandwidth = self._copy_bandwidth()

    def _copy_bandwidth(self) -> float:
        """Bytes a millisecond that a copy reads and writes."""
        size = 1 << 28 if self.is_cuda else 1 << 22
        source = torch.empty(size, dtype=torch.uint8, device=self.device)
        goal = torch.empty_like(source)
        return 2 * size / self.best(lambda: goal.copy_(source))

    def _wait(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()

    def best(self, call: Callable[[], object]) -> float:
        """The least time of a few calls queued together, in milliseconds."""
        call()
        self._wait()
        found: list[float] = []
        count, begin = 1, time.perf_counter()
        while len(found) < 3 or (1e3 * (time.perf_counter() - begin) < ENOUGH_MS and len(found) < 50):
            start = time.perf_counter()
            for _ in range(count):
                call()
            self._wait()
            spent = 1e3 * (time.perf_counter() - start)
            found.append(spent / count)
            count = max(1, min(20, int(5.0 / max(spent / count, 1e-3))))
        return min(found)

    def line(self, work: Workload) -> str:
        """A line of the table; AssertionError where a result is wrong."""
        begin = time.perf_counter()
        kernel = te.build(work.inputs, work.outputs, target=self.target)
        built = 1e3 * (time.perf_counter() - begin)
        there = [torch.from_numpy(a).to(self.device) for a in work.arrays]
        wanted, peer = self._peer(work, there)
        given: list[Any] = there if self.is_cuda else work.arrays
        where = "stay"
        try:
            found = kernel(*given)
        except ValueError as error:  # the kernel checks indices on the CPU
            if not self.is_cuda:
                raise
            where, given = f"copied: {error}"[:60], work.arrays
            found = kernel(*given)
        self._wait()
        for got, want in zip(map(_host, found), wanted, strict=True):
            most = 1 + float(np.abs(want).max(initial=0.0))
            np.testing.assert_allclose(got, want, rtol=work.tolerance, atol=work.tolerance * most, err_msg=work.name)
        again = all(np.array_equal(a, b) for a, b in zip(map(_host, kernel(*given)), map(_host, found), strict=True))
        ours, theirs = self.best(lambda: kernel(*given)), self.best(peer)
        moved = sum(t.nbytes for t in (*map(_host, given), *map(_host, found)))
        share = f"{moved / ours / self.bandwidth:.2f}" if not work.flops and not work.step else ""
        rate = f"{work.flops / ours * 1e-6:.0f}" if work.flops else ""
        parts = [work.name, f"{built:.0f}", f"{ours:.3f}", f"{theirs:.3f}", f"{theirs / ours:.2f}", share, rate,
                 "yes" if again else "NO", where if self.is_cuda else "NumPy"]  # fmt: skip
        return f"| {' | '.join(parts)} |"

    def operator_lines(self, shape: tuple[int, int, int, int]) -> Iterator[str]:
        """Bilateral slicing as an operator on tensors, with autograd; on a GPU once more from a CUDA graph."""
        torch_memory.HOST = "host" if self.is_cuda else self.target
        inputs, arrays = bilateral_arrays(*shape)
        given = [torch.from_numpy(a).to(self.device) for a in (*arrays, *floats([sliced(*inputs)]))]
        begin = time.perf_counter()
        ours, theirs = self._step(te.op(sliced), given), self._step(sliced_in_torch, given)
        first = ours()
        self._wait()
        built = 1e3 * (time.perf_counter() - begin)
        for got, want in zip(map(_host, first), map(_host, theirs()), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * (1 + float(np.abs(want).max())))
        again = all(np.array_equal(a, b) for a, b in zip(map(_host, first), map(_host, ours()), strict=True))
        spent, peer = self.best(ours), self.best(theirs)
        end = f"{'yes' if again else 'NO'} | {'stay' if self.is_cuda else 'tensors'} |"
        yield f"| {SLICING}, op | {built:.0f} | {spent:.3f} | {peer:.3f} | {peer / spent:.2f} | | | {end}"
        if self.is_cuda:
            spent, found = self._in_graph(ours)
            for got, want in zip(map(_host, found), map(_host, first), strict=True):
                np.testing.assert_array_equal(got, want)
            yield f"| {SLICING}, op in a graph | | {spent:.3f} | {peer:.3f} | {peer / spent:.2f} | | | {end}"

    def _step(self, function: Callable[..., Any], given: Sequence[Any]) -> Callable[[], list[Any]]:
        """The result of a function and its gradients, for the last of the tensors as head."""

        def step() -> list[Any]:
            leaves = [t.detach().requires_grad_() for t in given[:-1]]  # older ones belong to the stream they began on
            y = function(*leaves)
            return [y.detach(), *torch.autograd.grad(y, leaves, given[-1])]

        return step

    def _in_graph(self, step: Callable[[], list[Any]]) -> tuple[float, list[Any]]:
        """The time of a call from a CUDA graph, and its results."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step()
        return self.best(graph.replay), found

    def _peer(self, work: Workload, there: Sequence[Any]) -> tuple[list[Any], Callable[[], object]]:
        """What PyTorch makes of it, and the call that does."""
        peer = work.torch_peer
        assert peer is not None, work.name
        if not work.step:
            made = peer(*there)
            return [_host(t) for t in (made if isinstance(made, tuple) else (made,))], lambda: peer(*there)
        step = self._step(peer, there if work.has_head else [*there, None])
        return [_host(t) for t in step()], step


def _host(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _failed(name: str, error: BaseException) -> str:
    while error.__context__ is not None:  # the end of a capture that failed hides why it did
        error = error.__context__
    return f"| {name} | FAILED: {type(error).__name__}: {' '.join(str(error).split())[:300]} |"


def suites(target: str, seconds: float) -> str:
    """The property suites on the device."""
    env = {**os.environ, "TEDSL_DEVICE": target}
    try:
        done = subprocess.run([sys.executable, *SUITE], env=env, timeout=seconds, capture_output=True, text=True)
    except subprocess.TimeoutExpired as over:
        text = over.stdout.decode() if isinstance(over.stdout, bytes) else over.stdout or ""
        return (
            f"no failure when the time was over: {text.strip()[-80:]}" if "F" not in text else f"FAILED: {text[-2000:]}"
        )
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else f"FAILED:\n{done.stdout[-4000:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--no-suites", action="store_true")
    parser.add_argument("only", nargs="*", help="beginnings of names")
    options = parser.parse_args()
    begin = time.perf_counter()
    bench = Bench(options.target)
    device = torch.cuda.get_device_name() if bench.is_cuda else "OpenCL"
    print(f"{datetime.date.today()}, {device}, a copy moves {bench.bandwidth * 1e-6:.0f} GB/s\n\n{HEAD}", flush=True)
    for work in workloads(SMALL if options.small else FULL, small=options.small):
        if options.only and not work.name.startswith(tuple(options.only)):
            continue
        if time.perf_counter() - begin > SECONDS - SUITES:
            print(f"| {work.name} | not run: the time is over |")
            continue
        try:
            print(bench.line(work), flush=True)
        except Exception as error:  # one that fails must not cost the rest of the only run there may be
            print(_failed(work.name, error), flush=True)
    if not options.only or SLICING.startswith(tuple(options.only)):
        try:
            for line in bench.operator_lines(SMALL_SLICE if options.small else SLICE):
                print(line, flush=True)
        except Exception as error:
            print(_failed(SLICING, error), flush=True)
    if not options.no_suites:
        print(f"\nProperty suites: {suites(options.target, SECONDS - (time.perf_counter() - begin))}")


if __name__ == "__main__":
    main()
