"""One program, one text: whatever was compiled before, in every process, from a cold cache and from a warm one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tedsl as te
from tedsl.backend.assembly.numbering import numbered_anew
from tedsl.backend.build import made_kernel
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.host.targets import parse_target
from tedsl.backend.scheduling.planner import Planner
from tests.processes import ROOT

PROGRAM = """
import sys
import tedsl as te

for number in range(int(sys.argv[1])):  # with names of the program below
    x = te.placeholder((30 + number,), name="t5")
    te.build([x], te.compute(x.shape, lambda i: te.exp(x[i]) / (x[i] + number), name=["C", "L", "D"][number % 3]))
A, B, t5 = te.placeholder((40, 50), name="A"), te.placeholder((50, 60), name="B"), te.placeholder((60,), name="t5")
C = te.compute((40, 60), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j]), name="C")
D = te.compute((40, 60), lambda i, j: te.tanh(C[i, j]) + C.at(i - 1, j, mode="clamp") * t5[j], name="D")
L = te.compute((), lambda: te.sum(lambda i, j: D[i, j] ** 2), name="L")
grads = te.differentiate(L, [A, B])
n, index = te.var("n"), te.placeholder((70,), "int32", name="index")
x = te.placeholder((n, 70), name="x")
e = te.exp(x - x.max(axis=1, keepdims=True))
picked = te.compute((n, 70), lambda i, j: (e / e.sum(axis=1, keepdims=True))[i, index[j]], name="picked")
print(grads.explain(), te.Schedule([L, *grads]).auto(target="x86-64-v3"))
for kernel in (te.build([A, B, t5], [L, *grads], target="x86-64-v3"), te.build([x, index], picked)):
    print(kernel.source("stmt"), kernel.source("asm"), kernel.loop_nest(), kernel.source("llvm"), sep="\\n")
"""


def text_of(before: int, seed: int, cache: Path) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "TEDSL_CACHE_DIR": str(cache), "TEDSL_CACHE": "on"}
    command = [sys.executable, "-c", PROGRAM, str(before)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_has_one_text_in_every_process(tmp_path: Path) -> None:
    first = text_of(0, 1, tmp_path)
    assert len(first) > 10_000
    assert first == text_of(4, 2, tmp_path)  # what it built is found
    assert first == text_of(1, 3, tmp_path / "empty")


TEXTS = {
    "x86-64-v4": ("stmt", "html", "asm"),
    "arm-64-osx": ("llvm", "asm"),
    "x86-64-v3-cuda-capability_80": ("stmt", "ptx"),
    "x86-64-v3-opencl": ("opencl", "stmt"),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("target", TEXTS)
def test_a_program_has_one_text_whatever_was_built_before(target: str) -> None:
    a, b = te.placeholder((300, 40), name="a"), te.placeholder((40, 200), name="b")
    outputs = (te.tanh(a @ b),)

    def texts(*kinds: str) -> list[str]:
        kernel = made_kernel(Compilation((a, b), outputs, "again", parse_target(target), Planner()))
        return [kernel.source(kind) for kind in kinds]

    kinds = TEXTS[target]
    assert texts(*kinds) == texts(*kinds[::-1])[::-1]  # nor does a text depend on those that were made before it


@pytest.mark.parametrize(("kind", "before", "after"), [
    ("stmt", "let t1203 = C$3.s0.i + t17\nC$3[t1203] = C_sums$12[t17]", "let t0 = C.s0.i + t1\nC[t0] = C_sums[t1]"),
    ("stmt", "produce C$7 {\n C$7 = C$2 + C$7\n}", "produce C {\n C = C$1 + C\n}"),
    ("stmt", "t5[t8] = t9 + 1", "t5[t0] = t1 + 1"),  # t5 is the program's own
    ("stmt", "C$4.s0.i.max = C$4.s0.i.max$2 + D$1.s0.i.max$5", "C.s0.i.max = C.s0.i.max$1 + D.s0.i.max"),
    ("stmt", "k$x + k$y", "k$x + k$y"),
    ("asm", "te_n_par_for_C_1_12_s0_i__4:\n\tjmp\tte_n_par_for_C_1_9_s0_i__5", "te_n_par_for_C_1_s0_i:\n"
     "\tjmp\tte_n_par_for_C_1_1_s0_i"),
    ("asm", "\taddq\t$168, %r8\n\tvmovups\t%zmm1, (%r9)", "\taddq\t$168, %r8\n\tvmovups\t%zmm1, (%r9)"),
    ("asm", '.Lstr.1:\n\t.asciz\t"C$14 \\\\ \\"\\303"\n\t.size\t.Lstr.1, 11',
     '.Lstr.1:\n\t.asciz\t"C \\\\ \\"\\303"\n\t.size\t.Lstr.1, 7'),
    ("html", '.Lstr.1:\n\t.asciz\t&quot;C$14 &lt;\\303&quot;\n\t.size\t.Lstr.1, 9',
     '.Lstr.1:\n\t.asciz\t&quot;C &lt;\\303&quot;\n\t.size\t.Lstr.1, 5'),
    ("llvm", '@s = [6 x i8] c"C$12\\0A\\00"\n  %t99 = add i32 %a7, %2',
     '@s = [3 x i8] c"C\\0A\\00"\n  %t0 = add i32 %a0, %2'),
])  # fmt: skip
def test_numbers_begin_anew_and_names_stay_apart(kind: str, before: str, after: str) -> None:
    assert numbered_anew(before, kind, {"t5", "C"}) == after
