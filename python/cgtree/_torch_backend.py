"""torch.compile(model, backend=cgtree.torch.backend): TorchInductor's kernels in recordings of cgtree.

Inductor compiles the graphs that Dynamo finds, and would replay them with CUDA graph trees; here
cgtree.torch.compile() does, which is told what Inductor knows: which inputs stay where they are, and
which are written. Graphs of training run as Inductor has compiled them, because autograd holds what
the forward saves for the backward.
"""

import inspect

import torch

from cgtree._torch_compile import compile


def backend(model, inputs, **options):
    """Compiles a graph of Dynamo's. Where the wheel is installed, its name is "cgtree".

    options: of torch.compile(): those of cgtree.torch.compile().
    """
    from torch._functorch import config
    from torch._inductor.compile_fx import compile_fx

    def inner(graph, example_inputs, **how):
        return _compile_inner(graph, example_inputs, how, options)

    with config.patch(enable_autograd_cache=False):  # what it holds would not be recorded
        return compile_fx(model, inputs, inner_compile=inner)


def _compile_inner(graph, example_inputs, how, options):
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.output_code import CompiledFxGraph
    from torch._inductor.utils import BoxedBool

    how["cudagraphs"] = BoxedBool(False)
    compiled = compile_fx_inner(graph, example_inputs, **how)
    if not how.get("is_inference") or not isinstance(compiled, CompiledFxGraph):
        return compiled
    run, count = compiled.current_callable, len(example_inputs)

    def call(*given):
        return run(list(given))

    names = [f"input_{i}" for i in range(count)]
    call.__name__ = "inductor"
    call.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names])
    replaying = compile(call, static=[names[i] for i in how.get("static_input_idxs") or ()],
                        mutated=[names[i] for i in compiled.mutated_input_idxs or ()], **options)
    replaying.knows_writes()

    def call_boxed(given):
        arguments = tuple(given)
        given.clear()  # what Inductor calls boxed: the caller keeps no input
        return replaying(*arguments)

    compiled.current_callable = call_boxed
    return compiled
