"""Shared by the tests of the Python package: the import, producers, and capsules made by hand."""

import ctypes
import os
import sys
import threading
import unittest

import numpy

sys.path.insert(0, "python")

try:
    import cgtree
    import cgtree.numpy
except ImportError as error:
    if any(name in str(error) for name in ("__asan", "__tsan", "__ubsan", "libclang_rt")):
        raise unittest.SkipTest("built with a sanitizer whose runtime python3 has not loaded: "
                                "bazel/python/run_unittest.sh does") from error
    raise

SEED = int.from_bytes(os.urandom(4), "little")
RANDOM = numpy.random.default_rng(SEED)


def setUpModule():  # called by unittest in modules that import it
    print(f"seed {SEED}", file=sys.stderr)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype("float32")


def tensor(values, device="host"):
    """A tensor of the host device with these values."""
    values = numpy.asarray(values)
    made = cgtree.empty(values.shape, values.dtype, device)
    made.copy_from(values)
    return made


def transposed(made):
    return cgtree.view(made, made.data_ptr, made.shape[::-1], made.strides[::-1], made.dtype)


def values_of(made):
    return cgtree.numpy.copy(made)


def on_threads(count, work):
    """Calls work(number) on `count` threads at once, and raises their first exception."""
    failed = []

    def call(number):
        try:
            work(number)
        except BaseException as error:  # pylint: disable=broad-except
            failed.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def affine(x, w):
    """A step function: 2 * x + w."""
    y = cgtree.empty(x.shape, x.dtype)
    cgtree.numpy.launch(lambda a, b, out: numpy.add(a * 2, b, out=out), x, w, y)
    return y


class Foreign:
    """Another library's array: a tensor of cgtree behind the CUDA array interface."""

    def __init__(self, inner, **changes):
        self.inner = inner
        entries = inner.cuda_array_interface(idle=True)
        entries.update(changes)
        self.__cuda_array_interface__ = {key: value for key, value in entries.items()
                                         if value is not Foreign.MISSING}

    MISSING = object()


def from_cai(array, **options):
    return cgtree.from_cuda_array_interface(array, **{"owner": array, "device": "host", **options})


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Exchange(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("previous", ctypes.c_void_p), ("allocate", ctypes.c_void_p),
                ("from_object", ctypes.c_void_p), ("to_object", ctypes.c_void_p),
                ("view_of_object", ctypes.c_void_p), ("current_stream", ctypes.c_void_p)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
KEPT = []  # names and callbacks must outlive their capsules


def capsule_name(capsule):
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get(capsule).decode()


def exported(capsule):
    """The struct in a capsule of cgtree; the capsule keeps it alive."""
    name = capsule_name(capsule).encode()
    kind = Versioned if name.endswith(b"versioned") else Unversioned
    struct = ctypes.cast(_get_pointer(capsule, name), ctypes.POINTER(kind)).contents
    struct.capsule = capsule
    return struct


class HandMade:
    """A capsule around NumPy memory, with any field changed, that counts calls of its deleter."""

    def __init__(self, values=None, versioned=True, has_deleter=True, has_strides=True, **changes):
        self.values = numpy.arange(12, dtype="float32").reshape(3, 4) if values is None else values
        self.deleted = 0
        rank = self.values.ndim
        item = self.values.itemsize
        self.shape = (ctypes.c_int64 * 8)(*self.values.shape)
        self.strides = (ctypes.c_int64 * 8)(*[s // item for s in self.values.strides])
        self.managed = Versioned() if versioned else Unversioned()
        self.callback = DELETER(self.delete)
        if versioned:
            self.managed.major, self.managed.minor = 1, 0
        if has_deleter:
            self.managed.deleter = ctypes.cast(self.callback, ctypes.c_void_p)
        view = self.managed.tensor
        view.data, view.device_type, view.ndim = self.values.ctypes.data, 1, rank
        view.code, view.bits, view.lanes = 2, item * 8, 1
        view.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))
        if has_strides:
            view.strides = ctypes.cast(self.strides, ctypes.POINTER(ctypes.c_int64))
        for name, value in changes.items():
            setattr(self.managed if hasattr(type(self.managed), name) else view, name, value)
        KEPT.append(self)

    def delete(self, _):
        self.deleted += 1

    def capsule(self):
        name = b"dltensor_versioned" if isinstance(self.managed, Versioned) else b"dltensor"
        return new_capsule(ctypes.addressof(self.managed), name, None)

    def take(self):
        return cgtree.from_dlpack(self.capsule())
