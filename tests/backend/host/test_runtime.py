"""Errors raise and leave the process whole; threads, forks, prints and the end of the process are harmless."""

from __future__ import annotations

import threading

import halide as hl
import numpy as np
import pytest

from tedsl.backend.arguments.blocks import CompiledFunction
from tedsl.backend.compiling.objects import load
from tedsl.backend.host.runtime import KernelError, KernelMemoryError, _messages, runtime_for
from tedsl.backend.host.targets import parse_target
from tests.backend import kernels
from tests.processes import run_script


def test_a_failed_call_raises_what_failed_and_the_next_call_is_right() -> None:
    a, out = np.arange(200, dtype="int32"), np.zeros(200, "int32")
    with pytest.raises(KernelError, match=r"kernel 'below_100' failed: Requirement Failed") as caught:
        kernels.checked()(a, out)
    value, limit = caught.value.requirement or ()
    assert limit == "100"
    assert 100 <= int(value) < 200
    assert caught.value.code < 0
    kernels.checked()(a[:100], out[:100])
    np.testing.assert_array_equal(out[:100], a[:100])
    assert not _messages


def test_out_of_bounds_is_an_error_of_halide_with_its_text() -> None:
    with pytest.raises(KernelError, match="Input buffer b is accessed at 15, which is beyond the max") as caught:
        kernels.add()(np.zeros(16, "float32"), np.zeros(3, "float32"), np.zeros(16, "float32"))
    assert caught.value.requirement is None


def test_errors_are_translated_for_the_caller() -> None:
    function = kernels.checked(50, lambda error: IndexError(f"{error.kernel}: {error.requirement}"))
    with pytest.raises(IndexError, match=r"below_50: \('70', '50'\)"):
        function(np.full(1, 70, "int32"), np.zeros(1, "int32"))


def test_failures_at_the_same_time_keep_their_messages_apart() -> None:
    limits = (10, 20, 30, 40)
    functions = {limit: kernels.checked(limit) for limit in limits}
    wrong: list[object] = []

    def work(limit: int) -> None:
        a, out = np.full(64, limit + 1, "int32"), np.zeros(64, "int32")
        for _ in range(100):
            with pytest.raises(KernelError) as caught:
                functions[limit](a, out)
            if caught.value.requirement != (str(limit + 1), str(limit)):
                wrong.append(caught.value.messages)

    threads = [threading.Thread(target=work, args=(limit,)) for limit in limits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert not _messages


def test_no_memory_for_an_intermediate_raises() -> None:
    assert "ok" in run_script("""
        import resource, numpy as np, halide as hl
        from tests.backend import kernels
        from tedsl.backend.host.runtime import KernelMemoryError
        x, y = kernels.X, kernels.Y
        n, out, middle = hl.Param(hl.Int(32), "n"), hl.Func("out"), hl.Func("middle")
        r = hl.RDom([(0, n), (0, n)], "r")
        middle[x, y] = hl.cast(hl.Float(32), x + y)
        middle.compute_root()
        out[x] = hl.f32(0)
        out[x] += middle[r.x, r.y]
        code = kernels.object_code(out, [n])
        function = kernels.CompiledFunction(kernels.load(code), kernels.specs("n:int32:- out:float32:1"))
        target = np.zeros(2, "float32")
        function(3, target)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
        try:
            function(20_000, target)
        except KernelMemoryError as error:
            assert isinstance(error, MemoryError) and "Out of memory" in str(error), error
            function(3, target)
            assert (target == 18).all()
            print("ok")
    """)


def test_memory_error_is_of_both_kinds() -> None:
    assert issubclass(KernelMemoryError, KernelError)
    assert issubclass(KernelMemoryError, MemoryError)


def test_prints_reach_pythons_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    a, out = kernels.image("int32", 1, "a"), hl.Func("out")
    out[kernels.X] = hl.print(a[kernels.X], hl.i32(77))
    function = CompiledFunction(load(kernels.object_code(out, [a])), kernels.specs("a:int32:1 out:int32:1"))
    function(np.array([5], "int32"), np.zeros(1, "int32"))
    assert capsys.readouterr().out == "5 77\n"


def test_a_child_process_runs_parallel_kernels() -> None:
    """With the parent's pool running, a forked child would wait for threads that it has not got."""
    assert run_script("""
        import os, numpy as np
        from tests.backend import kernels
        from tedsl.backend.host.threads import set_num_threads
        set_num_threads(4)
        a, out = np.arange(64, dtype="int32"), np.zeros(64, "int32")
        kernels.checked()(a, out)
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                out[:] = -1
                kernels.checked()(a, out)
                os._exit(0 if (out == a).all() and len(os.listdir("/proc/self/task")) == 4 else 1)
            assert os.waitpid(pid, 0)[1] == 0
            out[:] = -1
            kernels.checked()(a, out)
            assert (out == a).all()
        print("ok")
    """, timeout=30) == "ok\n"  # fmt: skip


def test_a_fork_does_not_wait_for_calls_in_other_threads() -> None:
    assert run_script("""
        import os, threading, time, warnings, numpy as np
        from tests.backend import kernels
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forking a process with threads
        a, out, small = np.ones(8, "float32"), np.zeros(8, "float32"), np.arange(8, dtype="int32")
        kernels.slow()(a, 1, out)
        kernels.checked()(small, np.zeros(8, "int32"))
        begun = threading.Event()
        caller = threading.Thread(target=lambda: (begun.set(), kernels.slow()(a, 60_000, out)))
        caller.start()
        begun.wait()
        time.sleep(0.02)
        pid = os.fork()
        if pid == 0:
            result = np.zeros(8, "int32")
            kernels.checked()(small, result)
            os._exit(0 if (result == small).all() else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert caller.is_alive()
        caller.join()
        assert np.isfinite(out).all()
        print("ok")
    """, timeout=30) == "ok\n"  # fmt: skip


def test_children_build_while_threads_of_the_parent_do() -> None:
    """Locks of ours, of properties and of LLVM are free in the child, whoever held them."""
    assert run_script("""
        import os, itertools, threading, warnings, numpy as np, tedsl as te
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forking a process with threads
        a, number, stop = np.ones((24, 24), "f4"), itertools.count(1), threading.Event()

        def build():
            x, c = te.placeholder((24, 24), name="x"), float(next(number))
            y = te.compute((24, 24), lambda i, j: te.sum(lambda k: x[i, k] * (x[k, j] + c)), name="y")
            assert np.allclose(te.build([x], y)(a), 24 * (1 + c))

        def busy():
            while not stop.is_set():
                build()

        build()
        threads = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(15):
            pid = os.fork()
            if pid == 0:
                built = False
                try:
                    build()
                    built = True
                finally:
                    os._exit(not built)
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join(60)
        print("ok")
    """, timeout=300) == "ok\n"  # fmt: skip


def test_an_interrupt_during_a_call_is_raised_after_it() -> None:
    assert run_script("""
        import _thread, signal, threading, time, numpy as np
        from tests.backend import kernels
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts its jobs with interrupts ignored
        a, out = np.ones(8, "float32"), np.zeros(8, "float32")
        kernels.slow()(a, 1, out)
        threading.Timer(0.05, _thread.interrupt_main).start()
        try:
            kernels.slow()(a, 20_000, out)
            for _ in range(300):  # a loaded machine may start the timer's thread late
                time.sleep(0.1)
        except KeyboardInterrupt:
            again = np.zeros(8, "float32")
            kernels.slow()(a, 20_000, again)
            assert np.isfinite(again).all() and (again == again[0]).all()
            print("ok")
    """) == "ok\n"  # fmt: skip


def test_options_of_a_target_share_its_runtime() -> None:
    host = parse_target("host")
    assert runtime_for(host.text) is runtime_for(host.with_features("strict_float", "large_buffers").text)
    with pytest.raises(LookupError, match="has no function halide_nonsense"):
        runtime_for(host.text).call("halide_nonsense")
