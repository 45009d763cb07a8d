"""cgtree: the speed of CUDA graphs for functions that launch CuPy, Numba, Triton or PyTorch work.

    import cgtree

    @cgtree.compile(framework="cupy")
    def step(x, w):              # arrays of CuPy
        return cupy.tanh(x * w).sum(axis=0)

    for x in batches:
        cgtree.mark_step()       # outputs of the last step may now be overwritten
        y = step(x, w)           # warm up, record, and from then on: replay

Functions and modules of PyTorch take and return torch.Tensors with cgtree.torch.compile().
docs/python.md says more.
"""

try:
    import cgtree._cgtree as _extension  # noqa: F401
except ImportError as error:
    import os
    try:
        is_glibc = bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):  # musl has no such name
        is_glibc = False
    if not is_glibc:
        error.add_note("wheels of cgtree are for glibc, and this system has another C library")
    raise

from cgtree._cgtree import (  # noqa: F401
    CompiledFunction,
    Generator,
    Group,
    LoopStream,
    ProgressWatch,
    Stream,
    Tensor,
    as_tensor,
    axis_length,
    best_device,
    branch,
    choose,
    choose_results,
    current_key,
    current_stream,
    decide,
    eager_break,
    empty,
    from_array_interface,
    from_cuda_array_interface,
    from_dlpack,
    is_in_step,
    launch,
    loop,
    refuse_capture,
    scalar,
    set_log_level,
    step_block,
    suggest_buckets,
    thread_groups,
    view,
)
from cgtree._context import (
    Axis,
    Context,
    Scope,
    compile,
    default_context,
    dump_events_on_signal,
    mark_step,
    metrics_text,
    report,
    stats,
    synchronize,
)
from cgtree._errors import (
    BoundaryError,
    CaptureError,
    ConcurrentUse,
    DeviceError,
    Error,
    GroupError,
    InvalidArgument,
    MissingField,
    NotSupported,
    OutOfMemory,
    StaleTensor,
    VerifyError,
    WrongType,
    WrongValue,
)
from cgtree._steps import Steps

__version__ = "0.2.0"

__all__ = [
    "Axis", "BoundaryError", "CaptureError", "CompiledFunction", "ConcurrentUse", "Context",
    "DeviceError", "Error", "Generator", "Group", "GroupError", "InvalidArgument", "LoopStream", "MissingField",
    "NotSupported", "OutOfMemory", "ProgressWatch", "Scope", "StaleTensor", "Steps", "Stream", "Tensor", "VerifyError",
    "WrongType", "WrongValue",
    "as_tensor", "axis_length", "best_device", "branch", "choose", "choose_results", "compile", "current_key",
    "current_stream", "decide", "default_context", "dump_events_on_signal", "eager_break", "empty", "from_array_interface", "from_cuda_array_interface", "from_dlpack",
    "is_in_step", "launch", "loop", "mark_step", "metrics_text", "refuse_capture", "report", "scalar", "set_log_level", "stats",
    "step_block", "suggest_buckets", "synchronize", "thread_groups", "view",
]
