"""Exported libraries: called from a C program and from Python without this package, with the same numbers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend import export as exporting

HAS_CC = shutil.which("cc") is not None
needs_cc = pytest.mark.skipif(not HAS_CC, reason="there is no C compiler")

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "{name}.h"

static float *numbers(int count, const char *file) {{
    float *found = malloc(count * sizeof(float));
    FILE *source = fopen(file, "rb");
    if (!source || fread(found, sizeof(float), count, source) != (size_t)count) exit(2);
    fclose(source);
    return found;
}}

int main(void) {{
{body}
    return 0;
}}
"""


def run_c(folder: Path, name: str, inputs: list[Any], outputs: list[Any], static: bool) -> list[Any]:
    """The results of a C program that reads arrays from files, calls the function and writes what it gives."""
    body = [f'    float *i{k} = numbers({a.size}, "i{k}");' for k, a in enumerate(inputs)]
    body += [f"    float *o{k} = malloc({a.size} * sizeof(float));" for k, a in enumerate(outputs)]
    arguments = [f"i{k}" for k in range(len(inputs))] + [f"o{k}" for k in range(len(outputs))]
    body.append(f"    if ({name}({', '.join(arguments)})) {{ puts({name}_error()); return 1; }}")
    for k, a in enumerate(outputs):
        body.append(f'    FILE *f{k} = fopen("o{k}", "wb"); fwrite(o{k}, sizeof(float), {a.size}, f{k}); fclose(f{k});')
    (folder / "main.c").write_text(PROGRAM.format(name=name, body="\n".join(body)))
    for k, a in enumerate(inputs):
        a.tofile(folder / f"i{k}")
    library = [f"lib{name}.a"] if static else [f"lib{name}.so", "-Wl,-rpath,."]
    command = ["cc", "-Wall", "-Werror", "main.c", "-o", "main", *library, "-lpthread", "-ldl", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run(["./main"], cwd=folder, check=True)
    return [np.fromfile(folder / f"o{k}", "f4").reshape(a.shape) for k, a in enumerate(outputs)]


@needs_cc
@pytest.mark.parametrize("static", [True, False])
def test_a_c_program_calls_a_kernel(tmp_path: Path, static: bool) -> None:
    n = te.var("n")
    a, b = te.placeholder((n, 5), name="a"), te.placeholder((5, 7), name="int")
    kern = te.build([a, b], [a @ b, a], name="product of two")
    arrays = [np.arange(15, dtype="f4").reshape(3, 5), np.arange(35, dtype="f4").reshape(5, 7)]
    files = kern.export(tmp_path, sizes={n: 3})
    assert [f.name for f in files] == [
        "product_of_two.h", "libproduct_of_two.a", "libproduct_of_two.so", "product_of_two.py"
    ]  # fmt: skip
    want = kern(*arrays)
    for found, value in zip(run_c(tmp_path, "product_of_two", arrays, list(want), static), want, strict=True):
        np.testing.assert_array_equal(found, value)


@needs_cc
@pytest.mark.usefixtures("cut_everywhere")
def test_programs_of_many_kernels_and_python_without_this_package(tmp_path: Path) -> None:
    inputs = [te.placeholder((64, 64), name=name) for name in ("x", "w0", "w1", "w2")]
    first = inputs[0] @ inputs[1]
    second = first @ inputs[2]
    outputs = [second @ inputs[3], first, inputs[0]]  # one is read later, one is an input
    kern = te.build(inputs, outputs, name="layers")
    assert len(kern.program.calls) == 3
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape).astype("f4") / 8 for t in inputs]
    want = kern(*arrays)
    kern.export(tmp_path)
    for found, value in zip(run_c(tmp_path, "layers", arrays, list(want), True), want, strict=True):
        np.testing.assert_array_equal(found, value)
    script = f"""
import sys
import numpy as np
import layers
arrays = [np.fromfile(f"{tmp_path}/i{{k}}", d).reshape(s) for k, (_, d, s) in enumerate(layers.INPUTS)]
for k, found in enumerate(layers.layers(*arrays)):
    assert np.array_equal(found.ravel(), np.fromfile(f"{tmp_path}/o{{k}}", "f4"))
assert not any(m.startswith(("tedsl", "halide", "llvmlite")) for m in sys.modules)
try:
    layers.layers(*arrays[:-1], arrays[-1].astype("f8"))
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "w2: expected float32 of shape (64, 64), found float64 of shape (64, 64)"


@needs_cc
def test_an_index_out_of_bounds_is_a_code_and_a_message(tmp_path: Path) -> None:
    a, k = te.placeholder((4,), name="a"), te.placeholder((3,), "int32", name="k")
    kern = te.build([a, k], te.compute((3,), lambda i: a[k[i]], name="taken"))
    kern.export(tmp_path)
    script = (
        "import numpy as np, taken\na = np.arange(4, dtype='f4')\n"
        "print(taken.taken(a, np.array([3, 0, 1], 'i4')))\ntaken.taken(a, np.array([3, 9, 1], 'i4'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.strip() == "[3. 0. 1.]"
    assert "RuntimeError: taken failed with code" in done.stderr
    assert "Requirement Failed" in done.stderr


def test_without_a_linker_a_header_and_a_static_library_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting.shutil, "which", lambda name: None)
    x = te.placeholder((4,), name="x")
    files = te.build(x, te.compute((4,), lambda i: x[i] + 1, name="more")).export(tmp_path / "new" / "folder")
    assert [f.name for f in files] == ["more.h", "libmore.a"]
    assert "int more(\n    const float *x,  /* [4] */\n    float *more  /* [4] */\n);" in files[0].read_text()


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    with pytest.raises(ValueError, match=r"n.*export\(\.\.\., sizes=\{n: 3\}\)"):
        te.build(x, x + 1).export(tmp_path)
    with pytest.raises(ValueError, match="'x' has no elements"):
        te.build(x, x + 1).export(tmp_path, sizes={n: 0})
    y = te.extern(np.sort, (4,), "float32", [te.placeholder((4,), name="z")], name="sorted")
    with pytest.raises(ValueError, match="'sorted' is computed in Python"):
        te.build(y.op.inputs[0], y + 1).export(tmp_path)
