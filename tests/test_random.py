"""te.random: the draws of jax.random, by the reference and by kernels, from keys that are known or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te

random = te.random
Draw = Callable[[Any], te.Tensor]
ROWS = np.random.default_rng(0).normal(size=(7, 9)).astype("float32")

# Our draw from a key, that of JAX, and how far they may differ: functions of analysis are rounded in other ways.
DRAWS: dict[str, tuple[Draw, Callable[[Any, Any], Any], float]] = {
    "bits": (lambda k: random.bits(k, (3, 5)), lambda r, k: r.bits(k, (3, 5), "uint32"), 0.0),
    "wide bits": (lambda k: random.bits(k, (3, 5), "uint64"), lambda r, k: r.bits(k, (3, 5), "uint64"), 0.0),
    "uniform": (lambda k: random.uniform(k, (3, 5)), lambda r, k: r.uniform(k, (3, 5), "float32"), 0.0),
    "one": (random.uniform, lambda r, k: r.uniform(k, (), "float32"), 0.0),
    "float64": (
        lambda k: random.uniform(k, (3, 5), -2, 3, "float64"),
        lambda r, k: r.uniform(k, (3, 5), "float64", -2, 3), 1e-15,
    ),
    "normal": (lambda k: random.normal(k, (90, 5)), lambda r, k: r.normal(k, (90, 5), "float32"), 1e-5),
    "normal float64": (
        lambda k: random.normal(k, (90, 5), dtype="float64"), lambda r, k: r.normal(k, (90, 5), "float64"), 1e-12
    ),
    "bernoulli": (
        lambda k: random.bernoulli(k, 0.3, (9, 5)), lambda r, k: r.bernoulli(k, np.float32(0.3), (9, 5)), 0.0
    ),
    "randint": (lambda k: random.randint(k, (9, 5), -3, 11), lambda r, k: r.randint(k, (9, 5), -3, 11, "int32"), 0.0),
    "wide randint": (
        lambda k: random.randint(k, (9,), -(2**31), 2**31 - 1),
        lambda r, k: r.randint(k, (9,), -(2**31), 2**31 - 1, "int32"), 0.0,
    ),
    "gumbel": (lambda k: random.gumbel(k, (9, 5)), lambda r, k: r.gumbel(k, (9, 5), "float32"), 1e-5),
    "categorical": (
        lambda k: random.categorical(k, te.constant(ROWS)), lambda r, k: r.categorical(k, ROWS).astype("int32"), 0.0
    ),
}  # fmt: skip


@pytest.fixture
def jax_random() -> Any:
    jax = pytest.importorskip("jax")
    # The counters of 64 bits that make a draw independent of how it is split; the default of newer versions.
    jax.config.update("jax_threefry_partitionable", True)
    jax.config.update("jax_enable_x64", True)
    return jax.random


@pytest.mark.parametrize("seed", [0, 7, 2**31 + 5, 2**40 + 3, -1])
def test_keys_are_those_of_jax(jax_random: Any, seed: int) -> None:
    key, theirs = random.key(seed), jax_random.key(seed)
    np.testing.assert_array_equal(key, jax_random.key_data(theirs))
    np.testing.assert_array_equal(random.split(key, 5), jax_random.key_data(jax_random.split(theirs, 5)))
    np.testing.assert_array_equal(random.fold_in(key, 77), jax_random.key_data(jax_random.fold_in(theirs, 77)))


@pytest.mark.share(2)
@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_jax(jax_random: Any, name: str) -> None:
    ours, theirs, tolerance = DRAWS[name]
    want = np.asarray(theirs(jax_random, jax_random.key(3)))
    key = te.placeholder((2,), "uint32", name="key")
    feeds = {key: random.key(3)}
    for found in (te.evaluate(ours(3), {}), te.evaluate(ours(key), feeds), te.interpret(ours(key), feeds)):
        assert found.dtype == want.dtype
        np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


def test_keys_within_a_program_are_those_outside() -> None:
    """A chain of them compiles, too: as one expression it took Halide for ever."""
    key = te.placeholder((2,), "uint32", name="key")
    chain, known = key, random.key(11)
    for step in range(3):
        chain, known = random.fold_in(random.split(chain, 3)[1], step), random.fold_in(random.split(known, 3)[1], step)
    feeds = {key: random.key(11)}
    np.testing.assert_array_equal(te.evaluate(chain, feeds), known)
    drawn = te.evaluate(random.normal(chain, (20, 3)), feeds)
    np.testing.assert_array_equal(drawn, te.evaluate(random.normal(known, (20, 3)), {}))


def test_draws_have_the_moments_of_their_distribution() -> None:
    n = 10**6
    first, second = random.split(random.key(0))
    normal, coins = te.evaluate([random.normal(first, n, 3.0, 2.0), random.bernoulli(second, 0.25, n)], {})
    assert abs(normal.mean() - 3) < 0.01
    assert abs(normal.std() - 2) < 0.01
    assert abs(np.mean(((normal - 3) / 2) ** 4) - 3) < 0.03
    assert abs(coins.mean() - 0.25) < 0.003
    assert abs(np.corrcoef(normal, coins)[0, 1]) < 0.005


def test_a_step_draws_its_noise_in_the_kernel() -> None:
    @te.jit
    def step(x: te.Tensor, key: te.Tensor) -> te.Tensor:
        return x + random.normal(key, x.shape)

    x = np.zeros((4, 5), "float32")
    one, two = random.split(random.key(1))
    assert not np.array_equal(step(x, one), step(x, two))
    np.testing.assert_array_equal(step(x, one), te.evaluate(random.normal(one, (4, 5)), {}))


def test_the_step_of_a_scan_has_a_key_of_its_own() -> None:
    x, key = te.placeholder((6,), name="x"), random.key(3)

    def step(s: te.Tensor, t: Any) -> te.Tensor:
        return te.where(t == 0, x, s[t - 1] * random.normal(random.fold_in(key, t), (6,)))

    noise = [te.evaluate(random.normal(random.fold_in(key, t), (6,)), {}) for t in range(1, 4)]
    path = te.scan([(4, 6)], step)
    last, slope = te.evaluate([path[3], te.differentiate(path[3].sum(), x)], {x: ROWS[0, :6]})
    np.testing.assert_allclose(last, ROWS[0, :6] * np.prod(noise, axis=0), rtol=1e-5)
    np.testing.assert_allclose(slope, np.prod(noise, axis=0), rtol=1e-5)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a seed": (lambda: random.key(1.5), "seed: expected an integer, found 1.5"),
    "a key": (lambda: random.uniform([1, 2]), r"expected te.random.key\(seed\).* found \[1, 2\]"),
    "a tensor": (lambda: random.normal(te.placeholder((3,), "uint32")), "a tensor of two uint32, found"),
    "a dtype": (lambda: random.uniform(0, 3, dtype="int32"), "expected float32 or float64, found int32"),
    "bits": (lambda: random.bits(0, 3, "int32"), "expected uint32 or uint64, found int32"),
    "a range": (lambda: random.randint(0, 3, 5, 5), "expected low below high, both int32, found 5 and 5"),
    "a count": (lambda: random.split(0, 0), "count: expected a number from 1 on, found 0"),
    "logits": (lambda: random.categorical(0, 3), "logits: expected a tensor of rank 1 or more, found 3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_a_key_of_a_place_is_refused_with_the_draw_of_all_places() -> None:
    for draw in (random.uniform, random.normal):
        with pytest.raises(
            ValueError, match=r"random\.fold_in at .*test_random.*te\.random\.uniform\(key, \(4,\)\), and re.* u\[i\]"
        ):
            te.compute((4,), lambda i, draw=draw: draw(random.fold_in(0, i), ()))
    with pytest.raises(ValueError, match=r"\(key, \(4, 3\)\), and read u\[i, j\] there"):
        te.compute((4, 3), lambda i, j: random.uniform(random.fold_in(0, i * 3 + j), ()))


_DRAWS = {
    "normal": lambda k, x: x + random.normal(k, x.shape),
    "uniform": lambda k, x: x + random.uniform(k, x.shape),
    "split": lambda k, x: random.split(k, 3),
    "fold_in": lambda k, x: random.fold_in(k, 7),
    "randint": lambda k, x: random.randint(k, x.shape, 0, 9),
    "bernoulli": lambda k, x: random.bernoulli(k, 0.5, x.shape),
    "categorical": lambda k, x: random.categorical(k, x),
    "dropout": lambda k, x: te.ops.dropout(x, 0.5, k),
    "of rows": lambda k, x: te.vmap(lambda row: random.normal(row, (3,)))(random.split(k, 4)),
}


@pytest.mark.parametrize("name", _DRAWS)
def test_keys_have_two_words_where_all_extents_are_symbols(name: str) -> None:
    """The truth of `n0 == 2` was asked, in words for an `if` of the user."""
    key, draw = random.key(3), _DRAWS[name]
    symbolic = te.jit(draw, symbolic=True)
    for shape in ((6, 7), (5, 9)):
        x = np.ones(shape, "float32")
        np.testing.assert_array_equal(symbolic(key, x), te.jit(draw, symbolic=False)(key, x))
    (made,) = symbolic._definitions.values()
    (traced,) = {id(t): t for t in made.traces.values()}.values()
    assert traced.pattern == (((2,), "uint32"), (("n1", "n2"), "float32"))
    with pytest.raises(TypeError, match=r"key: expected te.random.key\(seed\), .*found k : uint32\[3\]"):
        symbolic(np.zeros(3, "uint32"), x)


def test_keys_of_symbolic_functions_may_be_alone_many_or_no_keys() -> None:
    keys, x = random.split(random.key(1), 5), np.ones((5, 4), "float32")

    def drawn(k: Any, x: Any) -> Any:
        return x * random.normal(k, x.shape)

    expected = np.stack([te.jit(drawn)(k, row) for k, row in zip(keys, x, strict=True)])
    np.testing.assert_array_equal(te.jit(te.vmap(drawn), symbolic=True)(keys, x), expected)
    np.testing.assert_array_equal(te.vmap(te.jit(drawn, symbolic=True))(keys, x), expected)
    gradient = te.grad(lambda x, k: drawn(k, x).sum(), symbolic=True)
    np.testing.assert_array_equal(gradient(x, keys[0]), te.jit(drawn)(keys[0], x))
    alone = te.jit(lambda k: random.normal(k, (3,)), symbolic=True)
    np.testing.assert_array_equal(alone(keys[0]), te.evaluate(random.normal(keys[0], (3,))))
    added = te.jit(lambda a, b: a + b, symbolic=True)  # no key: extents that must be equal still share a symbol
    for n in (2, 3):
        np.testing.assert_array_equal(added(np.ones(n, "uint32"), np.ones(n, "float32")), np.full(n, 2.0))


def test_keys_of_jax_are_taken_or_told() -> None:
    jax = pytest.importorskip("jax")
    key, typed = jax.random.PRNGKey(3), jax.random.key(3)
    np.testing.assert_array_equal(
        te.evaluate(random.normal(key, (3,))), te.evaluate(random.normal(random.key(3), (3,)))
    )
    np.testing.assert_array_equal(random.split(key, 3), random.split(random.key(3), 3))
    for draw in (lambda k: random.normal(k, (3,)), te.jit(lambda k: random.normal(k, (3,)))):
        with pytest.raises(TypeError, match=r"give jax.random.key_data\(key\)"):
            draw(typed)
