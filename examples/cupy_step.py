"""A decoding step in CuPy, replayed as one CUDA graph: python3 examples/cupy_step.py"""

import cupy

import cgtree

context = cgtree.Context("cuda")
weight = cupy.random.rand(1024, dtype="float32")


@context.compile(framework="cupy")
def step(x):
    hidden = cupy.tanh(x * weight)
    return hidden / cupy.sqrt((hidden * hidden).sum(axis=1, keepdims=True))


for number in range(1000):
    context.mark_step()  # outputs of the last step may now be overwritten
    x = cupy.random.rand(32, 1024, dtype="float32")
    y = step(x)  # warm up, record, and from then on replay

expected = step.__wrapped__(x)
print("equal:", bool(cupy.allclose(cupy.from_dlpack(y), expected)))
print(context.stats()["text"])
