# %%
import numpy as np

import tedsl as te

x = te.placeholder((4,), name="x")
a = np.array([-1, -0.5, 0.5, 1], "float32")

# %% te.abs
te.evaluate(te.abs(x), {x: a})

# %% te.acos
te.evaluate(te.acos(x), {x: a})

# %% te.acosh
te.evaluate(te.acosh(x + 2), {x: a})

# %% te.asin
te.evaluate(te.asin(x), {x: a})

# %% te.asinh
te.evaluate(te.asinh(x), {x: a})

# %% te.atan
te.evaluate(te.atan(x), {x: a})

# %% te.atan2
te.evaluate(te.atan2(x, -1.0), {x: a})  # the angle of the point (-1, x)

# %% te.atanh
te.evaluate(te.atanh(x / 2), {x: a})

# %% te.cast
te.evaluate(te.cast(x * 10, "int32"), {x: a})  # toward zero

# %% te.cbrt
te.evaluate(te.cbrt(x), {x: a})

# %% te.ceil
te.evaluate(te.ceil(x * 1.5), {x: a})

# %% te.clip
te.evaluate(te.clip(x, -0.75, 0.75), {x: a})

# %% te.const
(x * te.const(2, "float64")).dtype, (x * 2).dtype  # a constant of its own dtype, a weak number

# %% te.copysign
te.evaluate(te.copysign(3.0, x), {x: a})

# %% te.cos
te.evaluate(te.cos(x), {x: a})

# %% te.cosh
te.evaluate(te.cosh(x), {x: a})

# %% te.erf
te.evaluate(te.erf(x), {x: a})

# %% te.erfc
te.evaluate(te.erfc(x), {x: a})

# %% te.exp
te.evaluate(te.exp(x), {x: a})

# %% te.exp2
te.evaluate(te.exp2(x), {x: a})

# %% te.expm1
te.evaluate(te.expm1(x * 1e-4), {x: a})  # exact near 0

# %% te.floor
te.evaluate(te.floor(x * 1.5), {x: a})

# %% te.hypot
te.evaluate(te.hypot(x, 1.0), {x: a})

# %% te.isfinite
te.evaluate(te.isfinite(1 / (x + 1)), {x: a})

# %% te.isinf
te.evaluate(te.isinf(1 / (x + 1)), {x: a})

# %% te.isnan
te.evaluate(te.isnan(te.sqrt(x)), {x: a})

# %% te.log
te.evaluate(te.log(x + 2), {x: a})

# %% te.log10
te.evaluate(te.log10(x + 2), {x: a})

# %% te.log1p
te.evaluate(te.log1p(x * 1e-4), {x: a})  # exact near 0

# %% te.log2
te.evaluate(te.log2(x + 2), {x: a})

# %% te.logical_and
te.evaluate(te.logical_and(x > -0.75, x < 0.75), {x: a})  # as (x > -0.75) & (x < 0.75)

# %% te.logical_not
te.evaluate(te.logical_not(x > 0), {x: a})

# %% te.logical_or
te.evaluate(te.logical_or(x < -0.75, x > 0.75), {x: a})

# %% te.maximum
te.evaluate(te.maximum(x, 0.25), {x: a})

# %% te.minimum
te.evaluate(te.minimum(x, 0.25), {x: a})

# %% te.pow
te.evaluate(te.pow(x + 2, 3), {x: a})  # as (x + 2) ** 3

# %% te.relu
te.evaluate(te.relu(x), {x: a})

# %% te.round
te.evaluate(te.round(x * 5), {x: a})  # halves go to the even neighbor, as in NumPy

# %% te.rsqrt
te.evaluate(te.rsqrt(x + 2), {x: a})  # 1 / sqrt

# %% te.select
te.evaluate(
    te.compute((4,), lambda i: te.select(i > 0, x[i - 1], 0.0)), {x: a}
)  # x[-1] is never read

# %% te.sigmoid
te.evaluate(te.sigmoid(x), {x: a})

# %% te.sign
te.evaluate(te.sign(x), {x: a})

# %% te.sin
te.evaluate(te.sin(x), {x: a})

# %% te.sinh
te.evaluate(te.sinh(x), {x: a})

# %% te.sqrt
te.evaluate(te.sqrt(x + 1), {x: a})

# %% te.tan
te.evaluate(te.tan(x), {x: a})

# %% te.tanh
te.evaluate(te.tanh(x), {x: a})

# %% te.trunc
te.evaluate(te.trunc(x * 1.5), {x: a})  # toward zero

# %% te.softplus
te.evaluate(te.softplus(x), {x: a})

# %% te.stop_gradient
te.grad(lambda v: (te.stop_gradient(v) * v).sum())(a)  # of v * v it would be 2 v

# %% te.square
te.evaluate(te.square(x), {x: a})

# %% te.deg2rad
te.evaluate(te.deg2rad(x), {x: a})

# %% te.rad2deg
te.evaluate(te.rad2deg(x), {x: a})

# %% te.sinc
te.evaluate(te.sinc(x), {x: a})

# %% te.fmax
te.evaluate(te.fmax(x, 0), {x: a})

# %% te.fmin
te.evaluate(te.fmin(x, 0), {x: a})

# %% te.heaviside
te.evaluate(te.heaviside(x, 0.5), {x: a})

# %% te.isclose
te.evaluate(te.isclose(x, 0.5), {x: a})

# %% te.logaddexp
te.evaluate(te.logaddexp(x, x), {x: a})

# %% te.logical_xor
te.evaluate(te.logical_xor(x > 0, x > 0.7), {x: a})

# %% te.nan_to_num
te.evaluate(te.nan_to_num(te.log(x), neginf=-100), {x: a})
