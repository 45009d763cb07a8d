"""Types of Axis."""

from typing import Any, Sequence

from cgtree._options import AboveLargest, AtMaxSizes, AxisPolicy

class Axis:
    name: str
    policy: AxisPolicy
    sizes: Sequence[int]
    max_sizes: int | None
    at_max_sizes: AtMaxSizes | None
    above_largest: AboveLargest | None
    def __init__(
        self,
        name: str,
        policy: AxisPolicy = "exact",
        sizes: Sequence[int] = (),
        max_sizes: int | None = None,
        at_max_sizes: AtMaxSizes | None = None,
        above_largest: AboveLargest | None = None,
    ) -> None: ...
    def options(self) -> dict[str, Any]: ...
