# %%
import numpy as np
import sympy
from hypothesis import given, settings

import autodiff
import tedsl as te
from autodiff import strategies

few = settings(max_examples=3, deadline=None, derandomize=True, database=None)

# %% autodiff.invert
y, r = sympy.symbols("y r", integer=True)
answer = autodiff.invert([2 * y + r], {y: (0, 5), r: (0, 4)}, [12])
print(answer)
print(answer.check())

# %% autodiff.vjp
x = te.placeholder((4,), name="x")
out = te.tanh(x)


def halved(output, source, head):  # how one edge is differentiated, for fdiff=
    return autodiff.vjp(output, source, head) * 0.5


te.evaluate(te.differentiate(out.sum(), x, fdiff=halved), {x: np.zeros(4, "float32")})


# %% autodiff.strategies.programs autodiff.strategies.values_for
@few
@given(
    strategies.programs().flatmap(
        lambda p: strategies.values_for(p).map(lambda values: (p, values))
    )
)
def test_kernels_agree_with_the_reference(drawn):
    program, values = drawn
    sizes = program.sizes
    found = te.evaluate(program.outputs, values, sizes=sizes)
    for ours, wanted in zip(found, te.interpret(program.outputs, values, sizes=sizes)):
        np.testing.assert_allclose(ours, wanted, rtol=1e-3, atol=1e-3)


test_kernels_agree_with_the_reference()
print("three programs, each right")


# %% autodiff.strategies.Program
@few
@given(strategies.programs(stages=2, dtypes=["float32"]))
def test_programs_have_outputs(program):
    assert program.outputs
    assert all(te.work(t, sizes=program.sizes).iterations >= 0 for t in program.outputs)


test_programs_have_outputs()
print("three programs drawn")


# %% autodiff.strategies.tensors
@few
@given(strategies.tensors(dtype="float32", most=2))
def test_tensors(t):
    assert t.ndim <= 2


test_tensors()
print("three placeholders drawn")


# %% autodiff.strategies.index_maps
@few
@given(strategies.index_maps([te.reduce_axis(6, "r")], extent=10))
def test_maps(index):
    assert index.dtype == "int32"  # such as 2 * r + 1, in bounds of an axis of 10


test_maps()
print("three index maps drawn")


# %% autodiff.strategies.patterns
@few
@given(strategies.patterns())
def test_patterns(program):
    assert program.outputs  # a program around one pattern of the default schedule


test_patterns()
print("three programs drawn")
