#!/usr/bin/env python3
"""Measures the share of addresses in frameworks' kernels that the audit of a recording attributes.

usage: audit_libraries.py [--device=auto] [--json=FILE] [--torch-allocator=pool|cgtree]

Each step is warmed up, recorded and replayed in a separate context. Then the snapshot's audit is
summed up: addresses by owner of the memory, the share that is not foreign, and the foreign or
unseen rest. All arrays are static inputs, unless the step's name says otherwise.
benchmarks/libraries is the same in C++. A framework that is absent is a row with "missing".

With --torch-allocator=cgtree, cgtree is the allocator of PyTorch for the whole process; otherwise
steps allocate from a pool of PyTorch over cgtree's memory.
"""

import argparse
import collections
import importlib
import inspect
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "python"), ROOT]

import cgtree  # noqa: E402

try:  # at module level, because Triton reads a kernel's source and globals
    import triton
    import triton.language as tl
except ImportError:
    triton = None
else:
    @triton.jit
    def _add(x, y, out, n, block: tl.constexpr):
        offsets = tl.program_id(0) * block + tl.arange(0, block)
        mask = offsets < n
        value = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
        tl.store(out + offsets, value, mask=mask)

CALLS = 3  # a warm-up, a recording and a replay

# `declared` lists (name, address, bytes) for Context.declare().
Step = collections.namedtuple("Step", "library name run arrays declared", defaults=((),))


def share_of(snapshot):
    """Returns the audits of all recordings, summed up as described in
    benchmarks/support/audit_share.h."""
    by_owner, foreign, unseen = collections.Counter(), collections.Counter(), collections.Counter()
    for node in snapshot["nodes"]:
        audit = node["audit"]
        for memory in audit["memory"]:
            by_owner[memory["owner"]] += memory["words"]
        for pointer in audit["foreign"]:
            foreign[pointer["what"]] += pointer["nodes"]
        for nodes in audit["unseen"]:
            unseen[nodes["what"]] += nodes["nodes"]
    addresses = sum(by_owner.values())
    return {"kernels": sum(node["kernel_nodes"] for node in snapshot["nodes"]),
            "recordings": len(snapshot["nodes"]), "addresses": addresses,
            "by_owner": dict(by_owner),
            "attributed": 1 - by_owner["foreign"] / addresses if addresses else None,
            "foreign": [{"what": what, "nodes": nodes} for what, nodes in foreign.items()],
            "unseen": [{"what": what, "nodes": nodes} for what, nodes in unseen.items()]}


def measure(device, framework, step):
    """Returns the row of a step."""
    row = {"library": step.library, "step": step.name}
    try:
        context = cgtree.Context(device)
        for name, address, nbytes in step.declared:
            context.declare(name, address, nbytes)
        function = context.compile(step.run, name=step.name, framework=framework,
                                   static=list(inspect.signature(step.run).parameters),
                                   require_graph=True)
        for _ in range(CALLS):
            function(*step.arrays)
        context.synchronize()
        return row | share_of(json.loads(context.snapshot_json()))
    except Exception as error:  # a row that cannot be measured must not end the run
        return row | {"missing": f"{type(error).__name__}: {error}"}


def numpy_steps(numpy, device):
    if not device.startswith("host"):
        return []
    x = numpy.ones(64, "float32")
    return [Step("NumPy", "a function as a node", lambda x: x + 1, (x,))]


def cupy_steps(cupy, device):
    if device.startswith("host"):
        return []
    x = cupy.random.rand(512, 512, dtype="float32")
    bias = cupy.random.rand(512, dtype="float32")
    return [Step("CuPy", "elementwise", lambda x: cupy.tanh(x * 2) - 1, (x,)),
            Step("CuPy", "reduction", lambda x: x.sum(axis=1), (x,)),
            Step("CuPy", "matmul (cuBLAS)", lambda x: x @ x, (x,)),
            Step("CuPy", "sort (Thrust)", lambda x: cupy.sort(x, axis=None), (x,)),
            Step("CuPy", "cumsum", lambda x: cupy.cumsum(x), (x,)),
            Step("CuPy", "bias of the closure", lambda x: x + bias, (x,)),
            Step("CuPy", "bias of the closure, declared", lambda x: x + bias, (x,),
                 (("bias", bias.data.ptr, bias.nbytes),))]


def numba_steps(cuda, device):
    if device.startswith("host"):
        return []
    importlib.import_module("cgtree.numba")

    @cuda.jit
    def double(x, y):
        i = cuda.grid(1)
        if i < y.size:
            y[i] = 2 * x[i]

    def step(x):
        y = cgtree.numba.empty(x.shape)
        double[(x.size + 127) // 128, 128, cgtree.numba.stream()](x, y)
        return y

    return [Step("Numba", "a kernel", step, (cuda.device_array(5000, "float32"),))]


def torch_steps(torch, device):
    if device.startswith("host"):
        return []
    functional = torch.nn.functional

    def random(*shape, dtype=torch.float32):
        return torch.randn(shape, device="cuda", dtype=dtype)

    x, w = random(512, 512), random(512, 512)
    xh, wh = random(512, 512, dtype=torch.bfloat16), random(512, 512, dtype=torch.bfloat16)
    heads = random(2, 8, 256, 64, dtype=torch.bfloat16)
    image, filters = random(4, 64, 32, 32), random(64, 64, 3, 3)
    tokens, table = torch.arange(64, device="cuda"), random(1000, 256)
    norm = random(512)
    steps = [
        Step("PyTorch", "elementwise", lambda x: torch.tanh(x * 2) - 1, (x,)),
        Step("PyTorch", "matmul in float32", lambda x, w: x @ w, (x, w)),
        Step("PyTorch", "matmul in bfloat16", lambda x, w: x @ w, (xh, wh)),
        Step("PyTorch", "linear with bias", lambda x, w, b: functional.linear(x, w, b),
             (x, w, norm)),
        Step("PyTorch", "scaled dot product attention",
             lambda q: functional.scaled_dot_product_attention(q, q, q, is_causal=True), (heads,)),
        Step("PyTorch", "layer norm", lambda x, w: functional.layer_norm(x, (512,), w), (x, norm)),
        Step("PyTorch", "softmax", lambda x: torch.softmax(x, dim=-1), (x,)),
        Step("PyTorch", "embedding", lambda t, w: functional.embedding(t, w), (tokens, table)),
        Step("PyTorch", "convolution (cuDNN)",
             lambda x, w: functional.conv2d(x, w, padding=1), (image, filters)),
        Step("PyTorch", "sort", lambda x: torch.sort(x.flatten())[0], (x,)),
        Step("PyTorch", "cumsum", lambda x: torch.cumsum(x.flatten(), 0), (x,)),
        Step("PyTorch", "topk", lambda x: torch.topk(x, 8)[0], (x,)),
        Step("PyTorch", "concatenation", lambda x, w: torch.cat((x, w, x)), (x, w)),
        Step("PyTorch", "weight of the closure", lambda x: x @ w, (x,)),
        Step("PyTorch", "weight of the closure, declared", lambda x: x @ w, (x,),
             (("weight", w.data_ptr(), w.numel() * w.element_size()),)),
    ]
    if triton is not None:
        def add(x, y):
            out = torch.empty_like(x)
            _add[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), block=256)
            return out

        steps.append(Step("Triton", "a kernel", add, (x, w)))
    return steps


FRAMEWORKS = [("numpy", "numpy", numpy_steps), ("cupy", "cupy", cupy_steps),
              ("numba", "numba.cuda", numba_steps), ("torch", "torch", torch_steps)]


def print_row(row):
    name = f"{row['library']}, {row['step']}"
    if "missing" in row:
        print(f"{name:<50} {row['missing']}")
        return
    share = "-" if row["attributed"] is None else f"{100 * row['attributed']:.1f} %"
    print(f"{name:<50}{row['kernels']:>8}{row['addresses']:>10}{share:>12}"
          f"{len(row['foreign']):>9}{len(row['unseen']):>8}")
    for kind in ("foreign", "unseen"):
        for entry in row[kind]:
            print(f"    {kind}: {entry['what']} ({entry['nodes']} nodes)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", help="file to write the results to")
    parser.add_argument("--torch-allocator", choices=["pool", "cgtree"], default="pool")
    options = parser.parse_args()
    device = cgtree.best_device() if options.device == "auto" else options.device
    rows = []
    print(f"{'library, step':<50}{'kernels':>8}{'addresses':>10}{'attributed':>12}{'foreign':>9}"
          f"{'unseen':>8}")
    for framework, module, steps_of in FRAMEWORKS:
        try:
            library = importlib.import_module(module)
            if framework == "torch" and options.torch_allocator == "cgtree":
                importlib.import_module("cgtree.torch").use_allocator()
            steps = steps_of(library, device)
        except Exception as error:  # as above
            rows.append({"library": framework, "step": "all",
                         "missing": f"{type(error).__name__}: {error}"})
            print_row(rows[-1])
            continue
        for step in steps:
            rows.append(measure(device, framework, step))
            print_row(rows[-1])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"program": "audit_libraries", "device": device,
                       "cgtree": cgtree.__version__, "torch_allocator": options.torch_allocator,
                       "rows": rows}, file, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
