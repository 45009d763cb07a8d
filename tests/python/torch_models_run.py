"""Runs models of transformers, timm and torchvision eagerly and compiled, and compares their results.

usage: torch_models_run.py --from=transformers,timm,torchvision [--models=a,b] [--kernels=eager,inductor,...]
                           [--device=cuda] [--jobs=N] [--limit=S] [--stop-after=S] [--seed=N] [--json=FILE]
                           [--start=spawn] [--verbose]

--kernels: "eager" and "inductor" are cgtree.torch.compile(kernels=...); "graph trees" is
torch.compile(mode="reduce-overhead"); "floor" is Dynamo with a back end that returns what the first
call returned, only to measure its time.

Models have random weights (torch_models.py). Each runs in a separate process, --jobs at a time, for --limit seconds at
most; after --stop-after seconds no further one begins. It is called with --inputs changing inputs. A result is compared
with that of the eager model after the next call. If bits differ, it is compared with the same compiler of PyTorch
without recordings, because some models take other paths when they are compiled:

    equal         to eager results, bit for bit
    as compiled   bit for bit equal to results of PyTorch's compiler without recordings
    close         to eager results, within --tolerance of the largest value; with kernels of Inductor only
    different     none of these

The JSON has a row for each model: the time of the host for a call in microseconds (a median; each call begins with an
idle device), and for each kind of kernels "equal", "worst" (the largest relative difference), "result", "as_compiled",
"calls" and "replays" of graphs, "steady" (the share of replays among calls in the last quarter of the inputs),
"reasons" of other calls, and "breaks" (those of Dynamo). It is written as rows come. --start=spawn: each process
imports all packages, instead of being forked from one that has not used the GPU. --verbose: shows the output of
processes. Exits 1 if a model is different with kernels of cgtree, and 77 if a package is absent.
"""

import argparse
import collections
import fcntl
import gc
import json
import logging
import multiprocessing
import os
import re
import signal
import statistics
import sys
import tempfile
import time
import traceback
import warnings

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "python"), FOLDER]
# The parent must not initialize the driver, because its children are forks.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

KERNELS = ("eager", "inductor", "graph trees", "floor")
OURS = ("eager", "inductor")
CONTROLS = {"eager": "aot eager", "inductor": "plain inductor"}  # the same compilers without recordings
ABSENT = 77
SHARE = 0.5  # seconds of timing per kind of kernels


# ---- One model, in a separate process ----


def floor(graph, _):
    """A back end that runs the graph once and then returns the same result."""
    results = []

    def call(*args):
        if not results:
            results.append(graph(*args))
        return results[0]

    return call


def compiler_of(kernels):
    import torch
    import torch_programs
    if kernels == "floor":
        return lambda given: torch.compile(given, backend=floor)
    return torch_programs.compile_with(kernels)


def leaves_of(value):
    """Returns all tensors and numbers in a result, in order."""
    if isinstance(value, collections.abc.Mapping):
        return [leaf for key in value for leaf in leaves_of(value[key])]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves_of(item)]
    if hasattr(value, "layers") and hasattr(value, "get_seq_length"):  # a cache of transformers
        return [leaf for layer in value.layers for name in ("keys", "values")
                for leaf in leaves_of(getattr(layer, name, None))]
    if hasattr(value, "self_attention_cache"):
        return leaves_of([value.self_attention_cache, value.cross_attention_cache])
    return [value]


def copied(value):
    import torch
    return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves_of(value)]


def compare(got, want):
    """Returns (True if they are equal bit for bit, the largest difference, a description or "")."""
    import torch
    import torch_programs
    if len(got) != len(want):
        return False, float("inf"), f"{len(got)} values in place of {len(want)}"
    worst, first = 0.0, ""
    for number, (a, b) in enumerate(zip(got, want)):
        said = torch_programs.difference(a, b) if type(a) is type(b) else "another type"
        if not said:
            continue
        first = first or f"value {number}: {said}"
        if not isinstance(b, torch.Tensor) or not isinstance(a, torch.Tensor) or a.shape != b.shape:
            return False, float("inf"), first
        if not b.is_floating_point():
            return False, float("inf"), first
        x, y = a.double(), b.double()
        gap = torch.where((x == y) | (x.isnan() & y.isnan()), 0.0, (x - y).abs())
        scale = y[y.isfinite()].abs().max().item() if y.isfinite().any() else 0.0
        largest = gap.max().item() if gap.numel() else 0.0
        worst = max(worst, largest / (scale or 1.0)) if largest == largest else float("inf")
    return not first, worst, first


class Trial:
    """A model in this process, with the results of eager calls."""

    def __init__(self, source, name, options, send):
        import torch
        import torch_models
        self.source, self.name, self.options, self.send = source, name, options, send
        self.device = options.device or ("cuda:0" if torch.cuda.is_available() else "cpu")
        self.make = lambda: torch_models.make(source, name, self.device, options.seed)
        subject = self.make()
        self.parameters = len(list(subject.module.parameters()))
        call = subject.bind(lambda given: given)
        self.want = self.results(call, subject)
        send({"parameters": self.parameters, "device": self.device, "torch": torch.__version__,
              "eager_us": self.time(call, subject)})

    def results(self, call, subject):
        import torch
        results = []
        for i in range(self.options.inputs):
            torch.manual_seed(self.options.seed + i)
            results.append(copied(call(subject.inputs(i))))
        return results

    def synchronize(self):
        if self.device != "cpu":
            import torch
            torch.cuda.synchronize()

    def time(self, call, subject, before=lambda: None):
        """Returns the median time of a call in microseconds; no other process of this run works meanwhile."""
        inputs, samples = subject.inputs(0), []
        with open(self.options.lock, "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            gc.collect()
            gc.disable()
            end = time.monotonic() + SHARE
            while len(samples) < 5 or (time.monotonic() < end and len(samples) < 200):
                before()
                self.synchronize()
                began = time.perf_counter_ns()
                call(inputs)
                samples.append((time.perf_counter_ns() - began) / 1000)
                self.synchronize()
            gc.enable()
        return round(statistics.median(samples), 1)

    def run(self, kernels):
        import torch
        from cgtree._torch_seam import graphs
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        kept = {id(graph) for graph in graphs()}
        row, began = {"breaks": {}}, time.monotonic()
        mark = (torch.compiler.cudagraph_mark_step_begin if kernels == "graph trees"
                else lambda: None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                subject = self.make()
                call = subject.bind(compiler_of(kernels))
                self.call_all(kernels, call, subject, mark, row, lambda: [
                    graph.stats() for graph in graphs() if id(graph) not in kept])
            except Exception as error:  # pylint: disable=broad-except
                row["result"] = f"failed: {type(error).__name__}: {str(error).strip()[:600]}"
                row["trace"] = traceback.format_exc()[-3000:]
        said = [str(warning.message)[:400] for warning in caught if "cgtree" in str(warning.message)]
        row["reasons"] = list(dict.fromkeys(said))
        row["seconds"] = round(time.monotonic() - began, 1)
        self.send({"kernels": {kernels: row}})

    def call_all(self, kernels, call, subject, mark, row, stats):
        """Makes all calls, and adds the comparison and the number of replays to the row."""
        import torch
        got, before, late, so_far = [], None, self.options.inputs * 3 // 4, {}
        for i in range(self.options.inputs):
            if i == late:
                so_far = total(stats())
            torch.manual_seed(self.options.seed + i)
            mark()
            result = call(subject.inputs(i))
            if kernels == "graph trees":  # which overwrites held results
                got.append(copied(result))
            elif before is not None:
                got.append(copied(before))
            before = result
        if kernels != "graph trees":
            got.append(copied(before))
        counts = total(stats())
        row.update(counts)
        counters = torch._dynamo.utils.counters
        row["breaks"] = {str(why)[:200]: count for why, count in counters["graph_break"].items()}
        row["compiled"] = counters["stats"].get("unique_graphs", 0)
        del result, before
        row["us"] = self.time(call, subject, mark)
        if kernels == "floor":
            return
        if kernels in OURS:
            calls = counts["calls"] - so_far["calls"]
            row["steady"] = round((counts["replays"] - so_far["replays"]) / calls, 3) if calls else 0.0
        row["equal"], row["worst"], said = self.compare(got, self.want)
        row["result"] = "equal"
        if not row["equal"]:
            row["result"] = f"{self.kind_of(kernels, got, row)}: {said}"

    def compare(self, got, want):
        """Returns (True if all are equal bit for bit, the largest difference, the description of the first difference).
        """
        found = [compare(*pair) for pair in zip(got, want)]
        first = next((f"call {i}: {said}" for i, (_, _, said) in enumerate(found) if said), "")
        return all(equal for equal, _, _ in found), max(worst for _, worst, _ in found), first

    def kind_of(self, kernels, got, row):
        """Returns the kind of results that differ from eager ones."""
        import torch
        is_close = row["worst"] <= self.options.tolerance
        if kernels not in CONTROLS or (is_close and kernels != "eager"):
            return "close" if is_close else "different"
        torch._dynamo.reset()
        subject = self.make()
        call = subject.bind(compiler_of(CONTROLS[kernels]))
        row["as_compiled"], row["worst_as_compiled"], _ = self.compare(
            got, self.results(call, subject))
        return "as compiled" if row["as_compiled"] else "different"


def total(counts):
    return {name: sum(count[name] for count in counts)
            for name in ("calls", "replays", "recordings", "warm_ups")}


def work(source, name, options, path):
    """Runs one model, and writes a line of JSON for each finding."""
    os.setpgid(0, 0)
    with open(path, "w", encoding="utf-8") as out:
        def send(found):
            out.write(json.dumps(found) + "\n")
            out.flush()

        if not options.verbose:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        import torch
        torch.set_num_threads(options.threads)
        torch._logging.set_logs(all=logging.CRITICAL)
        torch.backends.cudnn.deterministic = True  # so that replays use the same convolutions
        import torch._inductor.config
        torch._inductor.config.fallback_random = True  # draws the numbers of eager PyTorch
        try:
            with torch.no_grad():
                trial = Trial(source, name, options, send)
                for kernels in options.kernels:
                    if kernels != "floor" or ":" not in name:
                        trial.run(kernels)
        except Exception as error:  # pylint: disable=broad-except
            send({"failed": f"{type(error).__name__}: {str(error).strip()[:600]}",
                  "trace": traceback.format_exc()[-3000:]})
        send({"ended": True})
    os._exit(0)  # without a wait for threads of a compiler


# ---- All of them ----


class Run:
    """Models in processes, and their rows."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.rows, self.began = [], time.monotonic()
        self.context = multiprocessing.get_context(options.start)

    def all(self, wanted):
        waiting, running, count = collections.deque(wanted), [], len(wanted)
        while waiting or running:
            is_late = (self.options.stop_after
                       and time.monotonic() - self.began > self.options.stop_after)
            while waiting and is_late:
                source, name = waiting.popleft()
                self.rows.append({"from": source, "model": name, "failed": "not begun in time"})
            while waiting and len(running) < self.options.jobs:
                running.append(self.start(*waiting.popleft()))
            time.sleep(0.05)
            for each in list(running):
                process, row, path, since = each
                took = time.monotonic() - since
                if process.is_alive() and took < self.options.limit:
                    continue
                if process.is_alive():
                    os.killpg(process.pid, signal.SIGKILL)
                process.join()
                running.remove(each)
                self.end(row, path, process, took)
                if self.options.start == "fork" and re.search("CUDA.*initializ", row.get("failed", "")):
                    print(f"processes are no forks from now on: {row['failed'][:200]}", flush=True)
                    self.options.start, self.context = "spawn", multiprocessing.get_context("spawn")
                if "initializ" in row.get("failed", "") and row.get("start") != self.options.start:
                    self.rows.pop()
                    waiting.appendleft((row["from"], row["model"]))
                    continue
                self.say(row, count)
        self.write()

    def start(self, source, name):
        path = os.path.join(self.folder, f"{len(os.listdir(self.folder))}.jsonl")
        open(path, "w", encoding="utf-8").close()
        process = self.context.Process(target=work, args=(source, name, self.options, path))
        process.start()
        return process, {"from": source, "model": name, "start": self.options.start,
                         "kernels": {}}, path, time.monotonic()

    def end(self, row, path, process, took):
        ended = False
        with open(path, encoding="utf-8") as file:
            for line in file:
                if not line.endswith("\n"):
                    break
                found = json.loads(line)
                row["kernels"].update(found.pop("kernels", {}))
                ended = found.pop("ended", False) or ended
                row.update(found)
        if not ended:
            why = (f"took more than {self.options.limit} s" if took >= self.options.limit
                   else f"the process ended with {process.exitcode}")
            at = next((kernels for kernels in self.options.kernels
                       if kernels not in row["kernels"]), "")
            row["failed"] = f"{why}, in {at!r}" if "eager_us" in row else why
        row["seconds"] = round(took, 1)
        self.rows.append(row)
        self.write()

    def say(self, row, count):
        print(f"[{len(self.rows)}/{count} {time.monotonic() - self.began:4.0f} s] "
              f"{row['from']} {row['model']}: {row.get('eager_us', 0)} us eager, {row['seconds']} s "
              f"{row.get('failed', '')}", flush=True)
        for kernels, found in row["kernels"].items():
            print(f"    {kernels:12} {found.get('us', 0):8} us  {found.get('replays', 0)} of "
                  f"{found.get('calls', 0)} replayed (steady {found.get('steady', '-')}), "
                  f"{sum(found['breaks'].values())} breaks  {found.get('result', '')[:200]}  "
                  f"{'; '.join(found['reasons'])[:300]}", flush=True)

    def write(self):
        if not self.options.json:
            return
        with open(self.options.json + ".new", "w", encoding="utf-8") as file:
            json.dump({"program": "torch_models_run", "seed": self.options.seed,
                       "command": sys.argv[1:], "rows": self.rows}, file, indent=1)
        os.replace(self.options.json + ".new", self.options.json)


def summary(rows, kernels):
    """Prints the sums for a kind of kernels, and returns its wrong models."""
    found = {row["model"]: row["kernels"][kernels] for row in rows
             if kernels in row.get("kernels", {})}
    results = [row.get("result", "").partition(":")[0] for row in found.values()]
    wrong = [name for name, row in found.items()
             if row.get("result", "").startswith(("different", "failed"))]
    print(f"{kernels}: {results.count('equal')} equal, "
          f"{results.count('as compiled')} as compiled, {results.count('close')} close, "
          f"{results.count('different')} different, {results.count('failed')} failed of {len(found)}; "
          f"{sum(row.get('steady') == 1.0 for row in found.values())} always replay in the end"
          f"{': ' + ', '.join(wrong) if wrong else ''}")
    return wrong


def times(rows, kernels):
    """Prints the times of calls with a kind of kernels beside the others."""
    for other in ("eager_us", "floor", "graph trees"):
        pairs = []
        for row in rows:
            found = row.get("kernels", {})
            against = row.get(other) if other == "eager_us" else found.get(other, {}).get("us")
            if against and found.get(kernels, {}).get("us"):
                pairs.append((row["model"], found[kernels]["us"], against))
        if pairs:
            behind = [name for name, ours, against in pairs if ours > against]
            ratio = statistics.median(against / ours for _, ours, against in pairs)
            above = statistics.median(ours - against for _, ours, against in pairs)
            print(f"{kernels} beside {other}: {ratio:.2f} times as fast, {above:+.1f} us (medians of {len(pairs)})"
                  + (f"; slower: {', '.join(behind)}" if behind and other != "floor" else ""))


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="sources", required=True)
    parser.add_argument("--models", default="")
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--device", default="")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--inputs", type=int, default=12)
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--stop-after", type=float, default=0)
    parser.add_argument("--tolerance", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--start", choices=["fork", "spawn"], default="fork")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", default="")
    options = parser.parse_args(arguments)
    options.kernels = options.kernels.split(",")
    for kernels in options.kernels:
        if kernels not in KERNELS:
            parser.error(f"--kernels={kernels}: expected {', '.join(KERNELS)}")
    options.threads = max(1, (os.cpu_count() or 2) // options.jobs)
    return options


def main():
    options = options_of(None)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(options.threads))
    try:
        import torch
        import torch._dynamo  # noqa: F401, once for all processes
        import torch_models
        import torch_programs  # noqa: F401
    except ImportError as error:
        print(f"absent: {error}")
        return ABSENT
    wanted = []
    for source in options.sources.split(","):
        missing = torch_models.absent(source)
        if missing:
            print(f"{source}: {missing} is absent; install it, or add its folder to PYTHONPATH")
            return ABSENT
        names = options.models.split(",") if options.models else torch_models.names(source)
        wanted += [(source, name) for name in names]
        torch_models.preload(source)
    print(f"seed {options.seed}, torch {torch.__version__}, {len(wanted)} models, {options.jobs} at a time")
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as lock:
        options.lock = lock.name
        run = Run(options, folder)
        run.all(wanted)
    wrong = [name for kernels in options.kernels for name in summary(run.rows, kernels)
             if kernels in OURS]
    for kernels in OURS:
        times(run.rows, kernels)
    broken = [row["model"] for row in run.rows if "failed" in row]
    print(f"{len(run.rows) - len(broken)} models ended{'; not: ' + ', '.join(broken) if broken else ''}")
    return int(bool(wrong or broken))


if __name__ == "__main__":
    sys.exit(main())
