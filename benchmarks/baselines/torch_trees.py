#!/usr/bin/env python3
"""Measures the host's time per call of PyTorch's CUDA graph trees; writes rows as replay_bench's.

  python3 benchmarks/baselines/torch_trees.py --json=torch.json [--samples=N] [--merge=FILE]

Needs PyTorch with CUDA and a GPU; the rows of torch.compile also need Triton and a C compiler. A
section that fails leaves a row with an "error". With --merge, the rows are added to those of a
result file of replay_bench, made just before on the same machine.

BM_.../torch_trees/... calls torch._inductor.cudagraph_trees directly: the cost of the trees alone.
BM_.../torch_compile/... calls a function compiled with mode="reduce-overhead": a user's cost,
guards included. As in replay_bench, a sample is the mean of a batch of calls, the device is drained
off the clock, and the kernels are trivial.
"""

import argparse
import json
import pathlib
import sys
import time
import traceback

ELEMENTS = 1024  # of float, per copied input: 4 KiB
CALLS = 16  # per sample
UNTIL_DRAINED = 4  # samples
FUNCTIONS = 16  # of the chain


class Recorded(Exception):
    """A row that claims to time replays has timed other work."""


def measure(torch, name, call, samples, calls=CALLS):
    """A row of replay_bench's form; the times are host us per call."""
    for _ in range(3 * CALLS):  # warms up, records, settles
        call()
    torch.cuda.synchronize()
    per_call = []
    for sample in range(samples):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        per_call.append((time.perf_counter_ns() - begin) / calls / 1e3)
        if sample % UNTIL_DRAINED == UNTIL_DRAINED - 1:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    per_call.sort()
    mean = sum(per_call) / len(per_call)
    return {"name": name, "run_name": name, "run_type": "iteration", "repetitions": 1,
            "repetition_index": 0, "threads": 1, "iterations": samples, "real_time": mean,
            "cpu_time": mean, "time_unit": "us", "min_us": per_call[0],
            "median_us": per_call[len(per_call) // 2], "p99_us": per_call[len(per_call) * 99 // 100]}


def inputs_of(torch, count, elements=ELEMENTS):
    """Each has its own storage, as inputs from different places have."""
    return [torch.zeros(elements, device="cuda") for _ in range(count)]


# The trees alone.


def graphed(torch, inputs, static):
    """x -> x[0] + 1 of one element, through the trees; takes and clears a list, as they
    require."""
    from torch._inductor.cudagraph_trees import cudagraphify

    def step(boxed):
        first = boxed[0]
        boxed.clear()
        return [first[:1] + 1]

    function, _ = cudagraphify(step, list(inputs), static_input_idxs=tuple(static), device_index=0,
                               is_backward=False, is_inference=True, stack_traces=[None])
    return function


def graphs_recorded():
    """The number of graphs that the trees have recorded; counts itself."""
    from torch._inductor.cudagraph_trees import get_container
    manager = get_container(0).tree_manager
    return manager.new_graph_id().id


def measure_replays(torch, name, call, samples, calls=CALLS):
    for _ in range(3 * CALLS):
        call()
    before = graphs_recorded()
    row = measure(torch, name, call, samples, calls)
    if graphs_recorded() != before + 1:
        raise Recorded("graphs were recorded while replays were timed")
    return row


def trees_call(torch, samples, copied=0, static=0, moved=False):
    count = max(copied, static, 1)  # a function without inputs gets one static input
    is_static = copied == 0
    sets = [inputs_of(torch, count), inputs_of(torch, count)]
    function = graphed(torch, sets[0], range(count) if is_static else ())
    which = 0

    def call():
        nonlocal which
        function(list(sets[which]))
        which ^= moved

    what = f"static:{static}" if static else f"copied:{copied}/moved:{int(moved)}"
    return measure_replays(torch, f"BM_Call/torch_trees/{what}", call, samples)


def trees_chain(torch, samples):
    first = inputs_of(torch, 1)[0]
    mark_step = torch.compiler.cudagraph_mark_step_begin
    mark_step()
    functions = []
    x = first
    for i in range(FUNCTIONS):
        functions.append(graphed(torch, [x], (0,) if i == 0 else ()))
        x = functions[-1]([x])[0]
    del x

    def step():
        mark_step()
        x = first
        for function in functions:
            x = function([x])[0]

    return measure_replays(torch, f"BM_Chain/torch_trees/functions:{FUNCTIONS}", step, samples,
                           calls=1)


# torch.compile.


def skips(torch):
    from torch._dynamo.utils import counters
    return counters["inductor"]["cudagraph_skips"]


def measure_compiled(torch, name, call, samples, calls=CALLS):
    before = skips(torch)
    row = measure(torch, name, call, samples, calls)
    if skips(torch) != before:
        raise Recorded(f"graphs were skipped {skips(torch) - before} times")
    return row


def compiled(torch, function):
    return torch.compile(function, mode="reduce-overhead", fullgraph=True)


def compile_copied(torch, samples, copied, moved):
    sets = [inputs_of(torch, max(copied, 1)), inputs_of(torch, max(copied, 1))]
    if copied == 0:
        torch._dynamo.mark_static_address(sets[0][0])
    function = compiled(torch, lambda inputs: sum([x[:1] for x in inputs]) + 1)
    which = 0

    def call():
        nonlocal which
        function(sets[which])
        which ^= moved

    name = f"BM_Call/torch_compile/copied:{copied}/moved:{int(moved)}"
    return measure_compiled(torch, name, call, samples)


def compile_static(torch, samples, static):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList(
                torch.nn.Parameter(weight) for weight in inputs_of(torch, static, 1))

        def forward(self):
            return torch.cat(list(self.weights)).sum()

    return measure_compiled(torch, f"BM_Call/torch_compile/static:{static}",
                            compiled(torch, Model()), samples)


def compile_chain(torch, samples):
    first = inputs_of(torch, 1)[0]
    torch._dynamo.mark_static_address(first)

    def make(shift):
        # A unique literal keeps the functions apart: otherwise they would share their code.
        scope = {}
        exec(f"def step{shift}(x):\n  return x[:1] + {shift + 1}.0\n", scope)
        return compiled(torch, scope[f"step{shift}"])

    functions = [make(i) for i in range(FUNCTIONS)]

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        x = first
        for function in functions:
            x = function(x)

    return measure_compiled(torch, f"BM_Chain/torch_compile/functions:{FUNCTIONS}", step, samples,
                            calls=1)


# Graphs by hand.


def by_hand(torch, samples, copied):
    places = inputs_of(torch, max(copied, 1))
    inputs = inputs_of(torch, max(copied, 1))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = places[0][:1] + 1

    def call():
        if copied:
            torch._foreach_copy_(places, inputs)
        graph.replay()

    what = f"BM_ByHand/torch/copied:{copied}" if copied else "BM_BareLaunch/torch/nodes:1"
    row = measure(torch, what, call, samples)
    del output
    return row


def sections(torch, samples):
    """Names, and their measuring functions."""
    yield "BM_BareLaunch/torch/nodes:1", lambda: by_hand(torch, samples, 0)
    yield "BM_ByHand/torch/copied:16", lambda: by_hand(torch, samples, 16)
    for copied, moved in ((0, False), (1, False), (16, False), (16, True)):
        what = f"copied:{copied}/moved:{int(moved)}"
        yield (f"BM_Call/torch_trees/{what}",
               lambda c=copied, m=moved: trees_call(torch, samples, copied=c, moved=m))
    yield "BM_Call/torch_trees/static:300", lambda: trees_call(torch, samples, static=300)
    for copied, moved in ((0, False), (16, False), (16, True)):
        what = f"copied:{copied}/moved:{int(moved)}"
        yield (f"BM_Call/torch_compile/{what}",
               lambda c=copied, m=moved: compile_copied(torch, samples, c, m))
    yield "BM_Call/torch_compile/static:300", lambda: compile_static(torch, samples, 300)
    # Last, because after a program has marked a step the trees do not count generations themselves.
    yield f"BM_Chain/torch_trees/functions:{FUNCTIONS}", lambda: trees_chain(torch, samples)
    yield f"BM_Chain/torch_compile/functions:{FUNCTIONS}", lambda: compile_chain(torch, samples)


def forget(torch):
    """Each section begins with no trees."""
    try:
        from torch._inductor.cudagraph_trees import reset_cudagraph_trees
        torch.cuda.synchronize()
        torch._dynamo.reset()
        reset_cudagraph_trees()
    except Exception:  # the next section will report the error
        pass


def run(samples):
    import torch
    torch._dynamo.config.recompile_limit = 64  # sixteen functions, each compiled twice
    torch.cuda.init()
    rows = []
    with torch.no_grad():
        for name, section in sections(torch, samples):
            try:
                row = section()
                print(f"{name}: median {row['median_us']:.2f} us, p99 {row['p99_us']:.2f} us")
            except Exception as error:
                traceback.print_exc()
                row = {"name": name, "error": f"{type(error).__name__}: {error}"}
            rows.append(row)
            forget(torch)
    return rows, {"torch": torch.__version__, "torch_cuda": torch.version.cuda,
                  "torch_device": torch.cuda.get_device_name(0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", required=True)
    parser.add_argument("--samples", type=int, default=800)
    parser.add_argument("--merge", help="result file of replay_bench")
    arguments = parser.parse_args()
    results = {"context": {}, "benchmarks": []}
    if arguments.merge:
        results = json.loads(pathlib.Path(arguments.merge).read_text(encoding="utf-8"))
    try:
        rows, context = run(arguments.samples)
    except Exception as error:  # no PyTorch, or no GPU
        rows, context = [{"name": "torch", "error": f"{type(error).__name__}: {error}"}], {}
    results["context"].update(context)
    results["context"]["command_torch_trees"] = " ".join(sys.argv)
    results["benchmarks"] += rows
    pathlib.Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    failed = [row["name"] for row in rows if "error" in row]
    if failed:
        sys.exit(f"{len(failed)} of {len(rows)} sections failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
