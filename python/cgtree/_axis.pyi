"""Types of Axis."""

from typing import Any, Literal, Sequence

class Axis:
    name: str
    policy: Literal["exact", "allow_list", "skip", "buckets"]
    sizes: Sequence[int]
    max_sizes: int | None
    at_max_sizes: Literal["run_eagerly", "next_larger", "evict"] | None
    above_largest: Literal["run_eagerly", "throw"] | None
    def __init__(
        self,
        name: str,
        policy: Literal["exact", "allow_list", "skip", "buckets"] = "exact",
        sizes: Sequence[int] = (),
        max_sizes: int | None = None,
        at_max_sizes: Literal["run_eagerly", "next_larger", "evict"] | None = None,
        above_largest: Literal["run_eagerly", "throw"] | None = None,
    ) -> None: ...
    def options(self) -> dict[str, Any]: ...
