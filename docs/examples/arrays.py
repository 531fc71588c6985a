# %%
import numpy as np

import tedsl as te

m, v = te.placeholder((2, 3), name="m"), te.placeholder((3,), name="v")
b = np.array([[3, 1, 2], [4, 6, 5]], "float32")
c = np.array([1, 2, 4], "float32")

# %% te.arange
te.evaluate(te.arange(2, 10, 3), {})

# %% te.argsort
te.evaluate(te.argsort(m, axis=1), {m: b})

# %% te.broadcast_to
te.evaluate(te.broadcast_to(v, (2, 3)), {v: c})

# %% te.concatenate
te.evaluate(te.concatenate([m, m * 10], axis=0), {m: b})

# %% te.cumprod
te.evaluate(te.cumprod(m, axis=1), {m: b})

# %% te.cumsum
te.evaluate(te.cumsum(m, axis=1), {m: b})

# %% te.diagonal
te.evaluate(te.diagonal(m), {m: b})

# %% te.dot
te.evaluate(te.dot(m, v), {m: b, v: c})

# %% te.einsum
te.evaluate(te.einsum("ij,j->i", m, v), {m: b, v: c})

# %% te.expand_dims
te.expand_dims(v, 0).shape

# %% te.eye
te.evaluate(te.eye(3), {})

# %% te.flip
te.evaluate(te.flip(m, axis=1), {m: b})

# %% te.full
te.evaluate(te.full((2, 3), 7.0), {})

# %% te.full_like
te.evaluate(te.full_like(m, 7.0), {m: b})

# %% te.matmul
te.evaluate(te.matmul(m, te.transpose(m)), {m: b})  # as m @ m.T

# %% te.mean
te.evaluate(te.mean(m, axis=1), {m: b})

# %% te.moveaxis
te.moveaxis(m, 0, 1).shape

# %% te.ones
te.evaluate(te.ones((2, 2)), {})

# %% te.ones_like
te.evaluate(te.ones_like(v), {v: c})

# %% te.outer
te.evaluate(te.outer(v, v), {v: c})

# %% te.pad
print(te.evaluate(te.pad(v, (1, 2)), {v: c}))
print(te.evaluate(te.pad(v, (1, 2), mode="symmetric"), {v: c}))

# %% te.ravel
te.evaluate(te.ravel(m), {m: b})

# %% te.reshape
te.evaluate(te.reshape(m, (3, 2)), {m: b})

# %% te.roll
te.evaluate(te.roll(m, 1, axis=1), {m: b})

# %% te.searchsorted
te.evaluate(te.searchsorted(v, m), {v: c, m: b})

# %% te.sort
te.evaluate(te.sort(m, axis=1), {m: b})

# %% te.split
[part.shape for part in te.split(m, 3, axis=1)]

# %% te.squeeze
te.squeeze(te.expand_dims(v, 0)).shape

# %% te.stack
te.evaluate(te.stack([v, -v]), {v: c})

# %% te.swapaxes
te.swapaxes(m, 0, 1).shape

# %% te.take
te.evaluate(te.take(m, te.constant([2, 0]), axis=1), {m: b})

# %% te.tensordot
te.evaluate(te.tensordot(m, m, axes=2), {m: b})

# %% te.topk
te.evaluate(te.topk(m, 2), {m: b})  # the elements, and where they were

# %% te.trace
te.evaluate(te.trace(m), {m: b})

# %% te.transpose
te.evaluate(te.transpose(m), {m: b})

# %% te.tril
te.evaluate(te.tril(m), {m: b})

# %% te.triu
te.evaluate(te.triu(m), {m: b})

# %% te.unique_counts
te.evaluate(te.unique_counts(te.constant([3, 1, 3])), {})  # a count of 0 where there is no more

# %% te.where
te.evaluate(te.where(m > 2, m, 0.0), {m: b})

# %% te.zeros
te.evaluate(te.zeros((2, 2)), {})

# %% te.zeros_like
te.evaluate(te.zeros_like(v), {v: c})

# %% te.diff
te.evaluate(te.diff(v), {v: c})

# %% te.linspace
te.evaluate(te.linspace(0, 1, 5), {})

# %% te.std
te.evaluate(te.std(m, axis=1), {m: b})

# %% te.take_along_axis
te.evaluate(te.take_along_axis(m, te.argsort(m, axis=1), axis=1), {m: b})

# %% te.Tensor.size
te.evaluate(m.norm() / m.size, {m: b})

# %% te.softmax
te.evaluate(te.softmax(m, axis=1), {m: b})

# %% te.log_softmax
te.evaluate(te.log_softmax(m, axis=1), {m: b})

# %% te.logsumexp
te.evaluate(te.logsumexp(m, axis=1), {m: b})

# %% te.norm
te.evaluate(te.norm(m, axis=1), {m: b})

# %% te.one_hot
te.evaluate(te.one_hot(te.argmax(m, axis=1), 3), {m: b})

# %% te.Tensor.flatten te.Tensor.permute
te.evaluate(m.permute(1, 0).flatten(), {m: b})

# %% te.allclose
te.evaluate(te.allclose(m, m + 1e-9), {m: b})

# %% te.average
te.evaluate(te.average(m, axis=1, weights=v), {m: b, v: c})

# %% te.column_stack
te.evaluate(te.column_stack([v, v * 10]), {v: c})

# %% te.convolve
te.evaluate(te.convolve(v, [1, 1], "same"), {v: c})

# %% te.count_nonzero
te.evaluate(te.count_nonzero(m > 3, axis=0), {m: b})

# %% te.cross
te.evaluate(te.cross(m, v), {m: b, v: c})

# %% te.diag
te.evaluate(te.diag(v), {v: c})

# %% te.dstack
te.evaluate(te.dstack([m, m])[0], {m: b})

# %% te.fliplr
te.evaluate(te.fliplr(m), {m: b})

# %% te.flipud
te.evaluate(te.flipud(m), {m: b})

# %% te.hstack
te.evaluate(te.hstack([m, m]), {m: b})

# %% te.inner
te.evaluate(te.inner(m, v), {m: b, v: c})

# %% te.interp
te.evaluate(te.interp(m, v, v * 10), {m: b, v: c})

# %% te.kron
te.evaluate(te.kron(te.eye(2), v), {v: c})

# %% te.median
te.evaluate(te.median(m, axis=1), {m: b})

# %% te.meshgrid
te.evaluate(list(te.meshgrid(v, [0, 1])), {v: c})

# %% te.nanmax
te.evaluate(te.nanmax(te.log(m - 3), axis=1), {m: b})

# %% te.nanmean
te.evaluate(te.nanmean(te.log(m - 3), axis=1), {m: b})

# %% te.nanmin
te.evaluate(te.nanmin(te.log(m - 3), axis=1), {m: b})

# %% te.nansum
te.evaluate(te.nansum(te.log(m - 3), axis=1), {m: b})

# %% te.percentile
te.evaluate(te.percentile(m, 25, axis=1), {m: b})

# %% te.polyval
te.evaluate(te.polyval([1, 0, 2], v), {v: c})

# %% te.ptp
te.evaluate(te.ptp(m, axis=1), {m: b})

# %% te.quantile
te.evaluate(te.quantile(m, [0.25, 0.5]), {m: b})

# %% te.repeat
te.evaluate(te.repeat(v, 2), {v: c})

# %% te.rot90
te.evaluate(te.rot90(m), {m: b})

# %% te.tile
te.evaluate(te.tile(v, 2), {v: c})

# %% te.trapezoid
te.evaluate(te.trapezoid(v, dx=0.5), {v: c})

# %% te.vdot
te.evaluate(te.vdot(m, m), {m: b})

# %% te.vstack
te.evaluate(te.vstack([m, v]), {m: b, v: c})
