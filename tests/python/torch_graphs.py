"""PyTorch graphs for tests: on an imaginary GPU, and with operators whose captures fail."""

import contextlib
import unittest.mock

import torch
from support import cgtree
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import cgtree.torch
from cgtree import _cgtree, _torch_host, _torch_partition
from cgtree import _torch_versions as versions

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")

is_captured = []  # not empty while operators such as `hidden` must fail, as a wait does in a capture


def waits():
    if is_captured:
        raise RuntimeError("operation not permitted when stream is capturing")


@torch.library.custom_op("cgtree_test::hidden", mutates_args=())
def hidden(x: torch.Tensor) -> torch.Tensor:
    waits()
    return x * 3


@hidden.register_fake
def _(x):
    return torch.empty_like(x)


def captured_on_host(kind, tensors):
    """Runs captured work immediately as well, since it may fail in a capture on a GPU."""
    if _cgtree.current_stream().is_capturing:
        is_captured.append(True)
        try:
            kind.graph.model([_torch_host._on_host(given) for given in tensors])
        finally:
            is_captured.clear()
    return _torch_host.run_on_host(kind, tensors)


def fake(given, mode):
    if given is not int:
        shape, dtype, device = given
        return torch.empty(shape, dtype=dtype, device=device)
    source = ConstantSource("n")  # an integer of the kind that Dynamo has from the second call on
    symbol = mode.shape_env.create_unspecified_symbol(2, source)
    return mode.shape_env.create_symintnode(symbol, hint=2, source=source)


def graph_on_gpu(function, *given):
    """Traces a function of tensors on an imaginary GPU. given: shape, type and device of each, or int for an integer."""
    with (unittest.mock.patch.object(proxy_tensor, "CONSTANT_NUMEL_LIMIT", -1),
          FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()) as mode):
        return proxy_tensor.make_fx(function)(*[fake(one, mode) for one in given])


class Seen(Exception):
    """Ends Inductor after it has cut a graph."""


def partitions(function, *given, **options):
    """Returns the parts that Inductor makes of a function on an imaginary GPU, after prepare(): for a recorded
    partition, its operators, and the devices or the numbers of its inputs; None for a part in between. given: shape,
    type and device of each argument, or int for an integer.
    """
    from torch._inductor import compile_fx, decomposition, scheduler
    from torch._inductor.utils import BoxedBool
    with (unittest.mock.patch.object(proxy_tensor, "CONSTANT_NUMEL_LIMIT", -1),
          FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()) as mode):
        tensors = [fake(one, mode) for one in given]
        graph = proxy_tensor.make_fx(lambda *args: [function(*args)], decomposition_table=(
            decomposition.select_decomp_table()))(*tensors)
    found = []

    def note(_, parts, signatures):
        for nodes, signature in zip(parts, signatures):
            # The node of a custom operator has no device; its results have one.
            devices = {str(value.get_device()) for value in signature.input_nodes.values()
                       if "FallbackKernel" not in type(value).__name__}
            found.append(None if signature.skip_cudagraph else (
                {type(node.node).__name__ for node in nodes}, devices | set(signature.symbol_inputs)))
        raise Seen()

    properties = unittest.mock.Mock(major=9, minor=0, multi_processor_count=132, warp_size=32,
                                    max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536)
    never = dict.fromkeys(("set_rng_state", "_lazy_init", "synchronize"))
    known = {"is_available": True, "current_device": 0, "device_count": 1, "_exchange_device": 0,
             "_maybe_exchange_device": 0, "get_device_capability": (9, 0),
             "get_device_properties": properties, "get_rng_state": torch.zeros(1), **never}
    with contextlib.ExitStack() as stack:
        for name, value in known.items():
            stack.enter_context(unittest.mock.patch.object(torch.cuda, name, lambda *_, is_=value: is_))
        stack.enter_context(unittest.mock.patch.object(scheduler.Scheduler, "_log_graph_partitions", note))
        stack.enter_context(unittest.mock.patch("torch._inductor.fx_passes.post_grad.get_gpu_type",
                                                lambda *_: "cuda"))
        stack.enter_context(torch._inductor.config.patch(
            {"triton.cudagraphs": True, "fx_graph_cache": False, "compile_threads": 1, **options}))
        stack.enter_context(torch._guards.tracing(torch._guards.TracingContext(mode)))
        stack.enter_context(versions.replaced_cudagraphify(lambda *_, **__: None, _torch_partition.prepare))
        versions.partition_where_it_reads()
        try:
            compile_fx.compile_fx_inner(graph, tensors, is_inference=True, cudagraphs=BoxedBool(True))
        except Exception as error:  # pylint: disable=broad-except
            if "Seen" not in repr(error):
                raise
    return found
