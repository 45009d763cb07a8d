"""Libraries that exchange arrays with cgtree, behind one interface."""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [path for path in (os.path.join(ROOT, "python"), ROOT) if path not in sys.path]

import cgtree  # noqa: E402
import cgtree.numpy  # noqa: E402


class NotOffered(Exception):
    """The framework lacks the element type, layout or protocol."""


class Framework:
    """One library: makes arrays of `values` (numpy) in a layout, converts them, and reads them back."""

    name = ""
    module = ""
    device = "cuda:0"
    protocols = ("cai", "dlpack")

    def __init__(self):
        self.library = importlib.import_module(self.module)
        self.set_up()

    def set_up(self):
        pass

    @property
    def version(self):
        return getattr(self.library, "__version__", "unknown")

    # The framework's array with these values, row-major.
    def array(self, values):
        raise NotImplementedError

    def read(self, array):
        """The elements as a numpy array, after all work is done."""
        raise NotImplementedError

    def pointer(self, array):
        return array.__cuda_array_interface__["data"][0]

    def from_us(self, tensor, protocol):
        raise NotImplementedError

    def to_us(self, array, protocol):
        if protocol == "cai":
            return cgtree.from_cuda_array_interface(array, owner=array)
        return cgtree.from_dlpack(array)

    # Layouts; a framework whose arrays lack a layout raises NotOffered.
    def fortran(self, values):
        return self.array(numpy.ascontiguousarray(values.T)).T

    def sliced(self, values):
        return self.array(widened(values))[::2, 1:]

    def broadcast(self, values):
        raise NotOffered("no broadcast arrays")

    def negative(self, values):
        return self.array(values[::-1].copy())[::-1]

    def read_only(self, values):
        raise NotOffered("its arrays are never read-only")

    def on_stream(self, values):
        """(array, keeper): written on a stream other than the default one."""
        raise NotOffered("it has no streams")

    def current(self, stream):
        """A scope in which a stream of on_stream() is the framework's current stream."""
        return contextlib.nullcontext()

    def synchronize(self):
        pass


def widened(values):
    """An array whose [::2, 1:] are the values."""
    rows, columns = values.shape
    wide = numpy.zeros((2 * rows, columns + 1), values.dtype)
    wide[::2, 1:] = values
    return wide


class NumpyFramework(Framework):
    name = module = "numpy"
    device = "host:0"
    protocols = ("array_interface", "dlpack")

    def array(self, values):
        return numpy.array(values)

    def read(self, array):
        return numpy.array(array)

    def pointer(self, array):
        return array.__array_interface__["data"][0]

    def from_us(self, tensor, protocol):
        return numpy.from_dlpack(tensor) if protocol == "dlpack" else numpy.asarray(tensor)

    def to_us(self, array, protocol):
        if protocol == "array_interface":
            return cgtree.from_array_interface(array, owner=array)
        return cgtree.from_dlpack(array)

    def broadcast(self, values):
        return numpy.broadcast_to(values[:1], values.shape)

    def read_only(self, values):
        array = numpy.array(values)
        array.flags.writeable = False
        return array


class CupyFramework(Framework):
    name = module = "cupy"

    def array(self, values):
        return self.library.asarray(values)

    def read(self, array):
        self.synchronize()
        return self.library.asnumpy(array)

    def pointer(self, array):
        return array.data.ptr

    def from_us(self, tensor, protocol):
        if protocol == "dlpack":
            return self.library.from_dlpack(tensor)
        return self.library.asarray(tensor)

    def broadcast(self, values):
        return self.library.broadcast_to(self.array(values[:1]), values.shape)

    def on_stream(self, values):
        stream = self.library.cuda.Stream(non_blocking=True)
        with stream:
            array = self.library.zeros(values.shape, values.dtype)
            array.set(values, stream=stream)
            return array, stream

    def current(self, stream):
        return stream

    def synchronize(self):
        self.library.cuda.Device().synchronize()


class NumbaFramework(Framework):
    name = "numba"
    module = "numba.cuda"
    protocols = ("cai", "dlpack")

    def set_up(self):
        import numba
        self._version = numba.__version__
        try:
            import numba_cuda
            self._version += f", numba-cuda {numba_cuda.__version__}"
        except ImportError:
            pass

    @property
    def version(self):
        return self._version

    def array(self, values):
        return self.library.to_device(numpy.array(values, order="C"))

    def fortran(self, values):
        return self.library.to_device(numpy.asfortranarray(values))

    def read(self, array):
        self.library.synchronize()
        return array.copy_to_host()

    def from_us(self, tensor, protocol):
        if protocol == "dlpack":
            raise NotOffered("no from_dlpack")
        return self.library.as_cuda_array(tensor)

    def to_us(self, array, protocol):
        if protocol == "dlpack" and not hasattr(array, "__dlpack__"):
            raise NotOffered("its arrays have no __dlpack__")
        return super().to_us(array, protocol)

    def on_stream(self, values):
        stream = self.library.stream()
        array = self.library.to_device(numpy.ascontiguousarray(values), stream=stream)
        return array, stream

    def negative(self, values):
        raise NotOffered("slices with negative steps")

    def synchronize(self):
        self.library.synchronize()


class TorchFramework(Framework):
    name = module = "torch"

    def array(self, values):
        if values.dtype == numpy.uint16 and getattr(self, "as_bfloat16", False):
            return self.library.from_numpy(values.view(numpy.int16)).cuda().view(
                self.library.bfloat16)
        return self.library.from_numpy(numpy.array(values)).cuda()

    def read(self, array):
        self.synchronize()
        if array.dtype == self.library.bfloat16:
            return array.contiguous().view(self.library.int16).cpu().numpy().view(numpy.uint16)
        return array.cpu().numpy()

    def pointer(self, array):
        return array.data_ptr()

    def from_us(self, tensor, protocol):
        if protocol == "dlpack":
            return self.library.from_dlpack(tensor)
        return self.library.as_tensor(tensor, device="cuda")

    def broadcast(self, values):
        return self.array(values[:1].copy()).expand(values.shape)

    def negative(self, values):
        raise NotOffered("no negative strides")

    def on_stream(self, values):
        stream = self.library.cuda.Stream()
        with self.library.cuda.stream(stream):
            array = self.library.zeros(tuple(values.shape), device="cuda",
                                       dtype=self.library.from_numpy(values).dtype)
            array.copy_(self.library.from_numpy(values).pin_memory(), non_blocking=True)
            return array, stream

    def current(self, stream):
        return self.library.cuda.stream(stream)

    def to_us(self, array, protocol):
        if protocol == "cai":  # the dict has no stream, so the caller has to wait
            self.library.cuda.current_stream().synchronize()
        return super().to_us(array, protocol)

    def synchronize(self):
        self.library.cuda.synchronize()


class JaxFramework(Framework):
    name = module = "jax"

    def set_up(self):
        self.library.config.update("jax_enable_x64", True)
        import jax.numpy
        self.jnp = jax.numpy
        if self.library.default_backend() == "cpu":
            self.device = "host:0"
            self.protocols = ("dlpack",)

    def array(self, values):
        if values.dtype == numpy.uint16 and getattr(self, "as_bfloat16", False):
            return self.library.lax.bitcast_convert_type(
                self.jnp.array(values), self.jnp.bfloat16).block_until_ready()
        return self.jnp.array(values).block_until_ready()

    def read(self, array):
        if str(array.dtype) == "bfloat16":
            array = self.library.lax.bitcast_convert_type(array, self.jnp.uint16)
        return numpy.asarray(array)

    def pointer(self, array):
        return array.unsafe_buffer_pointer()

    def from_us(self, tensor, protocol):
        if protocol == "dlpack":
            return self.jnp.from_dlpack(tensor)
        return self.jnp.array(tensor, copy=False)

    def fortran(self, values):
        raise NotOffered("its arrays are row-major")

    sliced = broadcast = negative = fortran

    def read_only(self, values):
        return self.array(values)


FRAMEWORKS = {each.name: each for each in (NumpyFramework, CupyFramework, NumbaFramework,
                                           TorchFramework, JaxFramework)}


def load(name):
    """(the framework, None), or (None, the reason why it is missing)."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # numba-cuda 0.30 with NumPy 2.5
    try:
        framework = FRAMEWORKS[name]()
        framework.read(framework.array(numpy.zeros((1, 1), "float32")))
        return framework, ""
    except Exception as error:  # frameworks without a GPU raise different exceptions
        return None, f"{type(error).__name__}: {error}"


def in_process(program, name, *options):
    """Returns the report that a program makes of a framework in a separate process, so that an abort ends only that
    process.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        command = [sys.executable, os.path.abspath(program), f"--frameworks={name}", "--here", f"--json={path}", *options]
        result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1200,
                                check=False)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return json.load(file)["frameworks"][0]
    return {"framework": name, "crashed": f"status {result.returncode}: {result.stdout[-3000:]}"}


def write_reports(path, program, reports):
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"program": program, "cgtree": cgtree.__version__, "device": cgtree.best_device(),
                   "python": sys.version.split()[0], "command": sys.argv, "frameworks": reports}, file, indent=1)


def write_on(stream, tensor, values):
    """Copies the values to the tensor on a stream of cgtree."""
    with stream:
        tensor.copy_from(cgtree.from_array_interface(values, owner=values))
