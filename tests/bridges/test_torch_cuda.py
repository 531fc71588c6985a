"""Operators on tensors that lie on a GPU, as far as that can be seen without one.

Three ways: PyTorch's fake tensors on CUDA, and the PTX for them; tensors of the CPU that say they lie on a GPU, with a
driver that is none, which see memory, streams and launches; and the CPU taken for an OpenCL device, which computes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.arguments import device_memory
from tedsl.backend.host.targets import device_problem, parse_target
from tedsl.ops.routines import Pullback
from tests.backend.fake_cuda import CONTEXT, DRIVER, FakeCuda, floats
from tests.bridges.framework_checks import check_gradcheck, check_opcheck, check_torch_compile, check_torch_func
from tests.bridges.operators import OPS, Case, affine as affine_on_cpu, noisy, softmax
from tests.gpu_suites import ptx_of
from tests.opencl import DEVICE, on_opencl

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
without_gpu = pytest.mark.skipif(device_problem(parse_target("cuda").text) is None, reason="there is a GPU")
torch_autograd, torch_memory = (import_module(f"tedsl.bridges.torch.{name}") for name in ("autograd", "memory"))
STREAM = 0x51
affine = te.op(affine_on_cpu.function, name="affine_there")
NAME = r"_kernel_(\w*?[A-Za-z])(?:_+\d+)?_s0"  # of a kernel; Halide numbers what is called alike


def same(found: Any, expected: Any) -> None:
    """Of values, wherever they are said to lie."""
    np.testing.assert_allclose(np.asarray(found.detach().as_subclass(torch.Tensor)), expected, rtol=1e-6)


class Here(torch.Tensor):  # type: ignore[misc]
    """A tensor in the CPU's memory that says it lies on a GPU."""

    device = property(lambda self: torch.device("cuda", 0))
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    # Inside operators PyTorch gives no results of the class by itself.

    def detach(self) -> Any:
        return torch.Tensor._make_subclass(type(self), self)

    def new_empty(self, shape: Any, **rest: Any) -> Any:
        return torch.Tensor._make_subclass(type(self), super().new_empty(shape, **rest))

    def cpu(self) -> Any:
        return self.as_subclass(torch.Tensor)


class Second(Here):
    """On another GPU."""

    device = property(lambda self: torch.device("cuda", 1))


def there(*shape: int, grad: bool = False) -> Any:
    return torch.Tensor._make_subclass(Here, torch.randn(shape), grad)


def calculate(kernel: Any, count: int) -> Any:
    """What a kernel on `count` arrays of five numbers does, in the order of their names; the first is the result."""

    def launched(pointers: Sequence[int]) -> None:
        result, *given = (floats(p, 5) for p in pointers)
        result[:] = kernel(*given)

    return count, launched


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    DRIVER.forget()
    DRIVER.kernels["_kernel_affine_"] = calculate(lambda w, x: 2 * x * w + 1, 3)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: type("Stream", (), {"cuda_stream": STREAM}))
    return DRIVER.installed(monkeypatch)


@without_gpu
@pytest.mark.parametrize("plain", [False, True])
def test_tensors_stay_on_the_gpu(driver: FakeCuda, monkeypatch: pytest.MonkeyPatch, plain: bool) -> None:
    """Through the registered operator, and the short way of calls on plain tensors."""
    if plain:
        monkeypatch.setattr(torch_autograd, "PLAIN", (*torch_autograd.PLAIN, Here))
        monkeypatch.setattr(import_module("tedsl.ops.keys"), "ARRAYS", {Here})
    op = te.op(affine_on_cpu.function, name="stays")
    x, w = there(5), there(5)
    for _ in range(2):
        y = op(x, w)
        assert type(y) is Here
        same(y, x * w * 2 + 1)
    *_, (_, _, stream, pointers) = driver.launches
    assert (stream, pointers) == (STREAM, [t.data_ptr() for t in (y, w, x)])
    assert driver.contexts == {CONTEXT}
    moving = [name for name in driver.calls if "cpy" in name or "Alloc" in name or "Synchronize" in name]
    assert not moving + driver.waited
    assert "compiled in" in str(op.explain())
    assert "for cuda-capability_86" in str(op.explain())
    assert bool(op._prepared) is plain


@without_gpu
def test_gradients_are_computed_where_the_tensors_are(driver: FakeCuda) -> None:
    for name in "_kernel_dx_", "_kernel_dw_":
        driver.kernels[name] = calculate(lambda head, other: 2 * head * other, 3)
    x, w, head = there(5, grad=True), there(5, grad=True), there(5)
    found = torch.autograd.grad(affine(x, w), [x, w], head)
    assert re.findall(NAME, " ".join(driver.names)) == ["affine", "dx", "dw"]
    assert {stream for _, _, stream, _ in driver.launches} == {STREAM}
    for gradient, other, (*_, pointers) in zip(found, (w, x), driver.launches[1:], strict=True):
        assert pointers == [t.data_ptr() for t in (gradient, head, other)]
        np.testing.assert_array_equal(gradient.numpy(), (2 * head * other).detach().numpy())


@without_gpu
def test_intermediate_results_are_in_the_memory_of_pytorch(driver: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    empty = Here.new_empty
    monkeypatch.setattr(
        Here, "new_empty", lambda self, shape, **rest: (made.append(shape), empty(self, shape, **rest))[1]
    )
    op = te.op(softmax.function, name="rows", symbolic=False)
    x = there(4, 300)
    op(x)
    assert made == [(4, 300), (16,), (4800,), (16,)]  # the result, top, e, total
    made.clear()
    driver.capturing.add(STREAM)
    y = op(x)  # loaded before, so that it can be captured into a graph
    assert len(made) == 4
    assert driver.launches[-1][2] == STREAM
    assert not driver.calls["cuMemAlloc"] + driver.calls["cuMemFree"] + driver.calls["cuStreamSynchronize"]
    with pytest.raises(RuntimeError, match="call it once before the capture"):
        op(there(5, 300))
    driver.capturing.clear()

    def full(self: Any, shape: Any, **rest: Any) -> Any:
        if rest["dtype"] is torch.uint8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return empty(self, shape, **rest)

    monkeypatch.setattr(Here, "new_empty", full)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        op(x)
    assert y.shape == x.shape
    assert not device_memory._blocks  # nothing is kept of a call that failed


@without_gpu
def test_each_gpu_has_its_own_kernels(driver: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: [(9, 0), (7, 5)][index])
    torch_memory._cuda_target.cache_clear()
    op = te.op(affine_on_cpu.function, name="anywhere")
    second = torch.Tensor._make_subclass(Second, torch.ones(5))
    op(there(5), there(5))
    op(second, second)
    assert driver.contexts == {CONTEXT, CONTEXT + 1}
    (definition,) = op._definitions.values()
    (traced,) = definition.traces.values()
    assert list(traced.kernels) == ["cuda-capability_86", "cuda-capability_75"]
    with pytest.raises(ValueError, match="'w' is on cuda:1, but 'x' is on cuda:0; move them to one device"):
        op(there(5), second)
    torch_memory._cuda_target.cache_clear()


@without_gpu
def test_results_are_written_where_they_are_wanted(driver: FakeCuda) -> None:
    x, w, out = there(5), there(5), there(5)
    assert affine(x, w, out=out) is out
    same(out, x * w * 2 + 1)
    assert out._version == 1
    with pytest.raises(ValueError, match="mode= take arrays in the CPU's memory"):
        affine(x, w, out=out, mode="add")


@without_gpu
def test_layouts_of_memory(driver: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.kernels["_kernel_affine_"] = 3, lambda pointers: None
    x = there(5, 5)
    affine(x[:, 2], torch.Tensor._make_subclass(Here, torch.ones(())).expand(5))
    assert driver.launches[-1][3][2] == x.data_ptr() + 8
    turned = torch.Tensor._make_subclass(Here, torch.view_as_complex(torch.ones(5, 2)).conj().imag)
    assert turned.is_neg()
    monkeypatch.setattr(torch_autograd, "PLAIN", (*torch_autograd.PLAIN, Here))
    affine(there(5), x[0])
    affine(turned, x[0])  # the shapes and strides of the call before
    assert turned.data_ptr() not in driver.launches[-1][3]
    A = te.placeholder((5,), name="A")
    kernel = te.build(A, te.compute((5,), lambda i: A[i] * 2, name="doubled"), target="cuda")
    for wrong, kind, text in [
        (turned, ValueError, r"input 'A': the tensor shows the negative .* give x.resolve_neg\(\)"),
        (there(5).double(), TypeError, "input 'A': float32 was expected, found float64"),
        (there(5, grad=True), RuntimeError, "input 'A' requires grad"),
    ]:
        kernel(there(5))
        with pytest.raises(kind, match=text):
            kernel(wrong)
    assert kernel.stats.device_bytes == 40


@without_gpu
def test_sixteen_bit_floats(driver: FakeCuda) -> None:
    driver.kernels["_kernel_affine_"] = 3, lambda pointers: None
    x = torch.Tensor._make_subclass(Here, torch.ones(5, dtype=torch.bfloat16))
    assert affine(x, x).dtype is torch.bfloat16
    assert driver.launches[-1][3][1:] == [x.data_ptr()] * 2


@without_gpu
def test_tensors_without_elements(driver: FakeCuda) -> None:
    """No GPU can hold them; what they make of others is computed on the CPU."""
    total = te.op(lambda x, w: te.compute(w.shape, lambda i: w[i] + te.sum(lambda k: x[k])), name="total")
    w = there(5)
    y = total(there(0), w)
    assert type(y) is Here
    same(y, w)
    assert affine(there(0), there(0)).shape == (0,)
    assert not driver.launches


@without_gpu
def test_schedules_are_for_one_kind_of_target(driver: FakeCuda) -> None:
    op, asked = te.op(affine_on_cpu.function, name="scheduled"), []
    op.schedule(lambda s, y, grads: (asked.append("host"), s[y].vectorize("i", 4)))

    @partial(op.schedule, target="cuda")
    def in_blocks(s: te.Schedule, y: te.Tensor, grads: Any) -> None:
        asked.append("cuda")
        block, thread = s[y].split("i", 4)
        s[y].gpu_blocks(block).gpu_threads(thread)

    op(torch.ones(5), torch.ones(5))
    x, w = there(5), there(5)
    same(op(x, w), x * w * 2 + 1)
    assert asked == ["host", "cuda"]
    assert driver.launches[0][:2] == ([2, 1, 1], [4, 1, 1])
    with pytest.raises(ValueError, match="target must be 'host' or 'cuda', found 'opencl'"):
        op.schedule(lambda s, y, grads: None, target="opencl")


@te.op
def looked_up(x: te.Tensor, at: te.Tensor) -> te.Tensor:
    return te.compute(at.shape, lambda i: x[at[i]])


@without_gpu
def test_refusals(driver: FakeCuda) -> None:
    x, index = there(5), torch.Tensor._make_subclass(Here, torch.tensor([1]))
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: affine(x, torch.ones(5)), ValueError, "'w' is on cpu, but 'x' is on cuda:0; move them to one device"),
        (lambda: affine(torch.ones(5), x), ValueError, "'w' is on cuda:0, but 'x' is on cpu"),
        (lambda: affine(x, torch.ones(())), ValueError, "'w' is on cpu, but 'x' is on cuda:0"),
        (lambda: noisy(x), ValueError, "'sort' cannot be computed on a GPU"),
        (lambda: looked_up(x, index), ValueError, r"checked on the CPU.*mode='clamp'"),
        (lambda: affine(x, x, out=torch.ones(5)), ValueError, "'out' is on cpu, but 'x' is on cuda:0"),
    ]
    for call, kind, text in cases:
        with pytest.raises(kind, match=text):
            call()
    assert not driver.launches


def test_other_devices_are_refused() -> None:
    class Elsewhere(Here):
        device = property(lambda self: torch.device("mps", 0))
        is_cuda = property(lambda self: False)

    x = torch.Tensor._make_subclass(Elsewhere, torch.randn(5))
    with pytest.raises(ValueError, match=r"'x' is on mps:0; ops run on the CPU and on GPUs for CUDA \('cuda'\)"):
        affine(x, x)


def test_fake_tensors_on_a_gpu() -> None:
    """Results are on the device of the arguments, those of derived routines too; nothing is compiled for it."""
    from torch._subclasses import FakeTensorMode

    x, w = torch.randn(5, requires_grad=True), torch.randn(5)
    op = te.op(affine_on_cpu.function, name="faked")
    op(x, w).sum().backward()
    routine = op.definition(op.signature.call((x, w), {}).template)
    with FakeTensorMode():
        given = [torch.empty(5, device="cuda") for _ in range(3)]
        assert op(*given[:2]).device == given[0].device
        assert torch.func.vmap(op, (0, None))(torch.empty(2, 5, device="cuda"), given[1]).is_cuda
        (adjoint,) = torch_autograd.apply(routine.derived(Pullback, (0,), (0,)), given)
        assert (adjoint.device.type, adjoint.shape) == ("cuda", (5,))
        with pytest.raises(ValueError, match="'w' is on cpu, but 'x' is on cuda:0"):
            op(given[0], torch.empty(5))
    assert not any(target != "host" for traced in routine.traces.values() for target in traced.kernels)


def test_kernels_for_a_gpu_are_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the capability of the device of the tensors, forward and backward."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 9))
    given = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
    torch.autograd.grad(affine(*given).sum(), given)
    target = torch_memory.target_of(there(1))
    assert target == "cuda-capability_86"
    (forward,) = affine._definitions.values()
    (backward,) = (routine for routine in forward.made.values() if isinstance(routine, Pullback))
    for routine, names in (forward, ["affine"]), (backward, ["dx", "dw"]):
        ptx = ptx_of(next(iter(routine.traces.values())).kernel_for(target))
        assert re.findall(rf"\.visible \.entry {NAME}", ptx) == names
        assert ".target sm_86" in ptx


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the CPU are computed on an OpenCL device."""
    monkeypatch.setattr(torch_memory, "HOST", DEVICE)


@on_opencl
def test_what_runs_on_a_gpu(on_device: None) -> None:
    """The same results there, forward, backward, batched, and where they are wanted."""
    op = te.op(affine_on_cpu.function, name="affine_opencl")
    x, w, head = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True), torch.randn(5)
    y = op(x, w)
    torch.testing.assert_close(y, 2 * x * w + 1)
    torch.testing.assert_close(torch.autograd.grad(y, [x, w], head), (2 * w * head, 2 * x * head))
    xs, out = torch.randn(3, 5), torch.empty(5)
    torch.testing.assert_close(torch.func.vmap(op, (0, None))(xs, w.detach()), 2 * xs * w.detach() + 1)
    assert op(xs[0], xs[1], out=out) is out
    torch.testing.assert_close(out, 2 * xs[0] * xs[1] + 1)
    kinds = {target for routine in routines_of(op) for traced in routine.traces.values() for target in traced.kernels}
    assert kinds == {DEVICE}


def routines_of(op: Any) -> list[Any]:
    """All that was derived."""
    found = list(op._definitions.values())
    for routine in found:
        found += routine.made.values()
    return found


CHECKS = [check_gradcheck, check_torch_compile, check_opcheck, check_torch_func]


@on_opencl
@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
@pytest.mark.parametrize("case", OPS, ids=str)
def test_operators_run_on_a_gpu(on_device: None, case: Case, check: Any) -> None:
    check(Case(case.name, te.op(case.op.function, name=f"{case.name}_opencl"), case.make, case.twice))
