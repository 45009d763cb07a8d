#!/usr/bin/env python3
"""Writes a model of whisper.cpp with random weights for its encoder and its decoder.

usage: make_model.py VOCABULARY FILE [--seed N]

VOCABULARY is a model without tensors, models/for-tests-ggml-SIZE.bin of the checkout: sizes, filters
and vocabulary are those of the real model of that size. Needs NumPy.
"""

import argparse
import pathlib
import struct

try:
    import numpy
except ImportError:  # --help does not need it
    numpy = None

MAGIC = 0x67676d6c
SIZES = ["vocabulary", "audio_context", "audio_width", "audio_heads", "audio_layers", "text_context",
         "text_width", "text_heads", "text_layers", "mels", "type"]
FLOAT32, FLOAT16 = 0, 1


class Writer:
    def __init__(self, file, seed):
        self.file = file
        self.random = numpy.random.default_rng(seed)

    def tensor(self, name, values, type=FLOAT32):
        """Writes an array, with its last dimension first, as ggml expects."""
        values = values.astype(numpy.float16 if type == FLOAT16 else numpy.float32)
        self.file.write(struct.pack("<3i", values.ndim, len(name), type))
        self.file.write(struct.pack(f"<{values.ndim}i", *reversed(values.shape)))
        self.file.write(name.encode())
        self.file.write(values.tobytes())

    def numbers(self, *shape, deviation):
        return self.random.standard_normal(shape, dtype=numpy.float32) * numpy.float32(deviation)

    def matrix(self, name, *shape, gain=1.0):
        """Random weights that multiply the power of their input by the square of `gain`."""
        inputs = numpy.prod(shape[1:])
        self.tensor(f"{name}.weight", self.numbers(*shape, deviation=gain * inputs**-0.5), FLOAT16)

    def linear(self, name, *shape, gain=1.0):
        self.matrix(name, *shape, gain=gain)
        self.tensor(f"{name}.bias", self.numbers(shape[0], deviation=0.1))

    def convolution(self, name, *shape):
        self.matrix(name, *shape)
        self.tensor(f"{name}.bias", self.numbers(shape[0], 1, deviation=0.1))

    def norm(self, name, width):
        self.tensor(f"{name}.weight", numpy.ones(width))
        self.tensor(f"{name}.bias", numpy.zeros(width))

    def attention(self, name, width):
        self.norm(f"{name}_ln", width)
        # Few cells get most of the attention.
        self.linear(f"{name}.query", width, width, gain=2)
        self.matrix(f"{name}.key", width, width, gain=2)
        self.linear(f"{name}.value", width, width)
        self.linear(f"{name}.out", width, width)

    def layer(self, name, width, is_decoder):
        self.attention(f"{name}.attn", width)
        if is_decoder:
            self.attention(f"{name}.cross_attn", width)
        self.norm(f"{name}.mlp_ln", width)
        self.linear(f"{name}.mlp.0", 4 * width, width)
        self.linear(f"{name}.mlp.2", width, 4 * width)


def write(vocabulary, file, seed):
    head = vocabulary.read_bytes()
    magic, *sizes = struct.unpack_from("<12i", head)
    if magic != MAGIC:
        raise SystemExit(f"{vocabulary} is no model of whisper.cpp")
    sizes = dict(zip(SIZES, sizes))
    with file.open("wb") as out:
        out.write(head)
        writer = Writer(out, seed)
        audio, text = sizes["audio_width"], sizes["text_width"]
        writer.tensor("encoder.positional_embedding",
                      writer.numbers(sizes["audio_context"], audio, deviation=1))
        writer.convolution("encoder.conv1", audio, sizes["mels"], 3)
        writer.convolution("encoder.conv2", audio, audio, 3)
        for i in range(sizes["audio_layers"]):
            writer.layer(f"encoder.blocks.{i}", audio, is_decoder=False)
        writer.norm("encoder.ln_post", audio)
        # Positions weigh more than tokens, which would repeat themselves forever: the last layer is the first one,
        # transposed.
        writer.tensor("decoder.positional_embedding",
                      writer.numbers(sizes["text_context"], text, deviation=1))
        writer.tensor("decoder.token_embedding.weight",
                      writer.numbers(sizes["vocabulary"], text, deviation=0.1), FLOAT16)
        for i in range(sizes["text_layers"]):
            writer.layer(f"decoder.blocks.{i}", text, is_decoder=True)
        writer.norm("decoder.ln", text)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("vocabulary", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if numpy is None:
        parser.error("NumPy is missing: pip install numpy")
    write(options.vocabulary, options.file, options.seed)


if __name__ == "__main__":
    main()
