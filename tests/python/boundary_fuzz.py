"""Fuzzes objects that Python passes in: dicts, capsules and arguments made of random bytes.

usage: boundary_fuzz.py [--seconds=N] [--seed=S] [--input=HEX]... [--last=FILE]

Each case ends with a result, a cgtree.Error, or the exception that the object itself raised; and
leaves nothing behind: objects are gone, deleters have run once, tensors are as many as before.
A case that crashes is found in FILE.
"""

import argparse
import ctypes
import faulthandler
import gc
import os
import random
import sys
import time
import unittest
import warnings

import numpy

sys.path.insert(0, "tests/python")

from support import (  # noqa: E402,F401
    SEED, Exchange, capsule_name, cgtree, new_capsule, setUpModule, tensor,
    transposed)

import hostile  # noqa: E402

CORPUS = "tests/python/boundary_fuzz_corpus.txt"
VALUES = numpy.arange(96, dtype="float32").reshape(8, 12)
OURS = tensor(VALUES)
BUFFERS = ((OURS.data_ptr, OURS.data_ptr + OURS.nbytes),
           (VALUES.ctypes.data, VALUES.ctypes.data + VALUES.nbytes))
BATCH = 50


class Broken(AssertionError):
    """A promise that was not kept."""


class Producer:
    """An array of another library, with the protocols in `parts`."""

    def __init__(self, parts):
        self.parts = parts

    def __getattr__(self, name):
        part = self.__dict__.get("parts", {}).get(name)
        if part is None:
            raise AttributeError(name)
        return part()


class Raising(type):
    """A type whose exchange table raises."""

    @property
    def __dlpack_c_exchange_api__(cls):
        hostile.OddKey.world.wreck()
        raise hostile.OddKey.world.own(hostile.Raised("table"))


class RaisingProducer(Producer, metaclass=Raising):
    pass


def with_table(capsule):
    """Returns a type with `capsule` as its exchange table. cgtree remembers types, so there are few."""
    return type("TableProducer", (Producer,), {"__dlpack_c_exchange_api__": capsule})


TABLES = [Exchange(major, minor, previous) for major, minor, previous in (
    (1, 3, None), (2, 0, None), (0, 0, None), (1, 99, None))]
TABLES.append(Exchange(2, 0, ctypes.addressof(TABLES[0])))
PRODUCERS = [RaisingProducer, with_table(1), with_table(new_capsule(1, hostile.NAMES[1], None)),
             with_table(cgtree.Tensor.__dlpack_c_exchange_api__)]
PRODUCERS += [with_table(new_capsule(ctypes.addressof(table), hostile.NAMES[-1], None))
              for table in TABLES]


class Case:
    """One input: a call, and its permitted results."""

    def __init__(self, data):
        self.source, self.world = hostile.Source(data), hostile.World()
        self.managed, self.capsules = [], []
        self.has_odd_arguments = False
        hostile.OddKey.world = self.world

    def valid(self, protocol):
        entries = (OURS.cuda_array_interface(idle=True) if protocol == "cuda"
                   else dict(VALUES.__array_interface__))
        entries.update(strides=(48, 4), version=3)
        return entries

    def interface(self, protocol):
        return hostile.interface(self.world, self.source, self.valid(protocol))

    def raising(self, answer):
        """Returns a function that answers, raises, or empties the world's containers."""
        deed = self.source.below(12)

        def part():
            if deed == 0:
                raise self.world.own(hostile.Raised("part"))
            if deed == 1:
                raise self.world.own(AttributeError("part"))
            if deed == 2:
                self.world.wreck()
            return answer

        return part

    def capsule(self):
        if self.source.chance(8):
            return hostile.value(self.world, self.source)
        if self.source.chance(8):
            return OURS.__dlpack__()
        made = hostile.Managed(self.source, VALUES)
        self.managed.append(made)
        self.capsules.append(made.capsule(self.source))
        return self.capsules[-1]

    def dlpack_method(self):
        capsule = self.capsule()
        deed = self.source.below(10)

        def method(**options):
            if deed == 0 and "max_version" in options:
                raise self.world.own(TypeError("an older producer"))
            if deed == 1:
                raise self.world.own(hostile.Raised("__dlpack__"))
            if deed == 2:
                self.world.wreck()
            return capsule

        return method

    def producer(self):
        parts = {}
        if self.source.chance(100):
            parts["__cuda_array_interface__"] = self.raising(self.interface("cuda"))
        if self.source.chance(100):
            parts["__array_interface__"] = self.raising(self.interface("host"))
        if self.source.chance(150):
            device = ((1, 0) if self.source.chance(200)
                      else hostile.value(self.world, self.source))
            parts["__dlpack__"] = self.raising(self.dlpack_method())
            parts["__dlpack_device__"] = self.raising(self.raising(device))
        kind = Producer
        if self.source.chance(30):
            kind = self.source.choose(PRODUCERS)
            self.has_odd_arguments = True  # the table of Tensor requires tensors of cgtree
        return self.world.note(kind(parts))

    def options(self, *names):
        """Draws all options. Returns those with these names, or all without names."""
        options = {"device": "host"}
        for name, usual in (("sync", ("wait", "ignore", "enqueue", "synchronize")),
                            ("dtype", ("float32", "uint16", "bfloat16")),
                            ("device", ("host", "host:1", None)), ("stream", (1, 2, None))):
            if self.source.chance(24):
                options[name] = self.source.choose(usual)
            elif self.source.chance(8):
                options[name] = hostile.value(self.world, self.source)
                self.has_odd_arguments = True
        return {name: options[name] for name in names or options if name in options}

    def run(self):
        calls = (self.from_cuda, self.from_cuda, self.from_host, self.from_capsule,
                 self.from_capsule, self.from_producer, self.as_tensor, self.as_tensor,
                 self.views, self.exports)
        call = self.source.choose(calls)
        try:
            self.check(call())
            return "result"
        except cgtree.Error:
            return "refused"
        except Broken:
            raise
        except Exception as error:  # noqa: BLE001
            self.expect_own(error)
            return "its own"

    def expect_own(self, error):
        if any(error is own for own in self.world.raised):
            return
        if isinstance(error, AttributeError) and "__" in str(error):
            return  # cgtree asked for a protocol that the object does not have
        if self.has_odd_arguments and (type(error) in (TypeError, IndexError)
                                       or str(error) == "slice step cannot be zero"):
            return
        raise Broken(f"raised {error!r}") from error

    def from_cuda(self):
        given = self.interface("cuda")
        owner = self.world.note(Producer({}))
        if self.source.chance(60):
            given = Producer({"__cuda_array_interface__": self.raising(given)})
        return cgtree.from_cuda_array_interface(given, owner=owner, **self.options())

    def from_host(self):
        return cgtree.from_array_interface(self.interface("host"), owner=self.producer())

    def from_capsule(self):
        capsule = self.capsule()
        made = cgtree.from_dlpack(capsule, **self.options("stream", "device"))
        if self.source.chance(60):
            cgtree.from_dlpack(capsule)
            raise Broken("a capsule was taken twice")
        return made

    def from_producer(self):
        return cgtree.from_dlpack(self.producer(), **self.options("stream", "device"))

    def as_tensor(self):
        return cgtree.as_tensor(self.producer(), **self.options())

    def views(self):
        self.has_odd_arguments = True
        made = transposed(OURS) if self.source.chance(60) else OURS
        for _ in range(self.source.below(4)):
            deed, number = self.source.below(4), self.source.choose(hostile.INTEGERS)
            odd = hostile.value(self.world, self.source)
            if deed == 0:
                made = made[odd]
            elif deed == 1:
                made = made[number:self.source.choose(hostile.INTEGERS):
                            self.source.choose(hostile.INTEGERS)]
            elif deed == 2:
                made = made.reshape(number, odd)
            else:
                made = cgtree.view(OURS, OURS.data_ptr + self.source.byte(), odd,
                                   (number, self.source.choose(hostile.INTEGERS)), "float32")
            self.check(made)
        return made

    def exports(self):
        self.has_odd_arguments = True
        odd = hostile.value(self.world, self.source)
        name = self.source.choose(("stream", "max_version", "dl_device", "copy", "version",
                                   "pending", "idle", "source"))
        if name in ("version", "pending", "idle"):
            OURS.cuda_array_interface(**{name: odd})
        elif name == "source":
            made = cgtree.as_tensor(self.producer())
            if self.is_readable(made):
                cgtree.empty((8, 12), device="host").copy_from(made)
        else:
            OURS.__dlpack__(**{name: odd})
        return OURS

    def check(self, made):
        """Checks that an imported tensor describes itself consistently, and has the right elements."""
        if self.source.chance(128):
            repr(made)
            made.cuda_array_interface()
        entries = made.cuda_array_interface(idle=True)
        if entries["shape"] != made.shape or len(made.strides) != made.ndim:
            raise Broken(f"{made!r} says {entries}")
        if not made.read_only and cgtree.from_dlpack(made.__dlpack__()).shape != made.shape:
            raise Broken(f"{made!r} is another when it comes back")
        if made.size and self.is_readable(made) and made.dtype in numpy.sctypeDict:
            strided = numpy.lib.stride_tricks.as_strided(
                numpy.frombuffer(memory_at(made), made.dtype), made.shape, made.strides)
            if made.tobytes() != strided.tobytes():
                raise Broken(f"{made!r} has other elements")

    @staticmethod
    def is_readable(made):
        begin = made.data_ptr
        end = begin + made.itemsize + sum((size - 1) * stride for size, stride
                                          in zip(made.shape, made.strides))
        return made.nbytes <= 1 << 16 and any(low <= begin and end <= high
                                              for low, high in BUFFERS)

    def end(self):
        """Releases the objects of the case, except the structs, which must outlive it."""
        for made, capsule in zip(self.managed, self.capsules):
            made.is_taken = capsule_name(capsule) == "used_" + made.name
        self.capsules.clear()
        self.world.end()

    def expect_end(self, data):
        """Checks deleters and references after a garbage collection."""
        for made in self.managed:
            expected = 1 if made.is_taken and made.has_deleter else 0
            found = hostile.deletions.pop(made.address)
            if found != expected:
                raise Broken(f"{data.hex()}: {found} calls of the deleter, {expected} expected")
        alive = [seen() for seen in self.world.seen if seen() is not None]
        if alive:
            raise Broken(f"{data.hex()}: {len(alive)} objects stay: {alive[:3]}, "
                         f"held by {gc.get_referrers(alive[0])}")


def memory_at(made):
    bytes_ = made.itemsize + sum((size - 1) * stride
                                 for size, stride in zip(made.shape, made.strides))
    return ctypes.string_at(made.data_ptr, bytes_)


def run_batch(inputs, outcomes, note=lambda data: None):
    """Runs inputs, and checks that no object is left behind."""
    before = sys.getrefcount(cgtree.Tensor)
    cases = []
    for data in inputs:
        note(data)
        case = Case(data)
        try:
            outcome = case.run()
        except Broken as error:
            raise Broken(f"{data.hex()}: {error}") from error
        finally:
            case.end()
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        cases.append((case, data))
    gc.collect()
    for case, data in cases:
        case.expect_end(data)
    after = sys.getrefcount(cgtree.Tensor)
    if after != before:
        raise Broken(f"{after - before} tensors stay after {[data.hex() for data in inputs]}")


def random_inputs(generator, count):
    return [generator.randbytes(generator.choice((16, 40, 80, 200))) for _ in range(count)]


def corpus():
    with open(CORPUS, encoding="utf-8") as file:
        return [bytes.fromhex(line.split("#")[0]) for line in file if line.split("#")[0].strip()]


def prepare():
    cgtree.set_log_level("off")
    warnings.simplefilter("ignore")  # __index__ may return such values
    sys.unraisablehook = lambda _: None  # deleters raise
    gc.collect()
    gc.freeze()


class BoundaryFuzzTest(unittest.TestCase):
    def setUp(self):
        prepare()
        self.addCleanup(gc.unfreeze)
        self.addCleanup(setattr, sys, "unraisablehook", sys.__unraisablehook__)
        self.addCleanup(cgtree.set_log_level, "warn")
        self.outcomes = {}

    def test_earlier_findings_stay_repaired(self):
        for data in corpus():
            with self.subTest(input=data.hex()):
                run_batch([data], self.outcomes)

    def test_random_inputs_end_as_promised_and_leave_nothing(self):
        generator = random.Random(SEED)
        for _ in range(60):
            run_batch(random_inputs(generator, BATCH), self.outcomes)
        print(f"{self.outcomes}", file=sys.stderr)
        self.assertEqual(set(self.outcomes), {"result", "refused", "its own"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--input", action="append", type=bytes.fromhex, metavar="HEX")
    parser.add_argument("--last", default=os.devnull, help="where the input under way is kept")
    options = parser.parse_args()
    prepare()
    outcomes, cases = {}, 0
    generator, end = random.Random(options.seed), time.monotonic() + options.seconds
    with open(options.last, "wb", buffering=0) as last:
        def note(data):
            last.seek(0)
            last.write(data.hex().encode() + b"\n")
            last.truncate()

        while time.monotonic() < end:
            inputs = options.input or random_inputs(generator, BATCH)
            faulthandler.dump_traceback_later(60, exit=True)  # no case takes this long
            run_batch(inputs, outcomes, note if options.last != os.devnull else lambda data: None)
            faulthandler.cancel_dump_traceback_later()
            cases += len(inputs)
            if options.input:
                break
    print(f"seed {options.seed}: {cases} inputs, {outcomes}")


if __name__ == "__main__":
    faulthandler.enable()
    main()
