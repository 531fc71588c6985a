"""te.from_fx against PyTorch itself: results, dtypes, and what becomes of every argument; in place, by masks, on lists."""

# ruff: noqa: E501 - a table: one program per entry

from __future__ import annotations

import operator
from typing import Any

import pytest

import tedsl as te
from tests.bridges.results import leaves

torch = pytest.importorskip("torch")
fx_compile = pytest.importorskip("tedsl.bridges.fx.backend")
register, reports = fx_compile.register, fx_compile.reports
make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx
nn, F = torch.nn, torch.nn.functional
foreach = {n: getattr(torch, f"_foreach_{n}") for n in (
    "add", "add_", "addcdiv", "addcdiv_", "addcmul_", "clamp_max_", "copy_", "div_", "lerp_", "maximum_", "mul_", "neg_",
    "norm", "pow", "reciprocal_", "sign", "sqrt", "sub", "zero_")}  # fmt: skip

register()

n = torch.arange(-6, 6).reshape(3, 4)
i = torch.tensor([2, 0, 2])
p = torch.tensor([2, 0, 1])
image = torch.linspace(-1, 1, 2 * 3 * 6 * 6).reshape(2, 3, 6, 6).sin()


def given() -> list[Any]:
    """x of both signs, y positive."""
    return [torch.linspace(-2, 2, 12).sin().reshape(3, 4) * 2, torch.linspace(0.6, 2.4, 12).reshape(3, 4)]


@torch.fx.wrap  # type: ignore[untyped-decorator, unused-ignore]
def put(x: Any, key: Any, value: Any) -> None:
    """x[key] = value, which symbolic_trace cannot see as it stands."""
    x[key] = value


def subtracted(x: Any, y: Any) -> Any:
    m = x > 0
    part = x[m]
    part -= 1
    put(x, m, part)
    return x


def updated_rows(x: Any, y: Any) -> Any:
    rows, columns = y[:, 0] > 1, y[0] > 0.8
    put(x, rows, x[rows] * 2)
    put(x, (slice(None), columns), x[:, columns] + 1.5)
    return x


def masked(x: Any, y: Any) -> Any:
    m = x > 0.5
    put(x, m, torch.exp(x[m] * 0.5) / y[m] - 1)
    put(y, x < 0, y[x < 0].abs() + 3)
    return x[m].sum(), torch.masked_select(y, m).sum()


def adam(x: Any, y: Any) -> Any:
    """One step on two parameters by operations on lists, as the optimizers of PyTorch call them."""
    grads, means, squares = [x * 2, y - 1], [x * 0.1, y * 0.1], [x * x, y * y]
    foreach["lerp_"](means, grads, 0.1)
    foreach["mul_"](squares, 0.99)
    foreach["addcmul_"](squares, grads, grads, 0.01)
    roots = foreach["sqrt"](squares)
    foreach["div_"](roots, [0.9, 0.8])
    foreach["add_"](roots, 1e-8)
    foreach["addcdiv_"]([x, y], means, roots, -0.01)
    return x


def scattered(kind: str, own: bool) -> Any:
    return lambda x, y: x.scatter_reduce_(0, n[:2] % 2, y, kind, include_self=own)


def index_reduced(kind: str) -> Any:
    return lambda x, y: x.index_reduce_(0, i, y, kind, include_self=False)


def through_lists(name: str, *rest: Any, **options: Any) -> Any:
    """An operation in place on [x, y] and other lists made of them."""

    def program(x: Any, y: Any) -> Any:
        foreach[name]([x, y], *(r(x, y) if callable(r) else r for r in rest), **options)
        return x

    return program


CASES: dict[str, Any] = {
    "x[mask] -= 1": lambda x, y: (operator.setitem(x, x > 0, operator.isub(x[x > 0], 1)), x)[1], "mask": subtracted, "masks of rows": updated_rows, "masks": masked,
    "x[mask] = v": lambda x, y: (x.__setitem__(y > 1, torch.tensor(3.0)), x)[1],
    "masked_fill_": lambda x, y: x.masked_fill_(x > 0, 7.0), "masked_fill_ tensor": lambda x, y: x.masked_fill_(x > 0, y[0, 0]),
    "masked_scatter_": lambda x, y: x.masked_scatter_(y[0] > 0.7, y),
    "lerp_": lambda x, y: x.lerp_(y, 0.3), "lerp_ tensor": lambda x, y: x.lerp_(y, y * 0.1),
    "unfold": lambda x, y: x.unfold(1, 2, 1) * 2, "unfold is a view": lambda x, y: (x.unfold(1, 2, 2).mul_(2), x)[1],
    "F.unfold": lambda x, y: F.unfold(x[None, None], 2), "F.fold": lambda x, y: F.fold(F.unfold(x[None, None], 2), (3, 4), 2),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=0.5), "addcdiv_": lambda x, y: x.addcdiv_(y, y + 1, value=-0.5),
    "clamp_": lambda x, y: x.clamp_(-1, 1).clamp_min_(-0.5).clamp_max_(0.8), "clamp_ tensor": lambda x, y: x.clamp_(min=-y, max=y),
    "scatter_": lambda x, y: x.scatter_(0, n % 3, y), "scatter_ number": lambda x, y: x.scatter_(1, i[:, None], 2.0),
    "scatter_ add": lambda x, y: x.scatter_(0, n % 3, y.clone(), reduce="add"), "scatter_ multiply": lambda x, y: x.scatter_(0, n % 3, y, reduce="multiply"),
    "scatter_add_": lambda x, y: x.scatter_add_(0, n % 3, y),
    **{f"scatter_reduce_ {kind}{' new' * (not own)}": scattered(kind, own)
       for kind in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)},
    "scatter_reduce ints": lambda x, y: [n.scatter_reduce(0, n % 3, n * 5, "mean"), n.scatter_reduce(1, n % 2, n, "amax", include_self=False)],
    **{f"index_reduce_ {kind}": index_reduced(kind) for kind in ("prod", "mean", "amax", "amin")},
    "index_add_": lambda x, y: x.index_add_(0, i, y, alpha=2), "index_copy_": lambda x, y: x.index_copy_(0, p, y),
    "index_fill_": lambda x, y: x.index_fill_(1, i, 3.0), "put_": lambda x, y: x.put_(p, y[0, :3]).put_(i, y[1, :3], accumulate=True),
    "scalars": lambda x, y: [x[0, 0].flip(0), x[0, 1].scatter_add_(0, p[1], y[0, 0]), x[1, 1].scatter_reduce_(0, p[1], y[0, 1], "mean"), x[2, 2].index_fill_(0, p[1], 2.0)],
    "take": lambda x, y: [torch.take(x, i), torch.take_along_dim(x, n % 3, 0)],
    "arithmetic": lambda x, y: x.add_(y, alpha=2).sub_(y).mul_(y).div_(y).pow_(2).neg_().abs_().reciprocal_(),
    "rounding": lambda x, y: x.mul_(3).frac_().div_(0.1, rounding_mode="floor").fmod_(3).remainder_(2),
    "roots": lambda x, y: y.sqrt_().rsqrt_().log_().exp_().square_().log1p_().expm1_().exp2_(),
    "trigonometric": lambda x, y: x.sin_().cos_().tanh_().sigmoid_().atan2_(y).hypot_(y).sinc_(),
    "signs": lambda x, y: [x.sign_(), y.copysign_(x), torch.signbit(x), y.sgn_(), x.logical_not_()], "eq_": lambda x, y: [x.gt_(0), y.eq_(y)],
    "triangles": lambda x, y: [x.tril_(), y.triu_(1), x.fill_diagonal_(2.0)], "cumsum_": lambda x, y: [x.cumsum_(0), y.cumprod_(1)],
    "leaky_relu_": lambda x, y: F.leaky_relu_(x, 0.1), "elu_": lambda x, y: [F.elu_(x), F.selu_(y)], "hardtanh_": lambda x, y: F.hardtanh_(x),
    "hardsigmoid": lambda x, y: [F.hardsigmoid(y), F.hardsigmoid(x, inplace=True)], "hardswish": lambda x, y: F.hardswish(x, inplace=True),
    "relu6": lambda x, y: F.relu6(x, inplace=True), "celu": lambda x, y: [F.celu(y), F.celu_(x)], "silu": lambda x, y: F.silu(x, inplace=True),
    "mish": lambda x, y: F.mish(x, inplace=True), "threshold": lambda x, y: [F.threshold(y, 1.0, 0.5), F.threshold_(x, 0.1, 0.5)],
    "shrinks": lambda x, y: [F.softshrink(x), F.hardshrink(x), F.tanhshrink(x)], "prelu": lambda x, y: F.prelu(x, y[0, :1]),
    "dropout": lambda x, y: [F.dropout(x, 0.5, training=False), F.dropout(y, 0.0, inplace=True), F.alpha_dropout(x, 0.5)],
    "not finite": lambda x, y: [torch.nan_to_num(x / 0), x.div_(0.0).nan_to_num_(1.0, 2.0, 3.0), torch.isposinf(y / 0), torch.isneginf(-y / 0)],
    "fmax": lambda x, y: [torch.fmax(x / (x > 0), y), torch.fmin(x, y), torch.heaviside(x, y), torch.logaddexp(x, y), torch.xlogy(x, y)],
    "shifts": lambda x, y: [n << 1, n >> 1, n.clone().bitwise_and_(3), torch.bitwise_left_shift(n, 2), torch.logical_xor(x > 0, y > 1)],
    "extremes": lambda x, y: [*torch.aminmax(x, dim=1), torch.count_nonzero(x > 0, 1), torch.nansum(x)], "logit": lambda x, y: torch.logit(y / 3),
    "products": lambda x, y: [torch.addbmm(x[:, :3], x[None], y.t()[None]), torch.addr(x, x[:, 0], y[0]), torch.linalg.cross(x[:, :3], y[:, :3]), torch.einsum("ij,kj->ik", x, y)],
    "addmm_": lambda x, y: [x[:, :3].addmm_(y, y.t(), beta=0.5), torch.dist(x, y), torch.block_diag(x, y)],
    "placing": lambda x, y: [torch.rot90(x), x.diag(), torch.diag_embed(x), torch.tril_indices(3, 3), torch.bucketize(x, y[0]), torch.linspace(0, 1, 5)],
    "out=": lambda x, y: [torch.add(x, y, out=x), torch.maximum(x, y, out=y)], "renorm_": lambda x, y: x.renorm_(2, 0, 1.0),
    "resampling": lambda x, y: [F.interpolate(image, scale_factor=2, mode="bilinear"), F.pixel_shuffle(image.reshape(1, 4, 9, 6), 2), F.interpolate(image, scale_factor=2, mode="nearest-exact")],
    "padding": lambda x, y: [F.pad(image, (1, 1, 2, 2), mode=m) for m in ("reflect", "replicate", "circular")],
    "grids": lambda x, y: [F.grid_sample(image, image.permute(0, 2, 3, 1)[..., :2], align_corners=False), F.affine_grid(torch.eye(2, 3)[None], (1, 1, 3, 3), align_corners=True)],
    "pooling": lambda x, y: [F.adaptive_max_pool2d(image, 2), F.max_pool1d(x[None], 2), F.lp_pool2d(image, 2, 2), F.adaptive_avg_pool1d(x[None], 2)],
    "losses": lambda x, y: [F.huber_loss(x, y), F.kl_div(x, y, reduction="batchmean"), F.soft_margin_loss(x, y.sign()), F.multi_margin_loss(x, i), F.binary_cross_entropy(y / 3, y / 4), F.cross_entropy(x, i, label_smoothing=0.1)],
    "an optimizer": adam,
    "lists": lambda x, y: [*foreach["sqrt"]([y, y + 1]), *foreach["sub"]([x], [y], alpha=2), *foreach["norm"]([x, y]), *foreach["pow"]([y], 2.0), *foreach["sign"]([x]), *foreach["addcdiv"]([x], [y], [y], [0.5])],
    "lists +": through_lists("add_", lambda x, y: [y, y], alpha=0.1), "lists *": through_lists("mul_", [2.0, 3.0]), "lists /": through_lists("div_", 2.0),
    "lists copied": through_lists("copy_", lambda x, y: [y, y]), "lists -": through_lists("neg_"), "lists 0": through_lists("zero_"),
    "lists max": through_lists("maximum_", lambda x, y: [y, y]), "lists clamped": through_lists("clamp_max_", 1.0), "lists lerp": through_lists("lerp_", lambda x, y: [y, y * 2], [0.25, 0.5]),
    "lists addc": through_lists("addcmul_", lambda x, y: [y, y], lambda x, y: [y, y], [0.1, 0.2]),
}  # fmt: skip


def check(program: Any, graph: Any, interpreted: bool = True) -> None:
    own, ours = given(), given()
    expected = program(*own)
    function = te.from_fx(graph, given(), interpreted=interpreted)
    found = function(*ours)
    assert len(leaves(found)) == len(leaves(expected))
    for one, other in zip([*leaves(expected), *own], [*leaves(found), *ours], strict=True):
        assert other.dtype == one.dtype
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.share(2)
@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning", "ignore:The reduce argument:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_results_and_arguments_are_those_of_pytorch(name: str) -> None:
    check(CASES[name], make_fx(CASES[name])(*given()))


@pytest.mark.parametrize("program", [subtracted, updated_rows, masked, adam])
def test_the_same_before_decomposition(program: Any) -> None:
    check(program, torch.fx.symbolic_trace(program), interpreted=program is not subtracted)


def test_masks_of_other_values() -> None:
    """The example selects 6 elements; other arguments may select any number."""
    function = te.from_fx(torch.fx.symbolic_trace(masked), given(), interpreted=True)
    for shift in (-3.0, 0.3, 5.0):
        own, ours = [v + shift for v in given()], [v + shift for v in given()]
        torch.testing.assert_close(function(*ours), masked(*own), equal_nan=True)
        torch.testing.assert_close(ours, own, equal_nan=True)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "prod"])
def test_reductions_of_what_is_selected(name: str) -> None:
    def program(x: Any) -> Any:
        return getattr(x[x > 0], name)(), getattr(x[x[:, 0] > 0], name)(0)

    x = given()[0]
    found = te.from_fx(torch.fx.symbolic_trace(program), [x], interpreted=True)(x)
    torch.testing.assert_close(tuple(found), program(x))


REFUSED: dict[str, tuple[Any, str]] = {
    "numel": (lambda x: x[x > 0].sum() / x[x > 0].numel(), "node 'numel' is not supported: it asks for the length of x[mask]"),
    "shape": (lambda x: x[x > 0] * x[x > 0].shape[0], "it asks for the length of x[mask]"),
    "median": (lambda x: x[x > 0].median(), "node 'median' calls aten.median.default"),
    "rows": (lambda x: x[x[:, 0] > 0].sum(1), "leaves its length"),
    "batchmean": (lambda x: F.kl_div(x[x > 0], x[x > 0], reduction="batchmean"), "in several operations; use torch.where"),
    "returned": (lambda x: x[x > 0], "a result of the graph is x[mask]"),
    "other mask": (lambda x: put(x, x > 0, x[x < 0]), "selected by the same mask"),
    "nonzero": (lambda x: x.nonzero(), "nonzero"),
    "sort": (lambda x: x.sort()[0], "node 'sort' calls aten.sort"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_lengths_that_depend_on_values_are_refused(name: str) -> None:
    program, words = REFUSED[name]
    with pytest.raises((NotImplementedError, TypeError)) as caught:
        te.from_fx(torch.fx.symbolic_trace(program), [given()[0]], interpreted=True)
    assert words in str(caught.value)


# Models


class Block(nn.Module):
    """Embeddings, causal attention, a feed-forward part with dropout, and the tied head of a GPT."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(5, 8)
        self.first, self.second, self.last = (nn.LayerNorm(8) for _ in range(3))
        self.project, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down, self.drop = nn.Linear(8, 16), nn.Linear(16, 8), nn.Dropout(0.1)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens: Any) -> Any:
        self.steps.add_(tokens[0, 0] * 0 + 1)
        h = self.drop(self.words(tokens) + self.places(torch.arange(5)))
        q, k, v = self.project(self.first(h)).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)) / 2
        scores.masked_fill_(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf"))
        h = h + self.drop(self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 8)))
        h = h + self.drop(self.down(F.gelu(self.up(self.second(h)), approximate="tanh")))
        return self.last(h) @ self.words.weight.t()


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_block_of_a_language_model(decomposed: bool) -> None:
    torch.manual_seed(0)
    model = Block().eval()
    tokens = torch.tensor([[1, 4, 0, 10, 2], [3, 3, 9, 5, 7]])
    graph = torch.fx.symbolic_trace(model)
    function = te.from_fx(graph, [tokens], interpreted=True)
    if decomposed:
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        names = list(state)
        made = make_fx(lambda t, *v: torch.func.functional_call(model, dict(zip(names, v, strict=True)), (t,)))(
            tokens, *(v.detach().clone() for v in state.values())
        )
        values = [v.detach().clone() for v in state.values()]
        found = te.from_fx(made, [tokens, *values], interpreted=True)(tokens, *values)
        assert values[names.index("steps")] == model.steps + 1
    else:
        found = function(tokens)
        assert [t.name for t in function.mutated] == ["steps"]
        assert model.steps == 1
    torch.testing.assert_close(found, model(tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.long  # importing what PyTorch looks into there takes long, and warns
@pytest.mark.filterwarnings("ignore")
def test_an_optimizer_is_compiled() -> None:
    """`torch.compile` of a step of AdamW, whose operations are those on lists."""
    torch._dynamo.reset()
    reports.clear()
    torch.manual_seed(0)
    model, other = nn.Linear(4, 3), nn.Linear(4, 3)
    other.load_state_dict(model.state_dict())
    steps = []
    for m in (model, other):
        optimizer = torch.optim.AdamW(m.parameters(), lr=0.01, foreach=True)
        steps.append(
            torch.compile(optimizer.step, backend="tedsl", options={"interpreted": True})
            if m is other
            else optimizer.step
        )
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    for _ in range(3):
        for m, step in zip((model, other), steps, strict=True):
            m.zero_grad()
            (m(x) ** 2).sum().backward()
            step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-6)
    assert [r.left for r in reports] == [[]]
