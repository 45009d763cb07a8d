"""Added costs of Python: a DLPack capsule, a CUDA array interface, and a replay compared with a
bare launch.

usage: python_bench.py [--device=auto] [--repeats=21] [--calls=2000] [--json=FILE]

Times are of the host, in microseconds, per call: the median of --repeats samples of --calls calls,
and the least sample. The bare launch is cuGraphLaunch of a graph with one memset node through
ctypes, less the time of ctypes for a call that does nothing.
"""

import argparse
import ctypes
import gc
import json
import os
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "python"), ROOT]

import cgtree  # noqa: E402

AIMS = {"capsule": 0.1, "cuda array interface": 1.0, "replay, more than a launch": 1.5}


def measure(function, repeats, calls, settle=lambda: None):
    """{"median", "least"} in microseconds per call of function()."""
    samples = []
    for _ in range(repeats):
        settle()
        gc.disable()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            function()
        end = time.perf_counter_ns()
        gc.enable()
        samples.append((end - begin) / calls / 1000)
    return {"median": round(statistics.median(samples), 4), "least": round(min(samples), 4)}


class Driver:
    """A graph with one node, launched by the driver directly."""

    def __init__(self, stream, address):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        graph, self.exec = ctypes.c_void_p(), ctypes.c_void_p()
        own = ctypes.c_void_p()
        self.check(self.cuda.cuStreamCreate(ctypes.byref(own), 1))
        self.check(self.cuda.cuStreamBeginCapture_v2(own, 1))
        self.check(self.cuda.cuMemsetD32Async(ctypes.c_uint64(address), 0, ctypes.c_size_t(16),
                                              own))
        self.check(self.cuda.cuStreamEndCapture(own, ctypes.byref(graph)))
        self.check(self.cuda.cuGraphInstantiateWithFlags(ctypes.byref(self.exec), graph,
                                                         ctypes.c_uint64(0)))
        self.stream = ctypes.c_void_p(stream)

    @staticmethod
    def check(code):
        if code != 0:
            raise RuntimeError(f"the driver answered {code}")

    def launcher(self):
        launch, exec_, stream = self.cuda.cuGraphLaunch, self.exec, self.stream
        return lambda: launch(exec_, stream)

    def nothing(self):
        """A call as expensive for ctypes as the launch: two pointers, and almost no work."""
        version, exec_ = ctypes.c_int(), ctypes.c_void_p()
        call, place = self.cuda.cuDriverGetVersion, ctypes.byref(version)
        return lambda: call(place, exec_)


def copy_step(x):
    y = cgtree.empty(x.shape, x.dtype)
    y.copy_from(x)
    return y


def bench(options):
    device = options.device if options.device != "auto" else cgtree.best_device()
    context = cgtree.Context(device)
    device = context.device
    is_host = device.startswith("host")

    def run(function):
        return measure(function, options.repeats, options.calls, context.synchronize)

    tensor = cgtree.empty((32, 32), "float32", device)
    no_wait = None if is_host else -1
    result = {
        "capsule": run(lambda: tensor.__dlpack__(stream=no_wait, max_version=(1, 3))),
        "capsule, max_version alone": run(lambda: tensor.__dlpack__(max_version=(1, 3))),
        "cuda array interface": run(tensor.cuda_array_interface),
        "current shape": run(lambda: tensor.shape),
        "empty python call": run(lambda: None),
    }
    if not is_host:
        result["cuda array interface, attribute"] = run(lambda: tensor.__cuda_array_interface__)
    static = context.compile(copy_step, name="static", static=["x"])
    copied = context.compile(copy_step, name="copied")
    moved = [cgtree.empty((32, 32), "float32", device) for _ in range(2)]
    for function in (static, copied):
        for _ in range(4):
            function(tensor)
    result["replay, static input"] = run(lambda: static(tensor))
    result["replay, copied input"] = run(lambda: copied(tensor))

    def alternate():
        copied(moved[0])
        copied(moved[1])

    pair = run(alternate)
    result["replay, copied input that moves"] = {key: round(value / 2, 4)
                                                 for key, value in pair.items()}
    result["stats"] = context.stats()["text"]
    if not is_host:
        driver = Driver(context.stream.ptr, tensor.data_ptr)
        launch, nothing = run(driver.launcher()), run(driver.nothing())
        result["bare launch with ctypes"], result["ctypes alone"] = launch, nothing
        bare = {key: round(launch[key] - nothing[key], 4) for key in launch}
        result["bare launch"] = bare
        result["replay, more than a launch"] = {
            key: round(result["replay, static input"][key] - bare[key], 4) for key in bare}
    return device, result


# ---- PyTorch ----


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json")
    options = parser.parse_args()
    device, result = bench(options)
    for name, times in result.items():
        if isinstance(times, dict):
            aim = f"  (aim: {AIMS[name]})" if name in AIMS else ""
            print(f"{name:46} {times['median']:9.3f} us, least {times['least']:9.3f}{aim}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"program": "python_bench", "device": device, "cgtree": cgtree.__version__,
                       "python": sys.version.split()[0], "command": sys.argv, "unit": "us",
                       "results": result}, file, indent=1)


if __name__ == "__main__":
    main()
