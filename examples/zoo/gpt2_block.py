"""A block of GPT-2 as a model of text: `python examples/zoo/gpt2_block.py`.

Layer norm, causal attention with several heads, a GELU network, and residuals around both, written on whole tensors
with `te.ops`. It learns a tongue twister, byte by byte, and then goes on from its beginning.
"""

from typing import Any

import numpy as np

import tedsl as te
from tedsl import ops

Params = dict[str, te.Tensor]

TEXT = b"""How much wood would a woodchuck chuck if a woodchuck could chuck wood?
He would chuck, he would, as much as he could, if a woodchuck could chuck wood. """
BATCH, TIME, WIDTH, HEADS = 16, 32, 48, 4
SHAPES = {
    "byte": (128, WIDTH), "place": (TIME, WIDTH), "norm1": (2, WIDTH), "norm2": (2, WIDTH), "norm3": (2, WIDTH),
    "qkv": (3 * WIDTH, WIDTH), "mix": (WIDTH, WIDTH), "up": (4 * WIDTH, WIDTH), "down": (WIDTH, 4 * WIDTH),
    "qkv bias": (3 * WIDTH,), "mix bias": (WIDTH,), "up bias": (4 * WIDTH,), "down bias": (WIDTH,),
}  # fmt: skip


def dense(p: Params, name: str, x: te.Tensor) -> Any:
    return ops.dense(x, p[name], p[name + " bias"])


def block(p: Params, x: te.Tensor) -> Any:
    """x (batch, time, WIDTH), with what attention adds to it, and then with what the network adds."""
    h = ops.layer_norm(x, WIDTH, *p["norm1"])
    q, k, v = dense(p, "qkv", h).reshape(*x.shape[:2], 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
    x = x + dense(p, "mix", ops.attention(q, k, v, causal=True).transpose(0, 2, 1, 3).reshape(x.shape))
    h = ops.layer_norm(x, WIDTH, *p["norm2"])
    return x + dense(p, "down", ops.gelu(dense(p, "up", h), "tanh"))


def model(p: Params, text: te.Tensor) -> Any:
    """The scores of what may follow each byte of text (batch, time)."""
    return ops.layer_norm(block(p, p["byte"][text] + p["place"]), WIDTH, *p["norm3"]) @ p["byte"].T


def initial(random: np.random.Generator) -> list[np.ndarray]:
    still = np.repeat([[1.0], [0.0]], WIDTH, 1)
    return [still if "norm" in name else random.normal(0, 0.1, shape) for name, shape in SHAPES.items()]


def pieces(random: np.random.Generator) -> np.ndarray:
    starts = random.integers(0, len(TEXT) - TIME, BATCH)
    return np.stack([np.frombuffer(TEXT, "uint8", TIME + 1, start) for start in starts])


def trainer() -> ops.optim.TrainStep:
    p = {name: te.placeholder(shape, name=name) for name, shape in SHAPES.items()}
    text = te.placeholder((BATCH, TIME + 1), "uint8", name="text")
    loss = ops.cross_entropy(model(p, text[:, :-1]).transpose(0, 2, 1), text[:, 1:])
    return ops.optim.train_step(loss, list(p.values()), [text], ops.optim.Adam(0.005))


def main(steps: int = 250) -> list[float]:
    """Train, let the model write, and give the losses."""
    random = np.random.default_rng(0)
    step, losses = trainer(), []
    state = step.start(initial(random))
    for _ in range(steps):
        value, state = step(state, pieces(random))
        losses.append(float(value))

    p, score, text = dict(zip(SHAPES, state.params)), te.jit(model), list(TEXT[:TIME])
    for _ in range(150):
        text.append(int(score(p, np.array([text[-TIME:]], "uint8"))[0, -1].argmax()))
    print(bytes(text).decode())
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
