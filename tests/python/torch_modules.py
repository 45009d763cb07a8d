"""Modules of torch.nn and of the shapes of torchvision's and of transformers, as cases of
torch_newcomer.py --suite=torch_modules: forward under no_grad, eager == replay, over random inputs.
"""

import torch
from torch import nn
from torch.nn import functional

from torch_cases import compiled_of

CASES = {}
TOLERANCE = 1e-4  # libraries choose other algorithms for other workspaces


def module(*shapes, tolerance=TOLERANCE, make=None, recorded=True):
    """Adds a case: a function that makes a module, which takes tensors of these shapes, or what
    make(trial) returns."""
    def add(build):
        def run(trial):
            model = build().to(trial.device).eval()
            inputs = make or (lambda trial: tuple(trial.rand(*shape) for shape in shapes))
            calls = trial.inputs
            with torch.no_grad():
                trial.compare(compiled_of(model), model, lambda: (inputs(trial), {}),
                              calls=calls, tolerance=tolerance, replays=calls - 5 if recorded else 0)

        run.__doc__ = build.__doc__ or build.__name__.replace("_", " ")
        CASES[build.__name__] = (run, ())
        return build
    return add


def tokens(*shape, limit=100):
    return lambda trial: (torch.randint(0, limit, shape, device=trial.device),)


# ---- Layers ----


def _layer(name, build, *shapes, **options):
    build.__name__, build.__doc__ = name, f"nn.{name}"
    module(*shapes, **options)(build)


_layer("Linear", lambda: nn.Linear(32, 16), (8, 32))
_layer("Bilinear", lambda: nn.Bilinear(8, 6, 4), (5, 8), (5, 6))
_layer("Conv1d", lambda: nn.Conv1d(4, 8, 3, padding=1), (2, 4, 20))
_layer("Conv2d", lambda: nn.Conv2d(3, 8, 3, stride=2, bias=False), (2, 3, 16, 16))
_layer("Conv2d_grouped", lambda: nn.Conv2d(8, 8, 3, groups=8, padding=1), (2, 8, 12, 12))
_layer("Conv3d", lambda: nn.Conv3d(2, 4, 3), (1, 2, 6, 8, 8))
_layer("ConvTranspose2d", lambda: nn.ConvTranspose2d(4, 3, 2, stride=2), (2, 4, 6, 6))
_layer("BatchNorm2d", lambda: nn.BatchNorm2d(4), (3, 4, 8, 8))
_layer("LayerNorm", lambda: nn.LayerNorm(24), (4, 6, 24))
_layer("GroupNorm", lambda: nn.GroupNorm(2, 8), (3, 8, 10))
_layer("InstanceNorm2d", lambda: nn.InstanceNorm2d(4, affine=True), (2, 4, 9, 9))
_layer("RMSNorm", lambda: nn.RMSNorm(24), (4, 24))
_layer("LocalResponseNorm", lambda: nn.LocalResponseNorm(2), (2, 4, 8, 8))
_layer("MaxPool2d_indices", lambda: nn.MaxPool2d(2, return_indices=True), (2, 3, 8, 8))
_layer("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d((2, 3)), (2, 3, 9, 11))
_layer("Upsample", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 3, 7, 7))
_layer("PixelShuffle", lambda: nn.PixelShuffle(2), (2, 8, 4, 4))
_layer("Activations", lambda: nn.Sequential(nn.GELU(), nn.SiLU(), nn.PReLU(), nn.Softplus(),
                                            nn.Hardswish(), nn.LogSoftmax(-1)), (8, 20))
_layer("Dropout", lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), (4, 8))
_layer("Embedding", lambda: nn.Embedding(100, 16, padding_idx=0), make=tokens(4, 7))
# Dynamo leaves recurrent modules out, unless torch._dynamo.config.allow_rnn is set.
_layer("LSTM", lambda: nn.LSTM(12, 16, num_layers=2, batch_first=True), (3, 9, 12), recorded=False)
_layer("GRU", lambda: nn.GRU(12, 16, bidirectional=True), (9, 3, 12), recorded=False)
_layer("LSTMCell", lambda: nn.LSTMCell(12, 16), (3, 12))
_layer("MultiheadAttention", lambda: nn.MultiheadAttention(32, 4, batch_first=True),
       (2, 10, 32), (2, 10, 32), (2, 10, 32))
_layer("TransformerEncoderLayer",
       lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True), (2, 10, 32))
_layer("TransformerDecoderLayer",
       lambda: nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), (2, 6, 32), (2, 10, 32))
_layer("CosineSimilarity", lambda: nn.CosineSimilarity(), (6, 12), (6, 12))
_layer("CrossEntropyLoss", lambda: nn.CrossEntropyLoss(label_smoothing=0.1),
       make=lambda trial: (trial.rand(8, 10), torch.randint(0, 10, (8,), device=trial.device)))


def bags(trial):
    cuts = torch.randint(0, 20, (3,)).sort().values
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), cuts])
    return (torch.randint(0, 100, (20,), device=trial.device), offsets.to(trial.device))


_layer("EmbeddingBag", lambda: nn.EmbeddingBag(100, 8, mode="mean"), make=bags)


# ---- Models ----


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return functional.relu(x + self.second(functional.relu(self.norm(self.first(x)))))


@module((2, 3, 32, 32))
def resnet():
    """a residual network"""
    return nn.Sequential(nn.Conv2d(3, 8, 7, stride=2, padding=3), nn.MaxPool2d(3, 2, 1),
                         Residual(8), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(8, 10))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.up = nn.ConvTranspose2d(8, 3, 2, 2)

    def forward(self, x):
        low = functional.silu(self.down(x))
        return torch.cat([x, self.up(low + self.deep(low))], 1)


@module((1, 3, 16, 16))
def unet():
    """a network with a skip connection and a concatenation"""
    return UNet()


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 32))
        self.register_buffer("places", torch.randn(1, 17, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.layers(x)[:, 0]


@module((2, 3, 16, 16))
def vision_transformer():
    """a vision transformer"""
    return VisionTransformer()


class Experts(nn.Module):
    """A mixture of experts whose routing depends on the data, and no size on it."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.up = nn.Parameter(torch.randn(4, 16, 32) / 4)
        self.down = nn.Parameter(torch.randn(4, 32, 16) / 4)

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        hidden = torch.einsum("ti,tkio->tko", x, self.up[chosen]).relu()
        out = torch.einsum("tko,tkoi->tki", hidden, self.down[chosen])
        return (out * weights.unsqueeze(-1)).sum(1), chosen


@module((12, 16), tolerance=1e-3)
def mixture_of_experts():
    """routing to experts by a gather"""
    return Experts()


class CausalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, tokens_in):
        x = self.embedding(tokens_in)
        q, k, v = [part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)]
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.out(y.transpose(1, 2).flatten(2))
        return functional.linear(x + y, self.embedding.weight).argmax(-1)


@module(make=tokens(2, 9))
def causal_language_model():
    """causal attention with tied weights and an argmax"""
    return CausalAttention()


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.message, self.update = nn.Linear(8, 8), nn.GRUCell(8, 8)

    def forward(self, x, source, target):
        sent = self.message(x)[source]
        received = torch.zeros_like(x).index_add_(0, target, sent)
        return self.update(received, x)


@module(make=lambda trial: (trial.rand(10, 8), torch.randint(0, 10, (30,), device=trial.device),
                            torch.randint(0, 10, (30,), device=trial.device)))
def graph_network():
    """messages along edges, gathered and scattered"""
    return Graph()


class Bookkeeping(nn.Module):
    """Buffers that each forward writes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        self.norm.train()
        self.mean.lerp_(x.mean(0), 0.1)
        return self.norm(x) - self.mean


def writes_buffers(trial):
    """buffers that are written, a twin for eager"""
    model, twin = Bookkeeping().to(trial.device), Bookkeeping().to(trial.device)
    with torch.no_grad():
        trial.compare(compiled_of(model), twin, lambda: ((trial.rand(16, 8),), {}),
                      calls=trial.inputs, tolerance=TOLERANCE, replays=trial.inputs - 4)
    trial.expect_equal(list(model.state_dict().values()), list(twin.state_dict().values()),
                       TOLERANCE)


CASES["writes_buffers"] = (writes_buffers, ())
