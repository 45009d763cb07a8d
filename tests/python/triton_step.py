"""A step function with a Triton kernel; in a separate file, because Triton reads the source."""

import torch
import triton
import triton.language as tl


@triton.jit
def _add(x, y, out, n, block: tl.constexpr):
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask) * 2 + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, value, mask=mask)


def step(x, y):
    out = torch.empty_like(x)
    _add[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), block=256)
    return out
