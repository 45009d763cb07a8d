"""Types of Context and compile()."""

from contextlib import AbstractContextManager
from typing import Any, Callable, Iterable, Literal, Mapping, Sequence, Unpack, overload

from cgtree import _cgtree
from cgtree._axis import Axis
from cgtree._cgtree import CompiledFunction, ContextStats
from cgtree._options import CompileOptions

Framework = Literal["cupy", "numba", "numpy", "torch"]

class Context(_cgtree.Context):
    @overload
    def compile(self, function: Callable[..., Any], **options: Any) -> CompiledFunction: ...
    @overload
    def compile(self, **options: Any) -> Callable[[Callable[..., Any]], CompiledFunction]: ...
    def eager(self) -> AbstractContextManager[Context]: ...
    def __enter__(self) -> Context: ...
    def __exit__(self, *error: object) -> None: ...

def default_context() -> Context: ...
def mark_step() -> None: ...
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
    dynamic: Mapping[int | str, Mapping[int, str]] | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
    axes: Iterable[Axis] = (),
    outputs_dynamic: Sequence[Mapping[int, str]] = (),
    padding: Mapping[int | str, str | float] | None = None,
    alignment: Mapping[int | str, int] | None = None,
    **options: Unpack[CompileOptions],
) -> CompiledFunction: ...
@overload
def compile(**options: Any) -> Callable[[Callable[..., Any]], CompiledFunction]: ...
