"""Operators in PyTorch and JAX, by the checkers of those frameworks; NumPy's results are the values to be met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.bridges.framework_checks import (
    check_gradcheck,
    check_gradgradcheck,
    check_jax,
    check_jax_twice,
    check_opcheck,
    check_te_gradcheck,
    check_torch_compile,
    check_torch_func,
)  # fmt: skip
from tests.bridges.operators import CATALOGUE_OPS, OPS, Case

pytest.importorskip("torch")
jax = pytest.importorskip("jax")

# PyTorch's, at the first forward derivative.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:kernel .* Halide refuses:UserWarning"),  # streaming attention, twice
]


@pytest.fixture(autouse=True)
def _with_float64() -> Any:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


CHECKS = [
    check_opcheck, check_gradcheck, check_gradgradcheck, check_torch_func, check_torch_compile, check_jax,
    check_jax_twice, check_te_gradcheck,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
@pytest.mark.parametrize("case", OPS[:1], ids=str)
def test_an_operator_holds_in_every_framework(case: Case, check: Callable[[Case], None]) -> None:
    check(case)


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
@pytest.mark.parametrize("case", [*OPS[1:], *CATALOGUE_OPS], ids=str)
def test_the_catalogue_holds_in_every_framework(case: Case, check: Callable[[Case], None]) -> None:
    check(case)
