"""Every operator of the catalogue in float64: values and gradients beside PyTorch or JAX, and the cost law."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import tedsl as te
from tests.autodiff.catalogue.cost import cost_of
from tests.autodiff.catalogue.entry import Entry
from tests.autodiff.inversion.test_catalogue import compare, jax_results, ours, torch_results
from tests.ops.catalogue import ABOVE_THE_LAW, CATALOGUE

TABLE = Path(__file__).parents[2] / "docs" / "ops_cost_table.md"
DRAWN = {"histogram", "random_bits", "uniform"}  # of integers: other tests of this folder
CATALOGUE_MODULES = sorted(set(te.ops._PUBLIC))


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_against_its_oracle(entry: Entry) -> None:
    compare(ours(entry), torch_results(entry) if entry.torch else jax_results(entry))


def test_the_table_of_the_docs_has_every_line() -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    assert rows[1:] == [e.name for e in CATALOGUE]


def marked(entry: Entry) -> object:
    reason = ABOVE_THE_LAW.get(entry.name)
    return pytest.param(entry, id=entry.name, marks=pytest.mark.xfail(reason=reason, strict=True) if reason else ())


@pytest.mark.share(2)
@pytest.mark.parametrize("entry", list(map(marked, CATALOGUE)))
def test_cost_law(entry: Entry) -> None:
    found = cost_of(entry)
    assert not found.broken, f"{entry.name}: {', '.join(found.broken)}"
    assert not (entry.affine and found.scatters), str(entry.case.gradients.explain())


@pytest.mark.parametrize("weight", [2.0, 2, np.float32(2.0), np.array(2.0), [1.0, 2.0, 3.0]], ids=repr)
def test_positives_count_by_a_number_or_a_vector(weight: object) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    x, target = random.normal(size=(4, 3)), random.uniform(size=(4, 3))
    theirs = torch.nn.functional.binary_cross_entropy_with_logits(
        torch.tensor(x), torch.tensor(target), pos_weight=torch.tensor(weight)
    )
    loss = te.ops.binary_cross_entropy_with_logits
    np.testing.assert_allclose(loss(x, target, pos_weight=weight), theirs.item(), rtol=1e-12)
    with pytest.raises(TypeError, match=r"argument 'pos_weight': expected an array, found str \('two'\)"):
        loss(x, target, pos_weight="two")
    with pytest.raises(ValueError, match="expected x and target of one shape"):  # not of the number
        loss(x, target[0], pos_weight=weight)


@pytest.mark.share(4)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(2, 4, 3), (3,), (4, 1), (2, 1, 1), ()], ids=str)
@pytest.mark.parametrize("name", ["binary_cross_entropy", "binary_cross_entropy_with_logits", "pos_weight"])
def test_elements_count_by_weights(name: str, shape: tuple[int, ...], reduction: str) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    x, target, weight = (random.uniform(0.1, 0.9, size=s) for s in ((2, 4, 3), (2, 4, 3), shape))
    option = name if name == "pos_weight" else "weight"
    called = "binary_cross_entropy_with_logits" if name == "pos_weight" else name
    told = torch.tensor(x, requires_grad=True)
    theirs = getattr(torch.nn.functional, called)(
        told, torch.tensor(target), reduction=reduction, **{option: torch.tensor(weight)}
    )
    theirs.sum().backward()
    loss, options = getattr(te.ops, called), {option: weight, "reduction": reduction}
    np.testing.assert_allclose(loss(x, target, **options), theirs.detach().numpy(), rtol=1e-12)
    found = te.grad(lambda x: loss(x, target, **options).sum())(x)
    np.testing.assert_allclose(found, told.grad.numpy(), rtol=1e-9, atol=1e-15)
    with pytest.raises(ValueError, match=rf"{option}: expected a shape that broadcasts to that of x, \(2, 4, 3\)"):
        loss(x, target, **{option: np.ones((3, 1))})


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_differences_count_by_weights(name: str, reduction: str) -> None:
    """PyTorch divides squares and absolute differences by the sum of the weights, Huber's loss by their number."""
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    x, target, weight = random.normal(size=(3, 4, 3))
    function = getattr(torch.nn.functional, name)
    theirs = function(torch.tensor(x), torch.tensor(target), reduction=reduction, weight=torch.tensor(weight))
    loss = getattr(te.ops, name)
    np.testing.assert_allclose(loss(x, target, reduction, weight=weight), theirs.numpy(), rtol=1e-12)
    with pytest.raises(ValueError, match="expected x and weight of one shape"):
        loss(x, target, weight=weight[0])


@pytest.mark.parametrize("kind", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_scatters_that_leave_out_what_was_there(kind: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    x, source = (random.integers(-9, 9, size=s).astype(dtype) for s in ((5, 3), (4, 3)))
    index = np.array([[0, 1, 4], [0, 3, 4], [2, 1, 4], [0, 0, 0]])
    theirs = torch.tensor(x).scatter_reduce(0, torch.tensor(index), torch.tensor(source), kind, include_self=False)
    found = te.ops.scatter_reduce(x, 0, index, source, kind, include_self=False)
    np.testing.assert_allclose(found, theirs.numpy(), rtol=1e-12)


def test_slices_are_added_in_a_multiple() -> None:
    x, source, index = np.ones((4, 3)), np.arange(6.0).reshape(2, 3), np.array([3, 3])
    expected = x.copy()
    np.add.at(expected, index, -0.5 * source)
    np.testing.assert_array_equal(te.ops.index_add(x, 0, index, source, alpha=-0.5), expected)


@pytest.mark.parametrize("padding", [1, -2])
def test_a_row_that_pads_has_no_gradient(padding: int) -> None:
    torch = pytest.importorskip("torch")
    table, index = np.random.default_rng(0).normal(size=(5, 3)), np.array([[1, 4], [3, 1]])
    told = torch.tensor(table, requires_grad=True)
    theirs = torch.nn.functional.embedding(torch.tensor(index), told, padding_idx=padding)
    (theirs * theirs).sum().backward()
    np.testing.assert_array_equal(te.ops.embedding(index, table, padding), theirs.detach().numpy())
    found = te.grad(lambda w: (te.ops.embedding(index, w, padding) ** 2).sum())(table)
    np.testing.assert_allclose(found, told.grad.numpy(), rtol=1e-12)
    with pytest.raises(ValueError, match=r"padding_idx: expected -5 <= row < 5, found 5"):
        te.ops.embedding(index, table, 5)


# What functions of torch.nn.functional take beside ours, by the reason why ours do not.
ELSEWHERE = {
    "input", "input1", "input2", "x1", "x2", "dim", "kernel_size", "output_size", "tensor", "pad",  # another name
    "size_average", "reduce", "_stacklevel",  # deprecated
    "inplace", "out", "sparse", "dtype",  # how, not what: out= of every operator, x.astype
}  # fmt: skip
LACKING = {
    "batch_norm": {"momentum"}, "instance_norm": {"running_mean", "running_var", "use_input_stats", "momentum"},
    "embedding": {"max_norm", "norm_type", "scale_grad_by_freq"},
    "interpolate": {"recompute_scale_factor", "antialias"},
}  # fmt: skip


def test_what_options_of_pytorch_are_lacking() -> None:
    """docs/coming.md names them."""
    functional = pytest.importorskip("torch.nn.functional")
    found: dict[str, set[str]] = {}
    for name in te.ops.__all__:
        ours, theirs = getattr(te.ops, name), getattr(functional, name, None)
        try:
            wanted = set(inspect.signature(theirs).parameters)
        except (TypeError, ValueError):
            continue  # theirs is none, or says nothing
        lacking = wanted - set(inspect.signature(ours).parameters) - ELSEWHERE - {"args", "kwargs"}
        if lacking:
            found[name] = lacking
    assert found == LACKING


@pytest.mark.parametrize("module", CATALOGUE_MODULES)
def test_the_table_of_names_is_that_of_the_modules(module: str) -> None:
    assert set(te.ops._PUBLIC[module]) == set(import_module(module).__all__)


@pytest.mark.parametrize("name", sorted(te.ops._HOME))
def test_every_operator_is_documented_and_has_a_line(name: str) -> None:
    assert getattr(te.ops, name).__doc__
    assert name in DRAWN or any(e.name.split()[0] == name for e in CATALOGUE)


def test_no_operator_has_the_name_of_a_module() -> None:
    """Importing the module would put it in the operator's place."""
    assert {p.stem for p in Path(te.ops.__path__[0]).iterdir()}.isdisjoint(te.ops._HOME)


@pytest.mark.long
@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_compiled(entry: Entry) -> None:
    compare(ours(entry, te.evaluate), ours(entry))
