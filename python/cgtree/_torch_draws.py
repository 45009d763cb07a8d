"""Random numbers of PyTorch in recordings.

While a CUDA graph of PyTorch's is captured, the kernels that draw from a generator read seed and
offset from the device; CUDAGraph.replay() writes them there, and moves the generator on. That is all
that a Companion is for: a CUDAGraph without nodes, captured on a stream of its own while a recording
is captured, and replayed before the recording is. So each replay draws what an eager call would have
drawn, and manual_seed(), get_rng_state() and the like take effect at the next call.

All graphs of one generator share the place of its seed and offset, so that a companion serves every
recording that draws as many numbers.
"""

import ctypes
import warnings

import torch

from cgtree import _cgtree

_anchors = {}  # keep the place on the device, which would move if the last graph of a generator went
_streams = {}


def default_generator(device):
    return torch.default_generator if device.type == "cpu" else (
        torch.cuda.default_generators[device.index])


def anchor(device, generators):
    """Makes what a companion needs on this device. Must be called outside of a capture."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    for generator in generators:
        if id(generator) not in _anchors:
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(generator)
            _anchors[id(generator)] = (graph, generator)


def offsets(generators):
    """Returns how far each generator has come: a number, or on the CPU the bytes of its state."""
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
    """See above. `with companion:` encloses the work that is being captured on another stream.

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
        with torch.cuda.stream(self._stream):  # no registration is allowed on one that captures
            for generator in self._generators:
                self._graph.register_generator_state(generator)
            self._graph.capture_begin(capture_error_mode="relaxed")
        return self

    def __exit__(self, *_):
        with torch.cuda.stream(self._stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the graph is empty
            _cgtree.call_relaxed(self._graph.capture_end)  # instantiates it
        self._caller.wait_stream(self._stream)

    def replay(self):
        """Writes seeds and offsets on the current stream, and moves the generators on."""
        self._graph.replay()
