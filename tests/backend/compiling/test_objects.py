"""Object code: loaded without a linker, freed with the kernel, named safely, kept on disk, printed."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import re
import stat
import threading
from pathlib import Path

import halide as hl
import numpy as np
import pytest

import tedsl as te
from benchmarks.halide_cameras import median
from tedsl.backend.arguments.blocks import CompiledFunction
from tedsl.backend.compiling.objects import compile_outputs, load
from tedsl.backend.host import files
from tedsl.backend.host.linker import link
from tedsl.backend.host.targets import parse_target
from tests.backend import kernels
from tests.processes import run_script

SPECS = kernels.specs("a:float32:1 b:float32:1 out:float32:1")


def _resident_kib() -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def _mappings() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


def test_what_several_results_share_is_computed_once() -> None:
    """LLVM forgot after a hundred instructions what it had loaded: each result was computed anew (264 loads)."""
    image, head = te.placeholder((128, 256), name="image"), te.placeholder((128, 256), name="head")
    gradient = te.differentiate(median(image), [image], head=head)
    text = te.build([image, head], gradient, target="x86-64-v4").source("llvm")
    assert text.count("= load <16 x float>") < 150


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads Linux's /proc")
def test_dropped_kernels_leave_no_memory_behind() -> None:
    code = kernels.add_code()
    a, out = np.arange(9, dtype="float32"), np.zeros(9, "float32")

    def use(count: int) -> None:
        for _ in range(count):
            CompiledFunction(load(code), SPECS)(a, a, out)

    use(50)
    gc.collect()
    before, mappings = _resident_kib(), len(_mappings())
    use(1000)
    gc.collect()
    assert _resident_kib() - before < 8000  # a kernel's own code takes 40 KiB and more, so a thousand of them 40 000
    assert len(_mappings()) <= mappings + 2


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads Linux's /proc")
def test_two_hundred_kernels_live_side_by_side_and_code_is_never_writable() -> None:
    writable = sum(" rwx" in line for line in _mappings())
    code = kernels.add_code()
    functions = [CompiledFunction(load(code), SPECS) for _ in range(200)]
    assert sum(" rwx" in line for line in _mappings()) == writable
    for number, function in enumerate(functions):
        a, out = np.full(5, number, "float32"), np.zeros(5, "float32")
        function(a, a, out)
        assert (out == 2 * number).all()


def test_kernels_are_loaded_and_dropped_in_several_threads_at_once() -> None:
    code = kernels.add_code()
    wrong: list[int] = []

    def work(number: int) -> None:
        a, out = np.full(9, number, "float32"), np.zeros(9, "float32")
        for _ in range(20):
            CompiledFunction(load(code), SPECS)(a, a, out)
            if not (out == 2 * number).all():
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not any(worker.is_alive() for worker in workers)
    assert wrong == []


def test_code_is_bytes_that_another_process_loads(tmp_path: Path) -> None:
    path = tmp_path / "code"
    path.write_bytes(pickle.dumps(kernels.add_code()))
    assert run_script(f"""
        import pickle, pathlib, numpy as np
        from tests.backend import kernels
        code = pickle.loads(pathlib.Path({str(path)!r}).read_bytes())
        function = kernels.CompiledFunction(kernels.load(code), kernels.specs("a:float32:1 b:float32:1 out:float32:1"))
        out = np.zeros(3, "float32")
        function(np.arange(3, dtype="float32"), np.ones(3, "float32"), out)
        print(out)
    """) == "[1. 2. 3.]\n"  # fmt: skip


@pytest.mark.parametrize("name", ["sinf", "halide_error", "memcpy", "my kernel!", "grad(loss, x)", "λ", "3d"])
def test_any_name_is_safe(name: str) -> None:
    a, out = kernels.image("float32", 1, "a"), hl.Func("out")
    out[kernels.X] = hl.sin(a[kernels.X])
    code = kernels.object_code(out, [a], name)
    values, result = np.linspace(-3, 3, 20, dtype="float32"), np.zeros(20, "float32")
    CompiledFunction(load(code), kernels.specs("a:float32:1 out:float32:1"))(values, result)
    np.testing.assert_allclose(result, np.sin(values), rtol=1e-5, atol=1e-6)
    assert code.name == name


def test_damaged_code_is_an_error() -> None:
    code = kernels.add_code()
    with pytest.raises(RuntimeError, match="past the end of the file"):
        link(code.image[:2000], [code.entry], {})
    with pytest.raises(RuntimeError, match="Failed to materialize symbols"):
        link(code.image, [code.entry], {})  # the runtime's functions are missing


def test_a_bounds_failure_names_what_halide_found_at_compile_time() -> None:
    a, out = kernels.image("float32", 1, "a"), hl.Func("out")
    out[kernels.X] = a[kernels.X]
    with pytest.raises(hl.HalideError):
        kernels.object_code(out, [])  # an argument is missing
    kernels.add_code()  # the compiler is well after an error


def test_outputs_as_text() -> None:
    a, out = kernels.image("float32", 1, "a"), hl.Func("out")
    out[kernels.X] = a[kernels.X] + 1
    pipeline, arguments, text = hl.Pipeline([out]), [hl.Argument(a)], parse_target("host").text
    found = compile_outputs(pipeline, arguments, "plus", text, ["stmt", "asm", "llvm"])
    assert re.search(r"for \(out\S*\.s0\.x", found["stmt"])
    assert "te_plus:" in found["asm"]
    assert "define" in found["llvm"]
    with pytest.raises(ValueError, match="source: 'wasm' is not one of 'stmt', 'html', 'asm'"):
        compile_outputs(pipeline, arguments, "plus", text, ["wasm"])
    with pytest.raises(ValueError, match="no code for a GPU in kernel 'plus'"):
        compile_outputs(pipeline, arguments, "plus", text, ["ptx"])


def test_store_keeps_checks_and_repairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "cache"))
    builds: list[bytes] = []

    def build() -> bytes:
        builds.append(b"payload")
        return builds[-1]

    assert files.fetch("one", build) == files.fetch("one", build) == b"payload"
    assert len(builds) == 1
    folder = tmp_path / "cache" / "objects"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "one").stat().st_mode) == 0o600
    for damaged in (b"", b"short", (folder / "one").read_bytes()[:-1] + b"!"):
        (folder / "one").write_bytes(damaged)
        assert files.fetch("one", build) == b"payload"
        assert files.fetch("one", build) == b"payload"
    assert len(builds) == 4
    assert [path.name for path in folder.iterdir()] == ["one"]


def test_without_a_private_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(
        UserWarning, match="TEDSL_CACHE_DIR=.*file is a file, and a folder is needed; move it away"
    ) as told:
        assert files.private_folder() is None
    assert [w.filename for w in told] == [__file__]
    assert files.fetch("one", lambda: b"built") == b"built"  # it is told once
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path))
    (tmp_path / "objects").mkdir(mode=0o777)
    (tmp_path / "objects").chmod(0o777)  # anybody could put code there
    with pytest.warns(UserWarning, match=r"others may write to .*, and code is run from it; `chmod go-w .*objects`"):
        assert files.private_folder() is None
    assert files.fetch("one", lambda: b"built") == b"built"
    assert not list((tmp_path / "objects").iterdir())


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("access", r"objects cannot be written; `chmod u\+rwx .*objects`, or name another folder"),
        ("getuid", "objects belongs to somebody else, and code is run from it; name a folder of your own"),
        ("stat", r"objects cannot be made \(read-only file system\); name a folder of your own"),
    ],
)
def test_kernels_work_where_nothing_can_be_kept(
    what: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / what))
    monkeypatch.setenv("TEDSL_CACHE", "on")
    if what == "stat":

        def refused(self: Path, *args: object, **named: object) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        monkeypatch.setattr(Path, "mkdir", refused)
    else:
        monkeypatch.setattr(os, what, lambda *args: {"access": False, "getuid": 12345}[what])
    assert re.search(told, str(files.folder_or_problem()))
    x = te.placeholder((7,), name=f"x_{what}")
    with pytest.warns(UserWarning, match="nothing that is compiled is kept there"):
        kern = te.build([x], te.compute((7,), lambda i: x[i] * 3 + len(what)))
    np.testing.assert_array_equal(kern(np.ones(7, "float32")), 3 + len(what))


class Refusing:
    """A pipeline that fails a number of times with a text."""

    def __init__(self, times: int, text: str) -> None:
        self.times, self.text, self.calls = times, text, 0

    def compile_to(self, files: dict[hl.OutputFileType, str], *rest: object) -> None:
        self.calls += 1
        if self.calls <= self.times:
            raise hl.HalideError(self.text)
        for path in files.values():
            Path(path).write_text("compiled")


def test_an_error_without_text_counts_when_it_comes_twice() -> None:
    once = Refusing(1, "Error: ")
    assert compile_outputs(once, [], "f", "host", ["stmt"]) == {"stmt": "compiled"}  # type: ignore[arg-type]
    for pipeline, calls in ((Refusing(2, "Error: "), 2), (Refusing(1, "Error: f is not defined"), 1)):
        with pytest.raises(hl.HalideError):
            compile_outputs(pipeline, [], "f", "host", ["stmt"])  # type: ignore[arg-type]
        assert pipeline.calls == calls
