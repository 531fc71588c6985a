# %%
import numpy as np

import tedsl as te

# %% te.testing.check_op te.testing.CheckReport
te.testing.check_op(te.tanh, "n m", examples=5)

# %% te.testing.CheckReport.ok
te.testing.check_op(te.tanh, "n", examples=5).ok

# %% te.testing.CheckError
try:
    te.testing.check_op(te.tanh, "n", vjp=lambda y, inputs, head: head * (1 - y), examples=5)
except te.testing.CheckError as error:
    print(str(error).splitlines()[0])

# %% te.testing.Failure
report = te.testing.check_op(
    te.tanh, "n", vjp=lambda y, inputs, head: head * (1 - y), raise_exception=False
)
print(report.failure.check)

# %% te.testing.array te.testing.ArraySpec
te.testing.check_op(te.log, te.testing.array("n", low=0.1), examples=5)

# %% te.testing.check_case
te.testing.check_case(te.tanh, {"x": np.array([0.0, 0.5])})


# %% te.testing.checked
@te.testing.checked("n m", examples=5)
def test_softplus(x):
    return te.log(1 + te.exp(x))


test_softplus()
print("passed")
