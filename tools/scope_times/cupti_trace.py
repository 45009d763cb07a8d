"""cupti_trace(): writes CUPTI's record of the GPU's work during a block, for scope_times to read.

For Python programs without Nsight Systems; the profiler of PyTorch up to 2.11 at least writes no numbers of graph
nodes. Needs the package cupti-python, of the version of CUDA that the process uses, and that no other profiler runs:
CUPTI serves one at a time.

    with cupti_trace("run.json"):
        for x in batches:
            decode(x)
"""

import contextlib
import json

_BUFFER_BYTES = 8 << 20


def _event(category, record):
    return {"ph": "X", "cat": category, "name": getattr(record, "name", category), "ts": record.start / 1000,
            "dur": (record.end - record.start) / 1000,
            "args": {"graph id": record.graph_id, "graph node id": record.graph_node_id}}


@contextlib.contextmanager
def cupti_trace(path):
    """Writes kernels, copies and memsets as JSON to the file when the block ends. The block must wait for the device at
    its end: work that has not ended is missing. Raises errors of cupti-python, and OSError."""
    from cupti import cupti

    kinds = {cupti.ActivityKind.CONCURRENT_KERNEL: "kernel", cupti.ActivityKind.MEMCPY: "gpu_memcpy",
             cupti.ActivityKind.MEMSET: "gpu_memset"}
    events = []
    cupti.activity_register_callbacks(
        lambda: (_BUFFER_BYTES, 0),
        lambda records: events.extend(_event(kinds[record.kind], record) for record in records if record.kind in kinds))
    for kind in kinds:
        cupti.activity_enable(kind)
    try:
        yield
    finally:
        for kind in kinds:
            cupti.activity_disable(kind)
        cupti.activity_flush_all(1)  # also buffers that are not full
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events}, file)
