# %%
import numpy as np

import tedsl as te

key = te.random.key(0)

# %% te.random.key
te.random.key(42)

# %% te.random.split
first, second = te.random.split(key)
print(first, second)

# %% te.random.fold_in
te.random.fold_in(key, 3)  # the key of step 3

# %% te.random.bits
te.evaluate(te.random.bits(key, 3), {})

# %% te.random.uniform
te.evaluate(te.random.uniform(key, (2, 3), -1, 1), {})

# %% te.random.normal
x = te.placeholder((2, 3), name="x")
noisy = x + te.random.normal(key, x.shape, std=0.1)  # drawn inside the kernel
te.evaluate(noisy, {x: np.zeros((2, 3), "float32")})

# %% te.random.bernoulli
te.evaluate(te.random.bernoulli(key, 0.3, 8), {})

# %% te.random.randint
te.evaluate(te.random.randint(key, 8, 0, 6), {})

# %% te.random.gumbel
te.evaluate(te.random.gumbel(key, 3), {})

# %% te.random.categorical
logits = te.constant(np.log(np.array([[0.1, 0.9], [0.9, 0.1]], "float32")))
te.evaluate(te.random.categorical(key, logits), {})
