"""Indexing in graphs of PyTorch: tensors of no axes, masks that broadcast, places that are outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tedsl as te

torch = pytest.importorskip("torch")
make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx

s, v, m = torch.tensor(5.0), torch.arange(4.0), torch.arange(6.0).reshape(2, 3)
i0, i1, two = torch.tensor(0), torch.tensor([0]), torch.tensor(2)
three, threes = torch.tensor(3.0), torch.tensor([3.0])
places = torch.tensor([2, 0, 2])

# Each on (x, index, source); what PyTorch refuses is not listed.
OF_NO_AXES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "index_select": (lambda x, i: x.index_select(0, i), [(s, i0), (s, i1), (v, two), (m, i0), (v, places)]),
    "gather": (lambda x, i: x.gather(0, i), [(s, i0), (s, i1), (s, i1.expand(2)), (v, two), (v, places)]),
    "index_add": (lambda x, i, y: x.index_add(0, i, y, alpha=2), [(s, i0, three), (s, i1, three), (v, two, threes),
                                                                  (m, i0, m[:1])]),
    "index_add last": (lambda x, i, y: x.index_add(-1, i, y), [(s, i0, three), (v, two, threes), (m, i0, m[:, :1])]),
    "index_copy": (lambda x, i, y: x.index_copy(0, i, y), [(s, i0, three), (s, i1, threes), (v, two, three),
                                                             (m, i0, m[:1])]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 3.5), [(s, i0), (s, i1), (v, two), (m, i0)]),
    "index_fill tensor": (lambda x, i, y: x.index_fill(0, i, y), [(s, i0, three), (v, two, three)]),
    **{f"index_reduce {kind}": (
        lambda x, i, y, kind=kind: x.index_reduce(0, i, y, kind), [(s, i0, three), (s, i1, three), (v, two, threes),
                                                                  (m, i0, m[:1])],
    ) for kind in ("prod", "mean", "amax", "amin")},
    "scatter": (lambda x, i, y: x.scatter(0, i, y), [(s, i0, three), (s, i1, threes), (v, two, three)]),
    "scatter number": (lambda x, i: x.scatter(0, i, 3.0), [(s, i0), (s, i1), (v, two)]),
    "scatter_add": (lambda x, i, y: x.scatter_add(0, i, y), [(s, i0, three), (v, two, three)]),
    "scatter_reduce": (lambda x, i, y: x.scatter_reduce(0, i, y, "amax"), [(s, i0, three), (v, two, three)]),
    "put": (lambda x, i, y: x.put(i, y), [(s, i1, threes), (v, two, three)]),
    "take": (lambda x, i: x.take(i), [(s, i1), (v, two), (m, places)]),
    "index": (lambda x, i: x[i], [(v, i1), (m, i1)]),
    "index_put": (lambda x, i, y: x.index_put((i,), y, accumulate=True), [(v, two, three), (v, i1, threes),
                                                                         (m, i0, three)]),
    "bucketize": (lambda x, y: torch.bucketize(x, y), [(s, v), (v, v), (torch.tensor(1), torch.arange(3))]),
    "bucketize right": (lambda x, y: torch.bucketize(x, y, right=True, out_int32=True), [(s, v), (two * 1.0, v)]),
    "in place": (lambda x, i, y: x.clone().index_add_(0, i, y).index_fill_(0, i, 2.0), [(s, i0, three),
                                                                                            (v, two, threes)]),
}  # fmt: skip
CASES = [(name, k) for name, (_, listed) in OF_NO_AXES.items() for k in range(len(listed))]


def check(function: Callable[..., Any], given: tuple[Any, ...]) -> None:
    # The tracer counts parameters, those with defaults among them.
    run = (lambda a, b: function(a, b)) if len(given) == 2 else (lambda a, b, c: function(a, b, c))
    expected = function(*given)
    copies = tuple(t.clone() for t in given)
    found = te.from_fx(make_fx(run)(*copies), copies, interpreted=True)(*copies)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.parametrize(("name", "case"), CASES)
def test_tensors_of_no_axes(name: str, case: int) -> None:
    function, listed = OF_NO_AXES[name]
    check(function, listed[case])


SELECTED = [
    (s, torch.tensor(True)), (s, torch.tensor([True, False, True])), (v, torch.tensor(True)), (v, torch.tensor(False)),
    (v, v > 1), (m, torch.tensor([True, False, True])), (v[:3], m > 2), (m[:, :1], m > 2), (m, (m > 2)[:, :1]),
    (m[:, None], m > 2),
]  # fmt: skip


@pytest.mark.parametrize(("x", "mask"), SELECTED)
def test_a_mask_and_what_it_selects_broadcast(x: Any, mask: Any) -> None:
    check(lambda x, mask: torch.masked_select(x, mask).sum(), (x, mask))


def test_lengths_of_what_a_mask_selects_are_asserted_by_the_user_alone() -> None:
    x, mask = torch.arange(4.0), torch.ones(4, 4, dtype=torch.bool)

    def total(x: Any, mask: Any, most: int = 99) -> Any:
        found = torch.masked_select(x, mask)
        torch._check(found.shape[0] <= most)
        return found.sum() + x[x > 1].sum()

    torch._dynamo.reset()
    run = torch.compile(total, backend="tedsl", fullgraph=True)
    torch.testing.assert_close(run(x, mask), total(x, mask))
    with pytest.raises(RuntimeError):
        run(x, mask, 15)


@pytest.mark.parametrize(("x", "mask"), SELECTED)
def test_masks_that_broadcast_are_written_through(x: Any, mask: Any) -> None:
    source = torch.arange(20.0)
    check(lambda x, mask, source: torch.masked_scatter(x, mask, source), (x, mask, source))
    check(lambda x, mask, source: x.masked_fill(mask, 2.5), (x, mask, source))


def test_what_is_added_under_a_mask_broadcasts() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    for mask in (torch.tensor([True, False, True]), torch.tensor([False, False, False]), x > 5):
        row = torch.arange(4.0) if mask.ndim == 1 else torch.tensor(2.0)
        check(lambda x, row, mask: x.index_put((mask,), row, accumulate=True), (x, row, mask))


@pytest.mark.parametrize("place", [3, 2**32, -4])
def test_a_place_outside_is_an_error(place: int) -> None:
    inside, given = torch.tensor([0]), torch.tensor([place])
    for run in (lambda x, i: x.index_select(0, i), lambda x, i: x.gather(0, i)):
        graph = make_fx(run)(v[:3], inside)
        with pytest.raises(IndexError):
            te.from_fx(graph, [v[:3], inside])(v[:3], given)
