"""The command `tedsl`: what it prints, and its status."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tedsl as te
from tedsl.__main__ import main

OPS = """
import tedsl as te


@te.op
def swish(x, beta=1.0):
    return te.compute(x.shape, lambda i, j: x[i, j] * te.sigmoid(beta * x[i, j]))


@te.op
def scaled(x, s):
    return x * s


@te.op
def picked(x, at):
    return te.compute(at.shape, lambda i: x[at[i]] * te.constant([2.0, 3.0])[i % 2])


@te.op
def wrong(x):
    return te.tanh(x)


@wrong.def_vjp
def _(y, inputs, head):
    return [head * (1 - y)]


@te.op
def edged(x):
    return te.compute((x.shape[0] - 1,), lambda i: x[i] * x[1])


@te.op
def histogram(at, x):
    p = te.reduce_axis(x.shape[0], "p")
    return te.scatter((3,), p, at[p], x[p])


@te.op
def misruled(x):
    return te.tanh(x)


@misruled.def_vjp
def _(y, inputs, head):
    return [head[0] * 2.0]


a = te.placeholder((8, 8), name="a")
product = a @ a
n = te.var("n")
open_ended = te.placeholder((n,), name="open") * 2
numbers = te.arange(n) * 2.0
loops = te.Schedule(product)
i, j = loops[product].axes
loops[product].vectorize(j, 8)
open_loops = te.Schedule(open_ended)
doubled = te.build([open_ended.op.inputs[0]], open_ended)


@te.op
def shifted(x, by=1, mode="zero"):
    return te.compute(x.shape, lambda i: x.at(i - by, mode=mode))
"""


@pytest.fixture
def ops(tmp_path: Path) -> str:
    path = tmp_path / "my_ops.py"
    path.write_text(OPS)
    return str(path)


def test_info_names_what_a_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    for word in ("tedsl ", "halide 21", "processor ", "vectors ", "threads ", "opencl ", "kernels on disk "):
        assert word in printed


def test_a_wrong_environment_variable_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEDSL_CACHE", "/somewhere")
    assert main(["info"]) == 2
    assert capsys.readouterr().err == (
        "tedsl: TEDSL_CACHE: 'off' or 'on' was expected, found '/somewhere'; a folder is TEDSL_CACHE_DIR=/somewhere\n"
    )


def test_a_folder_that_cannot_be_used_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("TEDSL_CACHE", "on")
    told = f"{tmp_path / 'file'} is a file, and a folder is needed; move it away, or name a folder by TEDSL_CACHE_DIR"
    assert main(["info"]) == 0
    assert f"kernels on disk  none are kept: {told}\n" in capsys.readouterr().out
    for action in ([], ["list"], ["clear"]):
        assert main(["cache", *action]) == 1
        assert capsys.readouterr().err == f"tedsl cache: no kernels are kept: {told}\n"


def test_check_tells_right_from_wrong(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{ops}:swish", "n m", "--examples", "5"]) == 0
    assert "no fault found in 5 examples" in capsys.readouterr().out
    assert main(["check", f"{ops}:wrong", "n", "--examples", "5"]) == 1
    printed = capsys.readouterr().out
    assert "from my_ops import wrong" in printed
    assert "no shape was given" not in printed


def test_check_takes_sizes_and_advises_them_as_it_takes_them(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{ops}:edged", "n", "--examples", "30"]) == 1
    printed = capsys.readouterr().out
    assert "n is 1 here; if that is too small, say so: --sizes n=3:9" in printed
    assert main(["check", f"{ops}:edged", "n", "--examples", "10", "--sizes", "n=3:9"]) == 0
    assert main(["check", f"{ops}:swish", "n m", "--examples", "5", "--sizes", "n=3", "m=2:4"]) == 0
    for wrong, told in (("n", "--sizes takes n=3:9 or n=5, found 'n'"), ("k=3", "names 'k'")):
        with pytest.raises(SystemExit, match=told):
            main(["check", f"{ops}:edged", "n", "--sizes", wrong])


@pytest.mark.parametrize(
    "words",
    [
        ["{}:picked", "--examples", "5", "n", "m:int32<n"],
        ["{}:picked", "n", "--examples", "5", "m:int32<n"],
        ["--examples", "5", "{}:picked", "n", "--compiled", "2", "m:int32<n", "--seed", "1"],
        ["--examples", "5", "--", "{}:picked", "n", "m:int32<n"],
        ["{}:picked", "--examples=5", "--", "n", "m:int32<n"],
        ["{}:picked", "--sizes", "n=3:9", "m=4", "n", "--examples", "5", "m:int32<n"],
        ["--sizes", "n=3:9", "m=4", "{}:picked", "n", "m:int32<n", "--examples", "5"],
        ["{}:picked", "n", "--examples", "5", "m:int32<n", "--sizes", "n=3:9", "m=4"],
        ["{}:picked", "n", "--sizes", "n=3:9", "--examples", "5", "m:int32<n", "--sizes", "m=4"],
    ],
)
def test_options_and_shapes_stand_in_any_order(
    words: list[str], ops: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(te.testing, "check_op", seen := _Called())
    assert main(["check", *(word.format(ops) for word in words)]) == 0
    (x, at), named = seen.arguments[1:], seen.named
    assert (x.shape, at.shape, at.dtype, at.below) == (("n",), ("m",), "int32", "n")
    assert named["examples"] == 5
    assert named["sizes"] == ({"n": (3, 9), "m": 4} if "--sizes" in words else None)
    assert (named["compiled"], named["seed"]) == ((2, 1) if "--seed" in words else (4, 0))


class _Called:
    """What a function was called with, instead of the function."""

    ok = True

    def __call__(self, *arguments: Any, **named: Any) -> _Called:
        self.arguments, self.named = arguments, named
        return self


def test_show_and_bench_take_shapes_behind_options(
    ops: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tedsl.commands.operators.SECONDS", 0.01)
    assert main(["show", f"{ops}:swish", "--gradient", "64x32", "beta=2.5"]) == 0
    printed = capsys.readouterr().out
    assert "sigmoid(2.5 * x[i, j])" in printed
    assert "dx" in printed
    assert main(["bench", "--gradient", f"{ops}:swish", "--", "8x8"]) == 0
    assert "swish_dx" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["check", "--exmples", "3", "ops.py:swish", "n"], "unrecognized arguments: --exmples"),
        (["check", "--sizes", "n=3"], "the following arguments are required: FILE:OP"),
        (["check", "--sizes", "n=3", "m=4"], "the following arguments are required: FILE:OP"),
        (["info", "n"], "unrecognized arguments: n"),
        (["cache", "list", "n"], "unrecognized arguments: n"),
        (["check", "--exmples", "3", "ops.py:swish", "n"], "; did you mean --examples?"),
        (["check", "ops.py:swish", "n", "--beta", "0.5"], "--beta; what an operator takes by name is written beta=0.5"),
        (["show", "ops.py:swish", "8", "--beta=0.5"], "--beta=0.5; what an operator takes by name is written beta=0.5"),
        (["benhc", "ops.py:swish", "8"], "; did you mean bench?"),
        (["cache", "lst"], "; did you mean list?"),
    ],
)
def test_what_no_command_takes_is_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words)
    assert told in f"{refused.value}{capsys.readouterr().err}"


def test_check_without_shapes_says_what_it_drew(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{ops}:swish", "--examples", "5"]) == 1
    assert "no shape was given, so that arrays of any shape and rank were drawn" in capsys.readouterr().out


def test_check_tells_the_line_of_the_user_for_what_it_finds(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = {text: 1 + number for number, text in enumerate(OPS.split("\n"))}
    assert main(["check", f"{ops}:histogram", "n:int32<3", "n", "--examples", "5"]) == 0
    capsys.readouterr()
    assert main(["check", f"{ops}:histogram", "n:int32<9", "n", "--examples", "20"]) == 1
    scattered = line["    return te.scatter((3,), p, at[p], x[p])"]
    assert f"scatter 'histogram' at {ops}:{scattered}: index `at[p]`" in capsys.readouterr().out
    assert main(["check", f"{ops}:misruled", "n", "--examples", "5"]) == 1
    assert f"def_vjp at {ops}:{line['@misruled.def_vjp']} must return tensors or None" in capsys.readouterr().out
    for shapes, told in ((["n"], "takes at and x; found 1 description"), (["n int8", "n!"], "found 'n!'")):
        with pytest.raises(SystemExit, match=f"my_ops.py:histogram: .*{told}"):
            main(["check", f"{ops}:histogram", *shapes])


def test_show_prints_formulas_loops_and_code(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", f"{ops}:swish", "64x32", "--gradient", "--source", "asm", "--target", "x86-64-v3"]) == 0
    printed = capsys.readouterr().out
    assert "swish[i, j] = x[i, j] * sigmoid(x[i, j])   for i < 64, j < 32" in printed
    assert "dx" in printed
    assert "vectorized" in printed
    assert "Work(" in printed
    assert "ymm" in printed


def test_what_is_no_array_is_given_by_name(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`s=2.0` was taken for a symbol, and the function called without it."""
    assert main(["show", f"{ops}:swish", "x=64x32", "beta=2.5"]) == 0
    assert "= x[i, j] * sigmoid(2.5 * x[i, j])   for i < 64, j < 32" in capsys.readouterr().out


def test_the_work_of_symbolic_extents_is_shown_for_sizes(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It ended in a traceback, behind formulas and loops."""
    assert main(["show", f"{ops}:open_ended", "n=100"]) == 0
    assert "Work(iterations=100, masked=0, flops=100, bytes=800)" in capsys.readouterr().out
    assert main(["show", f"{ops}:open_ended"]) == 0
    printed = capsys.readouterr().out
    assert f"the work depends on sizes; say them: {ops}:open_ended n=1000" in printed


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("loops", "vectorized:"),
        ("open_loops", "open_ended: left to the default schedule"),
        ("doubled", "Kernel 'open_ended' for host: (open : float32[n]) -> (open_ended : float32[n])"),
    ],
)
def test_schedules_and_kernels_are_shown(ops: str, what: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They were called a function without shapes."""
    assert main(["show", f"{ops}:{what}", *([] if what == "loops" else ["n=8"]), "--source", "stmt"]) == 0
    printed = capsys.readouterr().out
    assert told in printed
    assert "Work(iterations=" in printed
    assert "func te_" in printed


@pytest.mark.parametrize(
    ("words", "statics"),
    [
        (["swish", "n m", "beta=0.5"], {"beta": 0.5}),
        (["swish", "x=n m", "beta=0.5"], {"beta": 0.5}),
        (["shifted", "n", "mode=clamp", "by=2"], {"mode": "clamp", "by": 2}),
        (["shifted", "by", "--sizes", "by=3:9", "by=4"], {}),
        (["swish", "n m", "--sizes", "n=3", "m=4", "beta=2"], {"beta": 2}),
    ],
)
def test_check_takes_what_is_no_array_by_name(
    words: list[str], statics: dict[str, Any], ops: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """`beta=0.5` was taken for a shape."""
    what, *rest = words
    called, check_op = _Called(), te.testing.check_op

    def seen(*arguments: Any, **named: Any) -> Any:
        called(*arguments, **named)
        return check_op(*arguments, **named)

    monkeypatch.setattr(te.testing, "check_op", seen)
    assert main(["check", f"{ops}:{what}", *rest, "--examples", "5"]) == 0
    assert "no fault found in 5 examples" in capsys.readouterr().out
    known = {"sizes", "examples", "compiled", "seed", "raise_exception", "x"}
    given = {k: v.value if hasattr(v, "value") else v for k, v in called.named.items() if k not in known}
    assert given == statics


@pytest.mark.parametrize(("shape", "dtype"), [("()", "float32"), ("", "float32"), ("():float64", "float64")])
def test_an_array_of_rank_0_is_written_as_its_shape_is(
    shape: str, dtype: str, ops: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for matrix in ("(64, 32)", "64,32", "64x32"):
        assert main(["show", f"{ops}:scaled", matrix, shape]) == 0
        assert f"x : float32[64, 32]\ns : {dtype}[]\n" in capsys.readouterr().out
    monkeypatch.setattr(te.testing, "check_op", seen := _Called())
    for matrix in ("(n, m)", "n m"):
        assert main(["check", f"{ops}:scaled", matrix, shape]) == 0
        x, s = seen.arguments[1:]
        assert (x.shape, s.shape, s.dtype) == (("n", "m"), (), None if dtype == "float32" else dtype)


@pytest.mark.parametrize(
    "what",
    [
        ["product"],
        ["swish", "64x32", "--gradient"],
        ["picked", "8", "4:int32"],
        ["open_ended", "n=24"],
        ["open_loops", "n=24"],
        ["numbers", "n=24"],
        ["loops"],
        ["doubled", "n=24"],
        ["swish", "8x8", "beta=2.0"],
    ],
)
def test_bench_times_a_call(
    ops: str, what: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tedsl.commands.operators.SECONDS", 0.01)
    assert main(["bench", f"{ops}:{what[0]}", *what[1:]]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"a call: [\d.e-]+ ms \(median of \d+", printed)
    assert "roofline" in printed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "nofile.py:x"], "there is no file 'nofile.py'"),
        (["show", "{ops}:nope"], "has no 'nope'; it has te, swish"),
        (["show", "{ops}:swish"], "say the shape of each of its arrays, such as 64x64"),
        (["show", "{ops}:swish", "6q"], "a shape such as 64x64, 64:int32 or '()' (rank 0) was expected, found '6q'"),
        (["bench", "{ops}:open_ended"], "has extents that are no numbers; say them: "),
        (["show", "{ops}:open_ended", "m=3"], "open_ended has no 'm'; it has n"),
        (["show", "{ops}:swish", "8x8", "gamma=3"], "swish has no 'gamma'; it has x, beta"),
        (["show", "{ops}:n"], "n is a size (te.var); name a tensor, a function of tensors, a te.Schedule or a kernel"),
        (["show", "{ops}:te"], "te is a module; name a tensor"),
        (["show", "{ops}:loops", "--gradient"], "loops is a Schedule, of which there is no gradient; name its tensor"),
        (["check", "{ops}:swish", "n m", "gamma=3"], "it takes x, beta, and no 'gamma'; the extents that a name may"),
    ],
)
def test_what_is_not_there_is_told(ops: str, arguments: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([a.format(ops=ops) for a in arguments])
    assert told in str(caught.value)


def test_alone_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "try to prove an operator" in capsys.readouterr().out
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert (done.value.code, capsys.readouterr().out) == (0, f"tedsl {te.__version__}\n")


def test_whoever_reads_it_may_stop() -> None:
    """As `tedsl info | head -1` does."""
    command = [sys.executable, "-m", "tedsl", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 0)


def test_a_file_without_a_name_and_shapes_that_do_not_fit_are_told_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "ops.py"
    file.write_text(
        "import tedsl as te\n\n@te.op\ndef total(x):\n    return te.compute(x.shape[:1], lambda i: x[i, 0])\n"
    )
    with pytest.raises(SystemExit, match=r"say which name of .*ops\.py is meant"):
        main(["show", str(file)])
    with pytest.raises(SystemExit, match=r"total refuses \(x : float32\[4\]\): ") as refused:
        main(["bench", f"{file}:total", "4"])
    assert "\n" not in str(refused.value).split("refuses")[0]
