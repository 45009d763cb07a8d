"""Types of Steps."""

from typing import Any, Callable, Iterable, Iterator, Literal, Mapping

from cgtree import _cgtree
from cgtree._cgtree import CaptureComparison, InspectionReport, StreamLike
from cgtree._context import Axis, Context

class Steps(_cgtree.Steps):
    def __new__(
        cls,
        context: Context,
        name: str = "steps",
        *,
        bindings: Iterable[str] = (),
        copied: Iterable[str] = (),
        mutated: Iterable[str] = (),
        blocks: Mapping[str, int] | None = None,
        uncompared: Iterable[str] = (),
        per_session: Iterable[str] = (),
        keys: Iterable[Axis] = (),
        capture_mode: Literal["global", "thread_local", "relaxed"] = "thread_local",
        **options: Any,
    ) -> Steps: ...
    def __call__(
        self,
        *bindings: Any,
        key: dict[str, int | str] | None = None,
        stream: StreamLike | None = None,
    ) -> Iterator[Steps]: ...
    def inspect(  # type: ignore[override]
        self,
        *bindings: Any,
        key: dict[str, int | str] | None = None,
        stream: StreamLike | None = None,
    ) -> InspectionReport: ...
    def compare_captures(  # type: ignore[override]
        self,
        work: Callable[[list[int]], object],
        *bindings: Any,
        key: dict[str, int | str] | None = None,
        stream: StreamLike | None = None,
    ) -> CaptureComparison: ...
