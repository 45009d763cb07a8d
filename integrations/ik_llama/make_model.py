#!/usr/bin/env python3
"""Writes a GGUF of random weights with the architecture of Llama, or with its mixture of experts.

usage: make_model.py SHAPE VOCABULARY FILE [--type f16|q8_0] [--seed N]

SHAPE is tiny, tiny_moe, draft, 1b, 8b or moe. VOCABULARY is a GGUF with the vocabulary to copy, such as
models/ggml-vocab-llama-spm.gguf of the checkout. Needs NumPy and the package gguf.

Greedy tokens vary, and a draft model guesses some of them right: the output layer prefers, for each
token, one successor that is the same in all models of a vocabulary, and the layers add noise that
outweighs it now and then, more in other models than in `draft`. Special tokens do not come.
"""

import argparse
import pathlib

try:
    import gguf
    import numpy
except ImportError:  # --help needs neither
    gguf = None

FIRST_TOKEN = 259  # of SentencePiece's vocabularies: earlier tokens are special, or single bytes


class Shape:
    """The sizes of a model. `noise` is the power of its layers' outputs relative to that of a token."""

    def __init__(self, layers, width, heads, kv_heads, ffn, experts=0, used=0, noise=1.0, type="f16"):
        self.layers, self.width, self.heads, self.kv_heads, self.ffn = layers, width, heads, kv_heads, ffn
        self.experts, self.used, self.noise, self.type = experts, used, noise, type

    @property
    def head(self):
        return self.width // self.heads


SHAPES = {
    "tiny": Shape(2, 256, 4, 2, 512),
    "tiny_moe": Shape(2, 256, 4, 2, 256, experts=4, used=2, type="q8_0"),
    "draft": Shape(4, 512, 8, 4, 1024, noise=0.3),
    "1b": Shape(16, 2048, 32, 8, 8192),
    "8b": Shape(32, 4096, 32, 8, 14336, type="q8_0"),
    "moe": Shape(16, 1024, 16, 4, 1024, experts=8, used=2, type="q8_0"),
}


class Weights:
    """Matrices of random weights, which are pieces of one sequence of random numbers: making them takes no longer than
    writing them."""

    # Blocks in the sequence; not a multiple of a row, so that the rows of a matrix differ.
    BLOCKS = (1 << 18) + 7

    def __init__(self, type, seed):
        self.type = type
        self.random = numpy.random.default_rng(seed)
        numbers = self.random.standard_normal((self.BLOCKS, 32), dtype=numpy.float32)
        if type == "f16":
            self.numbers = numbers.astype(numpy.float16)
        else:
            self.numbers = numpy.clip(numpy.rint(numbers * 32), -127, 127).astype(numpy.int8)

    def matrix(self, shape, deviation):
        """Returns a matrix in GGUF's layout; its rows are the last dimension."""
        blocks = int(numpy.prod(shape)) // 32
        first = int(self.random.integers(self.BLOCKS))
        at = numpy.arange(first, first + blocks, dtype=numpy.int64) % self.BLOCKS
        if self.type == "f16":
            return (self.numbers[at] * numpy.float16(deviation)).reshape(shape)
        made = numpy.empty((blocks, 34), dtype=numpy.uint8)
        made[:, :2] = numpy.frombuffer(numpy.float16(deviation / 32).tobytes(), dtype=numpy.uint8)
        made[:, 2:] = self.numbers[at].view(numpy.uint8)
        return made.reshape(*shape[:-1], shape[-1] // 32 * 34)


def copy_vocabulary(reader, writer):
    """Copies the fields of a vocabulary, and returns the number of its tokens."""
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        kinds = field.types
        writer.add_key_value(name, field.contents(), kinds[0], kinds[1] if len(kinds) > 1 else None)
    return len(reader.fields["tokenizer.ggml.tokens"].data)


def add_embeddings(writer, shape, tokens, seed):
    """Adds the first and the last layer."""
    random = numpy.random.default_rng([seed, 1])
    embedding = random.standard_normal((tokens, shape.width), dtype=numpy.float32)
    # The successor of each token, from a seed that all models share.
    usual = numpy.arange(FIRST_TOKEN, tokens)
    successor = numpy.random.default_rng(tokens).permutation(usual)
    # The product with the successor's row must be about the largest of all others.
    others = numpy.sqrt(2 * numpy.log(tokens) * (1 + shape.noise))
    share = min(1.15 * others / numpy.sqrt(shape.width), 0.95)
    output = random.standard_normal((tokens, shape.width), dtype=numpy.float32)
    output *= numpy.sqrt(1 - share**2)
    output[successor] += share * embedding[usual]
    output[:FIRST_TOKEN] = 0
    writer.add_tensor("token_embd.weight", embedding.astype(numpy.float16))
    writer.add_tensor("output.weight", (output / numpy.sqrt(shape.width)).astype(numpy.float16))
    writer.add_tensor("output_norm.weight", numpy.ones(shape.width, dtype=numpy.float32))


def add_layer(writer, shape, weights, layer):
    width, kv = shape.width, shape.kv_heads * shape.head
    quantized = gguf.GGMLQuantizationType.Q8_0 if weights.type == "q8_0" else None

    def add(name, size, deviation):
        writer.add_tensor(f"blk.{layer}.{name}.weight", weights.matrix(size, deviation), raw_dtype=quantized)

    def norm(name):
        writer.add_tensor(f"blk.{layer}.{name}.weight", numpy.ones(width, dtype=numpy.float32))

    unit = width**-0.5                                 # keeps the power of its input
    each = (shape.noise / (2 * shape.layers))**0.5     # added by attention, or by the rest
    norm("attn_norm")
    add("attn_q", (width, width), 2 * unit)            # few cells get most of the attention
    add("attn_k", (kv, width), 2 * unit)
    add("attn_v", (kv, width), unit)
    add("attn_output", (width, width), 1.5 * each * unit)
    norm("ffn_norm")
    down = each * (0.36 * shape.ffn)**-0.5             # 0.36: the power of silu(x) y
    if shape.experts == 0:
        add("ffn_gate", (shape.ffn, width), unit)
        add("ffn_up", (shape.ffn, width), unit)
        add("ffn_down", (width, shape.ffn), down)
        return
    router = weights.random.standard_normal((shape.experts, width), dtype=numpy.float32)
    writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", router * unit)
    add("ffn_gate_exps", (shape.experts, shape.ffn, width), unit)
    add("ffn_up_exps", (shape.experts, shape.ffn, width), unit)
    add("ffn_down_exps", (shape.experts, width, shape.ffn), shape.used**0.5 * down)


def write(shape, vocabulary, file, type, seed):
    writer = gguf.GGUFWriter(file, "llama", use_temp_file=False)
    tokens = copy_vocabulary(gguf.GGUFReader(vocabulary), writer)
    writer.add_name("random weights")
    writer.add_vocab_size(tokens)
    writer.add_context_length(1 << 17)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if type == "q8_0" else gguf.LlamaFileType.MOSTLY_F16)
    if shape.experts != 0:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.used)
    add_embeddings(writer, shape, tokens, seed)
    weights = Weights(type, [seed, 2])
    for layer in range(shape.layers):
        add_layer(writer, shape, weights, layer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("vocabulary", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--type", choices=["f16", "q8_0"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if gguf is None:
        parser.error("NumPy or the package gguf is missing: pip install numpy gguf")
    shape = SHAPES[options.shape]
    write(shape, options.vocabulary, options.file, options.type or shape.type, options.seed)


if __name__ == "__main__":
    main()
