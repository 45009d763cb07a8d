#!/usr/bin/env python3
"""Exports a small decoder as a package of AOTInductor, for examples/aoti_server.

The decoder takes tokens of int64 {batch, length} and returns logits of the last position,
{batch, vocabulary}. The batch is dynamic. Weights are made up.

Exit status: 0, or 2 for errors.
"""

import argparse
import sys

import torch
from torch import nn


class Layer(nn.Module):
    """Attention and a gated MLP, each after a normalization."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(hidden) for _ in range(2))
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 8 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x):
        batch, length, hidden = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, hidden))
        gate, up = self.gate_up(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.down(nn.functional.silu(gate) * up)


class Decoder(nn.Module):
    """Embeds, runs the layers, and returns the logits of the last position."""

    def __init__(self, options):
        super().__init__()
        self.embedding = nn.Embedding(options.vocabulary, options.hidden)
        self.layers = nn.ModuleList(
            Layer(options.hidden, options.heads) for _ in range(options.layers))
        self.norm = nn.RMSNorm(options.hidden)
        self.head = nn.Linear(options.hidden, options.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, -1]))


def export(options):
    """Writes the package, and returns its path."""
    torch.manual_seed(options.seed)
    dtype = getattr(torch, options.dtype)
    model = Decoder(options).to(options.device, dtype).eval()
    tokens = torch.zeros(3, options.length, dtype=torch.int64, device=options.device)
    batch = torch.export.Dim("batch", min=1, max=options.max_batch)
    with torch.no_grad():
        program = torch.export.export(model, (tokens,), dynamic_shapes={"tokens": {0: batch}})
        return torch._inductor.aoti_compile_and_package(program, package_path=options.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="decoder.pt2", help="the package (default: %(default)s)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", help="default: bfloat16 on a GPU, else float32")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--length", type=int, default=16, help="tokens of a request")
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--max-batch", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.dtype = options.dtype or ("bfloat16" if options.device != "cpu" else "float32")
    try:
        print(export(options))
    except (RuntimeError, ValueError, AttributeError, OSError) as error:
        print(f"export.py: {error}; see --help", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
