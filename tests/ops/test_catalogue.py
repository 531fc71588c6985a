"""Every operator of the catalogue in float64: values and gradients beside PyTorch or JAX, and the cost law."""

from __future__ import annotations

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
