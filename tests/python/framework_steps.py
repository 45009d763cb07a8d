"""Step functions of NumPy, CuPy, Numba and PyTorch: recorded, replayed, and compared with eager.

usage: framework_steps.py [--frameworks=...] [--calls=1000] [--json=FILE]

Each step is called with inputs that change at every call, and its outputs are compared with those of the framework.
PyTorch runs twice: with a MemPool, and with cgtree as the allocator of the process, where a transformer block is among
its steps. A line per step: `equal`, `close` (with the largest difference) or `wrong`; and the number of replays. Each
framework runs in a separate process. Exits 1 if a step is wrong, replayed less than 99 % of its calls, or crashed.
"""

import argparse
import os
import sys
import time
import traceback

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import frameworks  # noqa: E402
from frameworks import cgtree  # noqa: E402

RANDOM = numpy.random.default_rng()


class Step:
    """A function of a framework's arrays, with its inputs and its tolerance."""

    def __init__(self, name, function, inputs, tolerance=0.0, eager=None, **options):
        self.name, self.function, self.inputs = name, function, inputs
        self.tolerance, self.eager, self.options = tolerance, eager or function, options


def floats(*shape):
    return RANDOM.standard_normal(shape, dtype="float32")


# Rows that vary from call to call, padded to the next of four sizes.
BUCKETS = {"dynamic": {0: {0: "rows"}}, "buckets": {"rows": [8, 16, 32, 64]},
           "outputs_dynamic": [{0: "rows"}]}


def some_rows(columns):
    return floats(int(RANDOM.integers(1, 65)), columns)


def numpy_steps(_):
    def scale(x, y):
        return numpy.tanh(x * 2 + y)

    def two(x, y):
        return x + y, (x * y).sum(axis=0)

    return [Step("elementwise", scale, lambda: (floats(64, 32), floats(64, 32))),
            Step("two outputs", two, lambda: (floats(64, 32), floats(64, 32))),
            Step("padded rows", numpy.sinh, lambda: (some_rows(32),), **BUCKETS)]


def cupy_steps(framework):
    import cgtree.cupy
    cupy = framework.library

    def elementwise(x, y):
        return cupy.tanh(x * 2 + y) - 1

    def reductions(x, y):
        z = x * y
        return z.sum(axis=0), cupy.sqrt(cupy.abs(z)).max(axis=1)

    twist = cupy.RawKernel("""
        extern "C" __global__ void twist(const float* x, float* y, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) y[i] = x[n - 1 - i] * 3.0f + i;
        }""", "twist")

    def raw(x):
        y = cupy.empty_like(x)
        twist(((x.size + 127) // 128,), (128,), (x, y, numpy.int32(x.size)))
        return y

    def pair():
        return framework.array(floats(256, 128)), framework.array(floats(256, 128))

    # The same sequence twice: replays draw from one generator, calls of the eager function from the
    # other.
    replayed, eager = cgtree.Generator(7), cgtree.Generator(7)

    def noisy(x):
        return x + cupy.from_dlpack(replayed.normal(x.shape, device=framework.device))

    def noisy_eager(x):
        return x + cupy.from_dlpack(eager.normal(x.shape, device=framework.device))

    # A body has a separate stream. CuPy's elementwise functions pass their kernels eight
    # uninitialised bytes, so that two runs of a body would differ.
    bodies = cupy.RawModule(code="""
        extern "C" __global__ void add(float* y, float value, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) y[i] += value;
        }
        extern "C" __global__ void halve(float* y, int* left, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) y[i] *= 0.5f;
          if (i == 0) --*left;
        }""")

    def deciding(x):
        y, left = x * 2, cupy.full((), 3, "int32")
        blocks, n = ((x.size + 127) // 128,), numpy.int32(x.size)

        def add(value):
            with cgtree.cupy.step():
                bodies.get_function("add")(blocks, (128,), (y, numpy.float32(value), n))

        def halve():
            with cgtree.cupy.step():
                bodies.get_function("halve")(blocks, (128,), (y, left, n))
            return cgtree.cupy.from_array(left)

        is_positive = cgtree.cupy.from_array((x[0] > 0).astype("int32"))
        cgtree.branch(is_positive, lambda: add(1), lambda: add(-1))
        cgtree.loop(8, halve)
        return y

    def deciding_eager(x):
        return (x * 2 + (1 if float(x[0]) > 0 else -1)) * 0.125

    return [Step("elementwise", elementwise, pair), Step("reductions", reductions, pair),
            Step("branch and loop", deciding, lambda: (framework.array(floats(5000)),),
                 eager=deciding_eager),
            Step("raw kernel", raw, lambda: (framework.array(floats(5000)),)),
            Step("padded rows", cupy.sinh, lambda: (framework.array(some_rows(128)),), **BUCKETS),
            Step("random numbers", noisy, lambda: (framework.array(floats(5000)),),
                 eager=noisy_eager)]


def numba_steps(framework):
    import cgtree.numba
    cuda = framework.library

    @cuda.jit
    def axpy(a, x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a * x[i] + y[i]

    def step(x, y):
        middle, out = cgtree.numba.empty(x.shape), cgtree.numba.empty(x.shape)
        stream = cgtree.numba.stream()
        axpy[(x.size + 127) // 128, 128, stream](2.0, x, y, middle)
        axpy[(x.size + 127) // 128, 128, stream](0.5, middle, x, out)
        return out

    def eager(x, y):
        middle, out = cuda.device_array(x.shape, "float32"), cuda.device_array(x.shape, "float32")
        axpy[(x.size + 127) // 128, 128](2.0, x, y, middle)
        axpy[(x.size + 127) // 128, 128](0.5, middle, x, out)
        return out

    return [Step("two kernels", step,
                 lambda: (framework.array(floats(5000)), framework.array(floats(5000))),
                 eager=eager)]


def torch_steps(framework):
    torch = framework.library
    torch.backends.cuda.matmul.allow_tf32 = False
    weight = framework.array(floats(128, 128))

    def elementwise(x, y):
        return torch.tanh(x * 2 + y) - 1

    def layers(x):
        hidden = torch.nn.functional.gelu(x @ weight)
        return torch.softmax(hidden @ weight, dim=-1), hidden.sum(dim=0)

    def pair():
        return framework.array(floats(256, 128)), framework.array(floats(256, 128))

    return [Step("elementwise", elementwise, pair),
            Step("two layers", layers, lambda: (framework.array(floats(64, 128)),), tolerance=1e-4)]


def transformer_steps(framework):
    torch = framework.library
    block = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True).cuda().eval()

    def forward(x):
        return block(x)

    def step_eager(x):
        with torch.no_grad():
            return block(x)

    return torch_steps(framework) + [
        Step("transformer block", forward, lambda: (framework.array(floats(4, 64, 256)),),
             tolerance=1e-4, eager=step_eager)]


def triton_steps(framework):
    torch = framework.library
    import importlib.util
    if importlib.util.find_spec("triton") is None:
        return []
    import triton_step
    return [Step("triton kernel", triton_step.step,
                 lambda: (framework.array(floats(5000)), framework.array(floats(5000))),
                 eager=lambda x, y: torch.add(x * 2, y), tolerance=1e-5)]


KINDS = {"numpy": ("numpy", numpy_steps), "cupy": ("cupy", cupy_steps),
         "numba": ("numba", numba_steps), "torch": ("torch", torch_steps),
         "triton": ("torch", triton_steps), "torch_allocator": ("torch", transformer_steps)}


def as_list(returned):
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def difference(found, expected):
    """The largest difference; infinity for different shapes, or NaN on one side only."""
    if found.shape != expected.shape:
        return float("inf")
    if not found.size or numpy.array_equal(found, expected):
        return 0.0
    largest = float(numpy.max(numpy.abs(found.astype("float64") - expected.astype("float64"))))
    return largest if largest == largest else float("inf")


def run_step(framework, step, calls):
    context = cgtree.Context(framework.device)
    compiled = context.compile(step.function, name=step.name, framework=framework.name,
                               **step.options)
    worst = 0.0
    begin = time.perf_counter()
    for _ in range(calls):
        context.mark_step()
        inputs = step.inputs()
        framework.synchronize()
        expected = [framework.read(array) for array in as_list(step.eager(*inputs))]
        outputs = as_list(compiled(*inputs))
        found = [cgtree.numpy.copy(tensor) for tensor in outputs]
        worst = max([worst] + [difference(*pair) for pair in zip(found, expected)])
    stats = compiled.stats()
    is_replayed = stats["replays"] >= 0.99 * calls - 3
    kind = "equal" if worst == 0 else "close" if worst <= step.tolerance else "wrong"
    outcome = kind if is_replayed else f"wrong: only {stats['replays']} of {calls} calls replayed"
    return {"step": step.name, "outcome": outcome, "largest_difference": worst, "calls": calls,
            "seconds": round(time.perf_counter() - begin, 3), "stats": stats,
            "explain": compiled.explain(*step.inputs())["text"]}


def run_kind(kind, calls):
    name, make_steps = KINDS[kind]
    report = {"framework": kind, "steps": []}
    if kind == "torch_allocator":
        try:
            import cgtree.torch
            cgtree.torch.use_allocator()
        except Exception as error:
            report["absent" if isinstance(error, ImportError) else "crashed"] = repr(error)
            return report
    framework, why = frameworks.load(name)
    if framework is None:
        report["absent"] = why
        return report
    report["version"], report["device"] = framework.version, framework.device
    for step in make_steps(framework):
        try:
            report["steps"].append(run_step(framework, step, calls))
        except Exception as error:
            report["steps"].append({"step": step.name, "outcome": f"wrong: {error!r}",
                                    "traceback": traceback.format_exc()})
    if kind.startswith("torch") and framework.name == "torch":
        import cgtree.torch
        report["allocator"] = cgtree.torch.statistics()
    return report


def print_report(report):
    for key in ("absent", "crashed"):
        if key in report:
            print(f"{report['framework']}: {key}: {report[key]}")
    for step in report.get("steps", ()):
        stats = step.get("stats", {})
        print(f"{report['framework']:16} {step['step']:20} {step['outcome']}  "
              f"(difference {step.get('largest_difference')}, {stats.get('replays')} replays of "
              f"{stats.get('calls')} calls)")
        if "traceback" in step:
            print(step["traceback"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", default=",".join(KINDS))
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--json")
    parser.add_argument("--here", action="store_true", help="run in this process")
    options = parser.parse_args()
    reports = [run_kind(kind, options.calls) if options.here else
               frameworks.in_process(__file__, kind, f"--calls={options.calls}")
               for kind in options.frameworks.split(",")]
    for report in reports:
        print_report(report)
    if options.json:
        frameworks.write_reports(options.json, "framework_steps", reports)
    is_bad = any("crashed" in report or any(step["outcome"].startswith("wrong")
                                            for step in report["steps"]) for report in reports)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
