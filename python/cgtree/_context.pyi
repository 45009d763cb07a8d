"""Types of Context, compile() and Axis."""

from contextlib import AbstractContextManager
from typing import Any, Callable, Iterable, Literal, Mapping, Sequence, Unpack, overload

from cgtree import _cgtree
from cgtree._cgtree import CompiledFunction, ContextStats
from cgtree._options import AboveLargest, AtMaxSizes, AxisPolicy, CompileOptions

Framework = Literal["cupy", "numba", "numpy", "torch"]

class Axis:
    name: str
    policy: AxisPolicy
    sizes: Sequence[int]
    max_sizes: int | None
    at_max_sizes: AtMaxSizes | None
    above_largest: AboveLargest | None
    multiple_of: int | None
    largest: int | None
    def __init__(
        self,
        name: str,
        policy: AxisPolicy = "exact",
        sizes: Sequence[int] = (),
        max_sizes: int | None = None,
        at_max_sizes: AtMaxSizes | None = None,
        above_largest: AboveLargest | None = None,
        multiple_of: int | None = None,
        largest: int | None = None,
    ) -> None: ...
    def options(self) -> dict[str, Any]: ...

class Context(_cgtree.Context):
    @overload
    def compile(self, function: Callable[..., Any], **options: Any) -> CompiledFunction: ...
    @overload
    def compile(self, **options: Any) -> Callable[[Callable[..., Any]], CompiledFunction]: ...
    def eager(self) -> AbstractContextManager[Context]: ...
    def __enter__(self) -> Context: ...
    def __exit__(self, *error: object) -> None: ...

class Scope:
    def __init__(self, name: str) -> None: ...
    def __enter__(self) -> Scope: ...
    def __exit__(self, *error: object) -> None: ...

def default_context() -> Context: ...
def dump_events_on_signal(path: str, signals: Iterable[int] = ()) -> None: ...
def mark_step() -> None: ...
def metrics_text(*contexts: Context) -> str: ...
def report(context: Context | None = None) -> str: ...
def stats() -> ContextStats: ...
def synchronize() -> None: ...
@overload
def compile(
    function: Callable[..., Any],
    *,
    context: Context | None = None,
    name: str | None = None,
    framework: Framework | None = None,
    static: int | str | Iterable[int | str] = (),
    mutated: int | str | Iterable[int | str] = (),
    contiguous: int | str | Iterable[int | str] = (),
    dynamic: Mapping[int | str, Mapping[int, str]] | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
    axes: Iterable[Axis] = (),
    keys: Iterable[Axis] = (),
    outputs_dynamic: Sequence[Mapping[int, str]] = (),
    padding: Mapping[int | str, str | float] | None = None,
    alignment: Mapping[int | str, int] | None = None,
    tolerance: Mapping[int | str, float] | None = None,
    outputs_tolerance: Sequence[float] = (),
    rebind: Mapping[int | str, str] | None = None,
    outputs_rebind: Sequence[str] = (),
    **options: Unpack[CompileOptions],
) -> CompiledFunction: ...
@overload
def compile(**options: Any) -> Callable[[Callable[..., Any]], CompiledFunction]: ...
