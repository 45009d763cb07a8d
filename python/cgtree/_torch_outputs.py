"""The results of a graph of PyTorch's, and the way in which a replay returns the same: strides, memory formats, and
tensors that share memory with inputs or with one another.

A Recipe has the source of each result:

    ("made", k)                  output k of the recording, as it is
    ("host", k)                  the same, where it was on the CPU outside of a capture
    ("part", k, View)            a view of output k, whose memory several results share
    ("empty", Empty)             a new tensor without elements, which the caller may resize
    ("given", i)                 input i itself
    ("view", i, View)            a view of input i
    ("same", j)                  result j itself
    ("value", what)              no tensor
"""

import collections
import functools
import math

import torch

from cgtree import _cgtree
from cgtree._errors import InvalidArgument
from cgtree._torch_memory import as_tensor, from_tensor, is_process_wide, segment_of

# `begin`: bytes from the first element of the base.
View = collections.namedtuple("View", "dtype shape strides begin is_conj is_neg")
Empty = collections.namedtuple("Empty", "dtype shape strides device")
# An output of the recording: as a tensor, or as bytes if `dtype` is None.
Made = collections.namedtuple("Made", "dtype shape strides")

ALIGNMENT = 64  # bytes; of an output that several results share
_names = {}


def dtype_name(dtype):
    """Returns cgtree's name of a type of elements, or None if it has none."""
    if dtype not in _names:
        name = str(dtype).rpartition(".")[2]
        try:
            _cgtree.empty((0,), name, "host")
        except InvalidArgument:
            name = None
        _names[dtype] = name
    return _names[dtype]


def why_not(tensor, device):
    """Returns the reason why a tensor cannot be an input or output of a recording on this device,
    or None."""
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return f"a {type(tensor).__name__}, another class than torch.Tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor with the layout {tensor.layout}"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.device != device:
        return f"a tensor on {tensor.device}, and others lie on {device}"
    return None


def is_empty(tensor):
    """Returns whether a result is a tensor without elements, which needs no memory of a recording."""
    return (type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_nested
            and not tensor.numel() and not tensor.is_quantized and not tensor.is_conj()
            and not tensor.is_neg())


MOST_ON_HOST = 2  # elements


def may_be_seed(tensor):
    """Returns whether a tensor may be attention's seed or offset of random numbers, which lies on the
    device while a stream is captured, and on the CPU otherwise."""
    return (tensor.layout is torch.strided and tensor.numel() <= MOST_ON_HOST
            and tensor.dtype in (torch.int64, torch.uint64))


def is_on_host(tensor, device):
    """Returns whether the tensor may be a seed or offset that lies on the CPU because nothing is
    captured."""
    return tensor.device.type == "cpu" and device.type == "cuda" and may_be_seed(tensor)


def end_of(tensor):
    """Returns the bytes from the first element to the end of the last."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def _layout(tensor):
    """Returns the bytes of an element, and the size and the stride in bytes of each axis, from the innermost on."""
    item = tensor.element_size()
    return item, tuple(sorted((stride * item, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1))


def _run(layout):
    """Returns the bytes that lie side by side without a gap, and the steps in bytes from one such run to the next."""
    run, axes = layout
    steps = []
    for step, size in axes:
        if step <= run:
            run += (size - 1) * step
        else:
            steps.append(step)
    return run, steps


@functools.lru_cache(1024)
def _shared(a, b, distance):
    """Returns how many elements of a layout share memory with another layout, which begins this many bytes later."""
    (run, steps), (other, others) = _run(a), _run(b)
    period = math.gcd(*steps, *others)
    if period and run <= distance % period <= period - other:
        return 0  # columns of one matrix, for example
    unit, begin = math.gcd(a[0], b[0], distance), min(0, distance)
    ends = [place + layout[0] + sum((size - 1) * step for step, size in layout[1])
            for place, layout in ((0, a), (distance, b))]
    marks = torch.zeros((max(ends) - begin) // unit, dtype=torch.bool, device="cpu")

    def at(place, layout):
        axes = [(step, size) for step, size in layout[1] if step]
        return marks.as_strided([*[size for _, size in axes], layout[0] // unit],
                                [*[step // unit for step, _ in axes], 1], (place - begin) // unit)

    at(distance, b).fill_(True)
    return int(at(0, a).any(-1).sum()) * math.prod(size for step, size in a[1] if not step)


def shared_elements(a, b):
    """Returns how many elements of one tensor share memory with the other, or None if neither lies between the
    first and the last byte of the other."""
    distance = b.data_ptr() - a.data_ptr()
    if not (a.numel() and b.numel() and -end_of(b) < distance < end_of(a)):
        return None
    return _shared(_layout(a), _layout(b), distance)


def _view(tensor, base):
    return View(tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.data_ptr() - base,
                tensor.is_conj(), tensor.is_neg())


def _is_plain(tensor):
    return (not tensor.is_conj() and not tensor.is_neg() and tensor.dim() <= 8
            and dtype_name(tensor.dtype) is not None)


def raw(tensor):
    """Returns a tensor of the same memory without the conjugate and the negative bit."""
    tensor = tensor.detach()
    if tensor.is_neg():
        tensor = torch._neg_view(tensor)
    return torch._conj(tensor) if tensor.is_conj() else tensor


def _bytes(storage, begin, count, device):
    with torch.inference_mode(False):
        return torch.empty(0, dtype=torch.uint8, device=device).set_(storage, begin, (count,), (1,))


def bytes_of(tensor, count):
    """Returns this many bytes from the first element of a tensor on, as a tensor."""
    begin = tensor.storage_offset() * tensor.element_size()
    return _bytes(tensor.untyped_storage(), begin, count, tensor.device)


class Recipe:
    """The sources of all results (see above). `items`, and `made`, the outputs of the recording;
    `sources`: tensors of their contents, until drop()."""

    def __init__(self, results, inputs, device):
        self.items, self.made, self.sources = [], [], []
        self._device, self._on_host = device, {}
        self._dtypes = [getattr(given, "dtype", None) for given in inputs]
        given, storages = {}, {}
        for i, tensor in enumerate(inputs):
            if isinstance(tensor, torch.Tensor):
                given.setdefault(id(tensor), i)
                if tensor.layout is torch.strided and tensor.numel():
                    storages.setdefault(tensor.untyped_storage().data_ptr(), []).append(i)
        fresh, seen = {}, {}
        for j, result in enumerate(results):
            self.items.append(self._item(j, result, inputs, given, storages, fresh, seen))
        for positions in fresh.values():
            self._make(positions, results)

    def _item(self, j, result, inputs, given, storages, fresh, seen):
        if not isinstance(result, torch.Tensor):
            return ("value", result)
        if id(result) in given:
            return ("given", given[id(result)])
        if id(result) in seen:
            return ("same", seen[id(result)])
        seen[id(result)] = j
        if is_empty(result):
            return ("empty", Empty(result.dtype, tuple(result.shape), result.stride(), result.device))
        place = result.untyped_storage().data_ptr() if result.numel() else None
        if place in storages:
            # Several inputs may lie in one storage, and need not share it next time: this is the input in which the
            # result begins.
            begin = result.data_ptr()
            i = min(storages[place], key=lambda i: (begin - inputs[i].data_ptr()) % (1 << 64))
            return ("view", i, _view(result, inputs[i].data_ptr()))
        fresh.setdefault(place or ("empty", j), []).append(j)
        return None

    def _make(self, positions, results):
        """Adds an output for results that share memory, or for a single result."""
        k = len(self.made)
        tensors = [results[j] for j in positions]
        if len(tensors) == 1 and is_on_host(tensors[0], self._device):
            only = tensors[0]
            self.items[positions[0]] = ("host", k)
            self._on_host[k] = only
            self.made.append(Made(only.dtype, tuple(only.shape), only.stride()))
            self.sources.append(only.detach().to(self._device))
            return
        if len(tensors) == 1 and _is_plain(tensors[0]):
            only = tensors[0].detach()
            self.items[positions[0]] = ("made", k)
            self.made.append(Made(only.dtype, tuple(only.shape), only.stride()))
            self.sources.append(only)
            return
        tensors = [raw(tensor) for tensor in tensors]
        storage = tensors[0].untyped_storage()
        base = storage.data_ptr()
        begin = min(tensor.data_ptr() for tensor in tensors) - base if base else 0
        begin -= begin % ALIGNMENT
        end = max((tensor.data_ptr() - base + end_of(tensor) for tensor in tensors), default=0)
        self.made.append(Made(None, (max(0, end - begin),), (1,)))
        self.sources.append(_bytes(storage, begin, max(0, end - begin), tensors[0].device))
        for j in positions:
            self.items[j] = ("part", k, _view(results[j], base + begin))

    def drop(self):
        """Releases the tensors of the outputs' contents."""
        self.sources = None

    def on_host(self):
        """Returns which results lie on the CPU outside of a capture."""
        return [j for j, item in enumerate(self.items) if item[0] == "host"]

    def become_general(self):
        """From now on results are those of any run, and not of the run from which the recipe was
        made."""
        self._on_host = {}

    def __eq__(self, other):
        def on_device(items):
            return [("made", item[1]) if item[0] == "host" else item for item in items]

        return self.made == other.made and on_device(self.items) == on_device(other.items)

    def results(self, outputs, given):
        """Returns the results, made from outputs of a recording and from inputs."""
        results = []
        for kind, what, *view in self.items:
            if kind in ("made", "host"):
                results.append(self._on_host.get(what, outputs[what]))
            elif kind == "given":
                results.append(given[what])
            elif kind == "same":
                results.append(results[what])
            elif kind == "value":
                results.append(what)
            elif kind == "empty":
                results.append(torch.empty_strided(what.shape, what.strides, dtype=what.dtype,
                                                   device=what.device))
            else:
                base = given[what] if kind == "view" else outputs[what]
                results.append(view_of(base, *view))
        return results

    def codes(self):
        """Returns the argument of FlatCall.set_results(), or None if results() must make the
        results."""
        kinds = {"made": 0, "host": 0, "given": 1, "value": 2, "same": 4}
        codes = []
        for kind, what, *view in self.items:
            if kind in kinds:
                codes.append((kinds[kind], what))
            elif kind == "view" and self._is_strided(what, *view):
                view = view[0]
                codes.append((3, (what, view.shape, view.strides,
                                  view.begin // view.dtype.itemsize)))
            else:
                return None
        return codes

    def _is_strided(self, i, view):
        return view.dtype == self._dtypes[i] and not view.is_conj and not view.is_neg


def view_of(base, view):
    """Returns a tensor of the memory of another tensor."""
    base = raw(base) if base.is_conj() or base.is_neg() else base
    size = view.dtype.itemsize
    if view.dtype == base.dtype:
        made = torch.as_strided(base, view.shape, view.strides,
                                base.storage_offset() + view.begin // size)
    else:
        begin = base.storage_offset() * base.element_size() + view.begin
        with torch.inference_mode(base.is_inference()):
            made = torch.empty(0, dtype=view.dtype, device=base.device).set_(
                base.untyped_storage(), begin // size, view.shape, view.strides)
    made = torch._conj(made) if view.is_conj else made
    return torch._neg_view(made) if view.is_neg else made


def allocate(made):
    """Returns memory of the pool for an output, and the output itself. Requires: a step is open."""
    if made.dtype is None:
        base = _cgtree.empty(made.shape, "uint8")
        return base, base
    size = made.dtype.itemsize
    last = sum((n - 1) * stride for n, stride in zip(made.shape, made.strides))
    base = _cgtree.empty(((last + 1) * size if 0 not in made.shape else 0,), "uint8")
    name = dtype_name(made.dtype)
    if not base.nbytes:
        return base, _cgtree.empty(made.shape, name)
    return base, _cgtree.view(base, base.data_ptr, made.shape,
                              tuple(stride * size for stride in made.strides), name)


# An output that is held holds the segment from which PyTorch cut it. Few outputs in a large one, which PyTorch makes
# for tensors of 1 MiB and more, are copied.
MOST_WASTE, MOST_COPIES = 4 << 20, 4


def outputs_of(made, sources):
    """Returns outputs of the memory of PyTorch's tensors, or of copies in the pool."""
    if is_process_wide():
        return tuple(map(from_tensor, sources))
    segments = [segment_of(source) for source in sources]
    waste, counts = {}, collections.Counter()
    for segment, source in zip(segments, sources):
        if segment is not None:
            place = segment.data_ptr
            waste[place] = waste.get(place, segment.nbytes) - end_of(source)
            counts[place] += 1

    def stays(segment):
        return segment is not None and (waste[segment.data_ptr] <= MOST_WASTE
                                        or counts[segment.data_ptr] > MOST_COPIES)

    return tuple([from_tensor(source) if stays(segment) else _copied(one, source)
                  for one, source, segment in zip(made, sources, segments)])


def _copied(made, source):
    base, output = allocate(made)
    if base.nbytes:
        as_tensor(base).copy_(bytes_of(source, base.nbytes))
    return output
