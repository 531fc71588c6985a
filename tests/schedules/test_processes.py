"""A program is planned alike in every process, wherever its nodes lie in memory and whatever strings hash to."""

from __future__ import annotations

import pytest

from tests.processes import run_script

# What is made before moves the addresses of all that comes after.
SCRIPT = """
    import tedsl as te
    from tedsl import ops
    from tedsl.backend.compiling.compilation import Compilation
    from tedsl.backend.host.targets import parse_target
    from tedsl.backend.scheduling.planner import Planner
    from tedsl.backend.sequence.cutting import cut_program
    before = [bytearray(7 * k % 600) for k in range({seed} * 5000)]
    del before[::3]
    x, v, m = te.placeholder((32, 3), name="x"), te.placeholder((32, 3), name="v"), te.placeholder((32,), name="m")
    p, u = x, v
    for _ in range(4):
        if "{program}" == "operators":
            p, u = ops.nbody_step(p, u, m)
        else:
            away = p[None] - p[:, None]
            u = u + 0.01 * (away * (m[None] * ((away * away).sum(-1) + 0.01) ** -1.5)[:, :, None]).sum(1)
            p = p + 0.01 * u
    loss = (m[:, None] * u * u).sum() + (p * p).sum()
    results = [loss, *te.differentiate(loss, [x, v, m])]
    print(te.Schedule(results).auto(target="x86-64-v3"))
    program = Compilation((x, v, m), tuple(results), "bodies", parse_target("x86-64-v3"), Planner())
    print(*((step.core.program.name, step.inputs, step.outputs) for step in cut_program(program, 1).steps), sep="\\n")
"""


@pytest.mark.parametrize("program", ["arrays", "operators"])
def test_two_processes_make_one_plan(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four steps of bodies that attract each other, with gradients: stages, loops, and the order of kernels."""
    printed = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        printed.append(run_script(SCRIPT.format(seed=seed, program=program)))
    assert printed[0] == printed[1]
    assert "for " in printed[0]
