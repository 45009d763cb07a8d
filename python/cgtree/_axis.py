"""Axis: the policy for the sizes of a dynamic axis."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Axis:
    """What compile(..., axes=[...]) does about the sizes that calls give one dynamic axis.

    policy: one of
        "exact" (default): each size has recordings of its own, for up to max_sizes sizes. A call
            with one size more does at_max_sizes: "run_eagerly" (default), "next_larger" (pad to
            the next larger recorded size) or "evict" (evict the size used longest ago).
        "allow_list": as "exact" for `sizes`; calls with other sizes run eagerly.
        "skip": calls run eagerly as soon as a second size was seen.
        "buckets": inputs are padded to the next of `sizes`, and outputs are sliced. A call above
            the largest does above_largest: "run_eagerly" (default) or "throw" (InvalidArgument).
    sizes: in elements, positive and ascending. compile() raises InvalidArgument for others.
    """

    name: str
    policy: str = "exact"
    sizes: Sequence[int] = ()
    max_sizes: int | None = None
    at_max_sizes: str | None = None
    above_largest: str | None = None

    def options(self):
        """Returns the dict that the extension reads."""
        return {"name": self.name, "policy": self.policy, "sizes": list(self.sizes),
                "max_sizes": self.max_sizes, "at_max_sizes": self.at_max_sizes,
                "above_largest": self.above_largest}
