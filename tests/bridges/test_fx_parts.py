"""torch.compile(backend="tedsl") never ends a program that PyTorch can run: what is left, why, and in which order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tedsl.bridges.fx.rows.table import ROWS
from tedsl.lang.errors import ScheduleError
from tedsl.lang.traverse import stages_of
from tedsl.mutation import functional

torch = pytest.importorskip("torch")
fx_compile = pytest.importorskip("tedsl.bridges.fx.backend")
register, reports = fx_compile.register, fx_compile.reports
fx_programs = pytest.importorskip("tedsl.bridges.fx.programs")
nn, F = torch.nn, torch.nn.functional

register()


@pytest.fixture(autouse=True)
def anew() -> None:
    torch._dynamo.reset()
    reports.clear()


def compiled(function: Callable[..., Any], interpreted: bool = True, **options: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(function, backend="tedsl", options={"interpreted": interpreted}, **options)
    return made


def left() -> list[tuple[str, str]]:
    return [entry for report in reports for entry in report.left]


def check(function: Callable[..., Any], *given: Any, **options: Any) -> None:
    found, expected = compiled(function, **options)(*given), function(*given)
    torch.testing.assert_close(found, expected)


# What is left, and that it is told


def test_each_operation_and_reason_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def sorted_twice(x: Any) -> Any:
        return torch.sort(x * 2)[0] + torch.sort(x + 1)[0]

    with caplog.at_level(logging.WARNING, "tedsl.compile"):
        check(sorted_twice, torch.randn(5))
        check(lambda x: torch.sort(x.exp())[0] * 2, torch.randn(5))
        assert [r.getMessage() for r in caplog.records] == [
            "tedsl: aten.sort.default is left to PyTorch: it has no row"
        ]
        torch._dynamo.reset()
        check(sorted_twice, torch.randn(5))
    assert len(caplog.records) == 2
    assert [name for name, _ in reports[0].left] == ["sort", "sort_1"]


class Failing(Exception):
    pass


def failing(*_: Any) -> Any:
    raise Failing("it does not work\nat all")


@pytest.mark.parametrize("error", [Failing, AssertionError, IndexError, ZeroDivisionError, RecursionError, KeyError])
def test_a_row_that_fails_costs_its_operation_only(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def row(x: Any) -> Any:
        raise error("it does not work\nat all")

    monkeypatch.setitem(ROWS, "sin", row)
    with caplog.at_level(logging.WARNING, "tedsl.compile"):
        check(lambda x: ((x * 2).sin() + x.exp()).sum(0), torch.randn(3, 4))
    (message,) = (r.getMessage() for r in caplog.records)
    assert message.startswith(f"tedsl: aten.sin.default is left to PyTorch: {error.__name__}: ")
    assert "\n" not in message
    assert [name for name, _ in left()] == ["sin"]
    assert set(reports[0].compiled) == {"mul", "exp", "add", "sum_1"}


def test_a_result_of_the_wrong_shape_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "exp", lambda x: ROWS["sum"](x, [0]))
    check(lambda x: x.exp() + 1, torch.randn(3, 4))
    assert left() == [("exp", "ValueError: its result has the shape (4,) where PyTorch's has (3, 4)")]


def without(name: str, error: Exception) -> Callable[..., Any]:
    """A compiler that cannot compile programs with a stage of some name."""
    real = functional.build

    def build(inputs: Any, outputs: Any, **options: Any) -> Any:
        if any(op.inputs and op.output().name == name for op in stages_of(outputs)):
            raise error
        return real(inputs, outputs, **options)

    return build


@pytest.mark.parametrize("error", [ScheduleError("no such loop"), RuntimeError("internal error"), ValueError("?")])
def test_what_cannot_be_compiled_is_found_and_left(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "build", without("tanh", error))

    def layers(x: Any) -> Any:
        for k in range(5):
            x = torch.tanh(x + k).exp() if k == 3 else (x * 0.5).exp().cos()
        return x.sum(1)

    check(layers, torch.randn(3, 4), interpreted=False)
    assert left() == [("tanh", f"{type(error).__name__}: {error}")]
    assert len(reports[0].compiled) == 15


def test_a_machine_without_memory_is_not_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def build(*args: Any, **options: Any) -> Any:
        asked.append(args)
        raise MemoryError("no memory")

    monkeypatch.setattr(functional, "build", build)
    check(lambda x: x.exp().sin().cos().sum(), torch.randn(4), interpreted=False)
    assert len(asked) == 1
    assert {reason for _, reason in left()} == {"MemoryError: no memory"}


def test_a_kernel_that_fails_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    real = functional.build

    def build(inputs: Any, outputs: Any, **options: Any) -> Any:
        kernel = real(inputs, outputs, **options)
        names = {op.output().name for op in stages_of(outputs) if op.inputs}

        class Broken:
            def __call__(self, *arrays: Any) -> Any:
                if "cos" in names:
                    raise RuntimeError("the kernel ended with 1")
                return kernel(*arrays)

        return Broken()

    monkeypatch.setattr(functional, "build", build)
    check(lambda x: x.exp().cos().tanh() + 1, torch.randn(4), interpreted=False)
    assert left() == [("cos", "RuntimeError: the kernel ended with 1")]


def test_an_error_of_the_caller_is_that_of_pytorch_and_costs_nothing() -> None:
    run = compiled(lambda x, i: x.index_select(0, i) * 2)
    x = torch.arange(4.0)
    with pytest.raises(IndexError, match="index out of range in self"):
        run(x, torch.tensor([7]))
    torch.testing.assert_close(run(x, torch.tensor([2])), torch.tensor([4.0]))
    assert left() == []


def test_a_backward_graph_that_fails_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "neg", failing)
    x = torch.randn(4, requires_grad=True)
    compiled(lambda x: x.cos().sum())(x).backward()
    torch.testing.assert_close(x.grad, -x.detach().sin())
    assert [name for name, _ in left()] == ["neg"]


@pytest.mark.parametrize("place", ["divided", "left_nodes"])
def test_a_graph_that_cannot_be_cut_is_left_whole(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fx_compile, place, failing)
    with caplog.at_level(logging.WARNING, "tedsl.compile"):
        check(lambda x: x.exp() + 1, torch.randn(4))
    assert "a whole graph is left to PyTorch: Failing: it does not work" in caplog.text


def test_a_function_that_cannot_be_traced_is_left_whole(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fx_compile, "decompositions", lambda: {torch.ops.aten.exp.default: failing})
    with caplog.at_level(logging.WARNING, "tedsl.compile"):
        check(lambda x: x.exp() + 1, torch.randn(4), fullgraph=True)
    assert "a whole function is left to PyTorch: Failing: it does not work" in caplog.text


class Odd(nn.Module):
    """Operations, dtypes and arguments without rows between others."""

    def __init__(self) -> None:
        super().__init__()
        # In float32 PyTorch's own gradients are 1e-6 of the largest away from those in float64: their terms cancel.
        self.first, self.last = nn.Linear(8, 8, dtype=torch.float64), nn.Linear(8, 3, dtype=torch.float64)

    def forward(self, x: Any) -> Any:
        y = torch.fft.irfft(torch.fft.rfft(self.first(x)) * 2, 8)
        y = torch.sort(y, 1)[0] + torch.cummax(y, 1)[0]
        y = y * (torch.polar(torch.ones(8, dtype=torch.float64), y[0]).real.detach() + 2)
        return torch.logcumsumexp(self.last(y), 1)


def test_a_model_with_much_that_is_left_is_trained() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 8, dtype=torch.float64)
    own = Odd()
    given = Odd()
    given.load_state_dict(own.state_dict())
    run = compiled(given, fullgraph=True)
    for _ in range(2):
        for model, call in ((own, own), (given, run)):
            (call(x) ** 2).sum().backward()
            torch.optim.SGD(model.parameters(), 0.01).step()
    for one, other in zip(given.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one.grad, other.grad)


# How a graph is cut


def parts_of(function: Callable[..., Any], *given: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Into how many parts a function is cut; it gives the right results."""
    made: list[Any] = []
    real = fx_programs.GraphPart.__post_init__

    def counted(part: Any) -> None:
        made.append(part)
        real(part)

    with monkeypatch.context() as patch:
        patch.setattr(fx_programs.GraphPart, "__post_init__", counted)
        check(function, *given)
    return len(made)


CUTS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "one": (lambda x: (x * 2).exp().sum(), 1),
    "before and after": (lambda x: torch.sort(x * 2)[0].exp(), 2),
    "side by side": (lambda x: (torch.sort(x)[0].exp(), torch.sort(x + 1)[0].sin(), (x * 3).cos()), 2),
    "a diamond": (lambda x: (y := x.exp()) + torch.sort(y)[0], 2),
    "a chain": (lambda x: torch.sort(torch.sort(torch.sort(x * 2)[0] + 1)[0] + 2)[0] + 3, 4),
    "views alone": (lambda x: (torch.sort(x)[0].view(-1)[1:].unsqueeze(0), x[:2]), 0),
    "views beside": (lambda x: torch.sort(x)[0].view(-1)[1:] * 2, 1),
}


@pytest.mark.parametrize("name", CUTS)
def test_the_number_of_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, count = CUTS[name]
    assert parts_of(function, torch.randn(6), monkeypatch=monkeypatch) == count


@pytest.mark.parametrize("dynamic", [False, True])
def test_arithmetic_of_sizes_cuts_nothing(dynamic: bool) -> None:
    def run(x: Any) -> Any:
        n = x.shape[0] * 2 + 1
        y = (x * n).reshape(-1)[: n - 2]
        return torch.cat([y, y.new_zeros(n)]).sum() / n

    call = compiled(run, dynamic=dynamic)
    for n in (3, 4, 6):
        torch.testing.assert_close(call(torch.ones(n, 4)), run(torch.ones(n, 4)))
    assert left() == []


def test_random_numbers_are_drawn_in_their_order() -> None:
    def run(x: Any) -> Any:
        a = torch.rand_like(x * 2)
        b = F.dropout(torch.sort(x.exp())[0] + a, 0.5)
        return a, b * torch.rand(4), torch.randint(0, 9, (5,)), b + torch.bernoulli(x.sigmoid())

    x = torch.randn(4)
    torch.manual_seed(7)
    expected = run(x)
    torch.manual_seed(7)
    for one, other in zip(compiled(run)(x), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_nothing_passes_what_writes() -> None:
    """A graph that AOTAutograd would not give: an operation that writes between others."""
    from tedsl.bridges.fx.parts import divided
    from tedsl.bridges.fx.reports import GraphReport
    from tedsl.bridges.fx.support import left_nodes

    graph, aten = torch.fx.Graph(), torch.ops.aten
    x = graph.placeholder("x")
    before = graph.call_function(aten.mul.Tensor, (x, 2))
    graph.call_function(aten.add_.Tensor, (x, 1))
    after = graph.call_function(aten.mul.Tensor, (x, 2))
    graph.output((before, after))
    for node, value in zip(graph.nodes, [torch.ones(3)] * 4, strict=False):
        node.meta["val"] = value
    module = torch.fx.GraphModule({}, graph)
    whole = divided(module, left_nodes(graph), lambda part: fx_programs.GraphPart(part, True, GraphReport()))
    one, other = whole(torch.ones(3))
    assert one.tolist() == [2.0] * 3
    assert other.tolist() == [4.0] * 3


# What comes out


def test_a_part_without_tensors_among_its_inputs_gives_tensors() -> None:
    found = compiled(lambda: (torch.arange(4.0) * 2, torch.ones(2, 3).sum(), torch.eye(2)))()
    assert all(type(t) is torch.Tensor for t in found)
    torch.testing.assert_close(list(found), [torch.arange(4.0) * 2, torch.tensor(6.0), torch.eye(2)])


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: (y := x.transpose(0, 2) * 2, y.transpose(0, 2)[:1]),
    "channels last": lambda x: x[None].to(memory_format=torch.channels_last).exp(),
    "a view of an intermediate": lambda x: (y := (x * 2).permute(2, 0, 1).clone(), y[0], y.permute(1, 2, 0).view(-1)),
    "an argument": lambda x: (x, x[1:], x + 1),
    "cut between": lambda x: torch.sort((x.transpose(0, 2) * 2), 0)[0].transpose(0, 2).contiguous().view(-1),
    "convolved": lambda x: F.conv2d(x[None].contiguous(memory_format=torch.channels_last), torch.ones(2, 2, 3, 3)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_results_lie_in_memory_as_those_of_pytorch(name: str, dynamic: bool) -> None:
    x = torch.randn(2, 3, 4)
    found, expected = compiled(LAYOUTS[name], dynamic=dynamic)(x), LAYOUTS[name](x)
    for one, other in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()


def test_results_that_are_views_of_one_memory_share_it() -> None:
    def run(x: Any) -> Any:
        y = (x * 2).t().clone()
        return y, y[0], y.t()[1:], y.view(-1) if y.is_contiguous() else y.t().view(-1), x + 1

    y, row, rest, flat, other = compiled(run)(torch.ones(3, 4))
    y.zero_()
    assert all(not t.any() for t in (row, rest, flat))
    assert other.all()


def test_what_selects_by_values_is_summed_here_and_else_left() -> None:
    def run(x: Any) -> Any:
        return x[x > 0].sum(), x[x > 0].mean(), (x[x > 1] * 2).sum(), x.masked_select(x < 0) + 1

    check(run, torch.randn(9))


def test_conditions_and_transforms_are_run() -> None:
    def run(x: Any) -> Any:
        chosen = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))
        return chosen * 2, torch.vmap(lambda r: (r * r).sum())(x), torch.func.grad(lambda y: y.sin().sum())(x)

    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        check(run, x)
