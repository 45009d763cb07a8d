"""PyTorch: compile() for functions and modules, and PyTorch as a framework of cgtree.compile().

    model = cgtree.torch.compile(model)      # or @cgtree.torch.compile on a function or method
    y = model(x)                             # in training, too

Triton launches on PyTorch's stream, and needs nothing more.
"""

import functools

import torch

from cgtree._blocks import results
from cgtree._torch_compile import (  # noqa: F401
    backend,
    compile,
    explain,
    register_backend,
    replace_graph_trees,
    reset,
    stats,
)
from cgtree._torch_memory import (  # noqa: F401
    as_tensor,
    from_tensor,
    output_of,
    statistics,
    step,
    use_allocator,
)
from cgtree._torch_scopes import name_modules  # noqa: F401
from cgtree._torch_seam import context  # noqa: F401


def step_function(function):
    """A step function of cgtree's tensors from a function of torch.Tensors.

    It runs without gradients. On the host device, where PyTorch works at once, it raises NotSupported.
    """
    @functools.wraps(function)
    def run(*tensors):
        with step(), torch.no_grad():
            return results(function(*map(as_tensor, tensors)), output_of(tensors))

    return run
