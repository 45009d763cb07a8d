"""All code that depends on the version of PyTorch: names of its compilers, and how they are called.

Written for 2.11. A missing name raises NotSupported with the version, when it is first needed.
"""

import collections
import contextlib
import ctypes
import functools
import importlib
import inspect
import os
import sys
import threading
import warnings

import torch

from cgtree import _cgtree
from cgtree._errors import NotSupported

ALIGNMENT = 16  # bytes; Inductor assumes this alignment of addresses
_state = threading.local()
_patched = {}  # the original values of replaced names, by (module, name)


def _get(module, name):
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise NotSupported(f"PyTorch {torch.__version__} has no {module}.{name}, which "
                           "cgtree.torch needs: expected PyTorch 2.11") from error


# ---- Pools of memory ----

_pools_in_use = collections.Counter()  # by index of the device, on all threads


def count_pools(memory):
    """Counts the pools that use_mem_pool() of a module begins and ends."""
    begin = getattr(memory, "_cuda_beginAllocateCurrentThreadToPool", None)
    end = getattr(memory, "_cuda_endAllocateToPool", None)
    if begin is None or end is None:
        return

    def counted_begin(device, pool):
        begin(device, pool)
        _pools_in_use[device] += 1

    def counted_end(device, pool):
        _pools_in_use[device] -= 1
        end(device, pool)

    memory._cuda_beginAllocateCurrentThreadToPool = counted_begin
    memory._cuda_endAllocateToPool = counted_end


count_pools(importlib.import_module("torch.cuda.memory"))


def pools_in_use(device):
    """Returns how many threads are inside of torch.cuda.use_mem_pool() for the device. While there are
    any, PyTorch aborts the process if a torch.cuda.MemPool ends."""
    return _pools_in_use[device.index]


# ---- Tensors ----


@functools.cache
def place_reader():
    """Returns offsets in PyTorch's objects, in bytes: of the tensor in a Python object, of the storage in a tensor, of
    the memory in a storage, of the rank and of the dispatch keys in a tensor; and the bits of these keys with which
    memory holds other values than the tensor's. (-1, 0, 0, 0, 0, 0) if the objects are not as expected."""
    memory = ctypes.create_string_buffer(4096)
    flat = torch.frombuffer(memory, dtype=torch.uint8)
    samples = [flat[offset:offset + 16].view(2, 8) for offset in (517, 1043)]
    samples += [torch.nn.Parameter(torch.empty(3000)[offset:].view(-1)) for offset in (739, 2311)]
    found = [_places_in(tensor) for tensor in samples]
    known = found[0]
    is_known = all(len(places) == 1 for places in known) and all(
        set(places) <= set(others) for one in found for places, others in zip(known, one))
    implementation, storage, data, keys = [places[0] if is_known else -1 for places in known]
    wide = torch.empty(5000).as_strided((3, 5, 7, 2, 11), (1, 331, 13, 1009, 97), 29)
    ranks = [i for i in range(0, keys, _WORD) if _words(wide._cdata + i, 12) == [
        wide.dim(), *wide.shape, *wide.stride(), wide.storage_offset()]]
    if not is_known or len(ranks) != 1 or not keys - 15 * _WORD <= ranks[0] < keys - 12 * _WORD:
        return (-1, 0, 0, 0, 0, 0)
    count = (keys - ranks[0]) // _WORD + 1
    whole = torch.empty(4, dtype=torch.int32)
    if _words(whole._cdata + ranks[0], count) == _words(whole.view(torch.float32)._cdata + ranks[0], count):
        return (-1, 0, 0, 0, 0, 0)  # the type of the elements is elsewhere
    values = torch.empty(2, dtype=torch.complex64)
    other = _keys(values) ^ _keys(torch._efficientzerotensor(2, dtype=torch.complex64))
    unresolved = _keys(values) ^ _keys(values.conj()) | _keys(values) ^ _keys(torch._neg_view(values)) | other
    return (implementation, storage, data, ranks[0], keys, unresolved)


_WORD = ctypes.sizeof(ctypes.c_void_p)
_TENSOR_BYTES = 184  # read from the beginning of PyTorch's objects, which are all at least this large
_STORAGE_BYTES = 64


def _places_in(tensor):
    storage = tensor.untyped_storage()
    return (_word_at(id(tensor), torch._C.TensorBase.__basicsize__, tensor._cdata),
            _word_at(tensor._cdata, _TENSOR_BYTES, storage._cdata),
            _word_at(storage._cdata, _STORAGE_BYTES, storage.data_ptr()),
            _word_at(tensor._cdata, _TENSOR_BYTES, _keys(tensor)))


def _keys(tensor):
    return torch._C._dispatch_keys(tensor).raw_repr()


def _words(address, count):
    """Returns this many words at an address."""
    read = ctypes.string_at(address, count * _WORD)
    return [int.from_bytes(read[i:i + _WORD], sys.byteorder) for i in range(0, len(read), _WORD)]


def _word_at(address, count, value):
    """Returns the offsets of words with this value in the given number of bytes at an address."""
    return [i * _WORD for i, word in enumerate(_words(address, count // _WORD)) if word == value]


# Settings that kernels of PyTorch depend on when they are launched, and that Dynamo does not guard: the getters of
# at::Context, with two arguments and the bytes of the result.
_FLOAT32_OPERATORS = range(1, 4)  # convolutions, recurrent networks, products of matrices
_SETTINGS = (
    ("_ZNK2at7Context16userEnabledCuDNNEv", 0, 0, 1),
    ("_ZNK2at7Context14benchmarkCuDNNEv", 0, 0, 1),
    ("_ZNK2at7Context19benchmarkLimitCuDNNEv", 0, 0, 4),
    ("_ZNK2at7Context18deterministicCuDNNEv", 0, 0, 1),
    ("_ZNK2at7Context15immediateMiopenEv", 0, 0, 1),
    ("_ZNK2at7Context17userEnabledMkldnnEv", 0, 0, 1),
    ("_ZNK2at7Context19deterministicMkldnnEv", 0, 0, 1),
    ("_ZNK2at7Context17userEnabledNNPACKEv", 0, 0, 1),
    ("_ZNK2at7Context36deterministicFillUninitializedMemoryEv", 0, 0, 1),
    ("_ZNK2at7Context19userEnabledFlashSDPEv", 0, 0, 1),
    ("_ZNK2at7Context17userEnabledFA3SDPEv", 0, 0, 1),
    ("_ZNK2at7Context26userEnabledMemEfficientSDPEv", 0, 0, 1),
    ("_ZNK2at7Context18userEnabledMathSDPEv", 0, 0, 1),
    ("_ZNK2at7Context19userEnabledCuDNNSDPEv", 0, 0, 1),
    ("_ZNK2at7Context26userEnabledOverrideableSDPEv", 0, 0, 1),
    ("_ZNK2at7Context29allowFP16BF16ReductionMathSDPEv", 0, 0, 1),
    ("_ZN2at7Context16sDPPriorityOrderEv", 0, 0, 20),
    ("_ZNK2at7Context22linalgPreferredBackendEv", 0, 0, 1),
    ("_ZN2at7Context20blasPreferredBackendEv", 0, 0, 1),
    ("_ZN2at7Context25getROCmFAPreferredBackendEv", 0, 0, 1),
    ("_ZNK2at7Context24allowFP16ReductionCuBLASEv", 0, 0, 1),
    ("_ZNK2at7Context24allowBF16ReductionCuBLASEv", 0, 0, 1),
    ("_ZNK2at7Context27allowFP16AccumulationCuBLASEv", 0, 0, 1),
    ("_ZNK2at7Context21allowFP16ReductionCPUEv", 0, 0, 1),
    *[("_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE", backend, operator, 4)
      for backend in (1, 2) for operator in _FLOAT32_OPERATORS],  # CUDA's libraries, oneDNN
)


@functools.cache
def settings():
    """Returns the Settings of PyTorch on which kernels depend. Settings that this version does not have are left out,
    with a RuntimeWarning."""
    found, missing = [], []
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        library._ZN2at13globalContextEv.restype = ctypes.c_void_p
        context = library._ZN2at13globalContextEv()
        for name, first, second, size in _SETTINGS:
            try:
                function = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
                found.append((function, context, first, second, size))
            except AttributeError:
                missing.append(name)
    except (OSError, AttributeError):
        missing = [name for name, *_ in _SETTINGS]
    if missing:
        warnings.warn(f"cgtree.torch: PyTorch {torch.__version__} has no {', '.join(missing)}: change no setting of PyTorch "
                      "after the first call, or call cgtree.torch.reset() then", RuntimeWarning, stacklevel=2)
    return _cgtree.Settings(tuple(found))


def is_wrapped(value):
    """Returns whether it is a tensor inside a transform such as vmap(), without memory."""
    return isinstance(value, torch.Tensor) and any(
        _get("torch._C._functorch", name)(value)
        for name in ("is_functorch_wrapped_tensor", "is_legacy_batchedtensor"))


# ---- Dynamo ----


def register_backend(name, function):
    """Makes a back end known to torch.compile() by its name."""
    _get("torch._dynamo", "register_backend")(compiler_fn=function, name=name)


def guard_hooks():
    """Makes the compilation in progress guard the hooks of modules, which Dynamo otherwise assumes not to change. Its
    guards are made after the back end returns. Takes 2 us of 32 us for a model with 350 parameters."""
    config = importlib.import_module("torch._dynamo.config")
    if getattr(config, "skip_nnmodule_hook_guards", False):
        handler = _get("torch._dynamo.callback", "callback_handler")
        if _restore not in handler.end_callbacks:  # torch._dynamo.reset() removes it
            handler.register_end_callback(_restore)
        config.skip_nnmodule_hook_guards = False
        _patched["skips_hooks"] = True
    _guard(_hooks_of_all)


def _hooks_of_all(builder, _):
    """Adds a guard of the hooks for all modules, which Dynamo does not guard. Takes 0.1 us where there are none."""
    module = torch.nn.modules.module
    if has_hooks_of_all():
        known = _registered()
        is_same = lambda _: _registered() == known  # pylint: disable=unnecessary-lambda-assignment
    else:
        has_any = module._has_any_global_hook
        is_same = lambda _: not has_any()  # pylint: disable=unnecessary-lambda-assignment
    builder.guard_manager.root.add_lambda_guard(is_same, ["hooks of all modules are as before"], None)


def has_hooks_of_all():
    """Returns whether hooks for all modules are registered."""
    return torch.nn.modules.module._has_any_global_hook()


def _registered():
    module = torch.nn.modules.module
    return [list(getattr(module, name).values()) for name in (
        "_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_pre_hooks", "_global_backward_hooks")]


def _guard(create):
    """Adds a guard to the compilation in progress."""
    context = torch._guards.TracingContext.try_get()
    if context is not None:
        source = _get("torch._dynamo.source", "GlobalStateSource")()
        context.guards_context.dynamo_guards.add(source.make_guard(create))


def code_in_compilation():
    """Returns the code that Dynamo compiles now on this thread, or None."""
    translator = _get("torch._dynamo.symbolic_convert", "InstructionTranslator")
    try:
        return translator.current_tx().output.root_tx.f_code
    except AttributeError:
        return None


def forget(code):
    """Makes Dynamo compile a code again at its next call."""
    _get("torch._dynamo.eval_frame", "remove_from_cache")(code)


def codes_that_dynamo_sees(function):
    """Returns the codes that Dynamo compiles for a function or a module."""
    if isinstance(function, torch.nn.Module):
        function = function.forward
        if _get("torch._dynamo", "trace_rules").check(function):  # then compiled within a function of PyTorch's
            return ()
    code = getattr(inspect.unwrap(function), "__code__", None)
    return () if code is None else (code,)


def compilations(code):
    """Returns how often Dynamo has compiled a code, as far as it kept the results."""
    return len(_get("torch._dynamo.eval_frame", "_debug_get_cache_entry_list")(code))


def was_seen(code):
    """Returns whether Dynamo has tried to compile a code."""
    return code in _get("torch._dynamo.convert_frame", "input_codes")


def recompile_limit():
    return importlib.import_module("torch._dynamo.config").recompile_limit


def is_traced():
    """Returns whether this thread traces functions for torch.fx or torch.jit, which refuse compiled ones."""
    return torch._C._is_tracing() or _get("torch.fx._symbolic_trace", "is_fx_symbolic_tracing")()


def guard_forward_mode():
    """Makes the compilation in progress guard the level of forward-mode derivatives. Returns whether they are being
    computed: recordings and Inductor's kernels do not support them."""
    _guard(_get("torch._dynamo.guards", "GuardBuilder").DUAL_LEVEL)
    return torch.autograd.forward_ad._current_level >= 0


def _restore(*_):
    if _patched.pop("skips_hooks", False):
        importlib.import_module("torch._dynamo.config").skip_nnmodule_hook_guards = True


# ---- Graphs of AOTAutograd ----

def aot_autograd(**compilers):
    """Returns a back end of Dynamo that gives the graphs of AOTAutograd to these compilers."""
    return _get("torch._dynamo.backends.common", "aot_autograd")(
        keep_inference_input_mutations=True, partition_fn=_partition, **compilers)


def _partition(joint, inputs, **known):
    """Cuts a graph into forward and backward pass as PyTorch does by default, except that the backward pass makes the
    views of saved tensors itself; PyTorch would save each view."""
    nodes = list(joint.graph.nodes)
    tags = [node.meta.get("partitioner_tag") for node in nodes]
    last = max((i for i, tag in enumerate(tags) if tag == "is_forward"), default=0)
    later = set(nodes[last + 1:])
    for node in reversed(nodes[:last + 1]):
        if not (node.op == "call_function" and getattr(node.target, "is_view", False)
                and isinstance(node.meta.get("val"), torch.Tensor)):
            continue
        for user in [user for user in node.users if user in later and user.op != "output"]:
            with joint.graph.inserting_before(user):
                copied = joint.graph.node_copy(node)
            copied.meta["partitioner_tag"] = "is_backward"
            user.replace_input_with(node, copied)
            later.add(copied)
    joint.recompile()
    return _get("torch._functorch.partitioners", "default_partition")(joint, inputs, **known)


def boxed(graph):
    """Returns a function that runs the operators of a graph, and takes a list, which it clears. Hooks of modules do not
    run for it."""
    graph.graph.set_codegen(_get("torch.fx.graph", "_BoxedCodeGen")())
    run = functools.partial(plain(graph))
    run._boxed_call = True
    return run


def plain(graph):
    """Returns the function of a graph, which is a module, without the hooks of modules."""
    graph.recompile()
    _get("torch.fx._lazy_graph_module", "_LazyGraphModule").force_recompile(graph)
    return graph.forward


def static_inputs(graph, is_backward):
    """Returns the positions of the inputs that PyTorch expects to keep their addresses: parameters and buffers; for a
    backward pass, the tensors that the forward pass saved."""
    if is_backward:
        return range(_get("torch._inductor.utils", "count_tangents")(graph))
    return _get("torch._inductor.compile_fx", "get_static_input_idxs")(0)


def drop_unused_draws(graph):
    """Removes random operators without users from a backward pass: AOTAutograd's partition leaves some of the forward
    pass's there where Inductor's config.fallback_random is set."""
    for node in reversed(graph.graph.nodes):
        if not node.users and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            graph.graph.erase_node(node)
    graph.recompile()


def is_unsafe(target):
    """Returns whether PyTorch says that an operator must not be captured, or the operator's own Python code reads
    values back."""
    return (str(target) in _get("torch._inductor.utils", "FORBIDDEN_CUDAGRAPH_OPS")
            or torch.Tag.cudagraph_unsafe in getattr(target, "tags", ())
            or (isinstance(target, torch._ops.OpOverload) and _reads_back(target.name())))


def is_read_back(value):
    """Returns whether a number of a graph depends on values of tensors."""
    return isinstance(value, (torch.SymFloat, torch.SymInt, torch.SymBool)) and bool(
        _get("torch.fx.experimental.symbolic_shapes", "free_unbacked_symbols")(value))


def is_always(condition):
    """Returns whether a condition of numbers of a graph holds for all that its guards let through."""
    return _get("torch.fx.experimental.symbolic_shapes", "statically_known_true")(condition)


# Methods of tensors that wait for their values.
_READS = frozenset(("cpu", "item", "numpy", "nonzero", "synchronize", "tolist"))


@functools.cache
def _reads_back(name):
    """Returns whether the Python code of a custom operator has a method that waits for values."""
    return any(_READS & set(code.co_names) for function in functions_of(name)
               for code in codes_of(function.__code__))


def functions_of(name):
    """Returns the Python functions that are the kernels of a custom operator."""
    made = _get("torch._library.custom_ops", "OPDEFS").get(name)
    functions = [getattr(made, "_init_fn", None), *getattr(made, "_backend_fns", {}).values()]
    plain = []
    for function in map(inspect.unwrap, filter(inspect.isfunction, functions)):
        wrapped = inspect.getclosurevars(function).nonlocals.values() if is_own(function) else (function,)
        plain += [inspect.unwrap(item) for item in wrapped if inspect.isfunction(item)]
    return [function for function in dict.fromkeys(plain) if not is_own(function)]


def is_own(function):
    """Returns whether a function is PyTorch's."""
    return (function.__module__ or "").split(".")[0] == "torch"


# Namespaces of PyTorch's own operators, some of which it implements in stateless Python.
_OWN = ("aten", "prims", "rngprims", "inductor", "cgtree", "quantized_decomposed", "_c10d_functional", "c10d",
        "higher_order", "torch_library", "streams", "symm_mem", "fsdp", "mkldnn", "debugprims", "profiler", "quantized")


def is_python(operator):
    """Returns whether a kernel of an operator is Python code of the program."""
    name, namespace = operator.name().split(".")[0], operator.namespace
    if namespace in _OWN:
        return False
    return (_get("torch._library.custom_ops", "OPDEFS").get(name) is not None
            or any(key.startswith(f"{namespace}/{name.partition('::')[2]}/")
                   for key in _get("torch.library", "_impls")))


def codes_of(code):
    """Returns a code and the codes of the functions inside it."""
    return [code, *[inner for item in code.co_consts if inspect.iscode(item) for inner in codes_of(item)]]


def operator_of(error):
    """Returns the operator that raised an error, or None if none did."""
    at = error.__traceback__
    while at is not None:
        called = at.tb_frame.f_locals.get("self")
        if isinstance(called, torch._ops.OpOverload):
            return called
        at = at.tb_next
    return None


def mutated_inputs(graph):
    """Returns the positions of the inputs that operators of the graph write."""
    return sorted(_mutations(graph.graph))


def _mutations(graph):
    # PyTorch's own search overlooks tensors in lists, such as those of _foreach_add_().
    inputs, mutated = {}, set()
    for number, node in enumerate(graph.find_nodes(op="placeholder")):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            inputs.setdefault(_storage(value), set()).add(number)
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None:
            continue
        for number, argument in enumerate(schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = (node.args[number] if number < len(node.args)
                     else node.kwargs.get(argument.name))
            for item in given if isinstance(given, (list, tuple)) else (given,):
                value = item.meta.get("val") if isinstance(item, torch.fx.Node) else None
                if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                    mutated |= inputs.get(_storage(value), set())
    return mutated


def _storage(tensor):
    return tensor.untyped_storage()._cdata


def without_modes():
    """Returns a context in which operators work on tensors, also while PyTorch compiles."""
    return _get("torch.utils._python_dispatch", "_disable_current_modes")()


def needs_no_wrapper():
    """Returns whether AOTAutograd's wrapper passes inputs and results of the graph being compiled unchanged. For a
    graph without gradients."""
    context = torch._guards.TracingContext.try_get()
    known = context and context.fw_metadata
    if not known:
        return False
    try:
        return not (known.num_outputs_aliased or known.num_mutated_inp_runtime_indices
                    or known.num_intermediate_bases or known.tokens
                    or known.mutated_graph_handled_indices_seen_by_autograd
                    or known.is_rng_op_functionalized
                    or any(info.dynamic_dims for info in known.output_info))
    except AttributeError:  # in another version the wrapper does other things
        return False


def keep_saved_tensors():
    """Keeps backward passes of the graph being compiled from changing their inputs. AOTAutograd lets kernels write into
    them, which operators never do, and therefore refuses to retain the graph."""
    context = torch._guards.TracingContext.try_get()
    if context and context.fw_metadata:
        context.fw_metadata.bw_donated_idxs = []


@contextlib.contextmanager
def as_in_wrapper():
    """In the block modes are as AOTAutograd's wrapper sets them for a graph: autocast was applied when its operators
    were traced."""
    with torch.no_grad(), torch._C._DisableAutocast():
        yield


# ---- Inductor ----

@contextlib.contextmanager
def replaced_cudagraphify(replacement, prepare):
    """In the block Inductor gives its kernels to `replacement`, and not to its CUDA graphs, on this thread. It is
    called with (model, **facts that Inductor knows); prepare(graph): called before it compiles a graph."""
    _patch_cudagraphify()
    before = getattr(_state, "replacement", None)
    _state.replacement = replacement, prepare
    try:
        yield
    finally:
        _state.replacement = before


def replace_cudagraphify(replacement, prepare=None):
    """The same from now on, on all threads. None ends it."""
    _patch_cudagraphify()
    partition_where_it_reads()
    _patched["everywhere"] = replacement, prepare


def _patch_cudagraphify():
    if "original" in _patched:
        return
    compile_fx = importlib.import_module("torch._inductor.compile_fx")
    output_code = importlib.import_module("torch._inductor.output_code")
    original = _get("torch._inductor.compile_fx", "cudagraphify")
    running_backward = _get("torch._inductor.output_code", "maybe_handle_backward_generation")
    compiling = _get("torch._inductor.compile_fx", "_compile_fx_inner")

    def compile_fx_inner(graph, *args, **known):
        replacement, prepare = _replacement()
        makes_graphs = known.get("cudagraphs")  # None: as configured
        if makes_graphs is None:
            makes_graphs = compile_fx.config.triton.cudagraphs
        why = prepare(graph) if replacement is not None and makes_graphs else None
        if why is not None:
            warnings.warn("cgtree.torch: what works with tensors of the CPU in a graph of Inductor's runs eagerly, because "
                          f"it could not be readied for recordings: {why}", RuntimeWarning, stacklevel=2)
        return compiling(graph, *args, **known)

    def cudagraphify(model, static_input_idxs=(), **known):
        replacement, _ = _replacement()
        if replacement is None:
            return original(model, static_input_idxs, **known)
        model = aligned(model, known.get("mutated_input_idxs", ()))
        return replacement(model, static_input_idxs, **known)

    def maybe_handle_backward_generation(*args):
        """Tells PyTorch's recordings that a backward pass runs without a recording, and requires that there are
        some."""
        if _replacement()[0] is None:
            running_backward(*args)

    _patched["original"] = original
    compile_fx.cudagraphify = cudagraphify
    compile_fx._compile_fx_inner = compile_fx_inner
    output_code.maybe_handle_backward_generation = maybe_handle_backward_generation


def _replacement():
    return getattr(_state, "replacement", None) or _patched.get("everywhere", (None, None))


def aligned(model, mutated):
    """Returns a boxed function whose kernels see only aligned addresses, as Inductor's require where the inputs are not
    copied into a recording."""
    def run(inputs):
        written = []
        for i, given in enumerate(inputs):
            if isinstance(given, torch.Tensor) and given.data_ptr() % ALIGNMENT:
                inputs[i] = _elsewhere(given)
                if i in mutated:
                    written.append((given, inputs[i]))
        results = model(inputs)
        for given, copy in written:
            given.copy_(copy)
        return results

    return run


def _elsewhere(tensor):
    """Returns a copy with the same strides. Elements that several places share are copied once."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    elements = torch.as_strided(tensor, (last + 1 if tensor.numel() else 0,), (1,))
    return torch.as_strided(torch.empty_like(elements).copy_(elements), tensor.shape, tensor.stride(), 0)


def fake_on(value, device, graph):
    """Returns a fake of a graph's value copied to a device; without a fake mode, the copied constant itself."""
    mode = _get("torch._guards", "detect_fake_mode")([node.meta.get("val") for node in graph.nodes])
    if mode is None:
        return value.to(device)
    with mode:
        return mode.from_tensor(value).to(device)


def call_from_kernels(operator):
    """Makes Inductor call one of our custom operators, even where it is told to refuse unknown ones."""
    known = importlib.import_module("torch._inductor.lowering")
    if operator not in known.lowerings:
        known.make_fallback(operator)


def partition_at(operator):
    """Makes partitions of Inductor end at an operator from now on. Returns whether they did not end there before."""
    known = importlib.import_module("torch._inductor.config").custom_should_partition_ops
    if operator.name() in known:
        return False
    known.append(operator.name())
    return True


def partition_where_it_reads():
    """Makes partitions of Inductor end at cgtree::read and at all present custom operators whose Python code reads
    values back. Call it before a compilation, because PyTorch's caches distinguish graphs by this, too."""
    for name, made in list(_get("torch._library.custom_ops", "OPDEFS").items()):
        if name.startswith("cgtree::"):
            call_from_kernels(made._opoverload)
        elif not _reads_back(name):
            continue
        partition_at(made._opoverload)


def _partitions():
    """Returns how many partitions Inductor has made so far, counting graphs with more than one partition, or None if
    this version does not count them."""
    made_by = _get("torch._inductor.scheduler", "Scheduler")
    if not _counts_partitions(made_by):
        return None
    return _get("torch._dynamo.utils", "counters")["inductor"]["cudagraph_partitions"]


@functools.cache
def _counts_partitions(scheduler):
    return '["cudagraph_partitions"]' in inspect.getsource(scheduler)


def inductor(model, inputs, replacement, options, prepare):
    """Compiles a graph of Dynamo's with Inductor, whose kernels go to `replacement`. On the CPU, where Inductor has no
    graphs, `replacement` gets whole graphs, for tests."""
    compile_fx = _get("torch._inductor.compile_fx", "compile_fx")
    compile_fx_inner = _get("torch._inductor.compile_fx", "compile_fx_inner")

    def inner(graph, example_inputs, **known):
        made, before = [], _partitions()

        def noted(*args, **more):
            made.append(replacement(*args, **more))
            return made[-1]

        with replaced_cudagraphify(noted, prepare):
            compiled = compile_fx_inner(graph, example_inputs, **known)
        if len(made) == 1 and before is not None and before == _partitions():
            made[0].is_whole = True
        if getattr(compiled, "device_types", None) == {"cpu"}:
            compiled.current_callable = replacement(
                compiled.current_callable, known.get("static_input_idxs") or (), device_index=None,
                is_backward=known.get("is_backward", False),
                is_inference=known.get("is_inference", False),
                mutated_input_idxs=tuple(compiled.mutated_input_idxs))
            compiled.current_callable.is_whole = True
        return compiled

    partition_where_it_reads()
    patches = {"triton.cudagraphs": True, "triton.cudagraph_trees": True, **(options or {})}
    # A graph from AOTAutograd's cache has no information about its wrapper.
    config = importlib.import_module("torch._functorch.config")
    with replaced_cudagraphify(replacement, prepare), config.patch(enable_autograd_cache=False):
        return compile_fx(model, inputs, inner_compile=inner, config_patches=patches)
