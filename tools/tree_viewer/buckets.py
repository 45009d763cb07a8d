"""Padding by lists of buckets: the rules of axes, as in the library's AxisRule::rounded()."""

import bisect
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).absolute().parents[2] / "python/cgtree"))

from _report import suggested  # noqa: E402,F401


def rounded(axis, size):
    """Returns the padded size, or None if a call with this size runs eagerly."""
    policy = axis["policy"]
    if policy == "buckets":
        at = bisect.bisect_left(axis["buckets"], size)
        return axis["buckets"][at] if at < len(axis["buckets"]) else None
    if policy == "allow_list":
        return size if size in axis["allowed"] else None
    if policy == "multiples":
        size = -(-size // axis["multiple_of"]) * axis["multiple_of"]
    if policy == "powers_of_two":
        size = 1 << max(size - 1, 0).bit_length()
    return size if size <= axis.get("largest", size) else None


class Padding:
    """The effect of a rule on the sizes of a histogram."""

    def __init__(self, histogram, rule):
        self.sizes, self.actual, self.padded, self.eager = set(), 0, 0, 0
        for size, count in histogram:
            to = rule(size)
            if to is None:
                self.eager += count
                continue
            self.sizes.add(to)
            self.actual += size * count
            self.padded += to * count

    def waste(self):
        """Returns the relative growth of the work by padding; 0.25: by a quarter."""
        return self.padded / self.actual - 1 if self.actual else 0.0


def of_list(histogram, sizes):
    return Padding(histogram, lambda size: rounded({"policy": "buckets", "buckets": sizes}, size))
