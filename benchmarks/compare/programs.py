"""The programs to run, and the rows to compare."""

import collections
import re

# `result` is the stem of the file in benchmarks/results. `commands` run one after the other in each round: first
# cgtree's, then the peers'; a command that ends in .py needs PyTorch, and is left out without it. `pairs` are (row, row
# to compare it with), the first a pattern of the whole name; the second may use its groups, and may name several: the
# best of them counts.
Program = collections.namedtuple("Program", "result commands pairs samples")

PROGRAMS = [
    Program("replay_bench", ["replay_bench", "baselines/torch_trees.py"], [
        (r"BM_BareLaunch/nodes:(\d+)", [r"BM_BareCudaGraphLaunch/nodes:\1"]),
        (r"BM_(Call|Chain)/((copied|static|functions):.*)",
         [r"BM_\1/torch_trees/\2", r"BM_\1/torch_compile/\2"]),
        (r"BM_BareLaunch/(ordered|patched:.*)", ["BM_BareLaunch/nodes:1"]),
        (r"BM_(Call|EagerCall)/.*", ["BM_BareLaunch/nodes:1"]),
    ], 400),
    Program("device_bench", ["device_bench"], [
        (r"BM_GraphLaunch/nodes:(\d+)", [r"BM_RawCudaGraphLaunch/nodes:\1"]),
    ], 400),
    Program("engine_bench", ["engine_bench"], [
        (r"BM_StepBlock/(.*)", [r"BM_CopiesOfArrays/\1"]),
        (r"BM_Steps/(.*)", [r"BM_MapOfGraphs/\1"]),
    ], 400),
    Program("copy_bench", ["copy_bench"], [
        (r"BM_Device/copied_mib:(\d+)", [r"BM_Device/memcpy_mib:\1"]),
        (r"BM_(Alone|Row)/chosen/(.*)", [r"BM_\1/copied/\2", r"BM_\1/rebound/\2"]),
    ], 200),
    Program("audit_bench", ["audit_bench"], [
        (r"BM_Audited/(.*)", [r"BM_Raw/\1"]),
    ], 400),
    Program("record_bench", ["record_bench"], [
        (r"BM_(TwoCalls|SecondCall)/(?:arena|tensors)/(.*)", [r"BM_\1/raw/\2"]),
        (r"BM_Instantiate/(.*)/others:[1-9]", [r"BM_Instantiate/\1/others:0"]),
    ], 400),
    Program("verify_bench", ["verify_bench"], [
        (r"BM_(Compare|Exchange)/(.*)", [r"BM_Copy/\2"]),
        (r"BM_Replay/verify_every:[1-9]\d*", ["BM_Replay/verify_every:0"]),
    ], 400),
    Program("interop_bench", ["interop_bench"], [
        (r"(BM_\w+)/api:c/(.*)", [r"\1/api:cpp/\2"]),
    ], 400),
    Program("match_bench", ["match_bench"], [], 200),
    Program("allocator_bench", ["allocator_bench", "baselines/c10_bench.py"], [
        (r"(BM_\w+)/(?:pool|eager)/(.*)", [r"\1/c10/\2", r"\1/cub/\2", r"\1/cudaMallocAsync/\2"]),
    ], 100),
]

# Names for readers of the rows of peers, by the start of their names.
PEERS = {
    "BM_Call/torch_trees": "PyTorch's trees",
    "BM_Chain/torch_trees": "PyTorch's trees",
    "BM_Call/torch_compile": "torch.compile",
    "BM_Chain/torch_compile": "torch.compile",
    "BM_MapOfGraphs": "a map of graphs",
    "BM_Pair/c10": "PyTorch's c10",
    "BM_Pair/cub": "CUB's allocator",
    "BM_Pair/cudaMallocAsync": "cudaMallocAsync",
    "BM_Trace/c10": "PyTorch's c10",
}

# The rows of the picture: (program, row, name for readers).
MAIN_ROWS = [
    ("replay_bench", "BM_Call/copied:0/moved:0", "a call"),
    ("replay_bench", "BM_Call/copied:16/moved:1", "16 inputs that have moved"),
    ("replay_bench", "BM_Call/static:300", "300 static inputs"),
    ("replay_bench", "BM_Chain/functions:16", "a chain of 16 functions"),
    ("engine_bench", "BM_Steps/copied:16", "a step of an engine, 16 inputs"),
    ("allocator_bench", "BM_Pair/pool/one_size:4096/live:500", "allocate and free, one size"),
    ("allocator_bench", "BM_Pair/pool/random_sizes/live:8192", "the same, 8,192 random sizes live"),
    ("allocator_bench", "BM_Trace/pool/W_medium_128_training", "an allocation log of training"),
]


def rivals(program, name):
    """Returns the names of the rows to compare with this row, from the first pattern that
    applies."""
    for pattern, others in program.pairs:
        found = re.fullmatch(pattern, name)
        if found:
            return [found.expand(other) for other in others]
    return []
