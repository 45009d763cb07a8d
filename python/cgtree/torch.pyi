"""Types of cgtree.torch; its functions are described in the docstrings and in docs/python.md."""

from contextlib import AbstractContextManager
from typing import Any, Callable, Literal, TypedDict, TypeVar, Unpack, overload

import torch

from cgtree import _cgtree
from cgtree._context import Context

Kernels = Literal["inductor", "eager"]
Model = TypeVar("Model", bound=Callable[..., Any])

class Stats(TypedDict):
    calls: int
    replays: int
    recordings: int
    warm_ups: int
    graphs: int
    eager: list[str]

class Options(TypedDict, total=False):
    kernels: Kernels
    fullgraph: bool
    dynamic: bool | None
    options: dict[str, Any] | None
    disable: bool
    name: str | None
    recording: dict[str, Any] | None

@overload
def compile(model: Model, **options: Unpack[Options]) -> Model: ...
@overload
def compile(model: None = None, **options: Unpack[Options]) -> Callable[[Model], Model]: ...
def stats(compiled: Callable[..., Any] | None = None) -> Stats: ...
def explain(compiled: Callable[..., Any]) -> str: ...
def reset(compiled: Callable[..., Any] | None = None) -> None: ...
def backend(
    model: torch.fx.GraphModule,
    inputs: list[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
    **_: Any,
) -> Callable[..., Any]: ...
def register_backend() -> None: ...
def replace_graph_trees() -> Callable[[], None]: ...
def context(device: torch.device | str | None = None) -> Context: ...
def as_tensor(tensor: _cgtree.Tensor) -> torch.Tensor: ...
def from_tensor(tensor: torch.Tensor) -> _cgtree.Tensor: ...
def name_modules(model: torch.nn.Module, name: str = "") -> AbstractContextManager[torch.nn.Module]: ...
def statistics() -> dict[str, int]: ...
def step(device: torch.device | str | None = None) -> AbstractContextManager[torch.cuda.Stream]: ...
def step_function(function: Callable[..., Any]) -> Callable[..., Any]: ...
def use_allocator() -> None: ...
