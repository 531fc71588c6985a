"""Optimisers beside torch.optim, the compiled training step, and a network that learns digits."""

from __future__ import annotations

import dataclasses
import inspect
import math
import pickle
from importlib.util import find_spec
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import tedsl as te
from autodiff.heads import IntegerGradientError
from tedsl.ops import optim

W, COUNT = te.placeholder((3,), name="w"), te.placeholder((), "int32", name="count")


class RMSprop:
    """An optimizer as a user writes it: docs/differentiating.md has this one."""

    slots = ("square",)
    init, update = optim.SGD.init, optim.SGD.update

    def __init__(self, lr: float = 0.01, alpha: float = 0.99, eps: float = 1e-8) -> None:
        self.lr, self.alpha, self.eps = lr, alpha, eps

    def step(self, param: te.Tensor, grad: te.Tensor, slots: Any, count: te.Tensor) -> tuple[te.Tensor, ...]:
        square = self.alpha * slots[0] + (1 - self.alpha) * grad**2
        return param - self.lr * grad / (te.sqrt(square) + self.eps), square


KINDS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "sgd": (optim.SGD(0.1), "SGD", {"lr": 0.1}),
    "sgd decayed": (optim.SGD(0.1, weight_decay=0.3), "SGD", {"lr": 0.1, "weight_decay": 0.3}),
    "momentum": (
        optim.SGD(0.1, 0.8, weight_decay=0.2), "SGD", {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.2}
    ),
    "nesterov": (optim.SGD(0.1, 0.8, nesterov=True), "SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True}),
    "adam": (optim.Adam(0.1, (0.8, 0.95), 1e-6), "Adam", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}),
    "adam decayed": (optim.Adam(0.1, weight_decay=0.2), "Adam", {"lr": 0.1, "weight_decay": 0.2}),
    "one of the user's": (RMSprop(0.1, 0.9, 1e-6), "RMSprop", {"lr": 0.1, "alpha": 0.9, "eps": 1e-6}),
    "adamw": (optim.AdamW(0.1, weight_decay=0.2), "AdamW", {"lr": 0.1, "weight_decay": 0.2}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_torch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    optimizer, name, options = KINDS[kind]
    random = np.random.default_rng(0)
    array, grads = random.normal(size=(2, 3)), random.normal(size=(4, 2, 3))
    theirs = torch.tensor(array, requires_grad=True)
    other = getattr(torch.optim, name)([theirs], **options)

    param, grad, *slots = (te.placeholder((2, 3), "float64", name=n) for n in ("p", "g", *optimizer.slots))
    count = te.placeholder((), "int32", name="count")
    outputs = optimizer.step(param, grad, slots, count)
    state = [array, *(np.zeros((2, 3)) for _ in slots)]
    for k, g in enumerate(grads):
        theirs.grad = torch.tensor(g)
        other.step()
        feeds = dict(zip([param, *slots], state, strict=True)) | {grad: g, count: np.int32(k + 1)}
        state = list(te.interpret(list(outputs), feeds))
        np.testing.assert_allclose(state[0], theirs.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("most", [0.5, 100.0])
def test_clipping_is_that_of_torch(most: float) -> None:
    torch = pytest.importorskip("torch")
    arrays = [np.arange(3.0) - 2, np.ones((2, 2))]
    theirs = [torch.zeros(a.shape, dtype=torch.float64, requires_grad=True) for a in arrays]
    for t, a in zip(theirs, arrays, strict=True):
        t.grad = torch.tensor(a)
    torch.nn.utils.clip_grad_norm_(theirs, most)
    grads = [te.placeholder(a.shape, "float64") for a in arrays]
    found = te.interpret(optim.clip_by_global_norm(grads, most), dict(zip(grads, arrays, strict=True)))
    for have, want in zip(found, theirs, strict=True):
        np.testing.assert_allclose(have, want.grad.numpy(), rtol=1e-9)


def test_clipping_takes_a_nest_of_arrays() -> None:
    nest = {"w": np.float32([3, 0]), "b": [np.float32([[4]])]}
    found = optim.clip_by_global_norm(nest, 1.0)
    np.testing.assert_allclose(found["w"], [0.6, 0], rtol=1e-6)
    np.testing.assert_allclose(found["b"][0], [[0.8]], rtol=1e-6)


def regression(optimizer: Any) -> tuple[Any, Any, Any]:
    """A training step of y = w x + b, and data for it."""
    x, y = te.placeholder((8, 3), name="x"), te.placeholder((8,), name="y")
    w, b = te.placeholder((3,), name="w"), te.placeholder((), name="b")
    loss = te.ops.mse_loss(x @ w + b, y)
    random = np.random.default_rng(1)
    data = random.normal(size=(8, 3)).astype("float32")
    return optim.train_step(loss, [w, b], [x, y], optimizer), data, data @ [1.0, -2.0, 0.5] + 3.0


def test_a_compiled_step_trains() -> None:
    step, x, y = regression(optim.Adam(0.2))
    state = step.start([np.zeros(3), np.zeros(())])
    losses = []
    for _ in range(200):
        loss, state = step(state, x, y.astype("float32"))
        losses.append(float(loss))
    assert losses[-1] < 1e-3 * losses[0]
    assert state.steps == 200
    np.testing.assert_allclose(state.params[0], [1.0, -2.0, 0.5], atol=0.05)
    assert step.kernel.stats.copies == []


def test_the_state_lives_in_two_sets_of_arrays() -> None:
    step, x, y = regression(optim.SGD(0.1, 0.9))
    first = step.start([np.zeros(3), np.zeros(())])
    _, second = step(first, x, y.astype("float32"))
    _, third = step(second, x, y.astype("float32"))
    assert [a is b for a, b in zip(third.params, first.params, strict=True)] == [True, True]
    assert not any(a is b for a, b in zip(second.params, first.params, strict=True))


def test_a_state_that_was_used_up_is_refused() -> None:
    """Its arrays hold a later state by then: the best of several was silently another one."""
    step, x, y = regression(optim.SGD(0.1))
    y = y.astype("float32")
    first = step.start([np.zeros(3), np.zeros(())])
    _, second = step(first, x, y)
    best = second.copy()
    _, third = step(second, x, y)
    for old in (first, second):
        with pytest.raises(
            ValueError, match=r"after . steps were taken for those after 2; keep a copy.*state.copy\(\)"
        ):
            step(old, x, y)
    again = step(best, x, y)[1]
    np.testing.assert_array_equal(again.params[0], third.params[0])
    step(step.start([np.zeros(3), np.zeros(())]), x, y)


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


def squared(p: Any, x: Any, y: Any) -> Any:
    w, b = (p.w, p.b) if isinstance(p, Layer) else (p["w"], p["rest"][0])
    return te.ops.mse_loss(x @ w + b, y)


@pytest.mark.parametrize("kind", ["dict", "dataclass"])
@pytest.mark.parametrize("optimizer", [optim.SGD(0.1, 0.9), optim.Adam(0.2)], ids=lambda o: type(o).__name__)
def test_a_step_of_a_function_is_that_of_its_tensors(kind: str, optimizer: Any) -> None:
    compiled, x, y = regression(optimizer)
    y = y.astype("float32")
    step = optim.train_step(squared, optimizer=optimizer)
    zeros = np.zeros(3, "float32")
    state = step.start(Layer(zeros, 0.0) if kind == "dataclass" else {"w": zeros, "rest": [0.0, None]})
    other = compiled.start([np.zeros(3), np.zeros(())])
    for _ in range(5):
        loss, state = step(state, x, y)
        wanted, other = compiled(other, x, y)
        np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    found = (state.params.w, state.params.b) if kind == "dataclass" else (state.params["w"], state.params["rest"][0])
    for have, want in zip(found, other.params, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-6)
    assert state.steps == 5
    assert kind == "dataclass" or state.params["rest"][1] is None


def test_a_step_of_a_function_with_what_comes_beside_the_loss() -> None:
    def f(p: Any, x: Any, *, scale: float) -> Any:
        y = (x - p["mean"]) * scale
        return (y * y).mean(), {"worst": te.max(y)}

    step = optim.train_step(f, optim.SGD(0.5), has_aux=True, clip=1.0)
    state = step.start({"mean": np.zeros((), "float32")})
    x = np.array([1.0, 3.0], "float32")
    (loss, aux), state = step(state, x, scale=1.0)
    assert float(loss) == 5.0
    assert float(aux["worst"]) == 3.0
    np.testing.assert_allclose(state.params["mean"], 0.5, rtol=1e-5)  # the slope of -4 is clipped to -1
    assert "train_step(f, SGD(lr=0.5" in repr(step)


def test_a_step_of_a_function_takes_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    step = optim.train_step(squared, optim.Adam(0.1))
    _, x, y = regression(optim.Adam(0.1))
    state = step.start({"w": torch.zeros(3), "rest": [torch.zeros(())]})
    first = state.copy()
    losses = []
    for _ in range(20):
        loss, state = step(state, torch.from_numpy(x), torch.from_numpy(y.astype("float32")))
        losses.append(float(loss))
    assert isinstance(state.params["w"], torch.Tensor)
    assert losses[-1] < losses[0]
    assert float(first.params["w"].abs().sum()) == 0.0


def test_autograd_of_torch_does_not_see_a_step() -> None:
    torch = pytest.importorskip("torch")
    step = optim.train_step(lambda p, x: ((x * p["w"]) ** 2).mean(), optimizer=optim.Adam(0.1))
    x = torch.ones(3, requires_grad=True)
    for w in (torch.nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True) * 1):
        state = step.start({"w": w})
        for _ in range(2):
            loss, state = step(state, x)
            leaves = [loss, *state.params.values(), *(state.slots[k]["w"] for k in ("mean", "square"))]
            assert not any(t.requires_grad for t in leaves)
    w, a = te.placeholder((3,), name="w"), te.placeholder((3,), name="a")
    compiled = optim.train_step(((w * a) ** 2).mean(), [w], [a], optim.Adam(0.1))
    (found,) = compiled(compiled.start([torch.nn.Parameter(torch.ones(3))]), x)[1].params
    np.testing.assert_allclose(found, 0.9, rtol=1e-6)


def test_the_bias_of_adam_is_that_of_float64() -> None:
    torch = pytest.importorskip("torch")
    step = optim.train_step(lambda p: (p**2).mean(), optimizer=optim.Adam(0.01))
    start = np.linspace(1, 2, 4, dtype="float32")
    state, w = step.start(start), torch.tensor(start, requires_grad=True)
    adam = torch.optim.Adam([w], lr=0.01)
    for _ in range(50):
        _, state = step(state)
        adam.zero_grad()
        (w**2).mean().backward()
        adam.step()
    np.testing.assert_allclose(state.params, w.detach(), atol=5e-7)


def test_parameters_keep_their_nest_and_data_their_names() -> None:
    w, b, x = (te.placeholder((3,), name=name) for name in ("w", "b", "x"))
    step = optim.train_step(((x * w + b) ** 2).mean(), {"layer": {"w": w, "b": b}}, [x], optim.Adam(0.1))
    ones, first = np.ones(3, "float32"), None
    for given in ({"layer": {"b": 2 * ones, "w": ones}}, {"w": ones, "b": 2 * ones}, {w: ones, b: 2 * ones}):
        state = step.start(given)
        assert list(state.params["layer"]) == ["w", "b"]
        for _ in range(2):
            _, state = step(state, x=ones)
        first = first or state.copy()
        np.testing.assert_array_equal(state.params["layer"]["b"], first.params["layer"]["b"])
    with pytest.raises(TypeError, match="takes a state and x, found no data"):
        step(state)
    with pytest.raises(TypeError, match=r"takes a state and x, found float32\[3\], y="):
        step(state, ones, y=ones)
    with pytest.raises(ValueError, match=r"params\['layer'\]: no array for parameter 'b', found those for w"):
        step.start({"layer": {"w": ones}})
    with pytest.raises(ValueError, match="'c' is none of the parameters, which are layer"):
        step.start({"layer": {"w": ones, "b": ones}, "c": ones})
    with pytest.raises(TypeError, match=r"params\['w'\]: expected a placeholder, found float"):
        optim.train_step((w * w).sum(), {"w": 1.0}, [], optim.SGD(0.1))


def test_optimizers_are_not_mistaken_for_one_another() -> None:
    kinds = [optim.SGD(0.1), optim.SGD(0.1, 0.9), optim.Adam(0.1)]
    w = te.placeholder((3,), name="w")
    for steps in (
        [optim.train_step(lambda p: (p * p).sum(), optimizer=kind) for kind in kinds],
        [optim.train_step((w * w).sum(), [w], [], kind) for kind in kinds],
    ):
        for a in steps:
            state = a.start([np.ones(3)] if steps[0] is not a and hasattr(a, "kernel") else np.ones(3))
            for b in steps:
                if b is not a:
                    with pytest.raises(ValueError, match="the state is one of another optimizer: it keeps"):
                        b(state)
    with pytest.raises(ValueError, match=r"found the class Adam; make one, Adam\(\)"):
        optim.train_step(squared, optimizer=optim.Adam)
    with pytest.raises(ValueError, match=r"optimizer: expected one as .* found 'adam'"):
        optim.train_step((w * w).sum(), [w], [], "adam")
    for name, hint in (("sgd", "it is optim.SGD"), ("RMSprop", "every object with `slots` and `step` is one")):
        with pytest.raises(AttributeError, match=hint):
            getattr(optim, name)
    with pytest.raises(AttributeError, match=r"it is te.ops.optim.Adam"):
        te.Adam


def test_a_missing_parameter_is_named() -> None:
    step = optim.train_step(squared, optimizer=optim.SGD(0.1))
    with pytest.raises(ValueError, match=r"looks for 'rest', but the parameters given to start\(\) are w"):
        step(step.start({"w": np.ones(3)}), np.ones((4, 3)), np.ones(4))


def test_what_does_not_fit_is_refused() -> None:
    step, *_ = regression(optim.SGD(0.1))
    with pytest.raises(ValueError, match=r"w: expected \(3,\), found \(4,\)"):
        step.start([np.zeros(4), np.zeros(())])
    with pytest.raises(ValueError, match="expected 2 arrays, found 1"):
        step.start([np.zeros(3)])
    with pytest.raises(ValueError, match="no array for parameter 'b', found those for w"):
        step.start({"w": np.zeros(3)})
    np.testing.assert_array_equal(step.start({"b": 2.0, "w": np.ones(3)}).params[1], 2.0)
    with pytest.raises(ValueError, match=r"of a function, expected train_step\(f, optimizer=Adam\(1e-2\)\)"):
        optim.train_step(squared, [1.0])
    with pytest.raises(ValueError, match="start: expected a nest with arrays of floats, found 'nothing'"):
        optim.train_step(squared, optim.SGD(0.1)).start("nothing")
    w = te.placeholder((3,), name="w")
    for stepping in (optim.train_step(lambda p: (p * p).sum(), optimizer=optim.SGD(0.1)), step):
        with pytest.raises(TypeError, match=r"takes a state, .* found \[1.0\]; the first one is step.start\(params\)"):
            stepping([1.0])
    with pytest.raises(ValueError, match="found no optimizer"):
        optim.train_step((w * w).sum(), [w])
    with pytest.raises(ValueError, match="loss: expected a 0-rank tensor"):
        optim.train_step(w * 2.0, [w], [], optim.SGD(0.1))
    with pytest.raises(ValueError, match="lr: expected a number of 0 or more, found -1"):
        optim.sgd_step(w, w, lr=-1.0)


@pytest.mark.long
@pytest.mark.parametrize("way", ["tedsl", "torch", "jax"])
def test_a_network_learns_digits_as_in_torch(way: str) -> None:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("sklearn")
    pytest.importorskip("jax")
    from examples import digits

    losses, accuracy = digits.WAYS[way]()
    assert accuracy >= 0.97
    np.testing.assert_allclose(losses[:50], torch_losses(torch, digits, 50), atol=1e-4)


def torch_losses(torch: Any, digits: Any, steps: int) -> list[float]:
    """The same network, weights and batches by PyTorch."""
    f, random = torch.nn.functional, np.random.default_rng(1)
    images, labels, *_ = digits.digits()
    values = [torch.tensor(v, dtype=torch.float32, requires_grad=True) for v in digits.initial(random)]
    w1, b1, w2, b2, w3, b3, w4, b4 = values
    adam, found = torch.optim.Adam(values), []
    for epoch in range(digits.EPOCHS):
        order = random.permutation(len(labels))
        adam.param_groups[0]["lr"] = digits.RATE * (1.0 - epoch / digits.EPOCHS)
        for first in range(0, len(order) - digits.BATCH + 1, digits.BATCH):
            x, y = (torch.tensor(v[order[first : first + digits.BATCH]]) for v in (images, labels))
            h = f.max_pool2d(f.relu(f.conv2d(x, w1, b1, padding=1)), 2)
            h = f.max_pool2d(f.relu(f.conv2d(h, w2, b2, padding=1)), 2)
            loss = f.cross_entropy(f.linear(f.relu(f.linear(h.flatten(1), w3, b3)), w4, b4), y.long())
            adam.zero_grad()
            loss.backward()
            adam.step()
            found.append(loss.item())
            if len(found) == steps:
                return found
    return found


RATES: dict[str, Any] = {
    "powers": (lambda t: 0.1 * 0.99**t, lambda t: 0.1 * 0.99**t),
    "cosine": (lambda t: te.cos(t / 1000), lambda t: math.cos(t / 1000)),
    "a warm-up": (lambda t: te.minimum(1.0, (t + 1) / 10) * 0.99**t, lambda t: min(1, (t + 1) / 10) * 0.99**t),
    "a square": (lambda t: 1 / (1 + 1e-9 * t**2), lambda t: 1 / (1 + 1e-9 * t**2)),  # 10**10 is beyond 32 bits
    "parts": (lambda t: 0.5 ** (t // 100) + te.cast(t % 3, "float32"), lambda t: 0.5 ** (t // 100) + t % 3),
    "a table": (
        lambda t: te.constant([0.1, 0.01])[te.minimum(t // 100, 1)], lambda t: 0.1 if t < 100 else 0.01,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rates_count_in_integers(kind: str, dtype: str) -> None:
    rate, expected = RATES[kind]
    param, grad = te.placeholder((2,), dtype, name="p"), te.placeholder((2,), dtype, name="g")
    new = te.build([param, grad, COUNT], optim.SGD(rate).step(param, grad, (), COUNT)[0])
    a = np.array([1.0, -2.0], dtype)
    for t in (0, 5, 99, 100, 100_000):
        found = new(0 * a, a, np.array(t + 1, "int32"))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, -a * expected(t), rtol=1e-6)


@pytest.mark.parametrize("way", ["function", "tensors"])
def test_the_rate_is_a_function_of_the_steps_done(way: str) -> None:
    x = np.linspace(-1, 1, 8, dtype="float32")
    y = 3 * x
    sgd = optim.SGD(lambda t: te.where(t < 2, 0.5, 1 / (t + 1)))
    if way == "function":
        step = optim.train_step(lambda p, x, y: te.ops.mse_loss(p * x, y), optimizer=sgd)
        state = step.start(0.0)
    else:
        w, a, b = te.placeholder((), name="w"), te.placeholder((8,), name="a"), te.placeholder((8,), name="b")
        step = optim.train_step(te.ops.mse_loss(w[()] * a, b), [w], [a, b], sgd)
        state = step.start([0.0])
    expected = 0.0
    for t in range(4):
        _, state = step(state, x, y)
        expected -= (0.5 if t < 2 else 1 / (t + 1)) * float(2 * np.mean((expected * x - y) * x))
    np.testing.assert_allclose(state.params[0] if way == "tensors" else state.params, expected, rtol=1e-5)


def test_a_step_of_a_function_tells_what_was_compiled() -> None:
    step = optim.train_step(lambda p, x: ((x * p["w"]) ** 2).sum(), optimizer=optim.AdamW(0.1))
    assert "AdamW(lr=0.1" in str(step)
    assert "decoupled" not in str(step)
    assert "not called on arrays yet" in str(step.explain())
    step(step.start({"w": np.ones(3, "float32")}), np.ones(3, "float32"))
    assert "x : float32[3]" in str(step.explain())
    assert "compiled in" in str(step.explain())


def test_a_step_tells_in_short_lines_and_nothing_of_derivatives_that_nobody_takes() -> None:
    def loss(p: Any, x: Any) -> Any:
        return te.stack([((x * w) ** 2).sum() for w in p.values()]).mean()

    step = optim.train_step(loss, optimizer=optim.Adam(0.1))
    step(step.start({f"weights_{k}": np.ones(3, "float32") for k in range(4)}), np.ones(3, "float32"))
    lines = str(step.explain()).splitlines()
    assert lines[0] == "train_step of loss(p, x)"
    assert max(map(len, lines)) <= 120
    told = "\n".join(lines)
    for word in ("derivative", "backward", "rate", "Any", "add :"):
        assert word not in told
    assert "count : int32[]" in told
    assert "weights_3 : float32[3]" in told


def test_a_state_is_read_by_name_as_what_is_loaded_of_it(tmp_path: Any) -> None:
    step = optim.train_step(lambda p, x: ((x * p["w"]) ** 2).sum(), optimizer=optim.Adam(0.1))
    _, state = step(step.start({"w": np.ones(3, "float32")}), np.ones(3, "float32"))
    te.save(tmp_path / "state.npz", state)
    loaded = te.load(tmp_path / "state.npz")
    whole = te.load(tmp_path / "state.npz", like=state)
    for found in (state, loaded, whole):
        np.testing.assert_array_equal(found["params"]["w"], state.params["w"])
        assert found["steps"] == 1
        assert step(found, np.ones(3, "float32"))[1].steps == 2
    np.testing.assert_array_equal(whole.params["w"], state.params["w"])
    assert state[2] == 1
    assert state[-1] == 1
    assert [*state] == [state.params, state.slots, state.steps]
    with pytest.raises(KeyError, match=r"a State has 'params', 'slots', 'steps', found 'lr', at .*test_optim.py"):
        state["lr"]


def test_a_state_prints_shapes_and_not_elements() -> None:
    state = optim.State({"w": np.zeros((3, 4), "float32"), "b": [np.zeros(4), 2]}, (), 7)
    assert repr(state) == "State after 7 steps, params {'w': float32[3, 4], 'b': [float64[4], 2]}"


@pytest.mark.parametrize("kind", KINDS)
def test_updates_of_gradients_that_one_has_are_those_of_a_training_step(kind: str) -> None:
    """Of gradients one has already there was no step but train_step, which differentiates itself."""
    optimizer, points = KINDS[kind][0], np.linspace(-1, 1, 12).reshape(4, 3)
    loss = te.value_and_grad(lambda p, x: ((x @ p["w"] + p["b"] - 1) ** 2).sum())
    params: Any = {"w": np.zeros(3), "b": 0.0}
    step = optim.train_step(lambda p, x: ((x @ p["w"] + p["b"] - 1) ** 2).sum(), optimizer=optimizer)
    expected, state = step.start(params), optimizer.init(params)
    for _ in range(3):
        _, grads = loss(params, points)
        grads = dict(reversed(grads.items()))  # by name, not by position
        params, state = optimizer.update(params, grads, state)
        _, expected = step(expected, points)
    assert params.keys() == {"w", "b"}
    for name in params:
        assert params[name].dtype == expected.params[name].dtype == "float64"
        np.testing.assert_array_equal(params[name], expected.params[name])
    assert state["count"] == 3


def test_updates_are_arrays_of_the_framework_given() -> None:
    torch = pytest.importorskip("torch")
    w = [torch.ones(3), (torch.ones(()),)]
    adam = optim.Adam(0.1)
    new, state = adam.update(w, w, adam.init(w))
    assert isinstance(new[1], tuple)
    assert all(isinstance(t, torch.Tensor) for t in (*new[:1], *new[1], state["mean"][0], state["count"]))
    torch.testing.assert_close(new[0], torch.full((3,), 0.9))


def test_what_readers_of_other_libraries_write_of_an_optimizer_is_answered_with_what_is_there() -> None:
    w, adam = {"w": np.zeros(3), "b": 0.0}, optim.Adam(0.1)
    for call, words in {
        lambda: optim.Adam(w, lr=0.1): r"lr: expected a number, .* opt = Adam\(lr=0.1\), state = opt.init\(params\)",
        lambda: optim.SGD([np.zeros(3)]): r"lr: expected a number, .* opt = SGD\(lr=0.1\)",
        lambda: optim.Adam(learning_rate=0.1): "learning_rate= is no option; there are lr, .*; it is lr=",  # type: ignore[call-arg]
        lambda: optim.AdamW(learning_rate=0.1): "AdamW at .*: learning_rate= is no option; .*; it is lr=",
        lambda: adam.step(np.zeros(3), np.zeros(3)): r"opt.update\(params, grads, state\)",  # type: ignore[arg-type]
        lambda: adam.update(w, adam.init(w), w): "state: expected a dict with count, mean, square, found",
        lambda: adam.update(w, [1.0, 2.0], adam.init(w)): "grads: expected a dict with w, b, found list",
        lambda: adam.init("w"): "params: expected a nest with arrays of floats, found w",
    }.items():
        with pytest.raises(TypeError, match=words) as caught:
            call()
        assert __file__ in str(caught.value)
    with pytest.raises(ValueError, match="grads: no array for parameter 'b', found those for w"):
        adam.update(w, {"w": np.zeros(3)}, adam.init(w))


@pytest.mark.parametrize("number", [3, np.int64(3), np.arange(3)])
def test_integers_among_parameters_are_refused_as_te_grad_refuses_them(number: Any) -> None:
    params = {"w": np.ones(3), "n": number}
    step, sgd = optim.train_step(lambda p: (p["w"] * p["n"]).sum(), optimizer=optim.SGD(0.1)), optim.SGD(0.1)
    for call in (
        te.value_and_grad(lambda p: (p["w"] * p["n"]).sum()), step.start, sgd.init,
        lambda p: sgd.update(p, p, {"count": np.asarray(0)}),
    ):  # fmt: skip
        with pytest.raises(IntegerGradientError, match=r"\['n'\] is int64, expected .*floats to differentiate by"):
            call(params)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: optim.Adam(betas=(0.9, 1.5)), r"betas: expected two numbers of 0 or more and less than 1, .* 1.5\)"),
        (lambda: optim.Adam(betas=(-0.1, 0.9)), r"betas: expected two numbers of 0 or more and less than 1"),
        (lambda: optim.Adam(betas=(0.9,)), r"betas: expected two numbers, as \(0.9, 0.999\), found \(0.9,\)"),
        (lambda: optim.AdamW(betas=0.9), r"AdamW at .*betas: expected two numbers, .* found 0.9"),
        (lambda: optim.Adam(eps=-1e-8), "eps: expected a number of 0 or more, found -1e-08"),
        (lambda: optim.Adam(eps=None), "eps: expected a number, found None"),
        (lambda: optim.Adam(decoupled=1), "decoupled: expected True or False, found 1"),
        (lambda: optim.AdamW(weight_decay="0.1"), "weight_decay: expected a number, found '0.1'"),
        (lambda: optim.SGD(weight_decay=np.ones(3)), "weight_decay: expected a number, found array"),
        (lambda: optim.SGD(weight_decay=float("nan")), "weight_decay: expected a number of 0 or more, found nan"),
        (lambda: optim.SGD(momentum=-0.1), "momentum: expected a number of 0 or more, found -0.1"),
        (lambda: optim.SGD(momentum=True), "momentum: expected a number, found True"),
        (lambda: optim.SGD(0.1, nesterov=True), r"nesterov=True .* found none; .* SGD\(0.1, momentum=0.9, nesterov"),
        (lambda: optim.SGD(0.1, 0.9, nesterov=1), "nesterov: expected True or False, found 1"),
        (lambda: optim.SGD(np.float32(-1)), r"lr: expected a number of 0 or more, found"),
        (lambda: optim.SGD(True), "lr: expected a number, a 0-rank tensor or array, or a function of the step"),
        (lambda: optim.SGD("fast"), "lr: expected a number, a 0-rank tensor or array, or a function of the step"),
        (lambda: optim.momentum_step(W, W, W, momentum=-1.0), "momentum_step at .*momentum: expected"),
        (lambda: optim.adam_step(W, W, W, W, COUNT, eps=-1.0), "adam_step at .*eps: expected"),
        (lambda: optim.train_step(squared, optimizer=optim.SGD(0.1), clip=-1.0), "clip: expected a number of 0"),
        (lambda: optim.clip_by_global_norm([W], "1"), "max_norm: expected a number, found '1'"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused_where_they_are_given(make: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        make()
    assert __file__ in str(caught.value)


def test_betas_may_be_a_list() -> None:
    assert optim.Adam(betas=[0.8, 0.9]) == optim.Adam(betas=(0.8, 0.9))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [optim.SGD, lambda lr: optim.SGD(lr, 0.9), optim.Adam])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rate_in_an_array_varies_without_a_new_build(make: Any, dtype: str) -> None:
    x, start = np.linspace(-1, 1, 12, dtype=dtype).reshape(4, 3), np.ones(3, dtype)
    lr = np.asarray(0.1, "float32")
    w, a = te.placeholder((3,), dtype, name="w"), te.placeholder((4, 3), dtype, name="a")
    of_function = optim.train_step(lambda p, a: ((a @ p - 1) ** 2).sum(), optimizer=make(lr))
    of_tensors = optim.train_step(((a @ w - 1) ** 2).sum(), [w], [a], make(lr))
    slope = te.grad(lambda p, a: ((a @ p - 1) ** 2).sum())
    states = [of_function.start(start), of_tensors.start([start])]
    params, expected = start, start
    kept, expected_kept = make(lr).init(params), make(0.1).init(expected)
    for rate in (0.1, 0.02):
        lr[...] = rate
        number = make(float(lr))
        expected, expected_kept = number.update(expected, slope(expected, x), expected_kept)
        params, kept = make(lr).update(params, slope(params, x), kept)
        states = [step(state, x)[1] for step, state in zip((of_function, of_tensors), states, strict=True)]
        for found in (params, states[0].params, states[1].params[0]):
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "float32" else 1e-13)
    assert str(of_function.explain()).count("compiled in") == 1


def test_a_rate_of_another_framework_is_taken() -> None:
    torch = pytest.importorskip("torch")
    lr, w = torch.tensor(0.5), torch.ones(3)
    sgd = optim.SGD(lr)
    assert sgd.update(w, w, sgd.init(w))[0].tolist() == [0.5] * 3
    step = optim.train_step(lambda p: (p * p).sum(), optimizer=optim.SGD(lr))
    assert step(step.start(w))[1].params.tolist() == [0.0] * 3


def test_an_optimizer_shows_the_name_of_its_rate() -> None:
    def warming(t: Any) -> Any:
        return te.minimum(t / 100, 1.0) * 1e-3

    assert repr(optim.SGD(warming)) == "SGD(lr=warming, momentum=0.0, nesterov=False, weight_decay=0.0)"
    assert "Adam(lr=<lambda>, betas=" in repr(optim.train_step(squared, optimizer=optim.Adam(lambda t: 0.1)))
    with pytest.raises(ValueError, match=r"but Adam\(lr=0.001, betas=.*weight_decay=0.0\) keeps mean, square; begin"):
        optim.train_step(squared, optimizer=optim.Adam())(optim.State({"w": np.ones(3)}, {"count": 1}, 0))


def test_a_number_among_parameters_has_the_dtype_of_the_arrays_beside_it() -> None:
    """It was float32 in train_step and float64 in te.grad."""
    step = optim.train_step(lambda p: p["w"].sum() * p["b"], optimizer=optim.SGD(0.1))
    for dtype in ("float32", "float64"):
        params = {"w": np.zeros(3, dtype), "b": 0.5}
        assert step.start(params).params["b"].dtype == dtype
        assert te.grad(lambda p: p["w"].sum() * p["b"])(params)["b"].dtype == dtype


def test_lists_of_numbers_among_parameters_are_arrays_as_to_grad() -> None:
    def loss(p: Any, x: Any) -> Any:
        return ((p["w"] * x - 1.0) ** 2).sum()

    x, given = np.array([1.0, 2.0, 3.0], "float32"), {"w": [0.0, 0, 1.0]}
    step = optim.train_step(loss, optim.SGD(0.1))
    _, state = step(step.start(given), x)
    assert state.params["w"].shape == (3,)
    np.testing.assert_allclose(state.params["w"], given["w"] - 0.1 * te.grad(loss)(given, x)["w"], rtol=1e-6)
    opt = optim.SGD(0.1)
    stepped, _ = opt.update({"w": given["w"], "b": [x[0], x[1]]}, {"w": [1.0] * 3, "b": [0.5, 2.0]}, opt.init(given))
    np.testing.assert_allclose(stepped["w"], [-0.1, -0.1, 0.9], rtol=1e-6)
    np.testing.assert_allclose(stepped["b"], [0.95, 1.8], rtol=1e-6)
    with pytest.raises(IntegerGradientError, match=r"params\['w'\] is int64, .* make it floats"):
        step.start({"w": [0, 0, 1]})


def linear(w: Any, x: Any) -> Any:
    return (w["a"] * x).sum()


def test_messages_of_a_step_name_the_parameters_of_the_function() -> None:
    def of_its_names(slots: Any, x: Any, rate: float = 2.0, *more: Any, rate_: float = 1.0, **named: Any) -> Any:
        return (slots["a"] * x * rate * rate_).sum() + sum(m.sum() for m in (*more, *named.values()))

    x = np.ones(3, "float32")
    step = optim.train_step(of_its_names, optim.SGD(0.1))
    state = step.start({"a": x})
    loss, _ = step(state, x, 3.0, x, rate_=x, y=x)
    np.testing.assert_allclose(loss, 15.0)
    title = r"train_step of of_its_names\(slots, x, rate, more, rate_, named\)"
    with pytest.raises(ValueError, match=rf"{title} called on \(slots_a : [^,]*, x : float32\[4\], rate=3.0\): te.mul"):
        step(state, np.ones(4, "float32"), 3.0)
    step = optim.train_step(lambda *args: (args[0]["a"] * args[1]).sum(), optim.SGD(0.1))  # no name for parameters
    loss, _ = step(step.start({"a": x}), x)
    np.testing.assert_allclose(loss, 3.0)


def test_data_that_a_step_does_not_take_is_told_without_what_nobody_gave() -> None:
    x = np.ones(3, "float32")
    step = optim.train_step(linear, optim.Adam(0.1))
    state = step.start({"a": x, "b": x})
    with pytest.raises(
        TypeError, match=r"the step of linear takes a state and x, found float32\[3\], lr=; lr is an opt"
    ):
        step(state, x, lr=0.01)
    with pytest.raises(TypeError, match=r"the step of linear takes a state and x, found no data$"):
        step(state)
    with pytest.raises(
        ValueError, match=r"train_step of linear\(w, x\) called on \(w_a : .*, w_b : .*, x : float32\[4\]\): te.mul at"
    ):
        step(state, np.ones(4, "float32"))
    given = optim.train_step((W * W).sum(), [W], [], optim.SGD(0.1))
    with pytest.raises(TypeError, match="takes a state and no data, found lr=; lr is an option of the optimizer"):
        given(given.start([x]), lr=0.1)


def test_a_schedule_that_python_would_have_to_decide_names_the_step_t() -> None:
    x = np.ones(3, "float32")
    for rate, text in (
        (lambda t: 0.1 if t < 3 else 0.01, r"the truth of `t\[\(\)\] < 3` is not known"),
        (lambda t: math.cos(t / 10), r"t\[\(\)\].* / 10.0` is symbolic: .* in place of a function of math .*: te\.cos"),
    ):
        step = optim.train_step(linear, optim.SGD(rate))
        with pytest.raises(TypeError, match=text):
            step(step.start({"a": x}), x)


def test_an_optimizer_of_the_users_steps_nests_of_arrays() -> None:
    with pytest.raises(
        AttributeError, match=r"no attribute 'Lion'; there are SGD, .* help\(optim.Optimizer\), .* RMSprop"
    ):
        optim.Lion
    own, params = RMSprop(0.1), {"w": np.array([1.0, 2.0])}
    params, kept = own.update(params, {"w": np.array([1.0, -1.0])}, own.init(params))
    np.testing.assert_allclose(params["w"], [0.0, 3.0], atol=1e-6)
    assert kept["square"]["w"].shape == (2,)


def test_schedules_are_functions_of_the_step() -> None:
    for name in ("cosine_decay", "ExponentialLR", "schedules", "warmup"):
        with pytest.raises(
            AttributeError, match=r"lr= takes a function of .*te\.jit\(lr\)\(np\.array\(state\.steps\)\)"
        ):
            getattr(optim, name)
    with pytest.raises(AttributeError, match="the rate is that of the optimizer"):
        optim.State((), (), 0).lr
    assert te.jit(lambda t: te.minimum(t / 100, 1.0) * 1e-3)(np.array(3)) == pytest.approx(3e-5)


@pytest.mark.parametrize("made", [optim.SGD, optim.Adam])
def test_the_signature_of_an_optimizer_is_that_of_its_fields(made: Any) -> None:
    told = inspect.signature(made).parameters
    assert {name: p.default for name, p in told.items()} == {f.name: f.default for f in dataclasses.fields(made)}


@pytest.mark.parametrize("option", ["lr", "weight_decay"])
@pytest.mark.parametrize("nest", [{"w": 0.1, "b": 0.0}, [0.1, 0.2], {"w": {"x": 0.1}}])
def test_options_of_parts_are_told_what_to_write(option: str, nest: Any) -> None:
    for made in (optim.SGD, optim.Adam, optim.AdamW):
        with pytest.raises(
            TypeError, match="one for all parameters: where they differ each part has an optimizer"
        ) as e:
            made(**{option: nest})
        assert "opt.init(params)" not in str(e.value)


def test_parts_with_states_of_their_own() -> None:
    params = {"w": np.float32([1, 2]), "b": np.float32(3)}
    grads = {"w": np.float32([0, 0]), "b": np.float32(0)}
    own = {"w": optim.SGD(0.1, weight_decay=0.5), "b": optim.SGD(0.1)}
    new = {name: opt.update(params[name], grads[name], opt.init(params[name]))[0] for name, opt in own.items()}
    np.testing.assert_allclose(new["w"], [0.95, 1.9], rtol=1e-6)
    assert new["b"] == 3


def affine(params: Any, x: Any, y: Any) -> Any:
    return ((x @ params["w"] + params["b"] - y) ** 2).mean()


def of_record(params: Any, x: Any, y: Any) -> Any:
    return affine({"w": params.w, "b": params.b}, x, y)


@dataclasses.dataclass
class Affine:
    w: Any
    b: Any


NUMBERS = np.random.default_rng(5)
POINTS = NUMBERS.standard_normal((16, 4)).astype("float32")
HEIGHTS = (POINTS @ np.float32([1, -2, 3, 0.5]) + 0.25).astype("float32")
OF_PARTS = {
    "kinds": lambda: {"w": optim.AdamW(0.1, weight_decay=1e-2), "b": optim.SGD(0.05, momentum=0.9)},
    "rates": lambda: {"w": optim.SGD(np.array(0.1)), "b": optim.SGD(lambda t: 0.1 * te.exp(-t / 10))},
    "rates in arrays": lambda: {"w": optim.Adam(np.float32(0.1)), "b": optim.Adam(np.array(0.02))},
    "a part that stays": lambda: {"w": optim.Adam(0.1), "b": None},
}


def stepped_by_torch(case: str, steps: int, clip: float | None = None) -> dict[str, np.ndarray]:
    torch = pytest.importorskip("torch")
    w, b = (torch.tensor(v, dtype=torch.float32, requires_grad=True) for v in (np.zeros(4), 0.5))
    pairs = {
        "kinds": (torch.optim.AdamW([w], 0.1, weight_decay=1e-2), torch.optim.SGD([b], 0.05, momentum=0.9)),
        "rates": (torch.optim.SGD([w], 0.1), torch.optim.SGD([b], 0.1)),
        "rates in arrays": (torch.optim.Adam([w], 0.1), torch.optim.Adam([b], 0.02)),
        "a part that stays": (torch.optim.Adam([w], 0.1),),
    }[case]
    x, y = torch.tensor(POINTS), torch.tensor(HEIGHTS)
    for t in range(steps):
        w.grad = b.grad = None
        affine({"w": w, "b": b}, x, y).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([w] if case == "a part that stays" else [w, b], clip)
        if case == "rates":
            pairs[1].param_groups[0]["lr"] = 0.1 * math.exp(-t / 10)
        for own in pairs:
            own.step()
    return {"w": w.detach().numpy(), "b": b.detach().numpy()}


@pytest.mark.parametrize("clip", [None, 0.7])
@pytest.mark.parametrize("case", OF_PARTS)
def test_parts_of_the_parameters_have_optimizers_of_their_own(case: str, clip: float | None) -> None:
    expected, first = stepped_by_torch(case, 12, clip), {"w": np.zeros(4, "float32"), "b": 0.5}
    x, y = te.placeholder((16, 4), name="x"), te.placeholder((16,), name="y")
    params = {"w": te.placeholder((4,), name="w"), "b": te.placeholder((), name="b")}
    for step in (
        optim.train_step(affine, optimizer=OF_PARTS[case](), clip=clip),
        optim.train_step(affine(params, x, y), params, [x, y], OF_PARTS[case](), clip=clip),
    ):
        state = step.start(first)
        for _ in range(12):
            _, state = step(state, POINTS, HEIGHTS)
        for name in ("w", "b"):
            np.testing.assert_allclose(state.params[name], expected[name], rtol=2e-4, atol=2e-5)


def test_parts_are_stepped_on_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    step = optim.train_step(affine, {"w": optim.SGD(0.1, momentum=0.9), "b": None})
    _, state = step(step.start({"w": torch.zeros(4), "b": torch.tensor(0.5)}), torch.tensor(POINTS), HEIGHTS)
    assert all(isinstance(part, torch.Tensor) for part in (*state.params.values(), state.slots["velocity"]["w"]))
    assert state.slots["velocity"]["b"] is None
    assert state.params["b"] == 0.5


def test_parts_are_nests_and_records() -> None:
    own = {"layers": [optim.SGD(0.1), {"w": optim.SGD(0.2), "b": None}], "head": optim.SGD(0.4)}
    step = optim.train_step(lambda p: sum(p["layers"][0]) + p["layers"][1]["w"] + p["layers"][1]["b"] + p["head"], own)
    _, state = step(step.start({"layers": [(1.0, 1.0), {"w": 1.0, "b": 1.0}], "head": 1.0}))
    (a, b), moved = state.params["layers"]
    assert [float(x) for x in (a, b, moved["w"], moved["b"], state.params["head"])] == [0.9, 0.9, 0.8, 1.0, 0.6]
    for nest in (Affine(optim.SGD(0.1), optim.Adam(0.1)), {"w": optim.SGD(0.1), "b": optim.Adam(0.1)}):
        step = optim.train_step(of_record, nest)
        _, state = step(step.start(Affine(np.zeros(4, "float32"), 0.0)), POINTS, HEIGHTS)
        assert isinstance(state.params, Affine)
        assert state.slots["mean"].w is None
        _, again = pickle.loads(pickle.dumps(step))(state, POINTS, HEIGHTS)
        np.testing.assert_array_equal(again.params.w, step(state, POINTS, HEIGHTS)[1].params.w)


def test_states_of_parts_are_saved_and_loaded(tmp_path: Any) -> None:
    step = optim.train_step(affine, OF_PARTS["kinds"]())
    _, state = step(step.start({"w": np.zeros(4, "float32"), "b": 0.0}), POINTS, HEIGHTS)
    expected = step(state, POINTS, HEIGHTS)[1].params["w"]
    for name in ("run.npz", "run.safetensors")[: 1 + bool(find_spec("safetensors"))]:
        te.save(tmp_path / name, state)
        for loaded in (te.load(tmp_path / name), te.load(tmp_path / name, like=state)):
            np.testing.assert_array_equal(step(loaded, POINTS, HEIGHTS)[1].params["w"], expected)


@pytest.mark.parametrize(
    ("nest", "text"),
    [
        ({"w": optim.Adam()}, "optimizer: no optimizer for parameter 'b', found those for w; None for one leaves it"),
        ({"w": optim.Adam(), "b": optim.SGD}, r"optimizer\['b'\]: .* found the class SGD; make one, SGD\(\)"),
        ({"w": {"x": optim.Adam()}, "b": optim.SGD()}, r"optimizer\['w'\]: expected one for the array that is params"),
        ({"w": None, "b": None}, "expected one for some of the parameters, found None for all"),
        ({"w": optim.SGD()}, "optimizer: no optimizer for parameter 'b', found those for w"),
        ({"w": optim.Adam(), "b": optim.Adam(), "c": optim.Adam()}, "'c' is none of the parameters, which are w, b"),
        ({"w": 0.1, "b": 0.2}, r"optimizer\['w'\]: expected one as optim.Adam\(1e-2\), or a nest of them .* found 0.1"),
        ({}, "or a nest of them as .* found {}"),
    ],
)
def test_optimizers_that_are_none_of_the_parts_are_refused(nest: Any, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        optim.train_step(affine, optimizer=nest).start({"w": np.zeros(4, "float32"), "b": 0.0})


def test_a_state_of_other_parts_is_refused() -> None:
    one, other = (optim.train_step(affine, dict(zip("wb", p))) for p in permutations([optim.Adam(), optim.SGD()]))
    with pytest.raises(ValueError, match="another optimizer: for a part it keeps mean, square, but"):
        other(one.start({"w": np.zeros(4, "float32"), "b": 0.0}), POINTS, HEIGHTS)
