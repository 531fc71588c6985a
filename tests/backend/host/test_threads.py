"""The number of threads: what was set, else the environment, else what the process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tedsl.backend.host import threads
from tests.processes import run_script


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_chosen", None)
    monkeypatch.setattr(threads, "_listeners", [])
    monkeypatch.delenv("TEDSL_NUM_THREADS", raising=False)


@pytest.mark.usefixtures("unset")
def test_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    assert threads.get_num_threads() == min(threads.available_cpus(), threads.MOST_THREADS)
    monkeypatch.setenv("TEDSL_NUM_THREADS", "3")
    assert threads.get_num_threads() == 3
    threads.on_change(heard.append)
    threads.set_num_threads(5)
    assert threads.get_num_threads() == 5
    assert heard == [3, 5]


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("bad", ["0", "many", "-1", "257", "2.5"])
def test_bad_environment(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("TEDSL_NUM_THREADS", bad)
    with pytest.raises(ValueError, match=f"TEDSL_NUM_THREADS: a number from 1 to 256 was expected, found '{bad}'"):
        threads.get_num_threads()


@pytest.mark.usefixtures("unset")
def test_bad_numbers() -> None:
    for number in (0, -3, 257):
        with pytest.raises(ValueError, match=f"from 1 to 256 was expected, found {number}"):
            threads.set_num_threads(number)
    for wrong in (True, 2.0, "2", None):
        with pytest.raises(TypeError, match="a whole number of threads was expected, found"):
            threads.set_num_threads(wrong)  # type: ignore[arg-type]
    assert threads._chosen is None


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({}, None),
    ],
)
def test_quota_of_the_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], quota: float | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(threads, "_CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert next(threads._quotas(tmp_path), None) == quota
    assert threads.available_cpus() == {None: 64, 1.5: 2, 2.0: 2}[quota]


def test_the_pool_has_as_many_threads_as_were_asked_for() -> None:
    assert run_script("""
        import os, threading, numpy as np
        from tests.backend import kernels
        from tedsl.backend.host.threads import set_num_threads
        def system_threads():
            return len(os.listdir("/proc/self/task"))
        function, a, out = kernels.slow(), np.ones(64, "float32"), np.zeros(64, "float32")
        set_num_threads(1)
        before = system_threads()
        function(a, 10, out)
        assert system_threads() == before
        set_num_threads(4)
        function(a, 10, out)
        assert system_threads() == before + 3, system_threads()
        set_num_threads(1)
        function(a, 10, out)
        assert system_threads() == before, system_threads()
        print("ok")
    """) == "ok\n"  # fmt: skip


def test_numbers_of_threads_and_forks_beside_calls_of_eight_threads() -> None:
    """Each round sets the number or forks a child, which runs parallel kernels on threads of its own."""
    assert run_script("""
        import os, random, threading, warnings, numpy as np, tedsl as te
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forking a process with threads
        A = te.placeholder((192, 192), name="A")
        kern, a = te.build([A], A @ A), np.random.default_rng(0).integers(-4, 5, (192, 192)).astype("f4")
        right, draw, stop, wrong = a @ a, random.Random(0), threading.Event(), []

        def busy(out):
            while not stop.is_set():
                if not np.array_equal(kern(a, out=out), right):
                    wrong.append(out)

        def child():
            te.set_num_threads(3)
            whole = np.array_equal(kern(a), right) and np.array_equal(kern(a), right)
            return whole and len(os.listdir("/proc/self/task")) == 3

        outs = [np.empty_like(a) if k % 2 else None for k in range(8)]
        threads = [threading.Thread(target=busy, args=(out,), daemon=True) for out in outs]
        for thread in threads:
            thread.start()
        for _ in range(300):
            if draw.random() < 0.5:
                te.set_num_threads(draw.randint(1, 6))
                continue
            pid = os.fork()
            if pid == 0:
                right_there = False
                try:
                    right_there = child()
                finally:
                    os._exit(not right_there)
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join(60)
        assert not wrong and not any(thread.is_alive() for thread in threads)
        print("ok")
    """, timeout=300) == "ok\n"  # fmt: skip


def test_more_threads_wait_for_nobody() -> None:
    assert run_script("""
        import threading, time, numpy as np
        from tests.backend import kernels
        from tedsl.backend.host.threads import get_num_threads, set_num_threads
        a, out = np.ones(64, "float32"), np.zeros(64, "float32")
        set_num_threads(2)
        kernels.slow()(a, 1, out)
        begun = threading.Event()
        caller = threading.Thread(target=lambda: (begun.set(), kernels.slow()(a, 20_000, out)))
        caller.start()
        begun.wait()
        time.sleep(0.02)
        set_num_threads(4)
        assert caller.is_alive()
        set_num_threads(1)
        assert not caller.is_alive() or caller.join(1) is None
        print(get_num_threads())
    """) == "1\n"  # fmt: skip


@pytest.mark.usefixtures("unset")
def test_an_interrupt_while_it_waits_changes_nothing() -> None:
    def interrupted(count: int) -> None:
        if count == 2:
            raise KeyboardInterrupt

    threads.set_num_threads(3)
    threads.on_change(interrupted)
    with pytest.raises(KeyboardInterrupt):
        threads.set_num_threads(2)
    assert threads.get_num_threads() == 3
