# %%
import tempfile
from pathlib import Path

import numpy as np
import sympy

import tedsl as te
from autodiff import invert

x = te.placeholder((32, 32), name="x")
w = te.placeholder((3, 3), name="w")
y = te.compute(
    (15, 15), lambda i, j: te.sum(lambda p, q: x[2 * i + p, 2 * j + q] * w[p, q]), name="y"
)
loss = (y * y).sum()
gradients = te.differentiate(loss, [x, w])
kernel = te.build([x, w], [loss, *gradients], name="step")
a, b = np.ones((32, 32), "float32"), np.ones((3, 3), "float32")
value, dx, dw = kernel(a, b)

# %% Kernel
value, dx, dw = kernel(a, b)  # or kernel(x=a, w=b)
print(kernel)
print(value, dx.shape, dw.shape, [t.name for t in kernel.outputs])

# %% Kernel.compile
eager = te.build(x, x + 1)
eager.compile()  # now what the first call would
print(eager.stats.compile_ms > 0)

# %% Kernel.stats Stats Stats.temporaries Stats.peak_bytes Stats.device_bytes
print(kernel.stats)
print(kernel.stats.peak_bytes, kernel.stats.copies)

# %% Kernel.program ProgramReport ProgramReport.peak_bytes ProgramReport.kernels
print(kernel.program)
print(kernel.program.peak_bytes, list(kernel.program.kernels))

# %% ProgramReport.at
n = te.var("n")
z = te.placeholder((n,), name="z")
print(te.build(z, te.exp(z)).program.at({n: 1000}).peak_bytes)

# %% ProgramReport.bytes_of Call
(call, *_) = kernel.program.calls
print(call.kernel, call.stages, kernel.program.bytes_of(call))

# %% ProgramReport.extra_work
lean = te.build([x, w], [loss, *gradients], checkpoint=[y])
print(lean.program.extra_work)  # the share of operations that are done again

# %% ProgramReport.memory MemoryPlan MemoryPlan.peak
plan = kernel.program.memory
print(
    f"{plan.arrays} of arrays, {plan.between} between kernels, {plan.inside} inside: {plan.peak}"
)

# %% Kernel.loop_nest
print(te.build(x, te.exp(x)).loop_nest())

# %% Kernel.source
text = te.build(x, x * 2, target="x86-64-v3").source("stmt")
print(text[text.index("produce") :].strip())  # behind names and pointers

# %% Kernel.export
files = kernel.export(Path(tempfile.mkdtemp()))
print([file.suffix for file in files])

# %% Profile Profile.rows ProfileRow
with te.profile() as profile:
    kernel(a, b)
    kernel(a, b)
for row in profile.rows():
    print(row.kernel, row.calls, row.flops > 0)

# %% Profile.save
with te.profile() as profile:
    kernel(a, b)
path = Path(tempfile.mkdtemp()) / "trace.json"
profile.save(path)
path.exists()

# %% Comparison Comparison.is_same Comparison.ratio
s = te.Schedule(y)
s[y].unroll("j", 3)
found = te.Schedule(y).compare(s, {x: a, w: b})
print(found.is_same, found.ratio > 0)

# %% Gradients Gradients.explain
dx, dw = gradients  # a tuple; also by tensor, and of every tensor on the way
print(gradients[w] is dw, gradients.adjoints[y].shape)
print(gradients.explain())

# %% Gradients.gathers Gradients.scatters Explanation Explanation.gathers Explanation.scatters
print(len(gradients.gathers), "gathers,", len(gradients.scatters), "scatters")
print(gradients.explain().zeros)

# %% Explanation.names
explanation = gradients.explain()  # tensors of one name have numbers there, as in schedules
print([explanation.names.known(read.consumer) for read in explanation.reads])

# %% Explanation.groups
print([len(group) for group in gradients.explain().groups], "reads in each group")

# %% ReadReport ReadReport.read ReadReport.index
for read in gradients.explain().reads:
    print(f"{read.read}, at {read.index}, in {read.consumer.name}: {read.kind}, {read.reason}")

# %% ReadReport.tried
rows = te.placeholder((4,), "int32", name="rows")
picked = te.compute((4,), lambda i: x[rows[i], 0])
print(te.differentiate(picked.sum(), [x]).scatters[0].tried)

# %% ReadReport.inversion
print(gradients.gathers[-1].inversion)  # an IndexInversion

# %% Report Report.ok Report.worst PairReport PairReport.error
report = te.gradcheck(loss, [x, w], raise_exception=False)
print(report.ok, [pair.input for pair in report.pairs])
print(report.worst.input, report.worst.index, report.worst.error < report.worst.tolerance)

# %% IndexInversion IndexInversion.check Checked IndexInversion.latex IndexInversion.code
i, r = sympy.symbols("i r", integer=True)
answer = invert([2 * i + r], {i: (0, 5), r: (0, 4)}, [12])
print(answer, answer.check(), answer.latex, answer.code(), sep="\n\n")

# %% IndexGather IndexGather.bounds
k = sympy.symbols("k", integer=True)
(gather,) = invert([k + 3], {k: (0, 8)}, [12]).gathers
print(gather.loops, gather.solution)
print(gather.bounds)

# %% IndexInversion.sizes IndexInversion.data
i, m = sympy.symbols("i m", integer=True)
places = sympy.IndexedBase("places")
answer = invert([places[i]], {i: (0, m)}, [9])
print(answer.sizes, answer.data)
print(answer.opaque)


# %% Op Op.explain OpExplanation
@te.op
def shrink(v, by=0.5):
    return te.compute(
        v.shape, lambda i: te.select(te.abs(v[i]) > by, v[i] - by * te.sign(v[i]), 0.0)
    )


print(shrink(np.array([-2, 0.1, 3], "float32")))
print(shrink.explain())


# %% Op.def_vjp
@te.op
def rounded(v):
    return te.compute(v.shape, lambda i: te.round(v[i]))


@rounded.def_vjp
def straight_through(output, inputs, head):
    return [head]


te.grad(lambda v: (rounded(v) * 3).sum())(np.array([0.2, 1.7]))


# %% Op.def_jvp
@te.op
def softplus(v):
    return te.compute(v.shape, lambda i: te.log(1 + te.exp(v[i])))


@softplus.def_jvp
def softplus_jvp(inputs, tangents):
    return te.sigmoid(inputs[0]) * tangents[0]


te.testing.check_op(softplus, "n", examples=5)


# %% Op.schedule
@te.op
def doubled(v):
    return te.compute(v.shape, lambda i: v[i] * 2)


@doubled.schedule
def in_eights(s, output, grads):
    if grads is None:  # the forward pass
        s[output].vectorize("i", 8)


doubled(np.ones(20, "float32")).sum()


# %% Functionalized Functionalized.trace PureForm
@te.functionalize
def smooth(v):
    v[1:-1] += 0.25 * (v[:-2] - 2 * v[1:-1] + v[2:])


signal = np.array([0, 0, 1, 0, 0], "float32")
smooth(signal)
print(signal)
pure = smooth.trace(te.placeholder((5,), name="v"))
print(pure.inputs, pure.outputs, pure.mutated)

# %% CustomReducer
longest = te.reducer(lambda p, q: te.maximum(p, te.abs(q)), 0.0, name="longest")
k = te.reduce_axis(32, name="k")
print(te.compute((32,), lambda i: longest(x[i, k], axis=k)))

# %% IndexMap IndexMap.over
power = te.index_map(lambda i: i * 5 % 31, inverse=lambda s: s * 25 % 31)
te.evaluate(power.over(31), {})

# %% At
te.evaluate(te.compute((34,), lambda i: x.at(i - 1, 0, mode="zero")), {x: a})

# %% Updates Updates.set Updates.add
v = te.placeholder((5,), name="v")
feeds = {v: np.arange(5, dtype="float32")}
te.evaluate([v.at[1:3].set(9.0), v.at[0].add(1.0)], feeds)

# %% Updates.subtract Updates.multiply Updates.divide
v = te.placeholder((5,), name="v")
feeds = {v: np.arange(5, dtype="float32")}
te.evaluate([v.at[1:3].subtract(1.0), v.at[::2].multiply(2.0), v.at[4].divide(4.0)], feeds)

# %% Updates.max Updates.min Updates.get
v = te.placeholder((5,), name="v")
feeds = {v: np.arange(5, dtype="float32")}
te.evaluate([v.at[:2].max(0.5), v.at[3:].min(3.5), v.at[::2].get()], feeds)

# %% Directive
s = te.Schedule(y)
s[y].unroll("j", 3).parallel("i")
for directive in s.directives:
    print(directive.stage, directive.verb, directive)

# %% Trial
found = te.tune(y, budget=1.0, progress=False)
print(found.default.verdict, found.best.seconds <= found.default.seconds)
