# %% [markdown]
# # Gradients that a checker tried to break
#
# A gradient is trusted when somebody tried to prove it wrong. `te.testing.check_op` draws shapes, dtypes, values and
# static arguments, and holds the operator against properties that a right one has.

# %%
import matplotlib.pyplot as plt
from hypothesis import strategies as st

import tedsl as te


def conv(x, w, stride=1):
    """A correlation along a line."""
    n, k = x.shape[0], w.shape[0]
    return te.compute(
        ((n - k) // stride + 1,),
        lambda i: te.sum(lambda r: x[stride * i + r] * w[r]),
        name="conv",
    )


# %% [markdown]
# Shapes are written with names; extents of one name are equal. `sizes` bounds them, a hypothesis strategy draws a
# static argument.

# %%
SIZES = {"n": (3, 8), "k": (1, 3)}
report = te.testing.check_op(conv, "n", "k", stride=st.integers(1, 3), sizes=SIZES, examples=40)
assert report.ok
report

# %% [markdown]
# The properties, each one row of a table:

# %%
for name, check in te.testing.CHECKS.items():
    print(f"{name:12} {check.__doc__}")

# %% [markdown]
# ## A factor
#
# A rule can be tried before it is registered: `vjp=` takes what `def_vjp` would. This one forgets the chain rule's
# inner derivative.


# %%
def smooth(x):
    return te.compute(x.shape, lambda i: te.tanh(x[i] * 2), name="smooth")


def forgets_two(output, inputs, head):
    return head * (1 - output * output)


wrong = te.testing.check_op(smooth, "n", vjp=forgets_two, raise_exception=False)
assert wrong.failure.check == "gradient"
wrong

# %%
te.display.plot.gradcheck_errors(wrong.failure.gradients)
plt.show()

# %% [markdown]
# ## One wrong border row
#
# The hardest faults to find are in rules that are right nearly everywhere. Here the last row of an image is off by a
# tenth: every test in the middle of the image passes. The report names the element that is worst, which lies in that
# row.


# %%
def blur(x, radius=1):
    return te.compute(
        x.shape,
        lambda i, j: sum(x.at(i + d, j, mode="clamp") for d in range(-radius, radius + 1)),
        name="blur",
    )


def wrong_at_the_border(output, inputs, head):
    (x,) = inputs
    dx = te.differentiate(output, x, head=head)
    last = x.shape[0] - 1
    return te.compute(
        x.shape, lambda i, j: dx[i, j] * te.select(i == last, 1.1, 1.0), name="dx"
    )


border = te.testing.check_op(
    blur,
    "n m",
    radius=st.integers(1, 3),
    sizes={"n": (4, 9)},
    vjp=wrong_at_the_border,
    raise_exception=False,
)
assert border.examples <= 100
assert border.failure.gradients.worst.index == (3, 0)
border

# %% [markdown]
# ## Wrong for stride 2 only
#
# What is drawn includes the static argument, so a rule that is right for stride 1 and 3 is found as well. The case
# that is reported is the smallest one found, and the snippet shows it again.


# %%
def wrong_for_stride_2(output, inputs, head):
    x, w = inputs
    dx, dw = te.differentiate(output, [x, w], head=head)
    stride = max(1, (x.shape[0] - w.shape[0]) // max(1, output.shape[0] - 1))
    if stride == 2 and output.shape[0] > 1:
        dw = te.compute(w.shape, lambda r: te.sum(lambda i: head[i] * x[i + r]), name="dw")
    return [dx, dw]


stride = te.testing.check_op(
    conv,
    "n",
    "k",
    stride=st.integers(1, 3),
    sizes=SIZES,
    vjp=wrong_for_stride_2,
    raise_exception=False,
)
assert stride.failure.case.static == {"stride": 2}
print(stride.failure.snippet)

# %% [markdown]
# The snippet is a program that stands alone: what it cannot import is in it with its source. It fails the same way.

# %%
try:
    exec(stride.failure.snippet, {})
except te.testing.CheckError as error:
    again = error.report.failure.message
assert again == stride.failure.message
again

# %% [markdown]
# ## Forward and reverse
#
# `jvp=` tries a forward rule. It is held against the reverse one: both are of one linear map.

# %%
pushed = te.testing.check_op(
    smooth,
    "n",
    jvp=lambda inputs, tangents: tangents[0] * 2,
    checks="adjoint",
    raise_exception=False,
)
print(pushed.failure.message)
assert "forward and reverse derivatives disagree" in pushed.failure.message

# %% [markdown]
# ## In a test suite
#
# The same as a decorator: the function below is a test that pytest collects.


# %%
@te.testing.checked("n m", radius=st.integers(1, 3), examples=20)
def test_blur(x, radius):
    return blur(x, radius)


test_blur()
