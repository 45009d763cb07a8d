"""Types of cgtree.torch; what each does is in the docstrings and in docs/python.md."""

from contextlib import AbstractContextManager
from typing import Any, Callable, Iterable, TypedDict, overload

import torch

from cgtree import _cgtree
from cgtree._context import Context

class Stats(TypedDict):
    calls: int
    replays: int
    recordings: int
    warm_ups: int
    eager: list[str]

class Compiled:
    function: Callable[..., Any]
    name: str
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None) -> Compiled: ...
    def __getattr__(self, name: str) -> Any: ...  # of the module
    def stats(self) -> Stats: ...
    def kinds(self) -> list[dict[str, Any]]: ...
    def reset(self) -> None: ...

@overload
def compile(
    function: type[torch.nn.Module],
    *,
    name: str | None = None,
    static: str | Iterable[str] = (),
    mutated: str | Iterable[str] = (),
    max_kinds: int = 64,
    generators: Iterable[torch.Generator] = (),
    **options: Any,
) -> type[torch.nn.Module]: ...
@overload
def compile(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    static: str | Iterable[str] = (),
    mutated: str | Iterable[str] = (),
    max_kinds: int = 64,
    generators: Iterable[torch.Generator] = (),
    **options: Any,
) -> Compiled: ...
@overload
def compile(**options: Any) -> Callable[[Callable[..., Any]], Compiled]: ...
def backend(model: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Callable[..., Any]: ...
def context(device: torch.device | str | None = None) -> Context: ...
def as_tensor(tensor: _cgtree.Tensor) -> torch.Tensor: ...
def from_tensor(tensor: torch.Tensor) -> _cgtree.Tensor: ...
def statistics() -> dict[str, int]: ...
def step(device: torch.device | str | None = None) -> AbstractContextManager[torch.cuda.Stream]: ...
def step_function(function: Callable[..., Any]) -> Callable[..., Any]: ...
def use_allocator() -> None: ...
