"""Tasks of Halide's: they wait for one another, fail, nest and run loops, and every call of them ends.

They are called in processes of their own, with a limit, through the functions that kernels call.
"""

from __future__ import annotations

import pytest

from tedsl.backend.host.loaders import loads_objects
from tests.processes import run_script

pytestmark = pytest.mark.skipif(not loads_objects(), reason="tasks are run here where objects are loaded")

BEGIN = """
import ctypes, threading, time
from tedsl.backend.host import threads
from tedsl.backend.host.runtime import runtime_for
from tedsl.backend.host.targets import parse_target

runtime = runtime_for(parse_target("host").text)
PART = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
TASKS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
WANTED = type("Wanted", (ctypes.Structure,), {"_fields_": [("semaphore", ctypes.c_void_p), ("count", ctypes.c_int)]})
names = "number first count threads".split()
TASK = type("Task", (ctypes.Structure,), {"_fields_": [
    ("function", PART), ("closure", ctypes.c_void_p), ("name", ctypes.c_char_p), ("wanted", ctypes.POINTER(WANTED)),
    *((name, ctypes.c_int) for name in names), ("in_order", ctypes.c_bool)]})

def semaphore(count):
    made = (ctypes.c_uint64 * 2)()
    runtime.call("halide_semaphore_init", ctypes.addressof(made), count)
    return made

def release(made, count=1):
    runtime.call("halide_semaphore_release", ctypes.addressof(made), count)

def task(function, wanted=(), count=1, in_order=False):
    listed = (WANTED * max(1, len(wanted)))(*((ctypes.addressof(made), many) for made, many in wanted))
    part = PART(lambda context, first, many, closure, parent: function(first, many, parent) or 0)
    return TASK(part, None, b"", listed, len(wanted), 0, count, 1, in_order)

def run(*tasks, parent=None):
    call = TASKS(runtime.address("halide_do_parallel_tasks"))
    return call(None, len(tasks), (TASK * len(tasks))(*tasks), parent)
"""

TURNS = """
free, full, said = semaphore(2), semaphore(0), []
write = task(lambda n, many, parent: (said.append(("w", n)), release(full)) and 0, [(free, 1)], 50, True)
read = task(lambda n, many, parent: (said.append(("r", n)), release(free)) and 0, [(full, 1)], 50, True)
assert run(write, read) == 0
assert [n for who, n in said if who == "w"] == [n for who, n in said if who == "r"] == list(range(50))
ahead = 0
for who, n in said:
    ahead += 1 if who == "w" else -1
    assert 0 <= ahead <= 3, said
"""

SEVERAL = """
made = semaphore(0)
slow = task(lambda n, many, parent: release(made, 1), [], 3, False)
assert run(slow, task(lambda n, many, parent: None, [(made, 3)])) == 0
"""

FAILS = """
never = semaphore(0)
assert run(task(lambda n, many, parent: 7), task(lambda n, many, parent: None, [(never, 1)], 5, True)) == 7
assert run(task(lambda n, many, parent: None, [(never, 1)]), task(lambda n, many, parent: 7)) == 7
"""

NESTED = """
never, said = semaphore(0), []
def inside(n, many, parent):
    assert parent
    return run(task(lambda n, many, parent: said.append(1)), task(lambda n, many, parent: 9), parent=parent)
assert run(task(inside), task(lambda n, many, parent: None, [(never, 1)])) == 9
"""

LOOPS = """
for count in (1, 2, 4):
    threads.set_num_threads(count)
    seen, lock = [], threading.Lock()
    def one(n, many, parent):
        with lock:
            seen.extend(range(n, n + many))
    assert run(task(one, count=40)) == 0
    assert sorted(seen) == list(range(40))
    assert run(task(lambda n, many, parent: 5 if n == 3 else 0, count=40)) == 5
assert run() == 0 and run(task(one, count=0)) == 0
"""


@pytest.mark.parametrize("program", [TURNS, SEVERAL, FAILS, NESTED, LOOPS])
def test_tasks(program: str) -> None:
    run_script(BEGIN + program)
