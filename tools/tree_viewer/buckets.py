"""What lists of buckets would pad: the rules of axes, and the cheapest lists for a histogram.

The same rules as the library's: AxisRule::rounded() and suggest_buckets(), with the size as cost.
"""

import bisect


def rounded(axis, size):
    """Returns what the axis pads a size to, or None if a call with that size runs eagerly."""
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
    """What a rule does to the sizes of a histogram."""

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
        """Returns how much larger padding makes the work; 0.25: by a quarter."""
        return self.padded / self.actual - 1 if self.actual else 0.0


def of_list(histogram, sizes):
    return Padding(histogram, lambda size: rounded({"policy": "buckets", "buckets": sizes}, size))


class _Lines:
    """The least value of lines y = offset - slope * x; slopes and queries ascend."""

    def __init__(self):
        self._lines, self._first = [], 0

    def add(self, slope, offset, number):
        lines = self._lines
        while len(lines) - self._first >= 2 and (
                (offset - lines[-2][1]) * (lines[-1][0] - lines[-2][0])
                <= (lines[-1][1] - lines[-2][1]) * (slope - lines[-2][0])):
            lines.pop()
        lines.append((slope, offset, number))

    def least(self, x):
        lines = self._lines
        while (self._first + 1 < len(lines)
               and lines[self._first + 1][1] - lines[self._first + 1][0] * x
               < lines[self._first][1] - lines[self._first][0] * x):
            self._first += 1
        slope, offset, number = lines[self._first]
        return offset - slope * x, number


def suggested(histogram, most):
    """Returns the cheapest lists of at most 1, 2, ..., `most` buckets, without those that save nothing.

    Dynamic programming over the sizes, one bucket more in each round. The cost of padding sizes
    [b, e) to the last of them is (calls[e] - calls[b]) * size[e - 1]: lines in the size, so a round
    takes time linear in the number of sizes.
    """
    entries = [(size, count) for size, count in histogram if count > 0 and size > 0]
    calls = [0]
    for _, count in entries:
        calls.append(calls[-1] + count)
    n = len(entries)
    least, rounds, lists = [0] + [None] * n, [], []
    while n and len(rounds) < min(n, most):
        lines, after, begin = _Lines(), list(least), [None] * (n + 1)
        for e in range(1, n + 1):
            if least[e - 1] is not None:
                lines.add(calls[e - 1], least[e - 1], e - 1)
            size = entries[e - 1][0]
            value, b = lines.least(size)
            if after[e] is None or value + calls[e] * size < after[e]:
                after[e], begin[e] = value + calls[e] * size, b
        if rounds and after[n] >= least[n]:
            break
        rounds.append(begin)
        least = after
        lists.append(_list(entries, rounds))
    return lists


def _list(entries, rounds):
    found, end = [], len(entries)
    for begin in reversed(rounds):
        if end > 0 and begin[end] is not None:
            found.append(entries[end - 1][0])
            end = begin[end]
    return found[::-1]
