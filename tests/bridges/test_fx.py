"""te.from_fx and torch.compile(backend="tedsl"): in-place graphs, buffers, models and their training, and refusals."""

from __future__ import annotations

import copy
import logging
import operator
from typing import Any

import pytest

import tedsl as te

torch = pytest.importorskip("torch")
fx_compile = pytest.importorskip("tedsl.bridges.fx.backend")
register, reports = fx_compile.register, fx_compile.reports
make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx
nn, F = torch.nn, torch.nn.functional

register()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return F.log_softmax(self.second(F.relu(self.first(x), inplace=True)), -1)


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        y = F.max_pool2d(F.relu(self.norm(self.conv(x)), inplace=True), 2)
        return self.head(F.avg_pool2d(y, 2).flatten(1))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project, self.norm = nn.Linear(8, 24), nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        q, k, v = self.project(x).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 5, 8)
        return self.norm(x + F.gelu(y))


MODELS = [(Classifier, (5, 4)), (Convolutional, (2, 3, 8, 8)), (Attention, (2, 5, 8))]


def test_the_seeds_relu_comes_out_pure_and_updates_the_input() -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.relu(x, inplace=True)

    x = torch.randn(3, 3)
    f = te.from_fx(torch.fx.symbolic_trace(Net()), [x])
    ((old, new),) = f.mutated.items()
    assert old.name == "x"
    assert f.outputs[0] is new
    want = torch.relu(x)
    assert f(x) is x
    torch.testing.assert_close(x, want)


def test_the_seeds_slice_assignment_comes_out_pure() -> None:
    def forward(x: Any, y: Any) -> Any:
        y = y + 3
        y[:, 0] = x[:, 0]
        return y

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    graph = make_fx(forward)(x, y)
    assert "copy_" in str(graph.graph)
    f = te.from_fx(graph, [x, y])
    assert not f.mutated
    own = y.clone()
    torch.testing.assert_close(f(x, y), forward(x, own))
    torch.testing.assert_close(y, own)


@pytest.mark.parametrize(("model", "shape"), MODELS)
@pytest.mark.parametrize("decomposed", [False, True])
def test_models(model: Any, shape: tuple[int, ...], decomposed: bool) -> None:
    torch.manual_seed(0)
    x, own = torch.randn(shape), model()
    given = copy.deepcopy(own)
    graph = torch.fx.symbolic_trace(given)
    if decomposed:
        given.eval()
        own.eval()
        graph = make_fx(lambda x: torch.func.functional_call(given, dict(given.state_dict()), (x,)))(x)
    f = te.from_fx(graph, [x], interpreted=True)
    with torch.no_grad():
        torch.testing.assert_close(f(x), own(x), rtol=1e-4, atol=1e-5)
    for one, other in zip(given.state_dict().values(), own.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other)
    if model is Convolutional and not decomposed:
        assert [t.name for t in f.mutated] == ["norm_running_mean", "norm_running_var", "norm_num_batches_tracked"]


def test_in_place_methods_and_functions() -> None:
    class Net(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            x.add_(y, alpha=2).clamp_(max=3.0)
            torch.relu_(x)
            x.t()[0].mul_(2)
            y.index_put_((torch.tensor([0, 0]),), torch.ones(2, 3), accumulate=True)
            y[:, 2:].copy_(torch.fill(y[:, :1], 2.5))
            return x.masked_fill_(y > 2, 0.0), y.view(-1)[1:]

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    own = x.clone(), y.clone()
    graph = torch.fx.symbolic_trace(Net())
    (method,) = (n for n in graph.graph.nodes if n.target == "index_put_")
    with graph.graph.inserting_after(method):  # which symbolic_trace itself writes as y + 1
        graph.graph.call_function(operator.iadd, (method.args[0], 1))
    graph.recompile()
    f = te.from_fx(graph, [x, y], interpreted=True)
    for one, other in zip(graph(*own), f(x, y), strict=True):
        torch.testing.assert_close(other, one)
    torch.testing.assert_close((x, y), own)
    assert [t.name for t in f.mutated] == ["x", "y"]


def test_inputs_that_share_memory_and_other_strides() -> None:
    def forward(x: Any, y: Any) -> Any:
        y += 1
        x[:1] *= 3
        return x.reshape(-1)

    for cut in (lambda a: (a, a[0]), lambda a: (a[:, 1:].t().t(), a[1, 1:])):
        own, given = torch.arange(8.0).reshape(2, 4), torch.arange(8.0).reshape(2, 4)
        graph = make_fx(forward)(*cut(torch.zeros(2, 4)))
        expected, found = forward(*cut(own)), te.from_fx(graph, cut(given), interpreted=True)(*cut(given))
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(given, own)


# torch.compile


def trained(model: Any, x: Any, steps: int = 2) -> list[float]:
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(steps):
        loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("model", "shape"), MODELS)
@pytest.mark.parametrize("interpreted", [True, pytest.param(False, marks=pytest.mark.long)])
def test_training(model: Any, shape: tuple[int, ...], interpreted: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    reports.clear()
    own = model()
    given = copy.deepcopy(own)
    x = torch.randn(shape)
    compiled = torch.compile(given, backend="tedsl", options={"interpreted": interpreted})
    assert trained(compiled, x) == pytest.approx(trained(own, x), rel=1e-4)
    for one, other in zip(given.state_dict().values(), own.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert len(reports) == 2  # forward and backward
    assert [r.left for r in reports] == [[], []]


def test_a_compiled_function_updates_its_input() -> None:
    torch._dynamo.reset()

    def step(x: Any, y: Any) -> Any:
        torch.nn.functional.relu(x, inplace=True)
        y[:, 0] = x[:, 0]
        return x.sum()

    given, own = [torch.randn(3, 3), torch.randn(3, 3)], []
    own = [t.clone() for t in given]
    torch.testing.assert_close(torch.compile(step, backend="tedsl")(*given), step(*own))
    torch.testing.assert_close(given, own)


def test_what_is_not_supported_is_left_to_pytorch_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    reports.clear()

    def spectrum(x: Any) -> Any:
        return torch.fft.rfft(x * 2).abs() + 1

    x = torch.randn(8)
    with caplog.at_level(logging.WARNING, "tedsl.compile"):
        found = torch.compile(spectrum, backend="tedsl", options={"interpreted": True})(x)
    torch.testing.assert_close(found, spectrum(x))
    assert "fft_r2c" in caplog.text
    (report,) = reports
    assert any("has no row" in why for _, why in report.left)
    assert report.compiled


def test_an_operator_of_te_within_is_called_and_told(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    reports.clear()
    doubled = te.op(lambda x: x * 2)
    x = torch.randn(8)
    with caplog.at_level(logging.WARNING, "tedsl.compile"):
        found = torch.compile(lambda x: doubled(x + 1).sin(), backend="tedsl", options={"interpreted": True})(x)
    torch.testing.assert_close(found, ((x + 1) * 2).sin())
    (report,) = reports
    assert any("an operator made by te.op, with kernels of its own" in why for _, why in report.left)


def test_unknown_options_are_refused() -> None:
    run = torch.compile(lambda x: x + 1, backend="tedsl", options={"interpreted": True, "fast": True})
    with pytest.raises(Exception, match="the only option is 'interpreted', found fast"):
        run(torch.ones(2))


def test_other_shapes_are_traced_again() -> None:
    torch._dynamo.reset()
    run = torch.compile(lambda x: (x * 2 + 1).reshape(-1).sum(), backend="tedsl", options={"interpreted": True})
    for n in (3, 4, 5, 6):
        torch.testing.assert_close(run(torch.ones(n, 2)), torch.tensor(6.0 * n))


@pytest.mark.parametrize("dynamic", [False, True])
def test_from_fx_is_a_backend_itself(dynamic: bool) -> None:
    torch._dynamo.reset()
    weight, bias = torch.randn(4, 3, 3, 3), torch.randn(4)

    def convolved(x: Any) -> Any:
        return F.softmax(F.conv2d(x, weight, bias, padding=1), 1) * x.shape[0]

    run = torch.compile(convolved, backend=te.from_fx, dynamic=dynamic)
    for n in (2, 3):
        x = torch.randn(n, 3, 6, 5)
        torch.testing.assert_close(run(x), convolved(x))
    assert type(torch.compile(lambda: torch.arange(3.0) * 2, backend=te.from_fx)()) is torch.Tensor


# Bad input


class Spectrum(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.fft.rfft(x)


class Choice(nn.Module):
    def forward(self, x: Any) -> Any:
        return x[x > 0]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Spectrum, "node 'fft_rfft' calls aten._fft_r2c.default, which is not supported"),
        (Choice, "the length of x[mask] depends on values"),
    ],
)
def test_an_unsupported_node_is_named(module: Any, words: str) -> None:
    with pytest.raises(NotImplementedError) as caught:
        te.from_fx(torch.fx.symbolic_trace(module()), [torch.randn(8)])
    assert words in str(caught.value)


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match=r"expected a torch.fx.GraphModule, found Linear"):
        te.from_fx(nn.Linear(2, 2), [torch.ones(2)])
    graph = torch.fx.symbolic_trace(nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"the graph takes 1 inputs \(input_1\), not 2"):
        te.from_fx(graph, [torch.ones(2), torch.ones(2)])
    for call in (
        lambda: te.from_fx(graph, [[[1.0, 2.0]]]),
        lambda: te.from_fx(graph, [torch.ones(2).numpy()]),
        lambda: te.from_fx(graph, [torch.ones(2)], interpreted=True)(torch.ones(2).numpy()),
    ):
        with pytest.raises(TypeError, match=r"input 'input_1' is a (list|ndarray); graphs take tensors of PyTorch"):
            call()
    with pytest.raises(TypeError, match=r"example_inputs is a list of inputs, found Tensor; write \[x\]"):
        te.from_fx(graph, torch.ones(1, 2))


def test_views_in_place_move_no_memory() -> None:
    def inside(x: Any) -> Any:
        y = x.clone()
        row = y[0]
        y.t_()
        row.zero_()
        y.unsqueeze_(0)
        y[:, 1].mul_(2)
        return y, row, y.squeeze_()

    def outside(x: Any) -> Any:
        x.t_()
        return x + 1

    x = torch.randn(3, 3)
    found = te.from_fx(torch.fx.symbolic_trace(inside), [x], interpreted=True)(x)
    torch.testing.assert_close(found, inside(x))
    with pytest.raises(NotImplementedError, match=r"node 't_' .*it changes the shape of an input"):
        te.from_fx(torch.fx.symbolic_trace(outside), [x], interpreted=True)


def test_a_scalar_is_summed_over_its_axis_0_as_in_pytorch() -> None:
    graph = torch.fx.symbolic_trace(lambda x: torch.sum(2 * x, dim=[0]) + x.amax(dim=-1))
    x = torch.tensor(3.0)
    torch.testing.assert_close(te.from_fx(graph, [x])(x), graph(x))
