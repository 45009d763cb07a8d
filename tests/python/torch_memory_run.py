"""Memory of recordings of PyTorch's graphs, on a GPU: each check prints its measurements.

usage: torch_memory_run.py [--only=part of a name] [--json=FILE]

Exits with 1 if a check fails, and with 77 without a GPU.
"""

import argparse
import copy
import gc
import json
import os
import subprocess
import sys
import threading
import traceback
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "python"), ROOT]

import torch  # noqa: E402

import cgtree.torch  # noqa: E402
from cgtree import _cgtree  # noqa: E402
from cgtree._torch_seam import context, cudagraphify  # noqa: E402

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def expect(condition, *seen):
    if not condition:
        raise AssertionError(", ".join(map(str, seen)))


def graph_of(function, mutated=()):
    def model(inputs):
        given = list(inputs)
        inputs.clear()
        return list(function(*given))

    return cudagraphify(model, (), device_index=0, is_inference=True,
                        mutated_input_idxs=tuple(mutated), name=function.__name__)


class Net(torch.nn.Module):
    def __init__(self, width=512, layers=6, dropout=0.0):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self.dropout = dropout

    def forward(self, x):
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
            if self.dropout:
                x = torch.nn.functional.dropout(x, self.dropout, self.training)
        return x


@check
def outputs_lie_in_the_pool_and_are_right():
    graph = graph_of(lambda x: [x * 2, (x + 1)[3:], x.sum()])
    before = _cgtree.torch_statistics()
    for _ in range(10):
        x = torch.randn(300, 1000, device="cuda")
        double, rest, total = graph([x])
        expect(torch.equal(double, x * 2) and torch.equal(rest, (x + 1)[3:]), "values differ")
        torch.testing.assert_close(total, x.sum())
    now = _cgtree.torch_statistics()
    replays = graph.stats()["replays"]
    expect(replays >= 5, graph.stats(), graph.kinds())
    expect(now["from_steps"] > before["from_steps"], "no segment came from a step's pool", now)
    expect(_cgtree.lent(double.data_ptr()) is not None, "the output is no memory of the pool")
    expect(now["blocks"] == before["blocks"], "PyTorch still holds segments", before, now)
    return f"{replays} replays, {now['from_steps'] - before['from_steps']} segments from the pool"


@check
def no_output_is_copied():
    counts = {}
    for may_keep in (False, True):
        def adds(x):
            return [x + number for number in range(8)]

        adds.__name__ = f"adds_{may_keep}"
        graph = graph_of(adds)
        for call in range(6):
            graph([torch.randn(64, device="cuda")])
            if call == 0:
                next(iter(graph._kinds.values()))._may_keep = may_keep
        nodes = json.loads(context("cuda").snapshot_json())["nodes"]
        counts[may_keep] = [node["graph_nodes"] for node in nodes
                            if node["function"] == graph.name][-1]
    expect(counts[True] - counts[False] == 8, counts)
    return f"{counts[False]} nodes, {counts[True]} with copies"


@check
def pools_of_pytorch_end_with_the_step():
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    graphs = [graph_of(lambda x, n=n: [x * n]) for n in range(12)]
    for graph in graphs:
        for _ in range(5):
            graph([torch.randn(1 << 20, device="cuda")])
    torch.cuda.empty_cache()
    grown = torch.cuda.memory_reserved() - before
    expect(grown <= 32 << 20, f"PyTorch reserves {grown >> 20} MiB more")
    return f"PyTorch reserves {grown >> 20} MiB more after 12 recordings"


@check
def a_pool_of_the_callers_is_left_alone():
    graph, pool = graph_of(lambda x: [x * 5, x - 5]), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        for _ in range(5):
            x = torch.randn(3000, device="cuda")
            a, b = graph([x])
            expect(torch.equal(a, x * 5) and torch.equal(b, x - 5), "values differ")
    expect(graph.stats()["replays"] == 0, graph.stats())
    for _ in range(8):
        x = torch.randn(3000, device="cuda")
        a, b = graph([x])
        expect(torch.equal(a, x * 5) and torch.equal(b, x - 5), "values differ")
    expect(graph.stats()["replays"] > 0, graph.stats(), graph.kinds())
    return f"{graph.stats()}"


@check
def an_operator_that_keeps_memory_has_its_outputs_copied():
    kept = []

    def keeps(x):
        kept.append(torch.empty(1000, device="cuda"))
        return [x * 2]

    graph = graph_of(keeps)
    for _ in range(10):
        x = torch.randn(50, device="cuda")
        expect(torch.equal(graph([x])[0], x * 2), "values differ")
    expect(graph.stats()["replays"] > 0, graph.stats(), graph.kinds())
    return f"{graph.stats()}, {len(kept)} tensors kept"


@check
def a_capture_that_fails_leaves_no_memory_behind():
    def reads(x):
        y = x * 2
        return [y * float(y.sum().item())]

    before = _cgtree.torch_statistics()["blocks"]
    graph = graph_of(reads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(6):
            x = torch.randn(1000, device="cuda")
            torch.testing.assert_close(graph([x])[0], x * 2 * float((x * 2).sum()))
    gc.collect()
    torch.cuda.empty_cache()
    now = _cgtree.torch_statistics()["blocks"]
    expect(now <= before, "segments", before, now)
    return f"{graph.kinds()[0]['reason']}"


@check
def memory_that_runs_out_raises_pytorchs_error_and_leaves_the_rest():
    grows = [1]
    graph = graph_of(lambda x: [x.repeat(grows[0])[:x.numel()] + 1])
    x = torch.randn(1 << 20, device="cuda")
    graph([x])
    grows[0] = torch.cuda.mem_get_info()[0] * 2 // x.nbytes  # the next call warms up in the pool
    try:
        graph([x])
    except torch.OutOfMemoryError as error:
        seen = str(error).splitlines()[0][:80]
    else:
        raise AssertionError("no error")
    grows[0] = 1
    for _ in range(6):
        expect(torch.equal(graph([x])[0], x + 1), "values differ")
    expect(graph.stats()["replays"] > 0, graph.stats(), graph.kinds())
    return seen


def train(model, compiled, kernels_of_optimizer, steps=20):
    torch.manual_seed(1)
    optimizer = kernels_of_optimizer(model.parameters())
    losses = []
    for _ in range(steps):
        x = torch.randn(64, 512, device="cuda")
        loss = (compiled(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        losses.append(loss.item())
    return losses


@check
def training_equals_eager_with_what_is_saved_in_the_pool():
    seen = []
    for kernels_name in ("eager", "inductor"):
        for dropout in (0.0, 0.3):
            torch.manual_seed(0)
            plain = Net(dropout=dropout).cuda()
            other = copy.deepcopy(plain)
            compiled = cgtree.torch.compile(other, kernels=kernels_name)
            adam = lambda parameters: torch.optim.Adam(parameters, 1e-3)  # noqa: E731
            want, got = train(plain, plain, adam), train(other, compiled, adam)
            worst = max(abs(a - b) for a, b in zip(want, got))
            limit = 0 if kernels_name == "eager" else 1e-2 if not dropout else 1
            stats = cgtree.torch.stats(compiled)
            expect(worst <= limit, kernels_name, dropout, worst)
            expect(stats["replays"] > 20, stats)
            seen.append(f"{kernels_name}/{dropout}: {worst:.1e}, {stats['replays']} replays")
    return "; ".join(seen)


# The ways to run a model that are compared.
SIDES = {"eager": lambda model: model,
         "cgtree eager": lambda model: cgtree.torch.compile(model, kernels="eager"),
         "cgtree inductor": cgtree.torch.compile,
         "graph trees": lambda model: torch.compile(model, mode="reduce-overhead")}
MODELS = {"layers": (lambda: Net(2048, 8), (4096, 2048)),
          "transformer": (lambda: torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(
              512, 8, 2048, dropout=0.0, batch_first=True), 6, enable_nested_tensor=False), (16, 128, 512))}


def series_of(side, model_name, steps=12):
    """Returns, after each pass of a training: MiB of the device that the process uses in addition to its parameters,
    MiB that PyTorch has reserved and allocated, and MiB that cgtree's pools have reserved and hold; and the pools.
    """
    make, shape = MODELS[model_name]
    torch.manual_seed(0)
    model = make().cuda().train()
    call = SIDES[side](model)
    free = torch.cuda.mem_get_info()[0]
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    rows = []

    def note(what):
        torch.cuda.synchronize()
        now = [free - torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved(),
               torch.cuda.memory_allocated()]
        if side.startswith("cgtree"):
            stats = context("cuda").stats()
            now += [stats["pool_reserved_bytes"], stats["pool_live_bytes"]]
        rows.append([what, *[number >> 20 for number in now]])

    for _ in range(steps):
        x = torch.randn(*shape, device="cuda")
        if side == "graph trees":
            torch.compiler.cudagraph_mark_step_begin()
        loss = call(x).square().mean()
        note("forward")
        loss.backward()
        note("backward")
        optimizer.step()
        optimizer.zero_grad()
        del loss
    pools = {}
    if side.startswith("cgtree"):
        for name, pool in json.loads(context("cuda").snapshot_json())["pools"].items():
            pools[name] = {"most": pool["allocated_bytes"]["peak"] >> 20,
                           "segments": [segment["bytes"] >> 20 for segment in pool["segments"]]}
    return {"most": max(row[1] for row in rows), "rows": rows, "pools": pools}


def series_alone(side, model_name):
    """Returns series_of() from a separate process."""
    done = subprocess.run([sys.executable, os.path.abspath(__file__), f"--series={side},{model_name}"],
                          capture_output=True, text=True, timeout=600, check=False)
    expect(done.returncode == 0, side, model_name, done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


@check
def training_takes_no_more_memory_than_graph_trees():
    seen, too_much = {}, []
    for model_name in MODELS:
        most = {}
        for side in SIDES:
            found = series_alone(side, model_name)
            most[side] = found["most"]
            print(f"    {model_name}, {side}: MiB of the device, PyTorch reserved, allocated, pools reserved, live")
            for row in found["rows"][:8] + found["rows"][-2:]:
                print("       ", *row)
            print("       ", found["pools"], flush=True)
        seen[model_name] = most
        if most["cgtree inductor"] > 1.25 * most["graph trees"] + 64:
            too_much.append(model_name)
    expect(not too_much, "MiB", seen)
    return f"MiB: {seen}"


@check
def step_functions_find_a_python_variable_that_changes():
    x = torch.randn(10, device="cuda")
    for changed_at in (1, 2, 4, 8):
        scale = [2.0]
        with cgtree.Context("cuda:0") as made:
            step = made.compile(lambda x: x * scale[0], framework="torch")
            for _ in range(2 + changed_at - 1):
                expect(torch.equal(torch.from_dlpack(step(x)), x * 2), "values differ")
            scale[0] = 3.0
            try:
                step(x)
            except cgtree.VerifyError as error:
                seen = str(error).splitlines()[0][:100]
            else:
                raise AssertionError(f"replay {changed_at} did not find the change")
    return seen


@check
def step_functions_of_two_threads_record_at_once():
    failures, barrier = [], threading.Barrier(2)

    def run(number):
        try:
            with cgtree.Context("cuda:0") as made, torch.cuda.stream(torch.cuda.Stream()):
                step = made.compile(lambda x: (x * number, x + number), framework="torch",
                                    verify_first=0)
                for size in range(1, 30):
                    barrier.wait(60)
                    x = torch.randn(size * 1000, device="cuda")
                    torch.cuda.current_stream().synchronize()
                    for _ in range(3):
                        a, b = map(torch.from_dlpack, step(x))
                        made.synchronize()
                        expect(torch.equal(a, x * number) and torch.equal(b, x + number), size)
        except BaseException:  # pylint: disable=broad-except
            failures.append(traceback.format_exc())
            barrier.abort()

    threads = [threading.Thread(target=run, args=(number,)) for number in (2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, *failures)
    return "29 sizes each"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--series", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.series:
        print(json.dumps(series_of(*options.series.split(","))))
        return 0
    if not torch.cuda.is_available():
        print("no GPU")
        return 77
    results = {}
    torch.set_grad_enabled(True)
    for function in CHECKS:
        name = function.__name__
        if options.only not in name:
            continue
        try:
            needs_no_gradients = not name.startswith("training")
            with torch.set_grad_enabled(not needs_no_gradients):
                results[name] = {"ok": True, "seen": function()}
        except Exception:  # pylint: disable=broad-except
            results[name] = {"ok": False, "seen": traceback.format_exc()[-1500:]}
        print(f"{'ok    ' if results[name]['ok'] else 'FAILED'} {name}: {results[name]['seen']}",
              flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"program": "torch_memory_run", "torch": torch.__version__,
                       "device": torch.cuda.get_device_name(), "results": results}, file, indent=1)
    return 0 if all(result["ok"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
