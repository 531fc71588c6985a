"""Routines in kernels: their code is shared, kept and exported like all other."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.host.loaders import loads_objects

PROGRAM = """
import numpy as np, tedsl as te
x = te.placeholder((50,), "float32", name="x")
y = te.sort(te.exp(x)) * 2
kernel = te.build(x, y)
a = np.random.default_rng(0).standard_normal(50).astype("f4")
np.testing.assert_allclose(kernel(a), np.sort(np.exp(a)) * 2, rtol=1e-6)
from tedsl.backend.native.code import definitions
print(definitions.cache_info().misses)
"""


def routines_written(folder: Path) -> int:
    """By a process that keeps its code in a folder."""
    own = {"TEDSL_CACHE": "on", "TEDSL_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    known = {**os.environ, **own}
    found = subprocess.run([sys.executable, "-c", PROGRAM], env=known, capture_output=True, text=True, check=True)
    return int(found.stdout)


def test_other_processes_find_the_code(tmp_path: Path) -> None:
    if not loads_objects():
        pytest.skip("nothing is kept where objects cannot be loaded")
    assert routines_written(tmp_path) == 1
    assert routines_written(tmp_path) == 0


def test_a_program_of_one_routine_is_one_kernel() -> None:
    if not loads_objects():
        pytest.skip("routines run in Python where objects cannot be loaded")
    x = te.placeholder((40,), "float32", name="x")
    alone, among = te.build(x, te.sort(x)), te.build(x, te.sort(x * 2))
    assert alone.core.single is not None
    assert among.core.single is None
    assert "te_native_order" in alone.source("llvm")
    assert te.build(x, te.sort(x)).core is alone.core


def test_results_that_nobody_wants_are_not_computed() -> None:
    x = te.placeholder((40,), "float32", name="x")
    values, places = te.sort(x).op.outputs
    if loads_objects():
        for tensor, word in ((values, "_up_first"), (places, "_up_second")):
            assert word in te.build(x, tensor).source("llvm")
    both = te.build(x, [values, places, values])
    a = np.random.default_rng(1).standard_normal(40).astype("f4")
    one, two, three = both(a)
    np.testing.assert_array_equal(one, np.sort(a))
    np.testing.assert_array_equal(two, np.argsort(a))
    np.testing.assert_array_equal(three, one)


def test_exported_libraries_bring_the_code_along(tmp_path: Path) -> None:
    if not loads_objects():
        pytest.skip("routines run in Python where objects cannot be loaded")
    x = te.placeholder((5, 6), "float32", name="x")
    kernel = te.build([x], [te.sort(x * 2, axis=1), te.argsort(x)], name="ranked")
    files = kernel.export(tmp_path)
    module = next((f for f in files if f.suffix == ".py"), None)
    if module is None:
        pytest.skip("nothing here links a shared library")
    spec = importlib.util.spec_from_file_location("ranked", module)
    assert spec is not None
    assert spec.loader is not None
    made: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    a = np.random.default_rng(2).standard_normal((5, 6)).astype("f4")
    values, places = made.ranked(a)
    np.testing.assert_array_equal(values, np.sort(a * 2))
    np.testing.assert_array_equal(places, np.argsort(a))


@pytest.mark.parametrize("target", ["x86-64-v2", "arm-64-linux"])
def test_other_processors(target: str) -> None:
    x = te.placeholder((40,), "float32", name="x")
    assert "te_native_order" in te.build(x, te.sort(x), target=target).source("asm")


def test_results_are_not_written_over_what_is_read() -> None:
    x = te.placeholder((40,), "float32", name="x")
    y = te.sort(x)
    with pytest.raises(te.AliasError, match="needs until it ends"):
        te.build(x, y, alias={y: x})
    a = np.random.default_rng(3).standard_normal(40).astype("f4")
    wanted = np.sort(a)
    np.testing.assert_array_equal(te.build(x, y)(a, out=a), wanted)
