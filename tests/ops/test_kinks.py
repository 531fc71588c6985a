"""Slopes of activations where their formulas have corners: those of PyTorch."""

import numpy as np
import pytest

import tedsl as te

torch = pytest.importorskip("torch")

CORNERS = np.array([0.0, 1.0, -1.0, 0.5, -0.5, 6.0, 3.0, -3.0, 20.0, -20.0])


@pytest.mark.parametrize(
    "name",
    [
        "celu", "elu", "hardsigmoid", "hardshrink", "hardswish", "hardtanh", "leaky_relu", "relu", "relu6", "selu",
        "softplus", "softshrink", "softsign",
    ],
)  # fmt: skip
def test_slopes_at_corners(name: str) -> None:
    theirs = torch.tensor(CORNERS, requires_grad=True)
    getattr(torch.nn.functional, name)(theirs).sum().backward()
    slopes = te.grad(lambda x: getattr(te.ops, name)(x).sum())(CORNERS)
    np.testing.assert_allclose(slopes, theirs.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: te.ops.streaming_logsumexp(x, axis=0),
        lambda x: x.logsumexp(0),
        lambda x: te.ops.logcumsumexp(x, axis=0)[2:],
    ],
)
@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [2.0, 2.0, 1.0], [0.0, 3.0, 3.0]])
def test_ties_have_both_derivatives(function, values) -> None:
    at = np.array(values)
    p = np.exp(at) / np.exp(at).sum()
    np.testing.assert_allclose(te.grad(lambda x: function(x).sum())(at), p, rtol=1e-12)
    np.testing.assert_allclose(te.hessian(lambda x: function(x).sum())(at), np.diag(p) - np.outer(p, p), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_lies_on_the_center_of_a_bin_moves_as_much_out_of_it_as_into_another(dtype: str) -> None:
    at = (np.array([0, 1, 3, 6, 2.5, 5.75]) + 0.5) / 8  # the first four lie on centers
    weights = np.arange(8.0) ** 2
    slopes = te.grad(lambda x: (te.ops.soft_histogram(x, 8) * weights.astype(dtype)).sum())(at.astype(dtype))
    np.testing.assert_allclose(slopes, 8 * np.array([1, 3, 7, 13, 5, 11]), rtol=1e-6)
    total = te.grad(lambda x: te.ops.soft_histogram(x, 8).sum())(at.astype(dtype))
    np.testing.assert_array_equal(total, np.zeros(6))


def test_streaming_attention_with_equal_scores() -> None:
    chance = np.random.default_rng(3)
    q, k, v, w = np.zeros((1, 5, 4)), *chance.standard_normal((3, 1, 6, 4))
    k[:, 1] = k[:, 2]
    w = w[:, :5]
    given = [torch.tensor(a, requires_grad=True) for a in (q, k, v)]
    (torch.nn.functional.scaled_dot_product_attention(*given) * torch.tensor(w)).sum().backward()
    found = te.grad(lambda q, k, v: (te.ops.streaming_attention(q, k, v) * w).sum(), argnums=(0, 1, 2))(q, k, v)
    for ours, theirs in zip(found, given, strict=True):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), atol=1e-14)


@pytest.mark.parametrize("of_floats", [False, True])
def test_queries_that_see_no_key(of_floats: bool) -> None:
    given = np.random.default_rng(4).standard_normal((3, 2, 4, 8))
    seen = np.ones((4, 4), bool)
    seen[2] = False
    seen[1, 2:] = False
    mask = np.where(seen, 0.3, -np.inf) if of_floats else seen
    theirs = [torch.tensor(a, requires_grad=True) for a in given]
    result = torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=torch.tensor(mask))
    result[:, :3].square().sum().backward()
    np.testing.assert_allclose(
        te.jit(lambda q, k, v: te.ops.attention(q, k, v, mask=mask))(*given), result.detach().numpy(), atol=1e-14
    )
    slopes = te.grad(lambda q, k, v: (te.ops.attention(q, k, v, mask=mask)[:, :3] ** 2).sum(), argnums=(0, 1, 2))(
        *given
    )
    for ours, one in zip(slopes, theirs, strict=True):
        np.testing.assert_allclose(ours, one.grad.numpy(), atol=1e-13)


@pytest.mark.parametrize(
    ("ours", "theirs", "at"),
    [
        (lambda x: te.ops.normalize(x, axis=0)[0], lambda x: torch.nn.functional.normalize(x, dim=0)[0], 0.0),
        (lambda x: te.ops.normalize(x, p=3.0, axis=0)[0], lambda x: torch.nn.functional.normalize(x, 3.0, 0)[0], 0.0),
        (
            lambda x: te.ops.cosine_similarity(x, np.ones(3), axis=0),
            lambda x: torch.nn.functional.cosine_similarity(x, torch.ones(3, dtype=torch.float64), dim=0),
            0.0,
        ),
        (lambda x: x.std(), lambda x: x.std(correction=0), 1.0),
        (lambda x: x.norm(3, 0), lambda x: torch.linalg.vector_norm(x, 3), 0.0),
        (lambda x: x.norm(), torch.linalg.vector_norm, 0.0),
    ],
)
def test_slopes_of_norms_of_nothing(ours, theirs, at) -> None:
    given = torch.full((3,), at, dtype=torch.float64, requires_grad=True)
    theirs(given).backward()
    np.testing.assert_allclose(te.grad(ours)(np.full(3, at)), given.grad.numpy(), rtol=1e-9)


HALF = np.array([300, -300, 300, -298], "float16")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x: te.ops.layer_norm(x.reshape(1, 4), 4), lambda f, x: f.layer_norm(x.reshape(1, 4), (4,))),
        (lambda x: te.ops.rms_norm(x.reshape(1, 4), 4), lambda f, x: f.rms_norm(x.reshape(1, 4), (4,), eps=2.0**-10)),
        (lambda x: te.ops.group_norm(x.reshape(1, 2, 2), 1), lambda f, x: f.group_norm(x.reshape(1, 2, 2), 1)),
        (lambda x: te.ops.instance_norm(x.reshape(1, 1, 4)), lambda f, x: f.instance_norm(x.reshape(1, 1, 4))),
        (
            lambda x: te.ops.batch_norm(x.reshape(4, 1), training=True),
            lambda f, x: f.batch_norm(x.reshape(4, 1), None, None, training=True),
        ),
        (lambda x: te.ops.normalize(x.reshape(1, 4)), lambda f, x: f.normalize(x.reshape(1, 4))),
        (
            lambda x: te.ops.local_response_norm(x.reshape(1, 4, 1), 2),
            lambda f, x: f.local_response_norm(x.reshape(1, 4, 1), 2),
        ),
        (
            lambda x: te.ops.cosine_similarity(x.reshape(2, 2), x.reshape(2, 2)[::-1]),
            lambda f, x: f.cosine_similarity(x.reshape(2, 2), x.reshape(2, 2).flip(0)),
        ),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_norms_of_short_floats_do_not_overflow(ours, theirs, scale: float) -> None:
    """Their squares do, or are 0; values and gradients are those of float32."""
    x = (HALF * scale).astype("float16")
    wide = torch.tensor(x.astype("float32"), requires_grad=True)
    want = theirs(torch.nn.functional, wide)
    weight = np.linspace(1, 2, want.numel(), dtype="float16").reshape(want.shape)
    (want * torch.tensor(weight)).sum().backward()
    found = te.jit(ours)(x)
    assert found.dtype == "float16"
    np.testing.assert_allclose(found, want.detach().numpy(), rtol=2e-3)
    slope = te.grad(lambda a: (ours(a) * weight).astype("float32").sum())(x)
    np.testing.assert_allclose(slope, wide.grad.numpy(), rtol=0.05, atol=2e-3 * float(wide.grad.abs().max()))


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
@pytest.mark.parametrize("slope", [300.0, 1e-4, 0.0])
def test_steps_of_short_parameters_are_made_in_float32(name: str, slope: float) -> None:
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer, params = getattr(te.ops.optim, name)(lr=0.01, **options), {"w": np.ones(2, "float16")}
    theirs = torch.ones(2, requires_grad=True)
    reference = getattr(torch.optim, name)([theirs], lr=0.01, **options)
    state = optimizer.init(params)
    for _ in range(3):
        params, state = optimizer.update(params, {"w": np.full(2, slope, "float16")}, state)
        theirs.grad = torch.full((2,), float(np.float16(slope)))
        reference.step()
    np.testing.assert_allclose(params["w"], theirs.detach().numpy(), rtol=4e-3)
    assert params["w"].dtype == "float16"
    assert state[optimizer.slots[0]]["w"].dtype == "float32"


def test_gradients_of_short_floats_are_clipped() -> None:
    clipped = te.ops.optim.clip_by_global_norm({"w": np.full(4, 300.0, "float16")}, 1.0)
    np.testing.assert_array_equal(clipped["w"], np.full(4, 0.5, "float16"))


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_steps_are_taken_from_floats(dtype: str) -> None:
    params, optimizer = {"w": np.zeros(3, dtype)}, te.ops.optim.Adam(0.1)
    step = te.ops.optim.train_step(lambda p, x: (p["w"] * x).sum(), optimizer=optimizer)
    for begin in (lambda: optimizer.init(params), lambda: step.start(params)):
        with pytest.raises(TypeError, match=rf"params\['w'\] is {dtype}, expected floats to .* and to step from; make"):
            begin()


def test_one_pass_over_short_floats_adds_in_float32() -> None:
    x = np.zeros(5000, "float16")
    np.testing.assert_allclose(te.jit(lambda a: te.ops.streaming_logsumexp(a, axis=0))(x), np.log(5000), rtol=1e-3)
    q, k, v = (np.ones((1, n, 4), "float16") for n in (2, 5000, 5000))
    np.testing.assert_allclose(te.jit(te.ops.streaming_attention)(q, k, 3 * v), np.full((1, 2, 4), 3.0), rtol=1e-3)
    assert te.jit(te.ops.streaming_attention)(q, k, v).dtype == "float16"
    odd = np.linspace(0.9, 1.1, 5000).astype("float16")
    for moments in (te.ops.welford, te.ops.var_mean):
        variance, mean = te.jit(lambda a, moments=moments: moments(a, axis=0))(odd)
        np.testing.assert_allclose([variance, mean], [odd.astype("float64").var(ddof=1), 1.0], rtol=2e-3)


def test_a_deviation_is_there_where_its_square_is_not() -> None:
    """The variance of these is infinite in float16."""
    x = np.resize(HALF, 4000)
    found = te.jit(lambda a: a.std())(x)
    assert found.dtype == "float16"
    np.testing.assert_allclose(found, np.std(x.astype("float32")), rtol=1e-3)
