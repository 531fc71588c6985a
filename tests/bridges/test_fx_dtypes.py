"""The dtypes in which graphs of PyTorch compute: those of PyTorch, no digit of an integer lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import tedsl as te
from tests.bridges.results import leaves

torch = pytest.importorskip("torch")
make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx

wide = torch.tensor([2**53 + 1, -(2**53) - 1, 2**62 + 3, -(2**62) - 5, 7, -7, 0])
DIGITS: dict[str, Callable[[Any], Any]] = {
    **{f"div {mode} {d}": lambda x, mode=mode, d=d: torch.div(x, d, rounding_mode=mode)
       for mode in ("trunc", "floor") for d in (3, -3)},
    **{f"{f.__name__} {d}": lambda x, f=f, d=d: f(x, d)
       for f in (torch.floor_divide, torch.remainder, torch.fmod) for d in (7, -7)},
    **{f"{f.__name__} by a tensor": lambda x, f=f: f(x, torch.tensor([3, -3, 5, -5, 2, -2, 1]))
       for f in (torch.floor_divide, torch.remainder, torch.fmod)},
    "operators": lambda x: [x // 3, x % 5, -x // 2, 10 // (x * 2 + 1)],
    "in place": lambda x: x.clone().div_(3, rounding_mode="trunc").floor_divide_(-2).remainder_(11).fmod_(4),
    "true division": lambda x: [x / 3, 1 / (2 * x + 1), torch.true_divide(x, 7), x.double() / 3],
    "to floats and back": lambda x: [x.float(), x.double(), x.half(), (x // 2**20).double().long()],
    "sums": lambda x: [x.sum(), x.cumsum(0), x.prod(), x[:2].cumprod(0), x.max(), x.min(0)[0], x.argmax()],
    "products": lambda x: [x[:6].view(2, 3) @ x[:6].view(3, 2), x.dot(x), x * 3, x**3, x.square()],
    "numbers": lambda x: [x + (2**53 + 1), x - 2**60, x.clamp(max=2**53 + 1), x == 2**53 + 1, x > 2**53],
    "filled": lambda x: [torch.full((2,), 2**53 + 1), torch.full_like(x, 2**53 + 1), x.masked_fill(x < 0, 2**53 + 1),
                         x.clone().fill_(2**53 + 1), x.new_full((2,), -(2**53) - 1), torch.arange(2**53, 2**53 + 3)],
    "chosen": lambda x: [torch.where(x > 0, x, 2**53 + 1), x.gather(0, torch.tensor([2, 1])), x.flip(0), x.abs(),
                         torch.nn.functional.pad(x, (1, 1), value=2**53 + 1), torch.maximum(x, x // 2), x.sign()],
    "written": lambda x: [x.index_fill(0, torch.tensor([0]), 2**53 + 1), x.scatter(0, torch.tensor([1]), 2**53 + 1),
                          x.index_add(0, torch.tensor([4]), torch.tensor([2**53 + 1]))],
    "bits": lambda x: [x & 0xFF, x | 1, x ^ 3, ~x, x << 1, x >> 3],
}  # fmt: skip


def ours(function: Callable[..., Any], *inputs: Any, interpreted: bool = True) -> list[Any]:
    graph = make_fx(lambda *given: leaves(function(*given)))(*inputs)
    return leaves(te.from_fx(graph, inputs, interpreted=interpreted)(*inputs))


@pytest.mark.parametrize("interpreted", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", DIGITS)
def test_no_digit_of_an_integer_is_lost(name: str, interpreted: bool) -> None:
    for k, (found, expected) in enumerate(
        zip(ours(DIGITS[name], wide, interpreted=interpreted), leaves(DIGITS[name](wide)), strict=True)
    ):
        assert found.dtype == expected.dtype, k
        torch.testing.assert_close(found, expected, rtol=0, atol=0, msg=lambda m, k=k: f"result {k}: {m}")


def test_a_compiled_division_keeps_all_digits() -> None:
    torch._dynamo.reset()
    run = torch.compile(lambda x: torch.div(x, 3, rounding_mode="trunc"), backend="tedsl", fullgraph=True)
    assert run(wide).tolist() == torch.div(wide, 3, rounding_mode="trunc").tolist()


DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64,
)  # fmt: skip
PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum, "eq": torch.eq, "lt": torch.lt,
    "atan2": torch.atan2, "where": lambda a, b: torch.where(a > 0, a, b), "pow": torch.pow, "fmod": torch.fmod,
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}  # fmt: skip
NUMBERS = (3, 2.5, True)


def values(dtype: Any) -> Any:
    return torch.tensor([1, 3, 5, 2, 1, 4]).to(dtype)


def pairs_of(first: Any) -> list[tuple[Any, Any]]:
    """Operands of all dtypes beside one: vectors, a tensor of no axes, numbers."""
    x = values(first)
    others = [values(second).flip(0) for second in DTYPES]
    return [*((x, y) for y in others), *((x, y[1]) for y in others), *((x, n) for n in NUMBERS)]


def computed(function: Callable[..., Any], pair: tuple[Any, ...]) -> Any:
    """What PyTorch computes; None where it has no such operation."""
    try:
        return function(*pair)
    except (RuntimeError, TypeError):
        return None


@pytest.mark.share(3)
@pytest.mark.parametrize(("name", "first"), list(itertools.product(PAIRS, DTYPES)), ids=str)
def test_operands_of_two_dtypes(name: str, first: Any) -> None:
    cases = [(pair, made) for pair in pairs_of(first) if (made := computed(PAIRS[name], pair)) is not None]
    tensors = [v for pair, _ in cases for v in pair if isinstance(v, torch.Tensor)]

    def run(*given: Any) -> Any:
        taken = iter(given)
        return [PAIRS[name](*(next(taken) if isinstance(v, torch.Tensor) else v for v in pair)) for pair, _ in cases]

    for (pair, expected), found in zip(cases, ours(run, *tensors), strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), pair
        torch.testing.assert_close(found, expected, msg=lambda m, pair=pair: f"{pair}: {m}")


def test_integers_beside_float32_become_float32() -> None:
    def run(n: Any, x: Any) -> Any:
        return [n == x, n + x, n * 1.0, torch.sin(n)]

    n, x = torch.tensor([2**24 + 1, 5]), torch.tensor([2.0**24, 5.0])
    for found, expected in zip(ours(run, n, x), run(n, x), strict=True):
        assert torch.equal(found, expected)


def test_a_number_that_does_not_fit_goes_around() -> None:
    def run(u: Any, i: Any) -> Any:
        return [u + (-1), u - 10, u * -1, u < 300, u == -1, i * 2, i.masked_fill(i > 0, -1), u.masked_fill(u > 5, -1)]

    given = torch.tensor([5, 250], dtype=torch.uint8), torch.tensor([100, -128], dtype=torch.int8)
    for found, expected in zip(ours(run, *given), run(*given), strict=True):
        assert torch.equal(found, expected)


def test_floats_keep_their_digits_where_they_are_written() -> None:
    def run(x: Any) -> Any:
        return [
            x.clone().fill_(0.1),
            torch.full_like(x, 0.1),
            x.index_fill(0, torch.tensor([0]), 0.1),
            x.masked_fill(x > 0, 0.1),
        ]

    x = torch.linspace(-1, 1, 4, dtype=torch.float64)
    for found, expected in zip(ours(run, x), run(x), strict=True):
        assert torch.equal(found, expected)


def test_rounding_to_decimals() -> None:
    def run(x: Any) -> Any:
        return [*(x.round(decimals=d) for d in (-1, 0, 1, 2)), x.clone().round_(decimals=2), torch.round(x)]

    x = torch.tensor([3.14159, -2.71828, 1.005, 25.0, -15.5, 0.125])
    for found, expected in zip(ours(run, x), run(x), strict=True):
        assert torch.equal(found, expected)


def test_half_precision_is_summed_in_single() -> None:
    def run(x: Any) -> Any:
        return [x.sum(0), x.mean(0), x.cumsum(0), x @ x, x.softmax(0), x.sum(dtype=torch.float32), x.var(0)]

    for dtype in (torch.float16, torch.bfloat16):
        x = torch.full((64, 64), 0.1, dtype=dtype)
        for found, expected in zip(ours(run, x), run(x), strict=True):
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected)
