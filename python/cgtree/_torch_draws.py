"""Random numbers of PyTorch in recordings.

While a CUDA graph of PyTorch's is captured, the kernels that draw from a generator read seed and offset from the
device; CUDAGraph.replay() writes them there, and advances the generator. A Companion is a CUDAGraph without nodes for
this purpose alone: it is captured on a separate stream while a recording is captured, and replayed before the recording
is. So each replay draws the numbers that an eager call would draw, and manual_seed(), get_rng_state() and the like take
effect at the next call.

All graphs of one generator share the place of its seed and offset, so that a companion serves every
recording that draws as many numbers.
"""

import ctypes
import warnings

import torch

from cgtree import _cgtree

_anchors = {}  # keep the place on the device, which would move if the last graph of a generator were dropped
_streams = {}


def default_generator(device):
    return torch.default_generator if device.type == "cpu" else (
        torch.cuda.default_generators[device.index])


def anchor(device, generators):
    """Makes the objects that a companion needs on this device. Must be called outside of a
    capture."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    for generator in generators:
        if id(generator) not in _anchors:
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(generator)
            _anchors[id(generator)] = (graph, generator)


def offsets(generators):
    """Returns the position of each generator: an offset, or on the CPU the bytes of its state."""
    return [generator.get_offset() if generator.device.type == "cuda"
            else _bytes_of(generator.get_state()) for generator in generators]


def _bytes_of(state):
    return ctypes.string_at(state.data_ptr(), state.numel())


def set_offsets(generators, values):
    for generator, value in zip(generators, values):
        if generator.device.type == "cuda":
            generator.set_offset(value)
        else:
            generator.set_state(torch.frombuffer(bytearray(value), dtype=torch.uint8))


class Companion:
    """A CUDAGraph without nodes that writes seeds and offsets (see above). `with companion:`
    encloses work that is captured on another stream.

    Requires: anchor() was called; one Companion of a generator at a time is open.
    """

    def __init__(self, device, generators):
        self._generators = generators
        self._stream = _streams[device]
        self._caller = torch.cuda.current_stream(device)
        self._graph = torch.cuda.CUDAGraph()

    def __enter__(self):
        # PyTorch writes the places now, which earlier replays on the caller's stream still read.
        self._stream.wait_stream(self._caller)
        with torch.cuda.stream(self._stream):  # registration is not allowed on a capturing stream
            for generator in self._generators:
                self._graph.register_generator_state(generator)
            self._graph.capture_begin(capture_error_mode="relaxed")
        return self

    def __exit__(self, *_):
        with torch.cuda.stream(self._stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about an empty graph
            _cgtree.call_relaxed(self._graph.capture_end)  # instantiates it
        self._caller.wait_stream(self._stream)

    def replay(self):
        """Writes seeds and offsets on the current stream, and advances the generators."""
        self._graph.replay()
