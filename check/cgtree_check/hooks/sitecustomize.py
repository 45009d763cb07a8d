"""Python's part of cgtree-check: frames at captures, and the events of PyTorch's allocator.

`cgtree-check run` puts this folder in front of PYTHONPATH. A sitecustomize that was there is imported, too.
CGTREE_CHECK_TORCH=0 leaves PyTorch alone; CGTREE_CHECK_TORCH_ENTRIES is the number of events that its allocator keeps;
with CGTREE_CHECK_TORCH_FRAMES=1 they have the lines that allocated and freed.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys


# An event with frames keeps the code of its functions alive, and all that torch.compile() holds for that code: CUDA
# graphs and their memory. A program that drops such functions, as the tests of graph trees do, would run another way.
FRAMES = os.environ.get("CGTREE_CHECK_TORCH_FRAMES") == "1"


def chain():
    """Imports the sitecustomize that this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def library():
    """The library, which is loaded. Its functions do nothing before CUDA starts."""
    import ctypes

    found = ctypes.CDLL(None)
    found.cgtree_check_blocks.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    found.cgtree_check_blocks.restype = None
    found.cgtree_check_python_frames.argtypes = [ctypes.c_char_p]
    found.cgtree_check_python_frames.restype = None
    return found


def where(event):
    """The innermost line of the program in the frames of an event of PyTorch's allocator, or how to get it, or ""."""
    if not FRAMES:
        return "" if event["action"] == "alloc" else "a line that CGTREE_CHECK_TORCH_FRAMES=1 names"
    for frame in event.get("frames") or []:
        if frame["filename"].endswith(".py") and "/torch/" not in frame["filename"]:
            return f"{frame['filename']}:{frame['line']}"
    return ""


# Segments of graphs' own pools, as (address, bytes). They go with their graphs.
POOLS = set()


def note_pools(segments):
    POOLS.update((segment["address"], segment["total_size"]) for segment in segments
                 if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0))


def segments_of(torch):
    try:
        return torch.cuda.memory_snapshot(include_traces=False)  # fast where the history is long
    except TypeError:  # another version
        return torch.cuda.memory_snapshot()


def blocks_of(snapshot):
    """A snapshot of torch.cuda.memory, as check/blocks.h reads it."""
    note_pools(snapshot["segments"])
    actions = {"alloc": "allocate", "free_completed": "free", "free": "free"}
    lines = [f"{event['time_us']},{actions[event['action']]},{event['addr']:x},{event['size']},"
             f"{where(event)}"
             for trace in snapshot["device_traces"] for event in trace
             if event["action"] in actions and "time_us" in event]
    lines += [f"0,kept,{address:x},{size}," for address, size in sorted(POOLS)]
    return "\n".join(lines)


def watch_allocator(torch, checker):
    """Has PyTorch's allocator keep its last events, and hands them over at the end and when asked."""
    import atexit
    import ctypes

    entries = int(os.environ.get("CGTREE_CHECK_TORCH_ENTRIES", "200000"))

    def hand_over():
        try:
            text = blocks_of(torch.cuda.memory._snapshot()).encode(errors="replace")
            checker.cgtree_check_blocks(text, len(text))
        except Exception as error:  # the program must not notice
            print(f"cgtree-check: no blocks of PyTorch: {error}", file=sys.stderr)

    ask = ctypes.CFUNCTYPE(None)(hand_over)

    def start():  # inside of PyTorch's own start
        try:
            torch.cuda.memory._record_memory_history(
                context="all" if FRAMES else None, stacks="python", max_entries=entries)
            checker.cgtree_check_set_source(ask)
        except Exception as error:
            print(f"cgtree-check: no history of PyTorch's allocator: {error}", file=sys.stderr)

    def end(kept=ask):  # as long as the library may call it
        checker.cgtree_check_set_source(ctypes.CFUNCTYPE(None)())
        if torch.cuda.is_initialized():
            hand_over()

    torch.cuda._lazy_call(start)
    atexit.register(end)


def watch_captures(torch, checker):
    """Gives the frames of Python where PyTorch gives up the interpreter's lock before it calls CUDA."""
    import traceback

    def end(self, method=torch.cuda.CUDAGraph.capture_end):
        ended = method(self)
        try:
            note_pools(segments_of(torch))
        except Exception as error:
            print(f"cgtree-check: no pools of graphs: {error}", file=sys.stderr)
        return ended

    def with_frames(method):
        def call(self, *arguments, **options):
            stack = traceback.extract_stack(sys._getframe(1), limit=32)
            lines = "\n".join(f"{frame.name} at {frame.filename}:{frame.lineno}" for frame in reversed(stack))
            checker.cgtree_check_python_frames(lines.encode(errors="replace"))
            try:
                return method(self, *arguments, **options)
            finally:
                checker.cgtree_check_python_frames(b"")

        return call

    graph = torch.cuda.CUDAGraph
    graph.capture_end = end
    for name in ("capture_begin", "capture_end", "instantiate"):
        if hasattr(graph, name):
            setattr(graph, name, with_frames(getattr(graph, name)))


def after_torch(torch):
    """Never fails: another version of PyTorch may lack a function that it calls."""
    for watch in (watch_captures, watch_allocator):
        try:
            if torch.backends.cuda.is_built():
                watch(torch, library())
        except Exception as error:
            print(f"cgtree-check: {watch.__name__}: {error}", file=sys.stderr)


class AfterTorch(importlib.abc.MetaPathFinder):
    """Calls after_torch() when the program has imported torch. It stays: many look whether torch can be found first."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                after_torch(module)

            spec.loader.exec_module = exec_module
        return spec


if os.environ.get("CGTREE_CHECK_DIR") and os.environ.get("CGTREE_CHECK_TORCH") != "0":
    sys.meta_path.insert(0, AfterTorch())
    if "torch" in sys.modules:  # by a .pth file
        after_torch(sys.modules["torch"])
chain()
