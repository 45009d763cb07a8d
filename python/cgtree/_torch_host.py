"""Graphs of PyTorch's on the CPU, as nodes of graphs of the host device: PyTorch works at once there,
and cannot be captured. For tests without a GPU."""

import ctypes
import weakref

import torch

from cgtree import _cgtree
from cgtree import _torch_versions as versions
from cgtree._torch_outputs import Recipe, allocate, bytes_of


class Unlike(Exception):
    """The graph returned these results, whose form cannot be recorded."""

    def __init__(self, results):
        super().__init__("its results have another form than before")
        self.results = results


def _on_host(tensor):
    """Returns a torch.Tensor of the memory of a tensor of cgtree, which it does not keep alive."""
    dtype = getattr(torch, tensor.dtype)
    strides = [stride // dtype.itemsize for stride in tensor.strides]
    with torch.inference_mode(False):
        if not tensor.nbytes:
            return torch.empty_strided(tensor.shape, strides, dtype=dtype)
        end = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, strides))
        memory = (ctypes.c_byte * (end * dtype.itemsize)).from_address(tensor.data_ptr)
        flat = torch.frombuffer(memory, dtype=torch.uint8).view(dtype)
        return torch.as_strided(flat, tensor.shape, strides)


def run_on_host(kind, tensors):
    """Enqueues the graph on the current stream, and returns its outputs."""
    recipe, count = kind._recipe, len(tensors)
    pairs = [allocate(made) for made in recipe.made]
    reference = weakref.ref(kind)  # the recording of the kind keeps the node
    is_inference = torch.is_inference_mode_enabled()

    def node(*given):
        owner = reference()
        with torch.inference_mode(is_inference), versions.as_in_wrapper():
            inputs = owner._inputs(map(_on_host, given[:count]))
            results = owner.graph.model(list(inputs))
            ran = Recipe(results, inputs, owner.graph.device)
            if ran != recipe:
                raise Unlike(results)
            for place, source in zip(given[count:], ran.sources):
                if place.nbytes:
                    _on_host(place).copy_(bytes_of(source, place.nbytes))

    _cgtree.launch(node, *tensors, *[base for base, _ in pairs])
    return tuple([output for _, output in pairs])
