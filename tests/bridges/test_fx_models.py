"""Models as people write them, through torch.compile(backend="tedsl"): attention, convolutions, training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import tedsl as te
from tests.bridges.results import leaves

torch = pytest.importorskip("torch")
fx_compile = pytest.importorskip("tedsl.bridges.fx.backend")
register, reports = fx_compile.register, fx_compile.reports
nn, F = torch.nn, torch.nn.functional

register()


class SelfAttention(nn.Module):
    """Queries, keys and values are the same rows; the last ones may be padding."""

    def __init__(self, mask: bool = False, weights: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.mask, self.weights = mask, weights

    def forward(self, x: Any) -> Any:
        n = x.shape[1]
        masks = {}
        if self.mask:
            masks["attn_mask"] = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
            masks["key_padding_mask"] = torch.arange(n).expand(x.shape[0], n) >= n - 1
        found, weights = self.attention(x, x, x, need_weights=self.weights, **masks)
        return found if weights is None else found * weights.amax()


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True, activation="gelu")

    def forward(self, x: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.layer(x, x * 0.5, tgt_mask=mask, tgt_is_causal=True)


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.transformer(x, x * 0.5)


class VisionBlock(nn.Module):
    """Patches, a class token, positions, one block, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 16, 4, 4), nn.Linear(16, 5)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 16)), nn.Parameter(torch.randn(1, 5, 16))
        self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.perceptron = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.perceptron(self.second(x))
        return self.head(x[:, 0])


class RootMeanSquare(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def turned(x: Any) -> Any:
    """Rotary embeddings: pairs of numbers turned by angles that grow with the place."""
    length, size = x.shape[-2:]
    rates = 1 / 100 ** (torch.arange(0, size, 2) / size)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * rates
    angles = torch.cat([angles, angles], -1)
    a, b = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()


class LlamaBlock(nn.Module):
    """RMSNorm, rotary embeddings, causal attention with shared keys, SwiGLU."""

    def __init__(self, size: int = 16, heads: int = 4, shared: int = 2) -> None:
        super().__init__()
        self.heads, self.shared = heads, shared
        part = size // heads
        self.q, self.out = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)
        self.k, self.v = (nn.Linear(size, shared * part, bias=False) for _ in range(2))
        self.gate, self.up, self.down = nn.Linear(size, 24), nn.Linear(size, 24), nn.Linear(24, size)
        self.first, self.second = RootMeanSquare(size), RootMeanSquare(size)

    def forward(self, x: Any) -> Any:
        batch, length, size = x.shape
        y = self.first(x)
        q = self.q(y).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = (m(y).view(batch, length, self.shared, -1).transpose(1, 2) for m in (self.k, self.v))
        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, size))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(2))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norms[0](self.first(x)), inplace=True)
        y = self.norms[1](self.second(y))
        y += x
        return F.adaptive_avg_pool2d(F.relu(y), 2).flatten(1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 1, 1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Any) -> Any:
        wide = F.silu(self.norm(self.down(x)))
        deep = self.deep(F.max_pool2d(wide, 2))
        other = F.interpolate(deep, scale_factor=2, mode="bilinear", align_corners=False)[:, :4]
        return self.out(torch.cat([self.up(deep) + other, wide], 1)).sigmoid()


class ConvNeXtBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(4, 4, 5, padding=2, groups=4), nn.LayerNorm(4)
        self.up, self.down, self.scale = nn.Linear(4, 8), nn.Linear(8, 4), nn.Parameter(torch.full((4,), 0.1))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.down(F.gelu(self.up(y))) * self.scale).permute(0, 3, 1, 2)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(5, 4, batch_first=True), nn.GRU(4, 3, bidirectional=True)

    def forward(self, x: Any) -> Any:
        y, (h, c) = self.lstm(x)
        z, last = self.gru(y.transpose(0, 1))
        return z.mean(0), h[0] + c[0], last.sum(0)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 6, padding_idx=0), nn.Linear(6, 7)

    def forward(self, x: Any) -> Any:
        y = self.embedding((x[..., 0].abs() * 3).long() % 7)
        return F.cross_entropy(self.head(y).flatten(0, 1), torch.arange(y.shape[0] * y.shape[1]) % 7, ignore_index=3)


rows, image = (2, 6, 16), (2, 3, 8, 8)
MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "attention": (SelfAttention, rows),
    "masked attention": (lambda: SelfAttention(mask=True), rows),
    "attention with weights": (lambda: SelfAttention(weights=True), rows),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), rows),
    "decoder layer": (Decoder, rows),
    "transformer": (Whole, rows),
    "vision block": (VisionBlock, image),
    "llama block": (LlamaBlock, rows),
    "residual block": (Residual, (2, 4, 6, 6)),
    "u-net": (UNet, image),
    "convnext block": (ConvNeXtBlock, (2, 4, 7, 7)),
    "recurrent": (Recurrent, (3, 4, 5)),
    "embedding": (Words, (2, 3, 1)),
}

# What PyTorch makes of a layer where no gradient is asked for: one operation of its own.
WHOLE_LAYERS = {"_transformer_encoder_layer_fwd", "mkldnn_rnn_layer"}


def step(model: Any, run: Any, x: Any) -> list[Any]:
    """The results, and the gradients of the input and the parameters."""
    given = x.clone().requires_grad_()
    made = leaves(run(given))
    torch.stack([(m * torch.linspace(-1, 1, m.numel()).view(m.shape).cos()).sum() for m in made]).sum().backward()
    return [*(m.detach() for m in made), given.grad, *(p.grad for p in model.parameters())]


@pytest.fixture(autouse=True)
def recurrences_are_traced() -> Any:
    """PyTorch keeps LSTM and GRU out of graphs otherwise."""
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


def check(name: str, *, interpreted: bool, is_training: bool, dynamic: bool | None) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    reports.clear()
    own = make().train(is_training)
    given = copy.deepcopy(own)
    run = torch.compile(given, backend="tedsl", fullgraph=True, dynamic=dynamic, options={"interpreted": interpreted})
    sizes = (shape[0],) if dynamic is False else (shape[0], shape[0] + 1)
    for x in [torch.randn(n, *shape[1:]) for n in sizes]:
        with torch.no_grad():
            for one, other in zip(leaves(run(x)), leaves(own(x)), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        for one, other in zip(step(given, run, x), step(own, own, x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    for one, other in zip(given.state_dict().values(), own.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other)
    assert {name.rstrip("_0123456789") for r in reports for name, _ in r.left} <= WHOLE_LAYERS


@pytest.mark.share(2)
@pytest.mark.parametrize("name", MODELS)
def test_a_model(name: str) -> None:
    """Every second one as in training, the others as when they are used; all of them compiled in the long tier."""
    check(name, interpreted=True, is_training=list(MODELS).index(name) % 2 == 0, dynamic=False)


@pytest.mark.parametrize("name", ["attention", "llama block", "residual block"])
def test_a_model_for_several_sizes(name: str) -> None:
    check(name, interpreted=True, is_training=True, dynamic=True)


def test_attention_in_eval_is_compiled() -> None:
    check("attention", interpreted=False, is_training=False, dynamic=False)


POOLS: dict[str, Callable[[], Any]] = {
    "greatest": lambda: nn.MaxPool2d(2), "overlapping": lambda: nn.MaxPool2d(3, 1, 1),
    "padded": lambda: nn.MaxPool2d(3, 2, 1), "dilated": lambda: nn.MaxPool2d(2, dilation=2),
    "mean": lambda: nn.AvgPool2d(2), "adaptive": lambda: nn.AdaptiveAvgPool2d(3),
}  # fmt: skip


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("shape", [(4, 16, 14, 14), (1, 2, 28, 28)])
def test_pools_that_are_flattened(name: str, shape: tuple[int, ...]) -> None:
    """With loops of the default schedule: a warning that Halide refuses them is an error here."""
    model, x = nn.Sequential(nn.ReLU(), POOLS[name](), nn.Flatten()).eval(), torch.randn(*shape)
    torch.testing.assert_close(te.from_fx(torch.fx.symbolic_trace(model), [x])(x), model(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_classifier_of_images(dynamic: bool) -> None:
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 10)),
    ).eval()
    torch._dynamo.reset()
    run = torch.compile(model, backend="tedsl", dynamic=dynamic)
    with torch.no_grad():
        for count in (8, 5) if dynamic else (8,):
            x = torch.randn(count, 3, 16, 16)
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("is_training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model(name: str, dynamic: bool, is_training: bool) -> None:
    check(name, interpreted=False, is_training=is_training, dynamic=dynamic)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, 0.01), "adamw": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, centered=True, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.01), "nadam": lambda p: torch.optim.NAdam(p, 0.01),
    "foreach": lambda p: torch.optim.Adam(p, 0.01, foreach=True),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, while it traces its optimizers
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_compiled_optimizer(name: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    reports.clear()
    own = nn.Linear(4, 3)
    given = copy.deepcopy(own)
    first, second = (OPTIMIZERS[name](m.parameters()) for m in (own, given))
    compiled = torch.compile(second.step, backend="tedsl", options={"interpreted": True})
    x = torch.randn(5, 4)
    for _ in range(3):
        for model, update in ((own, first.step), (given, compiled)):
            model.zero_grad()
            (model(x) ** 2).mean().backward()
            update()
    for one, other in zip(given.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert all(report.left == [] for report in reports)
