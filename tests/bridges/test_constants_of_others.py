"""Arrays of PyTorch and JAX beside tensors are constants, as NumPy's are, unless someone waits for their gradient."""

import numpy as np
import pytest

import tedsl as te
from tests.bridges.operators import affine

torch = pytest.importorskip("torch")
jnp = pytest.importorskip("jax.numpy")
jax = pytest.importorskip("jax")

VALUES = np.array([1.0, -2.0, 3.0], "float32")
MAKERS = (lambda values: torch.tensor(values), jnp.asarray)


@pytest.fixture
def x():
    return te.placeholder((3,), name="x")


@pytest.mark.parametrize("make", MAKERS, ids=("torch", "jax"))
@pytest.mark.parametrize(
    "program",
    [
        lambda x, w: x * w,
        lambda x, w: w - x,
        lambda x, w: x @ w,
        lambda x, w: te.where(w > 0, x, w),
        lambda x, w: te.concatenate([x, w]),
        lambda x, w: x + w[1],
        lambda x, w: x[1] * w[2] + x[0],
        lambda x, w: affine(x, w),
        lambda x, w: affine(w, x),
        lambda x, w: te.ops.attention(x[None], x[None], w[None]),
    ],
)
def test_an_array_of_another_library_is_a_constant(x, make, program):
    expected = te.evaluate(program(x, VALUES), {x: VALUES + 1})
    np.testing.assert_array_equal(te.evaluate(program(x, make(VALUES)), {x: VALUES + 1}), expected)


@pytest.mark.parametrize("make", MAKERS, ids=("torch", "jax"))
def test_places_may_be_of_another_library(x, make):
    places = make(np.array([2, 0, -1]))
    np.testing.assert_array_equal(te.evaluate(x[places], {x: VALUES}), VALUES[[2, 0, -1]])
    assert te.evaluate(x[places[0]], {x: VALUES}) == VALUES[2]
    clipped = te.take(x, make(np.array([-3, 7])), mode="clip")
    np.testing.assert_array_equal(te.evaluate(clipped, {x: VALUES}), VALUES[[0, 2]])
    mask = make(np.array([True, False, True]))
    np.testing.assert_array_equal(te.evaluate(x.at[mask].set(9.0), {x: VALUES}), [9, -2, 9])


@pytest.mark.parametrize("make", MAKERS, ids=("torch", "jax"))
def test_a_function_may_capture_one(make):
    w = make(VALUES)
    np.testing.assert_array_equal(te.grad(lambda a: te.sum(a * w))(VALUES), VALUES)
    np.testing.assert_array_equal(te.grad(lambda a: te.sum(te.abs(w) * a))(VALUES), np.abs(VALUES))


def test_bfloat16_of_pytorch_keeps_its_dtype():
    assert te.constant(torch.ones(3, dtype=torch.bfloat16)).dtype == "bfloat16"


def test_operators_on_arrays_take_those_of_one_library():
    with pytest.raises(
        TypeError,
        match=r"op affine\(x.*'w' is a torch Tensor, but 'x' is a jaxlib ArrayImpl; give arrays of one framework",
    ):
        affine(jnp.asarray(VALUES), torch.tensor(VALUES))


@pytest.mark.parametrize(
    "program",
    [lambda x, w: x * w, lambda x, w: x + w[0], lambda x, w: x * te.constant(w), lambda x, w: affine(x, w)],
)
def test_what_waits_for_its_gradient_is_no_constant(x, program):
    with pytest.raises(TypeError, match=r"requires grad would be a constant here.*make it an argument, or give"):
        program(x, torch.tensor(VALUES, requires_grad=True))
    with torch.no_grad(), pytest.raises(TypeError, match="requires grad"):
        program(x, torch.tensor(VALUES, requires_grad=True))
    with pytest.raises(TypeError, match=r"an array that JAX traces .* make it an argument of the operator"):
        jax.grad(lambda w: program(x, w))(jnp.asarray(VALUES))


@pytest.mark.parametrize("ask", [torch.tensor, torch.as_tensor, jnp.asarray, np.asarray, np.from_dlpack])
def test_a_tensor_has_no_elements_for_others(x, ask):
    with pytest.raises(TypeError, match=r"has no elements while the program is written.*te.evaluate computes them"):
        ask(x)


def test_a_constant_is_dense_and_on_the_cpu(x):
    with pytest.raises(
        TypeError, match=r"(?s)te\.mul at .*expected an array, found Tensor .*give x\.to_dense\(\), x\.cpu"
    ):
        x * torch.tensor(VALUES).to_sparse()


def test_bfloat16_of_torch_is_fed_everywhere():
    half = torch.tensor(VALUES, dtype=torch.bfloat16)
    b = te.placeholder((3,), "bfloat16", name="b")
    np.testing.assert_array_equal(te.interpret(b * 2, {b: half}).astype("float32"), VALUES * 2)
    assert te.gradcheck(lambda x: (x * x).sum(), (half,)).ok
    loss = te.cast(b * b, "float32").sum()
    state = te.ops.optim.train_step(loss, [b], [], te.ops.optim.SGD(0.1)).start([half])
    np.testing.assert_array_equal(state.params[0].astype("float32"), VALUES)


def test_sparse_tensors_are_refused_by_the_name_of_the_input(x):
    sparse = torch.eye(3).to_sparse()
    for call in (lambda: te.interpret(x * 2, {x: sparse}), lambda: te.gradcheck(lambda x: (x * x).sum(), (sparse,))):
        with pytest.raises(TypeError, match=r"'x': .*layout torch\.sparse_coo on cpu; give x\.to_dense"):
            call()
