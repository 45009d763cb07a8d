"""What a compiled PyTorch function returned: which tensors it made, and which it was given."""

import torch

from cgtree._torch_tree import TENSOR, Same, flatten, unflatten


class Results:
    """The shape of a result, and for each tensor in it where a replay takes it from.

        ("made", k, device)                         output k of the recording
        ("given", i)                                argument i itself
        ("kept", Same(tensor))                      a parameter, buffer or tensor of the closure
        ("view", Same(tensor), sizes, strides, offset)   a view of one of those

    Two are equal if replays may return the one in place of the other. `made`: the tensors that are
    outputs; to be dropped when they have been used.
    """

    def __init__(self, value, inputs, kept):
        leaves = []
        self.shape = flatten(value, leaves)
        self.made = []
        positions = {id(tensor): ("given", i) for i, tensor in enumerate(inputs)}
        for tensor in kept:
            positions.setdefault(id(tensor), ("kept", Same(tensor)))
        storages = {_storage(tensor): tensor for tensor in kept if tensor.numel() > 0}
        self.places = tuple([self._place(leaf, positions, storages) for leaf in leaves])
        self._is_plain = [place[:2] for place in self.places] == [
            ("made", k) for k in range(len(leaves))]

    def _place(self, leaf, positions, storages):
        place = positions.get(id(leaf))
        if place is not None:
            return place
        base = storages.get(_storage(leaf)) if leaf.numel() > 0 else None
        if base is not None and base.dtype == leaf.dtype:
            return ("view", Same(base), tuple(leaf.shape), leaf.stride(), leaf.storage_offset())
        place = positions[id(leaf)] = ("made", len(self.made), leaf.device)
        self.made.append(leaf)
        return place

    def form(self):
        """Returns the number by which a WarmCall knows the form of the result: a tensor, a tuple or
        list of tensors that the recording makes, in this order; 0 for others."""
        if not self._is_plain:
            return 0
        if self.shape == TENSOR:
            return 1
        if any(child != TENSOR for child in self.shape[2]):
            return 0
        return {tuple: 2, list: 3}.get(self.shape[0], 0)

    def __eq__(self, other):
        return self.shape == other.shape and self.places == other.places

    def value(self, outputs, leaves):
        """Returns what the function returns, for the outputs of a recording and the arguments."""
        if not self._is_plain:
            outputs = [self._take(place, outputs, leaves) for place in self.places]
        return unflatten(self.shape, iter(outputs))

    @staticmethod
    def _take(place, outputs, leaves):
        kind, what = place[:2]
        if kind == "made":
            return outputs[what]
        if kind == "given":
            return leaves[what]
        if kind == "kept":
            return what.object
        return torch.as_strided(what.object, *place[2:])


def _storage(tensor):
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else None
