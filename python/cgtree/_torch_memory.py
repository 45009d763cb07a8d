"""PyTorch's memory and stream inside of step functions.

PyTorch's own allocator does not know of captures by cgtree, so inside a step function its memory
comes from cgtree in one of two ways:

* use_allocator(), called before PyTorch has touched the GPU, makes cgtree the allocator of the
  whole process. Then a step function allocates from the context's pool, memory is freed when
  PyTorch frees it, and outputs are not copied.
* - Otherwise each run of a step function has its own torch.cuda.MemPool, which ends with it:
  PyTorch cuts blocks out of segments, and the segments are allocated from the context's pool.
  A segment is held as long as any output in it; a few outputs in a large segment are copied.
* - Step functions that may keep allocations run inside a MemPool of their context, whose segments
  come from cgtree and are kept. Their outputs are copied into the pool.
"""

import contextlib
import ctypes
import functools
import threading
import types
import weakref

import torch

from cgtree import _cgtree
from cgtree import _torch_versions as versions
from cgtree._errors import InvalidArgument, NotSupported

_state = {"allocator": None, "is_process_wide": False, "peak": 0}
_pools = {}  # by context: recordings of two contexts may run at the same time
# By device: step functions take turns, because no MemPool may end while another MemPool is in use.
_turns = {}
_ends_later = {}  # by device: pools that could not end with their block
_here = threading.local()  # `devices`: those of the step functions that run on this thread


def _pluggable():
    if _state["allocator"] is None:
        made = torch.cuda.memory.CUDAPluggableAllocator(
            _cgtree.__file__, "cgtree_torch_alloc", "cgtree_torch_free")
        record_stream = ctypes.CDLL(_cgtree.__file__).cgtree_torch_record_stream
        made.allocator().set_record_stream_fn(ctypes.cast(record_stream, ctypes.c_void_p).value)
        _state["allocator"] = made
    return _state["allocator"]


def use_allocator():
    """Makes cgtree the allocator of PyTorch in this process.

    record_stream() is obeyed, also from C++; torch.cuda.memory_allocated() counts PyTorch's memory on all devices.
    Requires: PyTorch has not used the GPU yet. Raises InvalidArgument otherwise.
    """
    if _state["is_process_wide"]:
        return
    if torch.cuda.is_initialized():
        raise InvalidArgument("use_allocator() comes too late: PyTorch has used the GPU already; "
                              "call it right after `import torch`")
    torch.cuda.memory.change_current_allocator(_pluggable())
    torch.cuda.memory.memory_stats_as_nested_dict = _memory_stats
    _state["is_process_wide"] = True


def is_process_wide():
    """Returns whether use_allocator() was called."""
    return _state["is_process_wide"]


def _memory_stats(device=None):
    """Statistics for torch.cuda.memory_allocated() and the like: PyTorch has no numbers for an
    allocator that it does not know. All devices are counted together."""
    now = statistics()
    _state["peak"] = max(_state["peak"], now["bytes"])
    held = {"all": {"current": now["bytes"], "peak": _state["peak"]}}
    return {"allocated_bytes": held, "reserved_bytes": held, "active_bytes": held,
            "allocation": {"all": {"current": now["blocks"], "allocated": now["allocations"]}}}


def statistics():
    """Returns the blocks and bytes that PyTorch holds, and its allocations so far."""
    return _cgtree.torch_statistics()


def blocks_of_steps():
    """Returns how many blocks PyTorch holds that step functions allocated."""
    return statistics()["blocks_of_steps"]


def as_tensor(tensor):
    """Returns a torch.Tensor of the same memory, which it keeps alive. It does not wait.

    Work on it must run on current_stream(), or on a stream that is ordered with the tensor's.
    """
    options = {} if tensor.device.startswith("host") else {"stream": -1}
    if tensor.read_only:
        options["max_version"] = (1, 3)
    return torch.utils.dlpack.from_dlpack(tensor.__dlpack__(**options))


def _part_of(owner, tensor):
    """Returns a tensor of cgtree of the memory of a torch.Tensor that lies inside another
    tensor."""
    item = tensor.element_size()
    return _cgtree.view(owner, tensor.data_ptr(), tuple(tensor.shape),
                        tuple(stride * item for stride in tensor.stride()), tensor.dtype)


def from_tensor(tensor):
    """Returns a tensor of the same memory, which belongs to the pool if it lies there.

    It lies there if PyTorch allocated it in a step function, or if it is a view of an input.
    """
    tensor = tensor.detach()
    owner = segment_of(tensor)
    return _cgtree.as_tensor(tensor) if owner is None else _part_of(owner, tensor)


def output_of(inputs):
    """Returns a function that makes an output of a tensor.

    A view of an input stays a view; other memory is copied into the pool, if it is not there.
    """
    if _state["is_process_wide"]:
        return from_tensor

    def convert(tensor):
        tensor = tensor.detach()
        begin = tensor.data_ptr()
        for given in inputs:
            if given.nbytes and given.data_ptr <= begin < given.data_ptr + given.nbytes:
                return _part_of(given, tensor)
        output = _cgtree.empty(tuple(tensor.shape), tensor.dtype)
        if output.nbytes:
            as_tensor(output).copy_(tensor)
        return output

    return convert


def clear_workspaces(device):
    """Releases cuBLAS's workspaces, 32 MiB for each thread and stream on recent GPUs. They would outlive the
    step they were allocated in."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None and device.type == "cuda":
        clear()


def segment_of(tensor):
    """Returns the memory of the context's pool from which the tensor was cut, as a tensor of bytes, or None for other
    memory."""
    return _cgtree.lent(tensor.data_ptr()) if tensor.is_cuda else None


def obey_record_stream():
    """Makes Tensor.record_stream() hold memory of cgtree back from replays, as PyTorch's allocator does with its own
    memory; that allocator does not know cgtree's. Calls by libraries in C++ are not seen."""
    if "record_stream" in torch.Tensor.__dict__:
        return
    original = torch.Tensor.record_stream

    def record_stream(self, stream):
        original(self, stream)
        note_stream(self, stream)

    torch.Tensor.record_stream = functools.wraps(original)(record_stream)


def note_stream(tensor, stream):
    """When the last tensor of this memory is gone, later writers wait for the work of the stream so far."""
    memory = _cgtree.lent(tensor.data_ptr())
    if memory is not None:
        weakref.finalize(tensor.untyped_storage(), memory.note_use, stream).atexit = False


def _pool_for(device):
    """Returns the MemPool of the context whose step function runs here. The pool is kept, and empty
    when another context gets the number."""
    key = (device, _cgtree.context_of_step())
    if key not in _pools:
        _pools[key] = torch.cuda.MemPool(_pluggable().allocator())
    return _pools[key]


class OtherPool(NotSupported):
    """The caller uses a torch.cuda.MemPool, from which PyTorch allocates in a step too."""


_OTHER_POOL = ("a torch.cuda.MemPool of the caller's is in use: call the function outside of "
               "torch.cuda.use_mem_pool()")


def _allocates_here(device):
    """Returns whether PyTorch allocates from the step. Requires: the step's pool is in use."""
    return segment_of(torch.empty(1, dtype=torch.uint8, device=device)) is not None


@contextlib.contextmanager
def _memory(device, may_keep):
    """In the block PyTorch allocates from cgtree. Inside another step function it does so already.

    Raises OtherPool if PyTorch allocates elsewhere, unless the block may keep its allocations.
    """
    here = _here.__dict__.setdefault("devices", set())
    if device in here:
        yield
        return
    if not may_keep and versions.pools_in_use(device):
        raise OtherPool(_OTHER_POOL)
    with _turns.setdefault(device, threading.Lock()):
        here.add(device)
        _cgtree.torch_options(use_steps=not may_keep)
        pool = None
        try:
            pool = _pool_for(device) if may_keep else torch.cuda.MemPool(_pluggable().allocator())
            # An exception keeps the frames that it passed, and must not keep the pool.
            with torch.cuda.use_mem_pool(types.SimpleNamespace(id=pool.id), device=device):
                if not may_keep and not _allocates_here(device):
                    _ends_later.setdefault(device, []).append(pool)
                    raise OtherPool(_OTHER_POOL)
                yield
            if not versions.pools_in_use(device):
                _ends_later.pop(device, None)
        finally:
            if versions.pools_in_use(device):  # on another thread
                _ends_later.setdefault(device, []).append(pool)
            pool = None  # ends the pool, and with it the segments, if it was made for this block
            _cgtree.torch_options(use_steps=True)
            here.remove(device)


@contextlib.contextmanager
def _without_autocast_cache():
    """Weights that autocast casts in a step must not be found after it, nor in another step."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def _stream_of(stream, device):
    """Returns PyTorch's stream for the same stream of the driver."""
    legacy, per_thread = 1, 2  # the numbers of the default streams in interfaces of arrays
    if stream.ptr in (0, legacy):
        return torch.cuda.default_stream(device)
    if stream.ptr == per_thread:
        raise InvalidArgument("PyTorch does not work on the default stream of a thread: use "
                                      "a stream that was created, or torch.cuda.current_stream()")
    return torch.cuda.ExternalStream(stream.ptr, device=device)


@contextlib.contextmanager
def step(device=None, may_keep=True):
    """In the block PyTorch's stream is current_stream(), and its memory comes from cgtree.

    The backward pass runs on this thread, so that it is recorded and finds the memory. may_keep:
    allocations of the block may outlive it, and not only the outputs, which are then copied.
    """
    current = _cgtree.current_stream()
    if current.device.startswith("host"):
        raise NotSupported("a step function of PyTorch's runs at once on the host device, and is not "
                           "recorded: use a GPU, or cgtree.torch.compile()")
    device = torch.device(device or current.device)
    stream = _stream_of(current, device)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.cuda.device(device))
        stack.enter_context(torch.cuda.stream(stream))
        stack.enter_context(_without_autocast_cache())
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        if not _state["is_process_wide"]:
            stack.enter_context(_memory(device, may_keep))
        clear_workspaces(device)
        try:
            yield stream
        finally:
            clear_workspaces(device)
