"""Operators on PyTorch tensors beyond derivatives: kinds of tensors, the registered operator, modes, bad input."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.bridges.operators import affine, noisy, picked, softmax

torch = pytest.importorskip("torch")

# PyTorch's, at the first forward derivative.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def same(found: Any, expected: Any, **tolerance: Any) -> None:
    torch.testing.assert_close(found, expected, **tolerance)


def test_results_are_tensors_with_a_gradient() -> None:
    x, w = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
    y = affine(x, w, shift=3)
    assert type(y) is torch.Tensor
    same(y, x * w * 2 + 3)
    (y**2).sum().backward()
    found = x.grad, w.grad
    x.grad = w.grad = None
    ((x * w * 2 + 3) ** 2).sum().backward()
    same(found, (x.grad, w.grad))


def test_parameters_and_prepared_calls() -> None:
    x = torch.nn.Parameter(torch.randn(4))
    w = torch.ones(4)
    for _ in range(3):
        y = affine(x, w)
        assert y.requires_grad
        (g,) = torch.autograd.grad(y.sum(), x)
        same(g, 2 * w)
        with torch.no_grad():
            assert not affine(x, w).requires_grad


def test_the_backward_pass_is_compiled_when_it_is_asked_for() -> None:
    op = te.op(softmax.function, name="lazily")
    x = torch.randn(2, 3, requires_grad=True)
    y = op(x)
    backward = "gradient by x, on "
    assert backward not in str(op.explain())
    y.sum().backward()
    (told,) = str(op.explain()).split(backward)[1:]
    assert ": compiled in" in told


@pytest.mark.parametrize("summed", [lambda y: y.sum(), lambda y: y.sum(0)[1:].sum()])
def test_the_backward_pass_is_compiled_once_whatever_the_loss_does(summed: Any) -> None:
    op = te.op(softmax.function, name="once")
    x, w = torch.randn(6, 5, requires_grad=True), torch.randn(6, 5)
    (op(x) * w).sum().backward()
    told = str(op.explain())
    summed(op(x)).backward()
    assert str(op.explain()) == told


def test_training_does_not_compile_what_calls_without_gradients_run() -> None:
    op = te.op(lambda x: te.exp(x) / te.exp(x).sum(1)[:, None], name="trained")
    x = torch.randn(6, 5, requires_grad=True)
    op(x).sum().backward()
    assert "what is kept, on" in str(op.explain())
    assert "forward: compiled in" not in str(op.explain())
    with torch.no_grad():
        same(op(x), torch.softmax(x, 1))
    assert "forward: compiled in" in str(op.explain())


def test_a_graph_may_name_what_was_not_derived_yet() -> None:
    from tedsl.ops.saving import Saving

    routines = import_module("tedsl.bridges.torch.routines")
    routine = softmax.definition(softmax.signature.call((torch.ones(2, 3),), {}).template)
    key = routines.key_of(routine)
    found = routines.routine_of(
        f"{key} -> saving('reductions', False) -> pullback((0,), (0,), (0, 1)) -> batched((True,))"
    )
    assert found.of.of is routine.derived(Saving, "reductions", False)
    assert routines.key_of(found).startswith(key)
    for derived in (found, found.of, routine.derived(Saving, ("top", "total"), True)):
        assert routines.derived_by(derived.of, derived.label) is derived
    with pytest.raises(RuntimeError, match="not known in this process"):
        routines.routine_of("nothing(x=array 0)")


def test_inputs_that_are_not_read_are_not_kept() -> None:
    @te.op(save=["total"])
    def mean(x: te.Tensor) -> te.Tensor:
        total = te.compute((x.shape[0],), lambda i: te.sum(lambda k: x[i, k]), name="total")
        return te.compute(total.shape, lambda i: total[i] * total[i])

    x = torch.randn(8, 1024, dtype=torch.float64, requires_grad=True)
    y = mean(x)
    saved = y.grad_fn.saved_tensors
    assert max(t.untyped_storage().nbytes() for t in saved) < x.untyped_storage().nbytes()
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    same(g, (2 * x.sum(1, keepdim=True)).expand_as(x))
    (gg,) = torch.autograd.grad((g * x.detach()).sum(), x)
    same(gg, (2 * x.detach().sum(1, keepdim=True)).expand_as(x), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.t(), lambda x: x[::2], lambda x: x[:, ::2], lambda x: x[:1].expand(4, 6), lambda x: x[:0],
        lambda x: x.contiguous(memory_format=torch.contiguous_format),
    ],
    ids=["transposed", "rows", "columns", "expanded", "empty", "contiguous"],
)  # fmt: skip
def test_layouts(make: Any) -> None:
    x = make(torch.randn(4, 6, requires_grad=True, dtype=torch.float64))
    y = softmax(x)
    same(y, x.softmax(1))
    head = torch.randn(y.shape, dtype=torch.float64)
    same(torch.autograd.grad(y, x, head, retain_graph=True), torch.autograd.grad(x.softmax(1), x, head))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_float_types(name: str) -> None:
    dtype = getattr(torch, name)
    x, w = torch.randn(6).to(dtype).requires_grad_(), torch.randn(6).to(dtype)
    y = affine(x, w)
    assert y.dtype is dtype
    same(y, x * w * 2 + 1)
    (g,) = torch.autograd.grad(y.sum(), x)
    same(g, w * 2)


def test_integers_have_no_gradient() -> None:
    x, index = torch.randn(4, requires_grad=True), torch.tensor([0, 3, 0])
    chosen, run, largest = picked(x, index)
    assert largest.dtype is torch.int32
    assert not largest.requires_grad
    (g,) = torch.autograd.grad(chosen.sum() + run[0], x)
    same(g, torch.autograd.grad((x[index] ** 2).sum() + x[0], x)[0])
    with pytest.raises(RuntimeError, match="floating point"):
        torch.tensor([1, 2], requires_grad=True)
    counts = te.op(lambda x: x + 1)(torch.arange(3))
    assert counts.dtype is torch.int64


@pytest.mark.parametrize("make", [te.op, te.jit])
def test_results_without_a_derivative_are_as_torch_has_them(make: Any) -> None:
    order = make(lambda w: te.argsort(w))
    w = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
    for _ in range(2):  # the second is a prepared one
        found = order(w)
        assert not found.requires_grad
        assert found.tolist() == [1, 2, 0]
    (w * found).sum().backward()
    same(w.grad, torch.tensor([1.0, 2.0, 0.0]))
    slope, aux = torch.func.grad(lambda w: ((w * order(w)).sum(), order(w)), has_aux=True)(w.detach())
    same(slope, torch.tensor([1.0, 2.0, 0.0]))
    assert aux.tolist() == [1, 2, 0]
    moved, dot = torch.func.jvp(order, (w.detach(),), (torch.ones(3),))
    assert (moved.tolist(), dot.tolist()) == ([1, 2, 0], [0, 0, 0])
    many = torch.func.vmap(torch.func.grad(lambda w: (w * order(w)).sum()))(torch.ones(2, 3))
    assert many.tolist() == [[0, 1, 2]] * 2
    (g,) = torch.autograd.grad(torch.compile(lambda w: (w * order(w)).sum(), backend="aot_eager")(w), w)
    same(g, torch.tensor([1.0, 2.0, 0.0]))


def test_out_and_mode() -> None:
    x, w, buffer = torch.randn(5), torch.randn(5), torch.ones(5)
    assert affine(x, w, out=buffer, mode="add") is buffer
    same(buffer, x * w * 2 + 2)
    with pytest.raises(RuntimeError, match="out= does not support automatic differentiation"):
        affine(x.requires_grad_(), w, out=buffer)


def test_out_holds_tensors_in_the_nest_of_the_results() -> None:
    both = te.op(lambda x: {"a": x * 2, "b": x * 3}, name="both")
    x, buffer = torch.randn(5), torch.ones(5)
    found = both(x, out={"b": buffer})
    assert found["b"] is buffer
    same(found, {"a": x * 2, "b": x * 3})
    for wrong in np.ones(5, "float32"), "b", 3.0:
        with pytest.raises(TypeError, match=r"op affine\(.*out= must be a tensor of PyTorch"):
            affine(x, x, out=wrong)


def test_the_negative_of_memory_is_read_but_not_written() -> None:
    x = torch.view_as_complex(torch.ones(3, 2)).conj().imag
    assert x.is_neg()
    for _ in range(2):
        same(affine(x, x), torch.full((3,), 3.0))
    with pytest.raises(ValueError, match="give one of its own"):
        affine(torch.ones(3), torch.ones(3), out=x)


def test_autograd_learns_what_was_written() -> None:
    x, z = torch.randn(5), torch.randn(5, requires_grad=True)
    A = te.placeholder((5,), name="A")
    B = te.compute((5,), lambda i: A[i] * 2, name="B")
    writes: dict[str, Any] = {
        "out": lambda t: affine(x, x, out=t),
        "add": lambda t: affine(x, x, out=t, mode="add"),
        "kernel": lambda t: te.build(A, B)(x, out=t),
        "alias": te.build(A, B, alias={B: A}),
        "functionalize": te.functionalize(lambda t: t.add_(1)),
    }
    for name, write in writes.items():
        saved = torch.randn(5)
        loss = (saved * z).sum()
        write(saved)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        assert saved._version == 1, name


def test_kernels_refuse_to_lose_a_gradient() -> None:
    A = te.placeholder((5,), name="A")
    kernel = te.build(A, te.compute((5,), lambda i: A[i] * 2, name="B"))
    x = torch.randn(5, requires_grad=True)
    for call in (
        lambda: kernel(x),
        lambda: kernel(x.detach(), out=x),
        lambda: te.evaluate(A * 2, {A: x}),
        lambda: te.functionalize(lambda a: a * 2)(x),
    ):
        with pytest.raises(RuntimeError, match="requires grad, and autograd does not record this call"):
            call()
        with torch.no_grad():
            call()


def test_kernels_take_dense_tensors_on_the_cpu() -> None:
    A = te.placeholder((2, 2), name="A")
    kernel = te.build(A, te.compute((2, 2), lambda i, j: A[j, i] * 2, name="B"))
    for x in torch.eye(2).to_sparse(), torch.empty(2, 2, device="meta"):
        with pytest.raises(TypeError, match="kernel 'B': input 'A': expected a dense tensor on the CPU, found layout"):
            kernel(x)


@te.op
def product(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    return te.compute((x.shape[0], w.shape[1]), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j]))


def test_gradients_of_micro_batches_are_counted_once() -> None:
    """Autograd sums some of them into .grad, a product with mode="add" others: into the memory autograd took over."""
    w = torch.randn(4, 3, requires_grad=True)
    other = w.detach().clone().requires_grad_()
    for step in range(6):
        x = torch.randn(7, 4)
        (x @ other).square().sum().backward()
        y = product(x, w)
        if step % 2 == 0:
            y.square().sum().backward()
        else:
            (head,) = torch.autograd.grad(y.square().sum(), y)
            assert product(x.T, head, out=w.grad, mode="add") is w.grad
    same(w.grad, other.grad, rtol=1e-4, atol=1e-4)


def test_gradients_are_memory_of_their_own() -> None:
    """PyTorch takes a gradient over as .grad and adds to it in place, so that none may be seen through another."""
    for function in lambda x, w: x + w, lambda x, w: (x, x + w), lambda x, w: (x * 1, w):
        op = te.op(function, name="own")
        x, w, head = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True), torch.ones(5)
        for _ in range(2):
            results = op(x, w)
            torch.autograd.backward(results, [head] * len(results) if isinstance(results, tuple) else head)
        same(head, torch.ones(5))
        memories = [t.data_ptr() for t in (x.grad, w.grad, head)]
        assert len(set(memories)) == 3
        twice = torch.autograd.grad(op(x, w), [x, w], [head] * len(results) if isinstance(results, tuple) else head)
        same((x.grad, w.grad), tuple(2 * g for g in twice))


def test_fake_and_meta_tensors_have_shapes() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        y = softmax(torch.empty(3, 5))
        assert (y.shape, y.dtype) == ((3, 5), torch.float32)
    y = softmax(torch.empty(3, 5, device="meta"))
    assert (y.device.type, tuple(y.shape)) == ("meta", (3, 5))


def test_symbolic_sizes_stay_symbolic() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    softmax(torch.randn(2, 3))
    graph = make_fx(lambda x: softmax(x * 2), tracing_mode="symbolic")(torch.randn(4, 5))
    x = torch.randn(7, 3)
    same(graph(x), (x * 2).softmax(1))
    assert "tedsl.call" in graph.code


def test_autocast_computes_in_float32() -> None:
    x, w = torch.randn(4, dtype=torch.bfloat16, requires_grad=True), torch.randn(4)
    with torch.autocast("cpu", torch.bfloat16):
        y = affine(x, w)
    assert y.dtype is torch.float32
    (g,) = torch.autograd.grad(y.sum(), x)
    assert g.dtype is torch.bfloat16
    assert affine(x.float(), w).dtype is torch.float32


def test_the_registered_operator() -> None:
    operator = affine.torch_op
    assert operator is affine.torch_op
    assert str(operator._schema) == "tedsl::affine(Tensor x, Tensor w, float scale=2., int shift=1) -> Tensor"
    x, w = torch.randn(3, requires_grad=True), torch.randn(3)
    same(operator(x, w, 3.0), affine(x, w, 3.0))
    same(operator(x, w, shift=4), x * w * 2 + 4)
    torch.library.opcheck(operator, (x, w, 3.0), {"shift": 2})
    (g,) = torch.autograd.grad(operator(x, w).sum(), x)
    same(g, 2 * w)
    jacobian = torch.func.jacrev(lambda x: operator(x, w))(x.detach())
    same(jacobian, torch.diag(2 * w))
    several = picked.torch_op
    assert str(several._schema).endswith("-> (Tensor, Tensor, Tensor)")
    assert len(several(torch.randn(4), torch.tensor([1]))) == 3


def test_an_operator_defined_again_has_a_name_of_its_own() -> None:
    names = set()
    for k in (1, 2):
        op = te.op(lambda x, k=k: te.compute(x.shape, lambda i: x[i] * k), name="again")
        names.add(op.torch_op._schema.name)
        same(op.torch_op(torch.ones(2)), torch.full((2,), float(k)))
        same(torch.compile(op, fullgraph=True, backend="eager")(torch.ones(2)), torch.full((2,), float(k)))
    assert len(names) == 2


def test_compiled_calls_take_static_arguments_nests_and_new_sizes() -> None:
    @te.op
    def nested(many: Any, scale: Any = (1, 2), name: str = "a") -> Any:
        return {"sum": many[0] * scale[0] + many[1] * scale[1], "rest": [many[0] + 1, (many[1],)]}

    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: nested([a, b], scale=(2, 3)), fullgraph=True, backend="eager", dynamic=True)
    for n in (3, 4, 5):
        a, b = torch.randn(n), torch.randn(n)
        found = compiled(a, b)
        same(found["sum"], 2 * a + 3 * b)
        same(found["rest"][1][0], b)


def test_prepared_calls_see_transforms() -> None:
    x = torch.randn(3, 4)
    softmax(x)
    softmax(x)
    same(torch.func.vmap(softmax)(torch.stack([x, x]))[1], x.softmax(1))
    _, dot = torch.func.jvp(softmax, (x,), (torch.ones_like(x),))
    same(dot, torch.zeros_like(x), atol=1e-6, rtol=0)
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        dual = softmax(forward_ad.make_dual(x, x))
        expected = forward_ad.unpack_dual(forward_ad.make_dual(x, x).softmax(1)).tangent
        same(forward_ad.unpack_dual(dual).tangent, expected)


@pytest.mark.parametrize("before", [torch.abs, lambda x: torch.where(x > 0, x, 2 * x), torch.nn.functional.dropout])
def test_forward_derivatives_of_forward_derivatives_in_training(before: Any) -> None:
    """PyTorch hands down zeros without memory there, forward and backward."""
    x, dot = torch.rand(3, 4, dtype=torch.float64) + 0.1, torch.randn(3, 4, dtype=torch.float64)

    def twice(function: Any, at: Any) -> Any:
        def once(y: Any) -> Any:
            torch.manual_seed(0)
            return torch.func.jvp(lambda z: before(function(z)), (y,), (dot,))[1]

        return torch.func.jvp(once, (at,), (dot,))[1]

    def gradient(function: Any) -> Any:
        at = x.clone().requires_grad_()
        twice(function, at).pow(2).sum().backward()
        return at.grad

    ours = te.op(lambda x: te.sin(x) * x)
    same(twice(ours, x), twice(lambda x: torch.sin(x) * x, x))
    same(gradient(ours), gradient(lambda x: torch.sin(x) * x))
    zeros = torch._efficientzerotensor((3, 4))
    same(ours(zeros), torch.zeros(3, 4))


class TestNumPyBesideTensors:
    """An array of NumPy is a tensor on the other's device, with the values that it has when the call is made."""

    x = torch.tensor([1.0, 2.0, 3.0])
    w = np.array([0.5, -1.0, 2.0], "float32")

    @pytest.mark.parametrize("calls", [1, 3], ids=["once", "prepared"])
    def test_either_side(self, calls: int) -> None:
        for given in ((self.x, self.w), (self.w, self.x), (self.x, self.w[::-1]), (self.x, self.w.astype("float64"))):
            for _ in range(calls):
                found = affine(*given)
            tensors = [torch.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in given]
            same(found, affine(*tensors))
            assert found.dtype == torch.result_type(*tensors)

    def test_derivatives(self) -> None:
        x, w = self.x.clone().requires_grad_(), self.w.copy()
        loss = affine(x, w).sum()
        w[:] = 100
        loss.backward()
        same(x.grad, torch.autograd.grad(affine(x, torch.from_numpy(self.w)).sum(), x)[0])
        same(torch.func.vmap(lambda row: affine(row, self.w))(self.x[None]), affine(self.x, self.w)[None])

    def test_compiled(self) -> None:
        compiled = torch.compile(lambda x: affine(x, self.w), backend="eager", fullgraph=True)
        same(compiled(self.x), affine(self.x, self.w))


X = torch.ones(2, requires_grad=True)
BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "beside tensors, with grad": (
        lambda: affine(torch.ones(2, requires_grad=True), te.placeholder((2,))), TypeError,
        r"op affine\(x.*argument 'x': a torch.Tensor that requires grad would be a constant here.*give x.detach",
    ),
    "mixed devices": (
        lambda: affine(torch.ones(2), torch.ones(2, device="meta")), ValueError, "'w' is on meta, but 'x' is on cpu",
    ),
    "complex": (
        lambda: affine(torch.ones(2, dtype=torch.complex64), torch.ones(2)), TypeError,
        r"'x': dtype torch.complex64 is not supported.*view_as_real",
    ),
    "sparse": (lambda: softmax(torch.eye(3).to_sparse()), TypeError, r"found layout torch.sparse_coo; give x.to_dense"),
    "quantized": (
        lambda: softmax(torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)), TypeError, "plain tensor",
    ),
    "wrong rank": (lambda: softmax(torch.ones(2)), ValueError, r"op softmax\(x.*called on \(x : float32\[2\]\)"),
    "wrong sizes": (lambda: affine(torch.ones(2), torch.ones(1)), IndexError, "out of bounds"),
    "no derivative": (
        lambda: noisy(torch.ones(2, requires_grad=True)).sum().backward(), ArithmeticError, "extern",
    ),
    "older vmap": (
        lambda: torch.autograd.grad(
            affine(X, torch.ones(2)), X, torch.ones(3, 2), is_grads_batched=True
        ), NotImplementedError, "use torch.func",
    ),
    "no schema": (lambda: te.op(lambda x, axes=(1, "a"): x).torch_op, TypeError, "cannot pass axes"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_a_message(name: str) -> None:
    call, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        call()


def test_functions_of_pytorch_say_what_to_write() -> None:
    """Of tensors that have no elements yet; what only calls methods of its argument works as it is."""
    x, y = te.placeholder((3, 4), name="x"), torch.ones(3, 4)
    for wrong, text in [
        (lambda: torch.exp(x), r"torch's exp at .*test_torch.py.*: takes tensors of PyTorch, found x : .*; write"),
        (lambda: torch.stack([x, x]), "torch's stack at .*found a tensor of tedsl; write te.stack"),
        (lambda: torch.exp(x[0, 0]), r"torch's exp at .*found x\[0, 0\]"),
        (lambda: torch.add(y, x), "torch's add at .*found x"),
        (lambda: te.compute((3,), lambda i: x[i, 0] * y), r"found an array, torch.Tensor; write te.constant\(array\)"),
    ]:
        with pytest.raises(TypeError, match=f"(?s){text}"):
            wrong()
    assert torch.nn.functional.softmax(x, -1).shape == x.shape
