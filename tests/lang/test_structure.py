"""Equal programs have equal keys, whenever they are built; programs that differ in anything that counts do not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import tedsl as te
from tedsl.lang.structure import same_program, structural_key
from tedsl.lang.traverse import stages_of
from tests.work import calls_in


def network(scale: float = 0.5, name: str = "x", width: int = 64, stages: int = 24) -> te.Tensor:
    n = te.var("n")
    y = te.placeholder((n, width), name=name)
    for layer in range(stages):
        y = te.exp(y * scale) if layer % 2 else y - y.mean(1, keepdims=True)
    return y


def test_a_program_built_twice_has_one_key() -> None:
    assert network() is not network()
    assert structural_key(network()) == structural_key(network())
    assert same_program(network(), network())


def test_the_key_does_not_depend_on_the_process() -> None:
    code = "import tedsl as te\nfrom tests.lang.test_structure import *\nprint(structural_key(network()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == structural_key(network())


def test_names_count_only_when_asked_for() -> None:
    a, b = network(name="x"), network(name="z")
    assert structural_key(a) == structural_key(b)
    assert structural_key(a, names=True) != structural_key(b, names=True)
    assert structural_key(a, names=True) == structural_key(network(name="x"), names=True)
    assert not same_program(a, b, names=True)


def pair(shape: Any = (4,), dtype: str = "float32") -> tuple[te.Tensor, te.Tensor]:
    return te.placeholder(shape, dtype, name="a"), te.placeholder(shape, dtype, name="b")


def best(sign: int = 1) -> Any:
    return te.reducer(lambda a, b: te.maximum(a, b) if sign > 0 else te.minimum(a, b), 0.0)


def running(reverse: bool = False, start: float = 0.0) -> te.Tensor:
    a, _ = pair()
    return te.scan((4,), lambda y, t: te.select(t == 0, start, a[t] + y[(t + 2) % 4]), reverse=reverse)


def scattered(op: str = "add", init: bool = False, modulus: int = 3) -> te.Tensor:
    a, b = pair()
    r = te.reduce_axis(4, "r")
    return te.scatter((4,), [r], r % modulus, a[r], op=op, init=b if init else None)


def reduced(begin: int = 0, limit: int = 9, kind: Any = te.sum) -> te.Tensor:
    a, _ = pair()
    k = te.reduce_axis((begin, 4), "k")
    return te.compute((), lambda: kind(a[k], axis=k, where=k < limit))


VARIANTS: list[Any] = [
    lambda: (lambda p: p[0] + p[1])(pair()),
    lambda: (lambda p: p[1] + p[0] * 1.0)(pair()),
    lambda: (lambda p: p[0] + p[0])(pair()),
    lambda: (lambda p: p[0] - p[1])(pair()),
    lambda: (lambda p: p[0] + p[1])(pair((5,))),
    lambda: (lambda p: p[0] + p[1])(pair((te.var("n"),))),
    lambda: (lambda p: p[0] + p[1])(pair(dtype="float64")),
    lambda: pair()[0] + 0.0,
    lambda: pair()[0] + -0.0,
    lambda: pair()[0] + float("inf"),
    lambda: pair()[0] + float("nan"),
    lambda: pair(dtype="bool")[0] & True,
    lambda: pair()[0][1:],
    lambda: pair()[0][:-1],
    lambda: pair()[0].T.max(0),
    lambda: reduced(),
    lambda: reduced(begin=1),
    lambda: reduced(limit=2),
    lambda: reduced(kind=te.prod),
    lambda: reduced(kind=best()),
    lambda: reduced(kind=best(-1)),
    lambda: running(),
    lambda: running(reverse=True),
    lambda: running(start=1.0),
    lambda: scattered(),
    lambda: scattered("max"),
    lambda: scattered(init=True),
    lambda: scattered(modulus=2),
    lambda: te.extern(sorted, (4,), "float32", [pair()[0]]),
    lambda: te.extern(sorted, (4,), "float32", [pair()[0]], pure=False),
    lambda: te.extern(reversed, (4,), "float32", [pair()[0]]),
    lambda: te.compute((4,), lambda i: (pair()[0][i], 1.0))[0],
    lambda: te.compute((4,), lambda i: (pair()[0][i], 1.0))[1],
    lambda: te.compute((4, 4), lambda i, j: pair()[0][i]),
    lambda: te.compute((4, 4), lambda i, j: pair()[0][j]),
]


def test_variants_differ_from_each_other_and_equal_themselves() -> None:
    keys = [structural_key(make()) for make in VARIANTS]
    assert keys == [structural_key(make()) for make in VARIANTS]
    assert len(set(keys)) == len(keys)


def test_order_of_outputs_and_inputs_counts() -> None:
    def program() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
        a, b = pair()
        return a, b, a - b

    a, b, c = program()
    d, e, f = program()
    assert same_program([c, a], [f, d])
    assert not same_program([c, a], [f, e])
    assert not same_program([c, a], [a, c])
    assert same_program(c, f, [a, b], [d, e])
    assert not same_program(c, f, [a, b], [e, d])
    unused, other = te.placeholder((9,)), te.placeholder((8,))
    assert same_program(c, f, [a, b, unused], [d, e, te.placeholder((9,))])
    assert not same_program(c, f, [a, b, unused], [d, e, other])


def test_extents_are_told_apart() -> None:
    n, m = te.var("n"), te.var("m")
    square, wide = te.placeholder((n, n)) + 1, te.placeholder((n, m)) + 1
    assert structural_key(square) != structural_key(wide)
    assert structural_key(wide) == structural_key(te.placeholder((m, n)) + 1)


def test_lambdas_of_one_text_are_different_externs() -> None:
    a, _ = pair()
    made = [te.extern(lambda x: x, (4,), "float32", [a]) for _ in range(2)]
    assert structural_key(made[0]) == structural_key(made[0])
    assert structural_key(made[0]) != structural_key(made[1])


@pytest.mark.parametrize(
    "function", [max, len, str.lower, [].append, type("F", (), {"__slots__": (), "__call__": len})()]
)
def test_any_callable_has_a_number(function: Any) -> None:
    a, _ = pair()
    key = structural_key(te.extern(function, (4,), "float32", [a], name="e"))
    assert key == structural_key(te.extern(function, (4,), "float32", [a], name="e"))


def test_the_work_of_a_key_grows_with_the_stages() -> None:
    few, many = network(stages=10), network(stages=40)
    assert len(stages_of([many])) >= 95
    assert calls_in(lambda: structural_key(many)) < 5 * calls_in(lambda: structural_key(few))


def test_shared_expressions_are_written_once() -> None:
    a, _ = pair()

    def program(squares: int) -> te.Tensor:
        def body(i: Any) -> Any:
            value = a[i]
            for _ in range(squares):
                value = value * value + 1.0
            return value

        return te.compute((4,), body)

    few, many = program(500), program(2000)
    assert calls_in(lambda: structural_key(many)) < 5 * calls_in(lambda: structural_key(few))
