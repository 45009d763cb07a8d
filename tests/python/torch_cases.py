"""Threads, streams, forks, captures, memory and unusual tensors with compiled functions, compared with eager runs.
torch_programs.py has programs that are functions of their inputs and state.

usage: torch_cases.py [--device=cuda] [--cases=a,b] [--json=FILE] [--seed=N]

Each case runs in a separate process. A line per case: `right`, `wrong: WHY`, `failed: EXCEPTION`, `absent: a GPU`.
Exits 1 unless all are right or absent.

A case is a function of a Trial. The table shows the first line of its docstring.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "python"), FOLDER]

try:
    import torch
except ImportError:
    print("torch: absent")
    sys.exit(0)

from torch import nn  # noqa: E402

import cgtree  # noqa: E402
import cgtree.torch  # noqa: E402
import torch_programs  # noqa: E402
from torch_programs import tensors_of  # noqa: E402

CASES = {}
TIMEOUT = 240  # seconds for a case; PyTorch's compiler takes minutes with a cold cache
MARK = "CASE "
torch._dynamo.config.recompile_limit = 64  # each case calls one function in many ways


def compiled_of(function):
    return cgtree.torch.compile(function, kernels="eager")


def replays_of(compiled):
    return cgtree.torch.stats(compiled)["replays"]


def case(needs_gpu=False):
    def add(function):
        CASES[function.__name__] = (function, needs_gpu)
        return function
    return add


def on_threads(count, work):
    """Calls work() on `count` threads, and raises the first exception of a thread."""
    failed = []

    def call():
        try:
            work()
        except BaseException as error:  # pylint: disable=broad-except
            failed.append(error)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


class Wrong(Exception):
    """A different result, or a broken promise."""


class Trial:
    """Makes inputs on a device, and compares."""

    def __init__(self, device):
        self.device = torch.device(device)

    def rand(self, *shape, **options):
        return torch.randn(*shape, device=self.device, **options)

    def expect(self, condition, what):
        if not condition:
            raise Wrong(what)

    def expect_equal(self, got, want, tolerance=0.0):
        self.expect(type(got) is type(want), f"{type(got)} in place of {type(want)}")
        got, want = tensors_of(got), tensors_of(want)
        self.expect(len(got) == len(want), f"{len(got)} tensors in place of {len(want)}")
        for a, b in zip(got, want):
            self.expect(type(a) is type(b) and a.shape == b.shape and a.dtype == b.dtype
                        and a.device == b.device,
                        f"{type(a).__name__} {a.shape} {a.dtype} in place of {b.shape} {b.dtype}")
            a, b = a.detach(), b.detach()
            if tolerance != 0 or not torch.equal(a, b):
                torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

    def compare(self, compiled, eager, inputs, calls=8, tolerance=0.0, replays=2):
        """Calls both with the same new inputs, and then compares the results and the inputs."""
        before = replays_of(compiled)
        for _ in range(calls):
            args, kwargs = inputs()
            copies = torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
            want = eager(*copies[0], **copies[1])
            got = compiled(*args, **kwargs)
            self.expect_equal(got, want, tolerance)
            self.expect_equal(tensors_of((args, kwargs)), tensors_of(copies), tolerance)
            del got
        done = replays_of(compiled) - before
        self.expect(done >= replays, f"{done} replays of {calls} calls; {cgtree.torch.stats(compiled)}")


class Model:
    """A user's class with a compiled method."""

    def __init__(self, trial, factor):
        self.net, self.factor = nn.Linear(8, 8).to(trial.device), factor

    def eager(self, x):
        return self.net(x) * self.factor

    step = compiled_of(eager)


@case()
def methods(trial):
    """decorate a method; two instances"""
    first, second = Model(trial, 2.0), Model(trial, 3.0)
    with torch.no_grad():
        for model in (first, second, first):
            trial.compare(model.step, model.eager, lambda: ((trial.rand(4, 8),), {}))
        first.factor = 5.0
        trial.compare(first.step, first.eager, lambda: ((trial.rand(4, 8),), {}))


@case()
def forward_of_a_module(trial):
    """decorate forward() of a module"""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def eager(self, x):
            return self.inner(x).relu()

        forward = compiled_of(eager)

    model = Net().to(trial.device)
    with torch.no_grad():
        trial.compare(model.forward, model.eager, lambda: ((trial.rand(4, 8),), {}))
        trial.expect_equal(model(x := trial.rand(4, 8)), model.eager(x))


@case()
def two_threads(trial):
    """two threads call one function, and one module"""
    model = nn.Linear(32, 32).to(trial.device)
    compiled = compiled_of(model)

    def work(calls=50):
        with torch.no_grad():
            trial.compare(compiled, model, lambda: ((trial.rand(16, 32),), {}), calls=calls)

    work(8)  # PyTorch raises in a call during a compilation on another thread

    on_threads(2, work)


# ---- Steps that cannot be recorded ----


def _right(trial, compiled, step, inputs, calls=5):
    """Expects right results, recorded or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(calls):
            args = inputs()
            got, want = compiled(*args), step(*args)
            same = torch.equal(_dense(got), _dense(want))
            trial.expect(same, f"{got} in place of {want}")


def _dense(tensor):
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.is_nested:
        return torch.cat([part.flatten() for part in tensor.unbind()])
    return tensor.to_dense() if tensor.layout != torch.strided else tensor.as_subclass(torch.Tensor)


class Marked(torch.Tensor):
    """A user's subclass."""


@case()
def odd_tensors(trial):
    """sparse, quantised, nested and conjugate tensors, and tensors of a user's class"""
    def step(x):
        return x * 2

    dense = trial.rand(4, 4).relu()
    kinds = [("torch.sparse_coo", dense.to_sparse), ("torch.sparse_csr", dense.to_sparse_csr),
             ("Marked", lambda: trial.rand(4).as_subclass(Marked)),
             ("conjugate", lambda: torch.view_as_complex(trial.rand(4, 2)).conj()),
             ("negative", lambda: torch.view_as_complex(trial.rand(4, 2)).conj().imag),
             ("nested", lambda: torch.nested.nested_tensor([trial.rand(2), trial.rand(3)]))]
    for _, make in kinds:
        compiled = compiled_of(step)
        trial.compare(compiled, step, lambda: ((trial.rand(4, 4),), {}), replays=0)
        _right(trial, compiled, step, lambda m=make: (m(),))
        trial.compare(compiled, step, lambda: ((trial.rand(4, 4),), {}), replays=0)
    if trial.device.type == "cpu":
        compiled = compiled_of(lambda x: x.dequantize() + 1)
        _right(trial, compiled, lambda x: x.dequantize() + 1,
               lambda: (torch.quantize_per_tensor(trial.rand(4), 0.1, 0, torch.qint8),))


@case()
def odd_results(trial):
    """results that are sparse, conjugate, or of a user's class"""
    for _, step in (("torch.sparse_coo", lambda x: x.relu().to_sparse()),
                    ("Marked", lambda x: (x + 1).as_subclass(Marked)),
                    ("conjugate", lambda x: torch.complex(x, x).conj())):
        _right(trial, compiled_of(step), step, lambda: (trial.rand(4, 4),))


@case()
def modes_of_functions(trial):
    """a default device, a default type, precision of products: modes that change between calls"""
    def step(x):
        return x + torch.ones(3, device=x.device), torch.zeros(2)

    compiled = compiled_of(step)
    for mode in (torch.device("cpu"), torch.device("meta"), torch.device("cpu")):
        for _ in range(4):
            with mode:
                x = torch.rand(3, device=trial.device)
                got, want = compiled(x), step(x)
            trial.expect(got[1].device == want[1].device, f"{got[1].device}, not {want[1].device}")
            trial.expect_equal(got[0], want[0])
    try:
        for dtype in (torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            x = trial.rand(3)
            for _ in range(4):
                trial.expect_equal(compiled(x), step(x))
    finally:
        torch.set_default_dtype(torch.float32)


@case(needs_gpu=True)
def results_on_the_host(trial):
    """a result on the CPU beside one on the GPU"""
    def step(x):
        return x + 1, torch.ones(2)

    trial.compare(compiled_of(step), step, lambda: ((trial.rand(4),), {}), replays=0)



@case()
def a_fork(trial):
    """a process that forks after a recording"""
    def step(x):
        return x * 2

    compiled = compiled_of(step)
    x = trial.rand(4)
    for _ in range(5):
        compiled(x)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that hangs
        status = 1
        try:
            status = 0 if torch.equal(compiled(x), step(x)) else 2
        except RuntimeError:  # of PyTorch, which loses the GPU at a fork
            status = 0 if trial.device.type == "cuda" else 3
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    trial.expect(status == 0, f"the child ended with {status}")
    trial.compare(compiled, step, lambda: ((trial.rand(4),), {}))


# ---- Cases for a GPU ----


def _draws(trial, step, inputs, calls=10, seeds=(1, 2)):
    """Compares draws with the same seed for both, at the start and in the middle."""
    compiled = compiled_of(step)
    for seed in seeds:
        args = [inputs() for _ in range(calls)]
        torch.manual_seed(seed)
        want = [step(*given) for given in args] + [torch.rand(5, device=trial.device)]
        torch.manual_seed(seed)
        got = [compiled(*given).clone() for given in args] + [torch.rand(5, device=trial.device)]
        for number, (a, b) in enumerate(zip(got, want)):
            trial.expect(torch.equal(a, b), f"seed {seed}: call {number} draws something else")
    trial.expect(replays_of(compiled) >= calls // 2, f"{cgtree.torch.stats(compiled)}")
    return compiled


@case(needs_gpu=True)
def multinomial(trial):
    """torch.multinomial, rand, randint, bernoulli"""
    _draws(trial, lambda p: torch.multinomial(p, 4), lambda: (trial.rand(16, 100).abs(),))
    _draws(trial, lambda x: x + torch.rand_like(x) + torch.randn(x.shape, device=x.device)
           + torch.randint(0, 9, x.shape, device=x.device) + torch.bernoulli(x.sigmoid()),
           lambda: (trial.rand(333),))


@case(needs_gpu=True)
def generators(trial):
    """a user's torch.Generator; get_rng_state() between calls"""
    generator = torch.Generator(trial.device)

    def step(x):
        return x + torch.rand(x.shape, device=x.device, generator=generator)

    compiled = compiled_of(step)
    for seed in (3, 4):
        args = [trial.rand(100) for _ in range(8)]
        generator.manual_seed(seed)
        want = [step(x) for x in args]
        generator.manual_seed(seed)
        trial.expect(all(torch.equal(compiled(x), y) for x, y in zip(args, want)), "other numbers")
    trial.expect(replays_of(compiled) > 4, f"{cgtree.torch.stats(compiled)}")
    state = generator.get_state()
    x = trial.rand(100)
    first = compiled(x).clone()
    generator.set_state(state)
    trial.expect(torch.equal(compiled(x), first), "set_state() has no effect")


@case(needs_gpu=True)
def side_streams(trial):
    """a side stream in a step; calls on a user's stream; record_stream"""
    side = torch.cuda.Stream()

    def step(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x.sin()
        z = x.cos()
        torch.cuda.current_stream().wait_stream(side)
        return y + z

    compiled = compiled_of(step)
    trial.compare(compiled, step, lambda: ((trial.rand(1000),), {}))
    mine = torch.cuda.Stream()
    with torch.cuda.stream(mine):
        trial.compare(compiled, step, lambda: ((trial.rand(1000),), {}))
        y = compiled(trial.rand(1000))
    y.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(mine)
    del y


@case(needs_gpu=True)
def two_contexts_on_two_streams(trial):
    """two threads with long kernels, on two streams"""
    weight = trial.rand(512, 512) / 20

    def step(x):
        for _ in range(20):
            x = torch.tanh(x @ weight)
        return x

    compiled = compiled_of(step)
    with torch.no_grad():  # PyTorch raises in a call during a compilation on another thread
        compiled(trial.rand(512, 512))

    def work():
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            trial.compare(compiled, step, lambda: ((trial.rand(512, 512),), {}), calls=40)

    on_threads(3, work)



@case(needs_gpu=True)
def foreign_capture(trial):
    """called while PyTorch captures another graph"""
    def step(x):
        return x * 2 + 1

    compiled = compiled_of(step)
    x = trial.rand(64)
    for _ in range(5):
        compiled(x)
    graph = torch.cuda.CUDAGraph()
    other = compiled_of(step)
    with torch.cuda.graph(graph):
        y = compiled(x) + other(x) * 0 + 1
    x.copy_(trial.rand(64))
    graph.replay()
    trial.expect_equal(y, step(x) + 1)
    trial.compare(compiled, step, lambda: ((trial.rand(64),), {}))


@case(needs_gpu=True)
def memory(trial):
    """memory_allocated() works, and does not grow with calls"""
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).to(trial.device)
    compiled = compiled_of(model)
    with torch.no_grad():
        for _ in range(5):
            compiled(trial.rand(64, 256))
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(200):
            compiled(trial.rand(64, 256))
        torch.cuda.synchronize()
    trial.expect(torch.cuda.memory_allocated() == before,
                 f"{torch.cuda.memory_allocated() - before} bytes more")


@case(needs_gpu=True)
def on_our_allocator(trial):
    """use_allocator(): memory_allocated(), programs, side streams"""
    for name in ("structures", "arguments_that_are_written", "results_that_are_arguments",
                 "a_result_that_is_held_for_long", "dropout", "a_weight_is_replaced",
                 "an_optimizer_inside_with_a_schedule", "autocast_on_and_off"):
        try:
            torch_programs.run(name, trial.device, compiled_of, seed=1, tolerance=1e-3)
        except Exception as error:
            raise Wrong(f"{name}: {type(error).__name__}: {error}") from error
    side_streams(trial)
    big = trial.rand(1 << 20)
    trial.expect(torch.cuda.memory_allocated() >= big.nbytes, "memory_allocated() is too small")


@case(needs_gpu=True)
def draws_on_the_host(trial):
    """a CPU generator for a step on the GPU"""
    generator = torch.Generator()

    def step(x):
        return x + torch.rand(4, generator=generator).to(x.device)

    compiled = compiled_of(step)
    seen = {compiled(torch.zeros(4, device=trial.device)).sum().item() for _ in range(6)}
    trial.expect(len(seen) == 6, "the same numbers again")


@case(needs_gpu=True)
def a_module_that_moves(trial):
    """a module on the GPU, on the CPU, on the GPU"""
    model = nn.Linear(8, 8).to(trial.device)
    compiled = compiled_of(model)
    with torch.no_grad():
        for device in (trial.device, torch.device("cpu"), trial.device):
            model.to(device)
            for _ in range(6):
                x = torch.rand(2, 8, device=device)
                trial.expect_equal(compiled(x), model(x), 1e-6)
        try:
            compiled(torch.rand(2, 8))
        except RuntimeError:
            pass
        else:
            raise Wrong("no error for an argument on another device than the module")


# ---- Running them ----


def work(name, device, seed):
    """Runs a case in this process, and prints its result."""
    torch.manual_seed(seed)
    function, needs_gpu = CASES[name]
    if needs_gpu and device == "cpu":
        print(MARK + "absent: a GPU")
        return
    if name == "on_our_allocator":
        cgtree.torch.use_allocator()
    try:
        function(Trial(device))
        if device != "cpu":
            torch.cuda.synchronize()
        result = "right"
    except Exception as error:  # pylint: disable=broad-except
        traceback.print_exc()
        result = f"wrong: {error}" if isinstance(error, (Wrong, AssertionError)) else f"failed: {error!r}"
    print(MARK + result.splitlines()[0])


def start(name, device, seed):
    """Runs a case in a separate process. Returns its outcome, the seconds, and the last lines of its output."""
    began = time.monotonic()
    command = [sys.executable, os.path.abspath(__file__), f"--worker={name}", f"--device={device}", f"--seed={seed}"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT,
                              check=False)
        found = [line.removeprefix(MARK) for line in done.stdout.splitlines() if line.startswith(MARK)]
        result, said = found[0] if found else f"failed: the process ended with {done.returncode}", done.stdout[-3000:]
    except subprocess.TimeoutExpired as error:
        result, said = f"failed: took more than {TIMEOUT} s", str(error.stdout)[-3000:]
    return result, round(time.monotonic() - began, 2), said


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--json", default="")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    parser.add_argument("--worker", default="")
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.device, options.seed)
        return 0
    print(f"seed {options.seed}, torch {torch.__version__}, {options.device}")
    results = {}
    for name in options.cases.split(","):
        results[name] = result, seconds, said = start(name, options.device, options.seed)
        print(f"{name:32s} {seconds:6.1f} s  {result[:160]:40s}  {CASES[name][0].__doc__.splitlines()[0]}", flush=True)
        if not result.startswith(("right", "absent")):
            print(said)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"seed": options.seed, "torch": torch.__version__, "device": options.device,
                       "cases": {name: {"result": each[0], "seconds": each[1], "output": each[2]}
                                 for name, each in results.items()}}, file, indent=1)
    return int(any(not each[0].startswith(("right", "absent")) for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
