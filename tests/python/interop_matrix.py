"""{framework} x {to cgtree, from cgtree} x {protocol} x {element type, layout}, a line per cell.

usage: interop_matrix.py [--frameworks=numpy,cupy,numba,torch,jax] [--json=FILE] [--quiet]

A cell is `equal` (same pointer, same values, no copy), `refused: MESSAGE`, `not offered: WHY` (the
framework lacks the feature) or `wrong: WHAT`. Each framework runs in a separate process. Exits 1 if
a cell is wrong or a framework crashed.
"""

import argparse
import contextlib
import os
import sys
import traceback

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import frameworks  # noqa: E402
from frameworks import NotOffered, cgtree  # noqa: E402

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "bfloat16", "float32", "float64", "complex64"]
LAYOUTS = ["row-major", "fortran", "slice", "broadcast", "zero-size", "scalar", "negative strides",
           "read-only", "non-default stream"]
# Every framework supports these: a refusal is a fault.
BASIC = {("float32", "row-major"), ("int32", "row-major"), ("float64", "row-major")}


def sample(dtype, rows=6, columns=5):
    """Distinct values; for bfloat16 the bits."""
    plain = "uint16" if dtype == "bfloat16" else dtype
    values = numpy.arange(1, rows * columns + 1).reshape(rows, columns)
    return (values % 2 == 0) if dtype == "bool" else values.astype(plain)


def framework_array(framework, layout, values):
    """(array, its expected values, the objects that must stay alive)."""
    if layout == "row-major":
        return framework.array(values), values, None
    if layout == "fortran":
        return framework.fortran(values), values, None
    if layout == "slice":
        return framework.sliced(values), values, None
    if layout == "broadcast":
        return framework.broadcast(values), numpy.broadcast_to(values[:1], values.shape), None
    if layout == "zero-size":
        return framework.array(values[:0].copy()), values[:0], None
    if layout == "scalar":
        return framework.array(values[0, 0].reshape(())), values[0, 0], None
    if layout == "negative strides":
        return framework.negative(values), values, None
    if layout == "read-only":
        return framework.read_only(values), values, None
    array, stream = framework.on_stream(values)
    return array, values, stream


def filled(framework, values, dtype):
    tensor = cgtree.empty(values.shape, dtype, framework.device)
    if dtype == "bfloat16":
        plain = cgtree.view(tensor, tensor.data_ptr, tensor.shape, tensor.strides, "uint16")
        plain.copy_from(values)
    else:
        tensor.copy_from(values)
    return tensor


def our_tensor(framework, layout, values, dtype):
    """(tensor, its expected values, the objects that must stay alive)."""
    if layout in ("row-major", "read-only"):
        tensor = filled(framework, values, dtype)
        if layout == "row-major":
            return tensor, values, None
        entries = dict(tensor.cuda_array_interface())
        entries["data"] = (tensor.data_ptr, True)
        place = framework.device
        return cgtree.from_cuda_array_interface(
            entries, owner=tensor, device=place,
            dtype="bfloat16" if dtype == "bfloat16" else None), values, tensor
    if layout == "fortran":
        made = filled(framework, numpy.ascontiguousarray(values.T), dtype)
        return cgtree.view(made, made.data_ptr, values.shape, made.strides[::-1], dtype), values, None
    if layout == "slice":
        return filled(framework, frameworks.widened(values), dtype)[::2, 1:], values, None
    if layout == "broadcast":
        made = filled(framework, values[:1], dtype)
        return (cgtree.view(made, made.data_ptr, values.shape, (0, made.itemsize), dtype),
                numpy.broadcast_to(values[:1], values.shape), None)
    if layout == "zero-size":
        return cgtree.empty((0, values.shape[1]), dtype, framework.device), values[:0], None
    if layout == "scalar":
        return filled(framework, values[:1, :1], dtype).reshape(()), values[0, 0], None
    if layout == "negative strides":
        raise NotOffered("cgtree has no negative strides")
    stream = cgtree.Stream(framework.device)
    tensor = cgtree.empty(values.shape, dtype, framework.device)
    with stream:
        tensor.copy_from(values)
        return tensor, values, stream


def elements(tensor):
    """The values of a tensor of cgtree, as numpy; for bfloat16 the bits."""
    plain = "uint16" if tensor.dtype == "bfloat16" else tensor.dtype
    return numpy.frombuffer(tensor.tobytes(), plain).reshape(tensor.shape)


def compare(values, found, pointers):
    ours, theirs = pointers
    if values.size and ours != theirs:
        return f"wrong: pointer {ours:#x} became {theirs:#x}: it was copied"
    if tuple(found.shape) != tuple(values.shape):
        return f"wrong: shape {tuple(values.shape)} became {tuple(found.shape)}"
    if not numpy.array_equal(found, values):
        return f"wrong: values {found.ravel()[:4]} for {numpy.ravel(values)[:4]}"
    return "equal"


def to_us(framework, protocol, dtype, layout):
    framework.as_bfloat16 = dtype == "bfloat16"
    if dtype == "bfloat16" and framework.name not in ("torch", "jax"):
        raise NotOffered("no bfloat16")
    array, values, keeper = framework_array(framework, layout, sample(dtype))

    def convert():
        with framework.current(keeper) if keeper is not None else contextlib.nullcontext():
            return framework.to_us(array, protocol)

    def check(tensor):
        if layout == "read-only" and not tensor.read_only:
            if protocol == "dlpack":
                return (f"not offered: {framework.name} {framework.version}: "
                        "DLPack that tells read-only")
            return "wrong: it is not read-only any more"
        pointer = framework.pointer(array) if values.size else 0
        return compare(values, elements(tensor), (pointer, tensor.data_ptr))

    return convert, check, (array, keeper)


def from_us(framework, protocol, dtype, layout):
    framework.as_bfloat16 = dtype == "bfloat16"
    tensor, values, keeper = our_tensor(framework, layout, sample(dtype), dtype)

    def convert():
        return framework.from_us(tensor, protocol)

    def check(array):
        pointer = framework.pointer(array) if values.size else 0
        found = framework.read(array)
        if dtype == "bfloat16" and found.dtype != numpy.uint16:
            found = numpy.ascontiguousarray(found).view(numpy.uint16).reshape(found.shape)
        return compare(values, found, (tensor.data_ptr, pointer))

    return convert, check, (tensor, keeper)


def run_cell(prepare, framework, protocol, dtype, layout):
    """(outcome, traceback or None)."""
    try:
        convert, check, kept = prepare(framework, protocol, dtype, layout)
    except NotOffered as reason:
        return f"not offered: {framework.name} {framework.version}: {reason}", None
    except Exception as error:
        why = f"not offered: {framework.name} {framework.version}: {first_line(error)}"
        return why, traceback.format_exc()
    try:
        taken = convert()
    except NotOffered as reason:
        return f"not offered: {framework.name} {framework.version}: {reason}", None
    except Exception as error:
        is_fault = (dtype, layout) in BASIC
        return f"{'wrong: ' if is_fault else ''}refused: {first_line(error)}", traceback.format_exc()
    try:
        outcome = check(taken)
    except Exception as error:
        return f"wrong: {first_line(error)}", traceback.format_exc()
    del kept
    return outcome, None


def first_line(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def cells(framework):
    """All element types in one layout, all layouts in one type, and a mix of both."""
    for direction, prepare in (("to us", to_us), ("from us", from_us)):
        for protocol in framework.protocols:
            for dtype in DTYPES:
                for layout in LAYOUTS:
                    if layout in ("negative strides",) and dtype != "float32":
                        continue
                    yield direction, prepare, protocol, dtype, layout


def run_framework(name):
    framework, why = frameworks.load(name)
    report = {"framework": name, "cells": []}
    if framework is None:
        report["absent"] = why
        return report
    report["version"], report["device"] = framework.version, framework.device
    for direction, prepare, protocol, dtype, layout in cells(framework):
        outcome, trace = run_cell(prepare, framework, protocol, dtype, layout)
        cell = {"direction": direction, "protocol": protocol, "dtype": dtype, "layout": layout,
                "outcome": outcome}
        if trace and outcome.startswith("wrong"):
            cell["traceback"] = trace
        report["cells"].append(cell)
    return report


def print_report(report):
    for key in ("absent", "crashed"):
        if key in report:
            print(f"{report['framework']}: {key}: {report[key]}")
    for cell in report.get("cells", ()):
        print(f"{report['framework']:6} {cell['direction']:8} {cell['protocol']:16} "
              f"{cell['dtype']:10} "
              f"{cell['layout']:20} {cell['outcome']}")
    counts = {}
    for cell in report.get("cells", ()):
        kind = cell["outcome"].partition(":")[0]
        counts[kind] = counts.get(kind, 0) + 1
    if counts:
        print(f"{report['framework']} {report['version']} on {report['device']}: {counts}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", default="numpy,cupy,numba,torch,jax")
    parser.add_argument("--json")
    parser.add_argument("--here", action="store_true", help="run in this process")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    names = options.frameworks.split(",")
    reports = [run_framework(name) if options.here else frameworks.in_process(__file__, name, "--quiet") for name in names]
    if not options.quiet:
        for report in reports:
            print_report(report)
    if options.json:
        frameworks.write_reports(options.json, "interop_matrix", reports)
    wrong = [cell for report in reports for cell in report.get("cells", ())
             if cell["outcome"].startswith("wrong")]
    crashed = [report for report in reports if "crashed" in report]
    return 1 if wrong or crashed else 0


if __name__ == "__main__":
    sys.exit(main())
