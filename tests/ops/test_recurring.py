"""Shapes that recur get kernels of their own, built beside the calls: the same bits, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import run_script

PROGRAM = """
    import os, threading, time, numpy as np, tedsl as te
    from tedsl.backend.sequence import workers
    from tedsl.ops import recurring
    from tedsl.ops.op import definitions_of
    recurring.price_of = lambda traced: 0.0
    workers.available_cpus = lambda: 2
    def arrays(n, *shapes):
        rng = np.random.default_rng(n)
        return [rng.standard_normal(shape).astype("float32") for shape in ((n, 40), *shapes)]
    def opened(f, *shapes, **named):
        "The function called on shapes enough to have a kernel for all, and its definition."
        for n in range(20, 26):
            f(*arrays(n, *shapes), **named)
        return definitions_of(f)[0]
    def settled(f, given, **named):
        "Results of calls until all is settled about their shape; all have the same bits."
        one = definitions_of(f)[0]
        first, end = f(*given, **named), time.monotonic() + 100
        while not any(r.is_settled for r in one.recurrences.values()) and time.monotonic() < end:
            recurring.price_of = lambda traced: 0.0
            found = f(*given, **named)
            assert found.tobytes() == first.tobytes()
            time.sleep(0.01)
        for _ in range(3):
            assert f(*given, **named).tobytes() == first.tobytes()
        return [r.told for r in one.recurrences.values() if r.is_settled]
    {then}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEDSL_CACHE", "on")
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "cache"))


def run(*lines: str) -> str:
    return run_script(PROGRAM.format(then="\n    ".join(lines)), timeout=200)


@pytest.mark.share(2)
@pytest.mark.parametrize("cache", ["on", "off"])
@pytest.mark.parametrize("named", ["", "factor=2"])
def test_a_shape_that_recurs_gets_a_kernel_of_its_own(cache: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEDSL_CACHE", cache)
    printed = run(
        "f = te.jit(lambda x, w, factor=1: x @ w * factor)",
        f"one = opened(f, (40, 30), {named})",
        "given = arrays(25, (40, 30))",
        f"assert settled(f, given, {named}) == ['']",
        "assert [specs[0][0] for specs in one.own] == [(25, 40)]",
        "own = one.own[next(iter(one.own))].kernel",
        f"run, calls = own.core, own.stats.bytes; f(*given, {named})",
        "assert not one.running(next(iter(one.own))).is_symbolic and own.stats.bytes",
        "print(f.explain())",
    )
    assert "a kernel of its own for float32[25, 40], float32[40, 30]" in printed


def test_pytorch_calls_it_as_well() -> None:
    pytest.importorskip("torch")
    run(
        "import torch",
        "from_numpy, plain = torch.from_numpy, arrays",
        "arrays = lambda *shapes: [from_numpy(a) for a in plain(*shapes)]",
        "torch.Tensor.tobytes = lambda t: t.numpy().tobytes()",
        "f = te.jit(lambda x, w: x @ w)",
        "one = opened(f, (40, 30))",
        "assert settled(f, arrays(25, (40, 30))) == [''] and len(one.own) == 1",
    )


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("lambda x: x.sum(0)", "it would combine the terms of sums in another order"),
        ("lambda x: te.softmax(x, axis=1)", ""),  # over an axis that is a number in both
        ("lambda x: te.extern(lambda a: a * 2, x.shape, 'float32', [x])", "it calls Python functions"),
    ],
)
def test_bits_stay_what_they_are(rule: str, told: str) -> None:
    printed = run(
        "arrays = lambda n, *shapes: [np.random.default_rng(n).random((n * 700 % 9973, 70)).astype('float32')]",
        f"f = te.jit({rule})",
        "one = opened(f)",
        "found = settled(f, arrays(25))",
        f"assert found and all(t.startswith({told!r}) and (t == '') == ({told!r} == '') for t in found), found",
        f"assert bool(one.own) == ({told!r} == ''), one.own",
        "print(f.explain())",
    )
    assert f"no kernel of its own for float32[7527, 70]: {told}" in printed or not told


def test_a_build_that_fails_leaves_the_kernel_for_all() -> None:
    run(
        "def failing(self, arrays):",
        "    raise RuntimeError('no')",
        "recurring.Recurrence._built = failing",
        "f = te.jit(lambda x: x * 2)",
        "one = opened(f)",
        "assert settled(f, arrays(25)) == ['it could not be built'] and not one.own",
    )


def test_no_process_is_begun_beside_a_thread_of_python() -> None:
    run(
        "f = te.jit(lambda x: x * 2)",
        "one = opened(f)",
        "thread = threading.Thread(target=time.sleep, args=(5,), daemon=True); thread.start()",
        "(told,) = settled(f, arrays(25))",
        "assert 'beside threads' in told and not one.own and not recurring._building",
    )


def test_what_is_bounded_and_what_is_never_asked() -> None:
    run(
        "recurring.MOST_OWN = 1",
        "f = te.jit(lambda x: x * 2)",
        "one = opened(f)",
        "assert settled(f, arrays(25)) == ['']",
        "for k in range(20):",
        "    f(*arrays(24))",
        "told = [r.told for r in one.recurrences.values() if r.told]",
        "assert len(one.own) == 1 and told == ['there are 1 already, or were tried']",
        "recurring.price_of = lambda traced: 1e9",
        "g, h, fixed = (te.jit(lambda x: x + 2, symbolic=s) for s in (None, True, False))",
        "for f in (g, h, fixed):",
        "    one = opened(f)",
        "    for k in range(40):",
        "        f(*arrays(25))",
        "    assert not one.own and not any(r.is_settled or r._job for r in one.recurrences.values())",
        "    assert bool(one.recurrences) == (f is g)",
    )
