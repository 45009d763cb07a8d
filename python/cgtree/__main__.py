"""python -m cgtree: prints versions and devices, and tests each device; or makes a report.

On each device a step function is warmed up, recorded and replayed with random inputs, and its
results are compared. Exit status: 0 if all are right, 1 if not.

python -m cgtree report FILE prints the report of a snapshot, or of an event file: one for each of its contexts. For
files that have the result of ProgressWatch.report_json(), one for each process, it says where replays hang and which
collective each rank waits for. Exit status: 0, or 2 if there is nothing to report.

python -m cgtree --cmake-dir, --include-dir or --library prints where the C ABI of this package is, for
-DCMAKE_PREFIX_PATH=, a compiler's -I, and its linker. Exit status: 0, or 2 where this package has none.
"""

import argparse
import ctypes
import importlib.metadata
import os
import platform
import sys

import cgtree
from cgtree import _report

CALLS = 6
SIZE = 1000
# Parts of the C ABI, below the package.
PLACES = {"cmake_dir": "lib/cmake/cgtree", "include_dir": "include/cgtree", "library": "lib/libcgtree.so.2"}


class HostBytes:
    """Random bytes of the host, as an array."""

    def __init__(self, count):
        self._memory = ctypes.create_string_buffer(os.urandom(count), count)
        self.value = self._memory.raw
        self.__array_interface__ = {"version": 3, "shape": (count,), "typestr": "|u1",
                                    "data": (ctypes.addressof(self._memory), False)}


def versions():
    """Returns {package: version} of the packages here that exchange arrays with cgtree."""
    found = {}
    for name in ("numpy", "torch", "cupy-cuda13x", "cupy-cuda12x", "cupy", "numba", "triton", "jax"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def gpus():
    """Returns the names of GPUs, or the reason why there are none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return [], "no driver"
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return [], "a driver that finds no GPU"
    names = []
    for i in range(count.value):
        text = ctypes.create_string_buffer(256)
        driver.cuDeviceGetName(text, len(text), i)
        names.append(text.value.decode())
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return names, f"a driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}"


def test(device):
    """Returns the reason why the device fails, or None."""
    def step(x):
        y = cgtree.empty(x.shape, x.dtype)
        y.copy_from(x)
        return y

    with cgtree.Context(device) as context:
        function = cgtree.compile(step, context=context)
        held = []
        for _ in range(CALLS):
            given = HostBytes(SIZE)
            x = cgtree.empty((SIZE,), "uint8", device)
            x.copy_from(given)
            held.append((function(x), given.value))
        if any(y.tobytes() != value for y, value in held):
            return "a result is wrong"
        held.clear()
        replays = function.stats()["replays"]
        function(x)
        return None if function.stats()["replays"] > replays else "it does not replay"


def place(name):
    """Prints where a part of the C ABI is. Returns the exit status."""
    path = os.path.join(os.path.dirname(os.path.abspath(cgtree.__file__)), PLACES[name])
    if not os.path.exists(path):
        print(f"python -m cgtree: there is no {path}: install a wheel of cgtree", file=sys.stderr)
        return 2
    print(path)
    return 0


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m cgtree", description=__doc__.splitlines()[0])
    for name, what in (("cmake_dir", "folder of the CMake package"), ("include_dir", "folder of the headers"),
                       ("library", "shared library")):
        parser.add_argument("--" + name.replace("_", "-"), dest="place", action="store_const", const=name,
                            help=f"print the {what}, for programs in C and C++")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    to_report = commands.add_parser("report", help="print the report of a snapshot, an event file or watches")
    to_report.add_argument("file", nargs="+", help="Context.snapshot_json() in a file, or an event_file, "
                           "or ProgressWatch.report_json() of each process")
    options = parser.parse_args(arguments)
    if options.place is not None:
        return place(options.place)
    if options.command == "report":
        return _report.print_report(options.file, "python -m cgtree", _report.spelled)
    return test_all()


def test_all():
    """Tests each device. Returns the exit status."""
    names, driver = gpus()
    print(f"cgtree {cgtree.__version__}, Python {platform.python_version()}, "
          f"{platform.machine()}, {driver}")
    for name, version in versions().items():
        print(f"  {name} {version}")
    failures = 0
    for device, name in [("host", "the embedded host device"),
                         *((f"cuda:{i}", name) for i, name in enumerate(names))]:
        try:
            why = test(device)
        except cgtree.Error as error:
            why = str(error)
        failures += why is not None
        print(f"{device}: {name}: {'passed' if why is None else 'FAILED: ' + why}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
