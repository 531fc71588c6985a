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
from tedsl.backend.calling import export as exporting

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
    assert "Computes the last 2 of these arrays from the others" in files[0].read_text()
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
    assert "Computes the last of these arrays from the others" in files[0].read_text()
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


HEADERS = (
    "ctype errno float inttypes limits locale math setjmp signal stdarg stdbool stddef stdint stdio stdlib string time"
)
TAKEN = [
    "if", "int", "restrict", "assert", "class", "template", "co_await", "and", "bool", "true", "sinf", "exp", "malloc",
    "printf", "y1", "index", "strncpy", "main", "NULL", "EOF", "INT_MAX", "DBL_EPSILON", "SIGINT", "EINVAL", "M_PI",
    "PRIu64", "errno", "stdin", "uint8_t", "size_t", "va_list", "linux", "std", "None", "def", "INPUTS", "halide_error",
    "halide_anything", "pthread_create", "ctypes", "copy", "numpy", "x" * 5000, "\ud800", "is_there\udfff",
]  # fmt: skip
FREE = [
    "sin f", "product of two", "1abc", "_x", "__x", "_Bool", "é", '""" + 1', "*/ int x; /*", "a\nb", "\0", "\\", "np",
    "SIGMOID", "ELU", "SOFT_MAX", "M_step", "Path", "given", "results", "kernel_t",
]  # fmt: skip


def more(label: str, made: str | None = None, **options: Any) -> Any:
    x = te.placeholder((4,), name=label)
    return te.build(x, te.compute((4,), lambda i: x[i] + 1, name=made), **options)


def check_compiles(folder: Path, header: str) -> None:
    """The header after all others, for C and C++ of several years, and a call from Python."""
    for compiler, language, standards in (("cc", "c", ("c99", "gnu17")), ("c++", "cpp", ("c++11", "gnu++20"))):
        includes = [f"#include <{name}.h>" for name in HEADERS.split()]
        (folder / f"main.{language}").write_text("\n".join([*includes, f'#include "{header}.h"', ""]))
        for standard in standards if shutil.which(compiler) else ():
            command = [compiler, f"-std={standard}", "-Wall", "-Werror", "-fsyntax-only", f"main.{language}"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    script = f"import numpy as np, {header} as m\nassert (m.{header}(np.ones(4, 'f4')) == 2).all()\nprint(m.__doc__)"
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("compiled code and NumPy, nothing else.\n")


@pytest.mark.parametrize("name", TAKEN)
def test_names_that_c_has_for_something_else_are_refused(name: str, tmp_path: Path) -> None:
    kern = more("x", "y", name=name)
    np.testing.assert_array_equal(kern(np.ones(4, "f4")), np.full(4, 2, "f4"))
    with pytest.raises(ValueError, match=r"export: expected a name for a C function, found .*name='my_") as caught:
        kern.export(tmp_path)
    assert len(str(caught.value).encode()) < 500
    assert not list(tmp_path.iterdir())


def test_the_name_of_an_output_is_refused_where_the_kernel_is_called_after_it(tmp_path: Path) -> None:
    x = te.placeholder((4,), name="x")
    with pytest.raises(ValueError, match=r"found 'exp': the C library has a function exp; .*name='my_exp'"):
        te.build(x, te.compute((4,), lambda i: x[i], name="exp")).export(tmp_path)
    assert te.build(x, te.compute((4,), lambda i: x[i], name="exp"), name="my_exp").export(tmp_path)


@needs_cc
@pytest.mark.parametrize("name", FREE[::3])
def test_other_names_are_made_names_of_c(name: str, tmp_path: Path) -> None:
    check_compiles(tmp_path, more("x", "y", name=name).export(tmp_path)[0].stem)


@needs_cc
@pytest.mark.parametrize("labels", [TAKEN[k : k + 10] for k in range(0, len(TAKEN), 10)] + [FREE])
def test_tensors_may_be_called_anything(labels: list[str], tmp_path: Path) -> None:
    tensors = [te.placeholder((4,), name=label) for label in (*labels, labels[0])]
    outputs = [te.compute((4,), lambda i, t=t: t[i] + 1, name=t.name) for t in tensors]
    te.build(tensors, outputs, name="many").export(tmp_path)
    text = (tmp_path / "many.h").read_text()
    assert text.count("[4] */") == 2 * len(tensors)
    (tmp_path / "many.h").rename(tmp_path / "named.h")
    check_compiles(tmp_path, more("x", "y", name="one").export(tmp_path)[0].stem)
    (tmp_path / "many.c").write_text('#include <math.h>\n#include <stdio.h>\n#include <errno.h>\n#include "named.h"\n')
    for standard in ("c99", "gnu17"):
        command = ["cc", f"-std={standard}", "-Wall", "-Werror", "-fsyntax-only", "many.c"]
        subprocess.run(command, cwd=tmp_path, check=True)
    script = f"""
import numpy as np, many
for k, found in enumerate(many.many(*(np.full(4, k, "f4") for k in range({len(tensors)})))):
    assert (found == k + 1).all()
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


def test_headers_of_names_that_differ_in_case_are_two(tmp_path: Path) -> None:
    texts = [more("x", "y", name=name).export(tmp_path)[0].read_text() for name in ("more", "More")]
    assert len({text.splitlines()[0] for text in texts}) == 2


@pytest.mark.parametrize("name", ["", " ", "\n"])
def test_an_empty_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the name of a kernel has letters"):
        more("x", "y", name=name)
