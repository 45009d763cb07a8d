"""Races between streams, provoked with long kernels: both edges of an import, one of an export.

usage: races.py [--frameworks=numpy,cupy,numba,torch] [--rounds=20] [--milliseconds=20] [--json=FILE]

forward: the producer's stream is busy for a long time before it writes; cgtree must see the
    written values.
return: cgtree's stream is busy before it reads; the producer overwrites as soon as the import is
    released; cgtree must see the earlier values.
export: cgtree's stream is busy before it writes; the framework must see the written values.
Each runs once more without edges (sync="ignore"), to show that the race exists; its result is printed,
and is not a fault. A line per case: `ordered` or `wrong`. Exits 1 if a case is wrong.
"""

import argparse
import os
import sys
import traceback

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import frameworks  # noqa: E402
from frameworks import cgtree  # noqa: E402

COUNT = 1 << 16
SPIN = """extern "C" __global__ void spin(long long cycles) {
  long long begin = clock64();
  while (clock64() - begin < cycles) {}
}"""
CYCLES_PER_MILLISECOND = 1_500_000


class Streams:
    """The parts of a framework that a race uses: streams, a long kernel on any stream, and fills."""

    device = "cuda:0"

    def __init__(self, framework, milliseconds):
        self.framework, self.cycles = framework, int(milliseconds * CYCLES_PER_MILLISECOND)


class NumpyStreams(Streams):
    """The host device, which runs work immediately: there are no races, but all functions are called."""

    device = "host:0"

    def stream(self):
        return cgtree.Stream(self.device)

    def external(self, pointer):
        return cgtree.Stream(self.device, external=pointer)

    def spin(self, stream):
        pass

    def fill(self, array, value, stream):
        with stream:
            array.copy_from(numpy.full(COUNT, value, "float32"))

    def array(self, value):
        array = cgtree.empty((COUNT,), "float32", self.device)
        array.copy_from(numpy.full(COUNT, value, "float32"))
        return array

    def import_ours(self, tensor, stream):
        return numpy.from_dlpack(getattr(tensor, "tensor", tensor))

    def export(self, array, stream):
        return {**array.cuda_array_interface(), "stream": stream.ptr}

    def read(self, array, stream):
        return numpy.array(array)


class CupyStreams(Streams):
    def __init__(self, framework, milliseconds):
        super().__init__(framework, milliseconds)
        self.cupy = framework.library
        self.kernel = self.cupy.RawKernel(SPIN, "spin")

    def stream(self):
        return self.cupy.cuda.Stream(non_blocking=True)

    def external(self, pointer):
        return self.cupy.cuda.ExternalStream(pointer)

    def spin(self, stream):
        with stream:
            self.kernel((1,), (1,), (numpy.int64(self.cycles),))

    def fill(self, array, value, stream):
        with stream:
            array.fill(value)

    def array(self, value):
        return self.cupy.full((COUNT,), value, "float32")

    def import_ours(self, tensor, stream):
        with stream:
            return self.cupy.from_dlpack(tensor)

    def export(self, array, stream):
        with stream:
            return dict(array.__cuda_array_interface__)

    def read(self, array, stream):
        with stream:
            return self.cupy.asnumpy(array.copy(), stream=stream)


class TorchStreams(Streams):
    def __init__(self, framework, milliseconds):
        super().__init__(framework, milliseconds)
        self.torch = framework.library

    def stream(self):
        return self.torch.cuda.Stream()

    def external(self, pointer):
        return self.torch.cuda.ExternalStream(pointer)

    def spin(self, stream):
        with self.torch.cuda.stream(stream):
            self.torch.cuda._sleep(self.cycles)

    def fill(self, array, value, stream):
        with self.torch.cuda.stream(stream):
            array.fill_(value)

    def array(self, value):
        return self.torch.full((COUNT,), value, dtype=self.torch.float32, device="cuda")

    def import_ours(self, tensor, stream):
        with self.torch.cuda.stream(stream):
            return self.torch.from_dlpack(tensor)

    def export(self, array, stream):
        entries = dict(array.__cuda_array_interface__)
        entries.update(version=3, stream=stream.cuda_stream)
        return entries

    def read(self, array, stream):
        with self.torch.cuda.stream(stream):
            copy = array.clone()
        stream.synchronize()
        return copy.cpu().numpy()


class NumbaStreams(Streams):
    def __init__(self, framework, milliseconds):
        super().__init__(framework, milliseconds)
        cuda = self.cuda = framework.library

        @cuda.jit
        def spin(cycles, out):
            total = 0.0
            for i in range(cycles):
                total = total * 1.000001 + i
            out[0] = total

        @cuda.jit
        def fill(array, value):
            i = cuda.grid(1)
            if i < array.size:
                array[i] = value

        self.spin_kernel, self.fill_kernel = spin, fill
        self.waste = cuda.device_array(1, "float64")

    def stream(self):
        return self.cuda.stream()

    def external(self, pointer):
        return self.cuda.external_stream(pointer)

    def spin(self, stream):
        self.spin_kernel[1, 1, stream](self.cycles // 8, self.waste)

    def fill(self, array, value, stream):
        self.fill_kernel[(COUNT + 255) // 256, 256, stream](array, numpy.float32(value))

    def array(self, value):
        return self.cuda.to_device(numpy.full(COUNT, value, "float32"))

    def import_ours(self, tensor, stream):
        return self.cuda.as_cuda_array(tensor)

    def export(self, array, stream):
        entries = dict(array.__cuda_array_interface__)
        entries["stream"] = int(getattr(stream.handle, "value", stream.handle))
        return entries

    def read(self, array, stream):
        out = array.copy_to_host(stream=stream)
        stream.synchronize()
        return out


KINDS = {"numpy": NumpyStreams, "cupy": CupyStreams, "numba": NumbaStreams, "torch": TorchStreams}


def seen(values, expected):
    """The number of elements with the expected value."""
    return int((values == numpy.float32(expected)).sum())


def forward(streams, number, sync):
    producer, ours = streams.stream(), cgtree.Stream(streams.device)
    array = streams.array(-1)
    out = cgtree.empty((COUNT,), "float32", streams.device)
    streams.framework.synchronize()
    streams.spin(producer)
    streams.fill(array, number, producer)
    tensor = cgtree.from_cuda_array_interface(streams.export(array, producer), owner=array,
                                              stream=ours, sync=sync)
    with ours:
        out.copy_from(tensor)
    ours.synchronize()
    values = cgtree.numpy.copy(out)
    del tensor
    streams.framework.synchronize()
    return seen(values, number)


def returning(streams, number, sync):
    producer, ours = streams.stream(), cgtree.Stream(streams.device)
    array = streams.array(number)
    out = cgtree.empty((COUNT,), "float32", streams.device)
    streams.framework.synchronize()
    tensor = cgtree.from_cuda_array_interface(streams.export(array, producer), owner=array,
                                              stream=ours, sync=sync)
    streams.spin(streams.external(ours.ptr))
    with ours:
        out.copy_from(tensor)
    del tensor
    streams.fill(array, -1, producer)
    ours.synchronize()
    values = cgtree.numpy.copy(out)
    streams.framework.synchronize()
    return seen(values, number)


def exporting(streams, number, sync):
    consumer, ours = streams.stream(), cgtree.Stream(streams.device)
    tensor = cgtree.empty((COUNT,), "float32", streams.device)
    source = cgtree.empty((COUNT,), "float32", streams.device)
    tensor.copy_from(numpy.full(COUNT, -1, "float32"))
    source.copy_from(numpy.full(COUNT, number, "float32"))
    streams.framework.synchronize()
    streams.spin(streams.external(ours.ptr))
    with ours:
        tensor.copy_from(source)
        if sync == "ignore":
            idle = Idle(tensor)
            array = streams.import_ours(idle, consumer)
        else:
            array = streams.import_ours(tensor, consumer)
    values = streams.read(array, consumer)
    ours.synchronize()
    streams.framework.synchronize()
    return seen(values, number)


class Idle:
    """A tensor that wrongly claims to have no pending work."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.__cuda_array_interface__ = tensor.cuda_array_interface(idle=True)

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**{**options, "stream": -1})

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


CASES = {"forward": forward, "return": returning, "export": exporting}


def run_case(streams, name, rounds):
    case = {"case": name}
    torn, races = 0, 0
    for number in range(1, rounds + 1):
        torn += CASES[name](streams, number, "wait") != COUNT
        races += CASES[name](streams, number, "ignore") != COUNT
    case.update(outcome="ordered" if torn == 0 else f"wrong: {torn} of {rounds} rounds",
                rounds=rounds, races_without_edges=races)
    return case


def run_kind(name, options):
    report = {"framework": name, "cases": []}
    framework, why = frameworks.load(name)
    if framework is None:
        report["absent"] = why
        return report
    report["version"] = framework.version
    streams = KINDS[name](framework, options.milliseconds)
    for case in CASES:
        try:
            report["cases"].append(run_case(streams, case, options.rounds))
        except Exception as error:
            report["cases"].append({"case": case, "outcome": f"wrong: {error!r}",
                                    "traceback": traceback.format_exc()})
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", default="numpy,cupy,numba,torch")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--milliseconds", type=float, default=20)
    parser.add_argument("--json")
    options = parser.parse_args()
    reports = [run_kind(name, options) for name in options.frameworks.split(",")]
    for report in reports:
        if "absent" in report:
            print(f"{report['framework']}: absent: {report['absent']}")
        for case in report["cases"]:
            print(f"{report['framework']:6} {case['case']:8} {case['outcome']}  "
                  f"(races without edges: "
                  f"{case.get('races_without_edges')} of {case.get('rounds')})")
            if "traceback" in case:
                print(case["traceback"])
    if options.json:
        frameworks.write_reports(options.json, "races", reports)
    return 1 if any(case["outcome"].startswith("wrong") for report in reports
                    for case in report["cases"]) else 0


if __name__ == "__main__":
    sys.exit(main())
