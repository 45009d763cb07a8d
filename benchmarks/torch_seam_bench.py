"""Host cost of a call of a compiled PyTorch model: cgtree, PyTorch's graph trees, and Dynamo alone.

usage: torch_seam_bench.py [--device=cuda] [--repeats=15] [--calls=200] [--kinds=a,b] [--rows=a,b]
                           [--json=FILE] [--no-work]

Models have 50 and 350 parameters; inference without gradients, the same with a position that counts up and selects the
written row of a buffer, and a training step (forward, backward, and an SGD step with gradients kept). Rows, each in the
same process and of the same model:

    eager            as it is
    bare graph       torch.cuda.CUDAGraph of the model, replayed: what its launch takes
    floor            Dynamo with a back end that does nothing: its guards, and the call
    cgtree eager     cgtree.torch.compile(kernels="eager")
    cgtree inductor  cgtree.torch.compile(kernels="inductor")
    graph trees      torch.compile(mode="reduce-overhead")

Times are of the host, in microseconds per call: the median of --repeats samples of --calls calls, each of which begins
with an idle device and ends before the wait for the device; and the least sample. `above_floor` is the median less that
of the floor. On the CPU a graph is a node that runs its operators; with --no-work it is empty there, and its results
are not defined: the remaining time is that of the replay.
"""

import argparse
import gc
import itertools
import json
import logging
import os
import statistics
import sys
import time
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "python"), ROOT]

import torch  # noqa: E402

import cgtree.torch  # noqa: E402
from cgtree import _torch_seam  # noqa: E402
from cgtree._torch_outputs import allocate  # noqa: E402

ROWS = ("eager", "bare graph", "floor", "cgtree eager", "cgtree inductor", "graph trees")
KINDS = ("inference", "position", "training")
WARM_UPS = 12
POSITIONS = 4096


class Model(torch.nn.Module):
    """Layers with two parameters each."""

    def __init__(self, parameters):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(parameters // 2))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class Decoder(Model):
    """A model that writes a row of its buffer at a position."""

    def __init__(self, parameters):
        super().__init__(parameters)
        self.register_buffer("rows", torch.zeros(POSITIONS, 32))

    def forward(self, x, position):  # pylint: disable=arguments-differ
        y = super().forward(x)
        self.rows[position:position + 1] = y[:1]
        return y + position


def floor(results):
    """A back end of Dynamo that returns the same results at once."""
    def backend(graph, inputs):
        count = len(graph.graph.output_node().args[0])
        return lambda *_: (results,) * count
    return backend


def bare_graph(model, inputs):
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        model(*inputs)
        with torch.cuda.graph(graph):
            model(*inputs)
    return lambda *_: graph.replay()


def compiled(row, model, inputs):
    if row == "eager":
        return model
    if row == "bare graph":
        return bare_graph(model, inputs)
    if row == "floor":
        with torch.no_grad():
            return torch.compile(model, backend=floor(model(*inputs)))
    if row == "graph trees":
        return torch.compile(model, mode="reduce-overhead")
    return cgtree.torch.compile(model, kernels=row.split()[1])


def without_work(kind, _):
    """Replaces run_on_host(): enqueues nothing."""
    return tuple([output for _, output in map(allocate, kind._recipe.made)])


def measure(call, options, synchronize):
    samples = []
    for _ in range(WARM_UPS):
        call()
    for _ in range(options.repeats):
        synchronize()
        gc.disable()
        spent = 0
        for _ in range(options.calls):
            begin = time.perf_counter_ns()
            call()
            spent += time.perf_counter_ns() - begin
            synchronize()
        gc.enable()
        samples.append(spent / options.calls / 1000)
    return {"median": round(statistics.median(samples), 3), "least": round(min(samples), 3)}


def inference(call, x, row, has_position):
    mark = torch.compiler.cudagraph_mark_step_begin if row == "graph trees" else None
    positions = itertools.cycle(range(POSITIONS))

    def run():
        if mark is not None:
            mark()
        with torch.no_grad():
            call(x, next(positions)) if has_position else call(x)
    return run


def training(call, x, row, model):
    mark = torch.compiler.cudagraph_mark_step_begin if row == "graph trees" else None
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def run():
        if mark is not None:
            mark()
        call(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--parameters", default="50,350")
    parser.add_argument("--json", default="")
    parser.add_argument("--no-work", action="store_true")
    options = parser.parse_args()
    if options.no_work:
        _torch_seam.run_on_host = without_work
    torch._logging.set_logs(all=logging.CRITICAL)
    warnings.simplefilter("ignore")
    synchronize = torch.cuda.synchronize if options.device != "cpu" else lambda: None
    results = []
    for parameters in map(int, options.parameters.split(",")):
        for kind in options.kinds.split(","):
            bare = None
            for row in options.rows.split(","):
                if row in ("bare graph", "floor") and kind != "inference":
                    continue
                if row == "bare graph" and options.device == "cpu":
                    continue
                torch._dynamo.reset()
                torch.manual_seed(0)
                model = (Decoder if kind == "position" else Model)(parameters).to(options.device)
                x = torch.randn(8, 32, device=options.device)
                entry = {"parameters": parameters, "kind": kind, "row": row}
                try:
                    call = compiled(row, model, (x,))
                    run = (training(call, x, row, model) if kind == "training"
                           else inference(call, x, row, kind == "position"))
                    entry.update(measure(run, options, synchronize))
                    if row.startswith("cgtree"):
                        entry["stats"] = cgtree.torch.stats(call)
                except Exception as error:  # pylint: disable=broad-except
                    entry["failed"] = f"{type(error).__name__}: {str(error).strip()[:300]}"
                if row == "floor" and "median" in entry:
                    bare = entry["median"]
                elif bare is not None and "median" in entry:
                    entry["above_floor"] = round(entry["median"] - bare, 3)
                results.append(entry)
                above = f"{entry['above_floor']:+9.1f} above the floor" if "above_floor" in entry else ""
                print(f"{parameters:4} {kind:10} {row:16} {entry.get('median', float('nan')):9.1f} us "
                      f"{above} {entry.get('failed', '')}", flush=True)
    if options.json:
        name = torch.cuda.get_device_name() if options.device != "cpu" else "CPU"
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"program": "torch_seam_bench", "device": name, "torch": torch.__version__,
                       "unit": "us", "command": sys.argv[1:], "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
