# %%
import tempfile

import numpy as np

import tedsl as te

A, B = te.placeholder((64, 48), name="A"), te.placeholder((48, 32), name="B")
C = te.compute((64, 32), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j]), name="C")
D = te.compute((64, 32), lambda i, j: te.exp(C[i, j]), name="D")
n = te.var("n")
x = te.placeholder((n,), name="x")
y = te.compute((n,), lambda i: x[i] * 2, name="y")
blurred = te.compute(
    (64, 48), lambda i, j: A.at(i - 1, j, mode="clamp") + A[i, j], name="blurred"
)
rows = te.compute((62, 48), lambda i, j: blurred[i, j] + blurred[i + 2, j], name="rows")

s = te.Schedule(D)
s[D].vectorize("j", 8)

# %% te.Schedule
mine = te.Schedule(D)  # for all stages that D needs
mine[D].vectorize("j", 8)
print(mine)

# %% te.Schedule.stages
s.stages

# %% te.Schedule.directives te.Schedule.add
again = te.Schedule(D)
again.add(*s.directives)  # a schedule is a list of directives
again.directives

# %% te.Schedule.regrouped
summed = te.Schedule(C)
outer, inner = summed[C].split("k", 8)
summed[C].reorder(inner, outer)
summed.regrouped  # floats are rounded after each term

# %% te.Schedule.auto
print(te.Schedule(D).auto())  # what the default schedule does, to be changed

# %% te.Schedule.code
print(s.code())

# %% te.Schedule.without
print(s.without("vectorize"))

# %% te.Schedule.apply
s = te.Schedule(D)
s.apply(D, lambda stage: stage.vectorize("j", 8))  # a recipe that others can use
print(s)

# %% te.Schedule.copy
other = s.copy()
other[D].parallel("i")
len(s.directives), len(other.directives)

# %% te.Schedule.diff
other = s.copy()
other[D].parallel("i")
print(s.diff(other))

# %% te.Schedule.save te.Schedule.load
with tempfile.NamedTemporaryFile(suffix=".json") as file:
    s.save(file.name)
    print(te.Schedule.load(file.name, D).directives == s.directives)

# %% te.Schedule.compare
other = s.copy()
other[D].parallel("i")
found = s.compare(other, {A: np.ones((64, 48), "float32"), B: np.ones((48, 32), "float32")})
print(found.is_same)

# %% te.tune te.Tuned te.Tuned.default te.Tuned.best te.Tuned.speedup
found = te.tune(D, budget=1.0, progress=False)
print(found.best.seconds <= found.default.seconds, found.speedup >= 1, len(found.history) > 0)

# %% te.Tuned.table
print(len(te.tune(D, budget=1.0, progress=False).table().splitlines()) > 0)

# %% StageView.tensor StageView.operation
s = te.Schedule(D)
print(s[C].tensor.name, type(s[C].operation).__name__)

# %% StageView.axes StageView.reduce_axes
print(s[C].axes, s[C].reduce_axes)

# %% StageView.loops
s = te.Schedule(D)
s[C].split("i", 8)
print(s[C].loops)

# %% StageView.nest
s = te.Schedule(D)
s[C].split("i", 8)
nest = s[C].nest
print([level.name for level in nest.levels], nest.lets)

# %% StageView.split
s = te.Schedule(D)
outer, inner = s[D].split("i", 16)
print(s.diff())

# %% StageView.tile
s = te.Schedule(D)
s[D].tile("i", "j", 8, 16)
print(s.diff())

# %% StageView.fuse
s = te.Schedule(D)
s[D].fuse("i", "j")
print(s.diff())

# %% StageView.reorder
s = te.Schedule(D)
s[D].reorder("j", "i")
print(s.diff())

# %% StageView.unroll
s = te.Schedule(D)
s[D].unroll("j", 4)
print(s.diff())

# %% StageView.vectorize
s = te.Schedule(D)
s[D].vectorize("j", 8)
print(s.diff())

# %% StageView.parallel
s = te.Schedule(D)
s[D].parallel("i")
print(s.diff())

# %% StageView.init
s = te.Schedule(C)
s[C].init.vectorize("j", 8)  # the loops that set the sum to 0
print(s.diff())

# %% StageView.rfactor
s = te.Schedule(C)
_, lanes = s[C].split("k", 8)
partial = s[C].rfactor(lanes)  # eight sums side by side, added up at the end
partial.vectorize(str(lanes))
print(s.diff())

# %% StageView.specialize StageView.case
s = te.Schedule(y)
s[y].specialize(n % 8 == 0).vectorize("i", 8, tail="round_up")
s[y].case(n % 8 == 0).parallel("i")
print(s.diff())

# %% StageView.compute_at
s = te.Schedule(D)
s[C].compute_at(D, "i")
print(s.diff())

# %% StageView.compute_root
s = te.Schedule(D)
s[C].compute_at(D, "i")
s[C].compute_root()  # takes it back
print(s)

# %% StageView.compute_inline
s = te.Schedule(rows)
s[blurred].compute_inline()
print(s.diff())

# %% StageView.compute_with
u = te.compute((64, 48), lambda i, j: A[i, j] * 2, name="u")
v = te.compute((64, 48), lambda i, j: A[i, j] + 1, name="v")
s = te.Schedule([u, v])
s[u].compute_with(v, "j")
print(s.diff())

# %% StageView.store_at
s = te.Schedule(rows)
s[blurred].compute_at(rows, "j").store_at(rows, "i")
print(s.diff())

# %% StageView.store_root
s = te.Schedule(rows)
s[blurred].compute_at(rows, "i").store_root()  # rows computed before are not computed again
print(s.diff())

# %% StageView.fold_storage
s = te.Schedule(rows)
s[blurred].compute_at(rows, "i").store_root()
s[blurred].fold_storage("i", 4)  # only the last rows are kept
print(s.diff())

# %% StageView.hoist_storage
s = te.Schedule(rows)
s[blurred].compute_at(rows, "i").hoist_storage()
print(s.diff())

# %% StageView.async_
twice = te.compute((64, 48), lambda i, j: A[i, 47 - j] * 2, name="twice")
wide = te.compute((64, 48), lambda i, j: twice[i, j] + 1, name="wide")
s = te.Schedule(wide)
s[twice].compute_at(wide, "i").hoist_storage().async_()
print(s.diff())

# %% StageView.store_in
s = te.Schedule(D)
s[C].compute_at(D, "i").store_in("stack")
print(s.diff())

# %% StageView.reorder_storage
s = te.Schedule(D)
s[C].compute_root().reorder_storage("j", "i")  # transposed in memory
print(s.diff())

# %% StageView.align_storage
s = te.Schedule(D)
s[C].compute_root().align_storage("j", 16)
print(s.diff())

# %% StageView.bound
s = te.Schedule(y)
s[y].bound("i", 0, 128)  # n is 128: the kernel checks it
print(s.diff())

# %% StageView.bound_extent
s = te.Schedule(D)
s[C].compute_at(D, "i").bound_extent("j", 32)
print(s.diff())

# %% StageView.clone_in
s = te.Schedule([rows, te.compute((64, 48), lambda i, j: blurred[i, j] * 2, name="more")])
s[blurred].clone_in(rows).compute_at(rows, "i")
print(s.diff())

# %% StageView.cache_write
s = te.Schedule(C)
s[C].cache_write().compute_at(C, "i")
print(s.diff())

# %% StageView.cache_read
s = te.Schedule(C)
s[C].cache_read(B).compute_root()
print(s.diff())

# %% StageView.pack
s = te.Schedule(C)
s[C].pack(B, ["1o", "0", "1i"], [0, 16]).compute_root()  # panels of 16 columns
print(s.diff())

# %% StageView.prefetch
s = te.Schedule(D)
s[D].prefetch(C, "i", 2)
print(s.diff())

# %% StageView.cut_at
u, v = te.placeholder((64, 48), name="u"), te.placeholder((64, 48), name="v")
joined = te.compute(
    (128, 48), lambda i, j: te.select(i < 64, u[i, j], v[i - 64, j]), name="joined"
)
s = te.Schedule(joined)
s[joined].cut_at("i", 64)  # two loops, each of which reads one of them
print(s.diff())

# %% StageView.unswitch
mode = te.placeholder((), "int32", name="mode")
p, q = te.placeholder((64, 48), name="p"), te.placeholder((64, 48), name="q")
either = te.compute(
    (64, 48), lambda i, j: te.select(mode[()] == 0, p[i, j], q[i, j]), name="either"
)
s = te.Schedule(either)
s[either].unswitch("j")  # the mode is asked outside of the loop
print(s.diff())

# %% StageView.never_partition
s = te.Schedule(rows)
s[rows].never_partition("i")
print(s.diff())

# %% StageView.always_partition
s = te.Schedule(blurred)
s[blurred].always_partition("i")
print(s.diff())

# %% StageView.atomic
r, place = te.reduce_axis(1000, "r"), te.placeholder((1000,), "int32", name="place")
counts = te.scatter((16,), [r], (place[r],), te.const(1), name="counts")
s = te.Schedule(counts)
s[counts].atomic().parallel("r")
print(s.diff())

# %% StageView.gpu_blocks StageView.gpu_threads
s = te.Schedule(D)
s[C].compute_root()
s[D].gpu_blocks("i").gpu_threads("j")
print(s.diff())

# %% StageView.gpu_tile
s = te.Schedule(D)
s[C].compute_root()
s[D].gpu_tile("i", "j", 8, 8)
print(s.diff())

# %% StageView.gpu_single_thread
s = te.Schedule(D)
s[C].compute_root().gpu_single_thread()
print(s.diff())
