"""The owners that write each address: sweeps over the ranges of many owners."""

import bisect


def _events(ranges):
    """(address, +1 or -1, owner) in order of address, for ranges (begin, end, owner)."""
    events = []
    for begin, end, owner in ranges:
        if begin < end:
            events += [(begin, 1, owner), (end, -1, owner)]
    return sorted(events, key=lambda event: event[0])


def areas(ranges):
    """Cuts the ranges (begin, end, owner) where their owners change.

    Returns (begin, end, number of owners) in order of address, without areas that no owner has. An
    owner may have the same address several times.
    """
    found, times, before = [], {}, 0
    for address, step, owner in _events(ranges):
        if times and address > before:
            found.append((before, address, len(times)))
        before = address
        times[owner] = times.get(owner, 0) + step
        if times[owner] == 0:
            del times[owner]
    return found


def owned(ranges):
    """Returns for each owner its bytes, and the bytes that no other owner has."""
    all_bytes, own_bytes, times, before = {}, {}, {}, 0
    for address, step, owner in _events(ranges):
        if address > before:
            for each in times:
                all_bytes[each] = all_bytes.get(each, 0) + address - before
            if len(times) == 1:
                (only,) = times
                own_bytes[only] = own_bytes.get(only, 0) + address - before
        before = address
        times[owner] = times.get(owner, 0) + step
        if times[owner] == 0:
            del times[owner]
    return {owner: (count, own_bytes.get(owner, 0)) for owner, count in all_bytes.items()}


class Stabbing:
    """Finds the owners that have a byte of a range. Queries must come in order of their begins."""

    def __init__(self, ranges):
        self._ranges = sorted(item for item in ranges if item[0] < item[1])
        self._begins = [item[0] for item in self._ranges]
        self._next, self._active = 0, []

    def owners(self, begin, end):
        while self._next < len(self._ranges) and self._begins[self._next] <= begin:
            self._active.append(self._ranges[self._next])
            self._next += 1
        self._active = [item for item in self._active if item[1] > begin]
        later = self._ranges[self._next:bisect.bisect_left(self._begins, end)]
        return sorted({item[2] for item in (*self._active, *later)})
