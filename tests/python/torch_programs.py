"""Ordinary PyTorch programs, most of them with state: each is run eagerly and compiled, with the same new inputs and
the same changes of state between calls, and everything visible is compared.

A program is a function of a Maker, which makes its tensors; it returns a Case. It is called twice, for the eager run
and for the compiled one.
"""

import collections
import dataclasses
import functools
import math
import threading
import typing

import torch
from torch import nn
from torch.nn import functional

PROGRAMS = {}


@dataclasses.dataclass
class Case:
    """`call`: the compiled function. `inputs(i)`: the arguments of call i. `between(i)`: changes state before call i.
    `state()`: further tensors to compare after each call. `context(i)`: the context manager of call i. `use(result)`:
    uses the result, for instance by backward(). `tolerance`: for values that the compiler computes in another order.
    """

    call: typing.Any
    inputs: typing.Callable
    between: typing.Callable = lambda i: None
    state: typing.Callable = lambda: ()
    context: typing.Callable = lambda i: torch.no_grad()
    use: typing.Callable = lambda result: None
    calls: int = 10
    tolerance: float = 0.0


class Maker:
    """Makes tensors on a device from its generator: two makers with one seed make the same tensors."""

    def __init__(self, device, seed):
        self.device = torch.device(device)
        self._generator = torch.Generator("cpu").manual_seed(seed)

    def rand(self, *shape, dtype=torch.float32):
        made = torch.randn(*shape, generator=self._generator)
        return made.to(dtype).to(self.device)

    def ints(self, high, *shape):
        return torch.randint(0, high, shape, generator=self._generator).to(self.device)

    def module(self, module):
        with torch.no_grad():
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if tensor.is_floating_point():
                    tensor.copy_(torch.randn(tensor.shape, generator=self._generator) * 0.3)
                if name.endswith("running_var"):
                    tensor.abs_().add_(0.1)
        return module.to(self.device)


def compile_with(kernels):
    """Returns a compiler of functions. "none" does not compile; "eager" and "inductor" are
    cgtree.torch.compile(kernels=...); "aot eager" and "plain inductor" are PyTorch's compilers without recordings;
    others are torch.compile(mode="reduce-overhead").
    """
    import cgtree.torch

    plain = {"aot eager": "aot_eager", "plain inductor": "inductor"}
    if kernels == "none":
        return lambda function: function
    if kernels in ("eager", "inductor"):
        return lambda function: cgtree.torch.compile(function, kernels=kernels)
    if kernels in plain:
        return lambda function: torch.compile(function, backend=plain[kernels])
    return lambda function: torch.compile(function, mode="reduce-overhead")


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def piece(function):
    """A program with operators that a GPU cannot capture. Dynamo traces values that it reads back; the other operators
    replay.
    """
    function.is_piece = True
    return program(function)


def grad(_):
    return torch.enable_grad()


def backward(result):
    for tensor in tensors_of(result):
        if tensor.requires_grad and tensor.grad_fn is not None:
            tensor.float().square().sum().backward(retain_graph=True)
            return


# ---- Comparing ----


def tensors_of(value):
    return [leaf for leaf in leaves_of(value) if isinstance(leaf, torch.Tensor)]


def leaves_of(value):
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [leaf for field in dataclasses.fields(value)
                for leaf in leaves_of(getattr(value, field.name))]
    if isinstance(value, dict):
        return [leaf for key in value for leaf in (key, *leaves_of(value[key]))]
    if isinstance(value, (list, tuple, collections.deque)):
        return [leaf for item in value for leaf in leaves_of(item)]
    return [value]


def bits(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    flat = tensor.contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat


def difference(got, want, tolerance=0.0, strict=True):
    """Returns the difference between two results, or None."""
    if type(got) is not type(want):
        return f"{type(got).__name__} in place of {type(want).__name__}"
    a_leaves, b_leaves = leaves_of(got), leaves_of(want)
    if len(a_leaves) != len(b_leaves):
        return f"{len(a_leaves)} values in place of {len(b_leaves)}"
    for number, (a, b) in enumerate(zip(a_leaves, b_leaves)):
        if not isinstance(b, torch.Tensor):
            if type(a) is not type(b) or (isinstance(b, (int, float, str, type(None))) and
                                          a != b and not (a != a and b != b)):
                return f"value {number}: {a!r} in place of {b!r}"
            continue
        found = _difference(a, b, tolerance, strict)
        if found:
            return f"tensor {number}: {found}"
    return _aliases(a_leaves, b_leaves)


def _difference(a, b, tolerance, strict):
    if type(a) is not type(b):
        return f"{type(a).__name__} in place of {type(b).__name__}"
    for name in ("shape", "dtype", "device", "layout", "requires_grad"):
        if getattr(a, name) != getattr(b, name):
            return f"{name} {getattr(a, name)} in place of {getattr(b, name)}"
    if strict and b.layout is torch.strided and a.stride() != b.stride() and b.numel():
        return f"strides {a.stride()} in place of {b.stride()}"
    if torch.equal(bits(a), bits(b)):
        return None
    if tolerance and torch.allclose(a.detach().float(), b.detach().float(), rtol=tolerance,
                                    atol=tolerance, equal_nan=True):
        return None
    worst = (a.detach().float() - b.detach().float()).abs().max().item()
    return f"values that differ by up to {worst:.3g}"


def _storages(leaves):
    return [leaf.untyped_storage().data_ptr() if isinstance(leaf, torch.Tensor)
            and leaf.layout is torch.strided and leaf.numel() else None for leaf in leaves]


def _aliases(a, b):
    """Returns the first two tensors that share memory in only one of the results, or None."""
    a, b = _storages(a), _storages(b)
    for i in range(len(b)):
        for j in range(i):
            if b[i] and b[j] and (a[i] == a[j]) != (b[i] == b[j]):
                return f"tensors {j} and {i} {'do not ' if b[i] == b[j] else ''}share memory"
    return None


class Different(Exception):
    """The compiled program differs from the eager one."""


def run(name, device, compile_function, seed, tolerance=0.0, poison=True):
    """Runs a program eagerly and compiled. Returns the compiled function. Raises Different."""
    is_piece = getattr(PROGRAMS[name], "is_piece", False)
    with torch._dynamo.config.patch(capture_scalar_outputs=is_piece, capture_dynamic_output_shape_ops=is_piece):
        return _run(name, device, compile_function, seed, tolerance, poison, 16 if is_piece else 0)


def _run(name, device, compile_function, seed, tolerance, poison, least_calls):
    eager, compiled = (PROGRAMS[name](Maker(device, seed)) for _ in range(2))
    call, tolerance = compile_function(compiled.call), max(tolerance, eager.tolerance)
    for i in range(max(eager.calls, least_calls)):
        outcomes = []
        for case, function in ((eager, eager.call), (compiled, call)):
            case.between(i)
            torch.manual_seed(seed + i)
            arguments = case.inputs(i)
            args, kwargs = arguments if isinstance(arguments[0], tuple) else (arguments, {})
            with case.context(i):
                try:
                    result = function(*args, **kwargs)
                    case.use(result)
                except (ValueError, ZeroDivisionError) as error:
                    result = f"{type(error).__name__}: {error}"
            outcomes.append((result, args, kwargs, tuple(case.state())))
        (want, *others), (got, *others_got) = outcomes
        for what, a, b in (("result", got, want), ("arguments", others_got[:2], others[:2]),
                           ("state", others_got[2], others[2])):
            found = difference(a, b, tolerance, strict=what == "result" and not tolerance)
            if found:
                raise Different(f"call {i}, {what}: {found}")
        found = _aliases(leaves_of([got, *others_got[:2]]), leaves_of([want, *others[:2]]))
        if found:
            raise Different(f"call {i}, results and arguments: {found}")
        if poison and i % 3 == 0:
            _overwrite(got, [*tensors_of(others_got)])
            _overwrite(want, [*tensors_of(others)])
        del outcomes, want, got, result, others, others_got
    return call


def _overwrite(result, kept):
    """Overwrites the memory that belongs to a result alone, as its owner may."""
    kept = set(_storages(kept))
    with torch.no_grad():
        for tensor in tensors_of(result):
            if (type(tensor) is torch.Tensor and tensor.layout is torch.strided
                    and not tensor.is_inference() and not tensor.requires_grad
                    and 0 not in tensor.stride()
                    and tensor.untyped_storage().data_ptr() not in kept):
                tensor.zero_()


# ---- State that the program rebinds ----


@program
def two_buffers_that_are_swapped(m):
    class Ping(nn.Module):
        def __init__(self):
            super().__init__()
            self.cur, self.nxt = m.rand(4), m.rand(4)

        def forward(self, x):
            self.nxt.copy_(self.cur * 0.5 + x)
            self.cur, self.nxt = self.nxt, self.cur
            return self.cur * 1

    p = Ping()
    return Case(p, lambda i: (m.rand(4),), state=lambda: (p.cur, p.nxt))


@program
def a_buffer_that_is_replaced(m):
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            self.mean = self.mean * 0.9 + x * 0.1
            return x - self.mean

    mean = m.module(Mean())
    return Case(mean, lambda i: (m.rand(4),), state=lambda: (mean.mean,))


@program
def a_cache_that_grows_by_cat(m):
    class Cache:
        keys = None

    cache = Cache()

    def step(x):
        cache.keys = x if cache.keys is None else torch.cat([cache.keys, x])
        return cache.keys.sum(0)

    return Case(step, lambda i: (m.rand(1, 4),), state=lambda: (cache.keys,))


@program
def a_position_in_a_dataclass(m):
    @dataclasses.dataclass
    class State:
        pos: int
        memory: torch.Tensor

    state = State(0, m.rand(32))

    def step(x, state):
        state.memory[state.pos] = x.sum()
        state.pos += 1
        return state.memory * 2

    return Case(step, lambda i: (m.rand(3), state), state=lambda: (state.pos, state.memory))


@program
def a_list_argument_that_is_filled(m):
    def step(x, log):
        log.append(x * 2)
        return x + 1

    log = []
    return Case(step, lambda i: (m.rand(3), log), between=lambda i: log.clear(),
                state=lambda: (list(log),))


@program
def a_dict_argument_that_is_filled(m):
    def step(x, out):
        out["double"] = x * 2
        out["sum"] = x.sum()
        return None

    out = {}
    return Case(step, lambda i: (m.rand(3), out), state=lambda: (dict(out),))


@program
def a_count_of_the_closure(m):
    count = 0

    def step(x):
        nonlocal count
        count += 1
        return x * count

    return Case(step, lambda i: (m.rand(3),), state=lambda: (count,))


@program
def a_deque_of_frames(m):
    frames = collections.deque([m.rand(3) for _ in range(3)], maxlen=3)

    def step(x):
        frames.append(x * 1)
        return torch.stack(list(frames))

    return Case(step, lambda i: (m.rand(3),), state=lambda: (list(frames),))


@program
def an_optimizer_inside_with_a_schedule(m):
    model = m.module(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def between(i):
        optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)

    # A learning rate that changes becomes a tensor, and rounding differs.
    return Case(step, lambda i: (m.rand(3, 4),), between, lambda: list(model.parameters()), grad,
                calls=8, tolerance=1e-6)


@program
def gradients_that_were_none(m):
    model = m.module(nn.Linear(4, 2))

    def step(x):
        model(x).square().sum().backward()
        return model.weight.grad.sum()

    def between(i):
        if i % 3 == 0:
            model.zero_grad(set_to_none=True)

    return Case(step, lambda i: (m.rand(3, 4),), between,
                lambda: [parameter.grad for parameter in model.parameters()], grad)


# ---- State that is changed from outside ----


class Holder(nn.Module):
    """A module with state of many kinds outside parameters and buffers."""

    def __init__(self, m):
        super().__init__()
        self.plain, self.tensors = m.rand(4), [m.rand(4), m.rand(4)]
        self.table, self.config = {"a": m.rand(4), "scale": 2.0}, Config()
        self.layers = [m.module(nn.Linear(4, 4))]

    def forward(self, x):
        y = x + self.plain + self.tensors[0] * self.table["a"] * self.table["scale"]
        return self.layers[0](y * self.config.x) + self.tensors[-1]


class Config:
    x = 1.5


def holder(name):
    def add(change):
        def make(m):
            module = Holder(m)
            return Case(module, lambda i: (m.rand(4),), lambda i: i % 3 == 2 and change(m, module, i))
        make.__name__ = name
        return program(make)
    return add


holder("a_plain_tensor_of_a_module_changes")(
    lambda m, module, i: setattr(module, "plain", m.rand(4)))
holder("a_tensor_in_a_list_of_a_module_changes")(
    lambda m, module, i: module.tensors.__setitem__(0, m.rand(4)))
holder("a_list_of_a_module_grows")(lambda m, module, i: module.tensors.append(m.rand(4)))
holder("a_tensor_in_a_dict_of_a_module_changes")(
    lambda m, module, i: module.table.__setitem__("a", m.rand(4)))
holder("a_number_in_a_dict_of_a_module_changes")(
    lambda m, module, i: module.table.__setitem__("scale", float(i)))
holder("a_number_of_a_config_changes")(
    lambda m, module, i: setattr(module.config, "x", i / 2))
holder("a_module_in_a_plain_list_changes")(
    lambda m, module, i: module.layers.__setitem__(0, m.module(nn.Linear(4, 4))))
holder("a_plain_tensor_is_written")(lambda m, module, i: module.plain.add_(i))


GLOBALS = {"scale": 1.0}
GLOBAL_SCALE = 1.0


@program
def a_global_number_changes(m):
    def step(x):
        return x * GLOBAL_SCALE * GLOBALS["scale"]

    def between(i):
        global GLOBAL_SCALE  # pylint: disable=global-statement
        GLOBAL_SCALE, GLOBALS["scale"] = 1.0 + i // 4, 2.0 + i // 3

    return Case(step, lambda i: (m.rand(4),), between)


@program
def hooks_of_a_module(m):
    model = m.module(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
    seen = []
    model[0].register_forward_hook(lambda module, args, out: out * 2)
    model[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    model[1].register_forward_hook(lambda module, args, out: seen.append(out.shape))
    return Case(model, lambda i: (m.rand(3, 4),), state=lambda: (len(seen),))


@program
def a_hook_that_is_added_later(m):
    """torch.compile() misses the hook, too, unless it guards hooks"""
    model = m.module(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))

    def between(i):
        if i == 5:
            model[0].register_forward_hook(lambda module, args, out: out * 2)

    return Case(model, lambda i: (m.rand(3, 4),), between)


@program
def a_hook_of_gradients(m):
    model = m.module(nn.Linear(4, 4))
    model.weight.register_hook(lambda given: given * 2)
    return Case(model, lambda i: (m.rand(3, 4),), lambda i: model.zero_grad(),
                lambda: [parameter.grad for parameter in model.parameters()], grad, backward)


class Lora(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.base = m.module(nn.Linear(4, 4))
        self.adapters, self.active, self.scale, self.merged = nn.ModuleDict(), None, 1.0, False

    def forward(self, x):
        y = self.base(x)
        if self.active is not None and not self.merged:
            y = y + self.adapters[self.active](x) * self.scale
        return y


@program
def lora_adapters(m):
    model = Lora(m)

    def between(i):
        if i == 2:
            model.adapters["a"] = m.module(nn.Linear(4, 4, bias=False))
            model.active = "a"
        if i == 4:
            model.adapters["b"] = m.module(nn.Linear(4, 4, bias=False))
            model.active, model.scale = "b", 0.5
        if i == 6:
            with torch.no_grad():
                model.base.weight += model.adapters["b"].weight * 0.5
            model.merged = True
        if i == 8:
            model.merged, model.active = False, "a"

    return Case(model, lambda i: (m.rand(3, 4),), between)


@program
def attributes_that_come_later(m):
    class Lazy(nn.Module):
        def forward(self, x):
            if not hasattr(self, "table"):
                self.table = torch.arange(4.0, device=x.device)
            return x * self.table * getattr(self, "extra", 1.0)

    model = Lazy()
    return Case(model, lambda i: (m.rand(4),),
                lambda i: i == 5 and setattr(model, "extra", 3.0))


@program
def a_partial(m):
    scale = m.rand(4)
    return Case(functools.partial(lambda x, scale, bias: x * scale + bias, scale=scale, bias=2),
                lambda i: (m.rand(4),), lambda i: scale.mul_(1.1))


@program
def a_callable_object(m):
    class Affine:
        def __init__(self):
            self.w, self.n = m.rand(4), 1

        def __call__(self, x):
            return x * self.w + self.n

    affine = Affine()
    return Case(affine.__call__, lambda i: (m.rand(4),),
                lambda i: i == 5 and setattr(affine, "w", m.rand(4)))


@program
def a_tensor_of_the_cpu_changes(m):
    factor = torch.tensor(2.0)
    return Case(lambda x: x * factor, lambda i: (m.rand(4),), lambda i: factor.add_(1))


@program
def an_array_of_numpy_changes(m):
    import numpy

    array = numpy.arange(4.0, dtype="float32")

    def between(i):
        array[:] += 1

    return Case(lambda x: x + torch.from_numpy(array).to(x.device), lambda i: (m.rand(4),), between)


@program
def a_weight_is_replaced(m):
    model = m.module(nn.Linear(4, 4))

    def between(i):
        if i == 3:
            model.weight = m.module(nn.Linear(4, 4)).weight
        if i == 5:
            model.weight.data = m.rand(4, 4)
        if i == 7:
            model.load_state_dict(m.module(nn.Linear(4, 4)).state_dict())
        if i == 8:
            model.load_state_dict(m.module(nn.Linear(4, 4)).state_dict(), assign=True)

    return Case(model, lambda i: (m.rand(2, 4),), between)


@program
def a_module_of_another_type_of_numbers(m):
    model = m.module(nn.Linear(4, 4))

    def between(i):
        if i in (4, 7):
            model.to(torch.float64 if i == 4 else torch.float32)

    return Case(model, lambda i: (m.rand(2, 4, dtype=model.weight.dtype),), between)


@program
def a_parameter_whose_data_has_another_type(m):
    model = m.module(nn.Linear(4, 4, bias=False))

    def between(i):
        if i == 5:
            model.weight.data = model.weight.data.to(torch.bfloat16)

    return Case(model, lambda i: (m.rand(2, 4).to(model.weight.dtype),), between)


@program
def weights_that_are_frozen_and_trained(m):
    model = m.module(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)))

    def between(i):
        model.zero_grad(set_to_none=True)
        model[0].requires_grad_(i % 6 < 3)

    return Case(model, lambda i: (m.rand(3, 4),), between,
                lambda: [parameter.grad for parameter in model.parameters()], grad, backward)


@program
def training_and_evaluation(m):
    model = m.module(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)))
    return Case(model, lambda i: (m.rand(6, 4),), lambda i: model.train(i % 4 < 2),
                lambda: list(model.buffers()))


@program
def a_submodule_is_replaced(m):
    model = m.module(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    return Case(model, lambda i: (m.rand(2, 4),),
                lambda i: i == 5 and model.__setitem__(1, nn.Tanh()))


@program
def tied_weights(m):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.inner.weight

        def forward(self, tokens):
            return self.head(self.inner(tokens))

    model = m.module(Tied())
    return Case(model, lambda i: (m.ints(9, 2, 3),), lambda i: model.zero_grad(),
                lambda: (model.inner.weight.grad,), grad, backward)


# ---- Written tensors, and shared memory ----


@program
def arguments_that_are_written(m):
    def step(x, y):
        x.mul_(2)
        y[1:].add_(x.sum())
        return x + 1

    return Case(step, lambda i: (m.rand(4), m.rand(5)))


@program
def a_write_that_changes_nothing_at_first(m):
    factor = m.rand(1).fill_(1)

    def step(x):
        x.mul_(factor)
        return x.sum()

    return Case(step, lambda i: (m.rand(4),), lambda i: i == 4 and factor.fill_(3))


@program
def an_argument_that_is_a_buffer(m):
    class Keep(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(4))

        def forward(self, x):
            self.kept.add_(1)
            return x * self.kept

    model = m.module(Keep())
    return Case(model, lambda i: (model.kept if i % 3 == 2 else m.rand(4),),
                state=lambda: (model.kept,))


@program
def one_argument_twice(m):
    def step(x, y):
        x.add_(1)
        return x + y

    def inputs(i):
        x = m.rand(4)
        return (x, x if i % 3 == 1 else m.rand(4))

    return Case(step, inputs)


@program
def arguments_that_overlap(m):
    def step(x, y):
        x.add_(1)
        return y * 2

    def inputs(i):
        x = m.rand(8)
        return (x[:6], x[2:])

    return Case(step, inputs)


@program
def arguments_with_gaps(m):
    def step(x, y):
        x += 1
        return x @ y

    return Case(step, lambda i: (m.rand(6, 8)[::2, ::2], m.rand(5, 4).t()))


@program
def broadcast_arguments(m):
    return Case(lambda x, y: x + y * 2,
                lambda i: (m.rand(1, 4).expand(3, 4), m.rand(3, 1).expand(3, 4)))


@program
def results_that_share_memory(m):
    def step(x):
        y = x * 2
        return y, y[0], y.t(), y.view(-1), y

    return Case(step, lambda i: (m.rand(3, 4),))


@program
def results_that_are_chunks(m):
    return Case(lambda x: (x * 3).chunk(3, dim=1), lambda i: (m.rand(2, 6),))


@program
def results_that_are_arguments(m):
    weight = m.rand(4, 4)
    return Case(lambda x: (x, x[1:], x.t(), weight, weight[0], x + weight), lambda i: (m.rand(4, 4),))


@program
def results_with_other_strides(m):
    def step(x):
        y = x + 1
        return y.t(), y.permute(1, 0), y[:, ::2], y.unsqueeze(0).expand(2, -1, -1)

    return Case(step, lambda i: (m.rand(4, 6),))


@program
def channels_last(m):
    model = m.module(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())).to(
        memory_format=torch.channels_last)
    return Case(model, lambda i: (m.rand(2, 3, 8, 8).to(memory_format=torch.channels_last),))


@program
def a_detached_result(m):
    weight = m.rand(4).requires_grad_()

    def step(x):
        y = x * weight
        return y, y.detach(), y.sum()

    return Case(step, lambda i: (m.rand(4),), context=grad, use=backward,
                state=lambda: (weight.grad,))


@program
def lists_of_tensors_that_are_written(m):
    def step(xs, ys):
        torch._foreach_add_(xs, ys)
        return torch._foreach_mul(xs, 2)

    return Case(step, lambda i: ([m.rand(3), m.rand(4)], [m.rand(3), m.rand(4)]))


# ---- Caches of decoders ----


@program
def a_static_cache(m):
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(8, 8)
            self.register_buffer("keys", torch.zeros(1, 16, 8))

        def forward(self, x, position):
            self.keys.index_copy_(1, position, x)
            scores = self.q(x) @ self.keys.transpose(1, 2) / math.sqrt(8)
            mask = torch.arange(16, device=x.device) <= position
            return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ self.keys

    model = m.module(Decoder())
    with torch.no_grad():
        model.keys.zero_()
    return Case(model, lambda i: (m.rand(1, 1, 8), torch.tensor([i], device=m.device)), calls=14,
                state=lambda: (model.keys,))


@program
def scaled_dot_products(m):
    return Case(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
                lambda i: (m.rand(1, 2, 5, 8), m.rand(1, 2, 5, 8), m.rand(1, 2, 5, 8)))


@program
def experts(m):
    """a mixture of experts: rows are chosen by a value"""
    experts = [m.module(nn.Linear(4, 4)) for _ in range(3)]
    gate = m.module(nn.Linear(4, 3))

    def step(x):
        choice = gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(experts):
            rows = torch.where(choice == number)[0]
            out.index_add_(0, rows, expert(x[rows]))
        return out

    return Case(step, lambda i: (m.rand(12, 4),))


# ---- Modes ----


@program
def gradients_on_and_off(m):
    model = m.module(nn.Linear(4, 4))
    modes = (torch.no_grad, torch.enable_grad, torch.inference_mode)

    def use(result):
        if result.requires_grad:
            backward(result)

    return Case(model, lambda i: (m.rand(2, 4),), lambda i: model.zero_grad(),
                lambda: (model.weight.grad,), lambda i: modes[i % 3](), use, calls=15)


@program
def autocast_on_and_off(m):
    model = m.module(nn.Linear(4, 4))

    def context(i):
        return torch.autocast(m.device.type, torch.bfloat16, enabled=i % 2 == 1)

    def inputs(i):
        return (m.rand(2, 4).requires_grad_(False),)

    return Case(lambda x: model(x).detach(), inputs, context=context, calls=12)


@program
def a_default_type_that_changes(m):
    class Default:
        def __init__(self, dtype):
            self.dtype = dtype

        def __enter__(self):
            self.before = torch.get_default_dtype()
            torch.set_default_dtype(self.dtype)

        def __exit__(self, *_):
            torch.set_default_dtype(self.before)

    def step(x):
        return x + torch.zeros(4, device=x.device)

    return Case(step, lambda i: (m.rand(4),),
                context=lambda i: Default(torch.float64 if i % 4 == 3 else torch.float32))


@program
def forward_mode_derivatives(m):
    def step(x, t):
        return torch.func.jvp(lambda x: x.sin() * x, (x,), (t,))

    return Case(step, lambda i: (m.rand(4), m.rand(4)))


@program
def derivatives_of_functions(m):
    def step(x):
        return torch.func.grad(lambda x: x.sin().sum())(x), torch.func.vmap(lambda r: r.sum())(x)

    return Case(step, lambda i: (m.rand(3, 4),))


@program
def a_compiled_function_under_vmap(m):
    inner = []

    def outer(x):
        return torch.vmap(inner[0] if inner else (lambda r: r * r.sum()))(x)

    return Case(outer, lambda i: (m.rand(3, 4),))


@program
def autograd_inside(m):
    def step(x):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            loss = (x ** 3).sum()
            return torch.autograd.grad(loss, x)[0]

    return Case(step, lambda i: (m.rand(4),))


@program
def a_function_with_its_own_backward(m):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, given):
            (x,) = ctx.saved_tensors
            return given * x.sign()

    weight = m.rand(4).requires_grad_()
    return Case(lambda x: Twice.apply(x * weight), lambda i: (m.rand(4),), context=grad, use=backward,
                state=lambda: (weight.grad,))


@program
def checkpoints(m):
    from torch.utils.checkpoint import checkpoint

    model = m.module(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)))
    return Case(lambda x: checkpoint(model, x, use_reentrant=False), lambda i: (m.rand(3, 4),),
                lambda i: model.zero_grad(), lambda: [p.grad for p in model.parameters()], grad,
                backward)


@program
def gradients_of_arguments(m):
    weight = m.rand(4, 4)
    given = []

    def inputs(i):
        given[:] = [m.rand(2, 4).requires_grad_()]
        return (given[0],)

    return Case(lambda x: torch.tanh(x @ weight), inputs, context=grad, use=backward,
                state=lambda: (given[0].grad,))


@program
def two_backward_passes_of_one_graph(m):
    model = m.module(nn.Linear(4, 4))

    def use(result):
        result.sum().backward(retain_graph=True)
        result.square().sum().backward()

    return Case(model, lambda i: (m.rand(2, 4),), lambda i: model.zero_grad(),
                lambda: (model.weight.grad, model.bias.grad), grad, use)


# ---- Values that decide ----


@program
def a_branch_on_a_value(m):
    def step(x):
        if x.sum() > 0:
            return x * 2
        return x - 1

    return Case(step, lambda i: (m.rand(4),))


@program
def a_value_read_back(m):
    def step(x):
        y = x * 2
        n = int(y.abs().argmax().item())
        return y[n] + n

    return Case(step, lambda i: (m.rand(4),))


@program
def sizes_from_values(m):
    def step(x):
        y = x * 2
        return y[y > 0] + 1, y.nonzero()

    return Case(step, lambda i: (m.rand(9),))


@program
def an_error_in_the_middle(m):
    state = m.rand(4)

    def step(x, n):
        state.add_(1)
        if n % 4 == 3:
            raise ValueError("no")
        return x * state

    return Case(step, lambda i: (m.rand(4), i % 4), state=lambda: (state,), calls=16)


@program
def numbers_that_change(m):
    return Case(lambda x, n, s: x * n + s, lambda i: (m.rand(4), i, i / 3))


@program
def sizes_that_change(m):
    return Case(lambda x: (x @ x.t()).softmax(-1), lambda i: (m.rand(2 + i % 3, 4),), calls=18)


@program
def a_copy_of_a_small_constant(m):
    def step(x):
        return x * torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device) + torch.tensor(2.0)

    return Case(step, lambda i: (m.rand(4),))


# ---- Types and structures ----


@program
def bfloat16_and_half(m):
    return Case(lambda x, y: (x + 1, y * 2, x.float() @ y.float()),
                lambda i: (m.rand(4, dtype=torch.bfloat16), m.rand(4, dtype=torch.float16)))


@program
def floats_of_eight_bits(m):
    return Case(lambda x: (x * 2).to(torch.float8_e4m3fn), lambda i: (m.rand(8),))


@program
def complex_numbers(m):
    def step(x, y):
        z = torch.complex(x, y)
        return z * z, z.conj(), z.real, z.abs()

    return Case(step, lambda i: (m.rand(4), m.rand(4)))


@program
def integers_and_masks(m):
    def step(x, n):
        mask = x > n
        return mask, mask.sum(), torch.where(mask, x, -x), mask.any()

    return Case(step, lambda i: (m.ints(10, 6), m.ints(10, 6)))


@program
def empty_and_scalar_tensors(m):
    return Case(lambda x, y: (x.sum(), x[:0], y * 2, x.new_zeros(0, 3)),
                lambda i: (m.rand(3), m.rand(1)[0]))


@program
def nine_dimensions(m):
    return Case(lambda x: x.reshape(1, 1, 1, 1, 1, 1, 1, 2, 4) * 2, lambda i: (m.rand(8),))


Pair = collections.namedtuple("Pair", "first second")


@program
def structures(m):
    @dataclasses.dataclass
    class Out:
        a: torch.Tensor
        b: list

    def step(x, options, *more, scale=1.0):
        y = x * scale + (options["offset"] or 0)
        return Pair(y, [y + z for z in more]), {"out": Out(y * 2, [None, 3]), 4: (y.sum(),)}

    return Case(step, lambda i: ((m.rand(4), {"offset": 2 if i % 2 else None}, m.rand(4)),
                                 {"scale": 2.0}))


@program
def sparse_and_quantized(m):
    def step(x):
        return (x * 2).to_sparse(), x + 1

    return Case(step, lambda i: (m.rand(3, 3),))


class Tagged(torch.Tensor):
    """A subclass without additional behaviour."""


@program
def a_parameter_of_another_class(m):
    model = m.module(nn.Linear(4, 4))
    model.weight = nn.Parameter(model.weight.detach().clone().as_subclass(Tagged))
    return Case(lambda x: model(x).as_subclass(torch.Tensor), lambda i: (m.rand(2, 4),))


@program
def many_results(m):
    def step(x):
        values, places = x.topk(2)
        return values, places, x.sort().values, x.argmax(-1), x.max(0), x.unbind(0)

    return Case(step, lambda i: (m.rand(3, 5),))


# ---- Random numbers, recurrent modules, parametrizations ----


@program
def dropout(m):
    return Case(lambda x: functional.dropout(x, 0.5) + torch.rand_like(x), lambda i: (m.rand(16),))


@program
def random_numbers(m):
    def step(x):
        return x + torch.randn(4, device=x.device), torch.bernoulli(x.sigmoid())

    return Case(step, lambda i: (m.rand(4),))


@program
def a_recurrent_module(m):
    model = m.module(nn.GRU(4, 6, batch_first=True))
    return Case(lambda x: model(x)[0], lambda i: (m.rand(2, 3, 4),))


@program
def a_parametrized_weight(m):
    model = m.module(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))
    return Case(model, lambda i: (m.rand(2, 4),), lambda i: model.zero_grad(),
                lambda: [p.grad for p in model.parameters()], grad, backward)


@program
def a_convolution_and_a_norm(m):
    model = m.module(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
                                   nn.MaxPool2d(2), nn.Flatten()))
    return Case(model, lambda i: (m.rand(2, 3, 8, 8),), lambda i: model.zero_grad(),
                lambda: [*model.buffers(), *[p.grad for p in model.parameters()]], grad, backward)


@program
def two_functions_in_a_chain(m):
    state = m.rand(4)

    def first(x):
        state.mul_(0.5)
        return x + state

    def step(x):
        return first(first(x)) * state

    return Case(step, lambda i: (m.rand(4),), state=lambda: (state,))


@program
def a_module_that_is_called_on_a_thread(m):
    model = m.module(nn.Linear(4, 4))
    made = []

    def on_thread(function, *args):
        made.clear()
        thread = threading.Thread(target=lambda: made.append(function(*args)))
        thread.start()
        thread.join()

    def step(x):
        return model(x)

    case = Case(step, lambda i: (m.rand(2, 4).requires_grad_(False),))
    case.between = lambda i: i % 3 == 1 and on_thread(lambda x: model(x).detach(), m.rand(2, 4))
    return case


@program
def a_branch_and_a_loop_on_data(m):
    weight = m.rand(4)

    def step(x):
        y = torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a - 1, (x * weight,))
        _, z = torch.while_loop(lambda n, a: n.sum() > 0, lambda n, a: (n - 1, a * 0.5 + 1),
                                ((x[:1].abs() * 3).floor(), y))
        return y, z * 2

    return Case(step, lambda i: (m.rand(4),), state=lambda: (weight,))


@program
def data_dependent_slices(m):
    def step(x, n):
        return x[: n + 1].sum(0), x.narrow(0, n, 1)

    return Case(step, lambda i: (m.rand(6, 3), i % 4), calls=16)


@program
def a_result_that_is_held_for_long(m):
    held = []

    def step(x):
        return x * 3

    case = Case(step, lambda i: (m.rand(8),), calls=16)
    case.use = lambda result: held.append(result)
    case.state = lambda: tuple(held)
    return case


@program
def a_result_that_is_fed_back(m):
    last = [m.rand(4)]
    case = Case(lambda x: torch.tanh(x) * 2, lambda i: (last[0],), calls=14)
    case.use = lambda result: last.__setitem__(0, result)
    return case


# ---- Tensors of a module that become others where they lie ----


def _float_rows(m):
    return m.rand(4, 4)


def _complex_rows(m):
    return torch.complex(m.rand(4, 4), m.rand(4, 4))


def _whole_rows(m):
    return m.ints(1 << 20, 4, 4).to(torch.int32)


def _small_rows(m):
    return m.rand(4, 4).to(torch.float8_e4m3fn)


def _set(tensor, data):
    tensor.data = data


# By name: the function that makes the tensor, and its change. Dynamo omits the guards of a module's tensors while the
# dict of the module is the same, so that each of these programs is PyTorch's graph with another tensor.
LAYOUTS = {
    "data_transposed": (_float_rows, lambda t: _set(t, t.data.t())),
    "transposed_in_place": (_float_rows, lambda t: t.t_()),
    "set_to_other_strides": (_float_rows, lambda t: t.set_(t.untyped_storage(), 0, (4, 4), (2, 3))),
    "set_elsewhere_in_its_memory": (_float_rows, lambda t: t.set_(t.untyped_storage(), 3, (4, 4), (3, 1))),
    "expanded": (_float_rows, lambda t: _set(t, t.data[:1].expand(4, 4))),
    "with_fewer_rows": (_float_rows, lambda t: _set(t, t.data[:2])),
    "resized": (_float_rows, lambda t: t.resize_(2, 2)),
    "with_other_axes": (_float_rows, lambda t: _set(t, t.data.view(2, 2, 2, 1, 2))),
    "with_many_axes": (_float_rows, lambda t: _set(t, t.data.view(1, 2, 2, 2, 1, 2))),
    "of_another_type": (_whole_rows, lambda t: _set(t, t.data.view(torch.float32))),
    "of_another_small_type": (_small_rows, lambda t: _set(t, t.data.view(torch.float8_e5m2))),
    "conjugated": (_complex_rows, lambda t: _set(t, t.data.conj())),
    "negated": (_float_rows, lambda t: _set(t, torch._neg_view(t.data))),
}


def _layout_program(name):
    make, change = LAYOUTS[name]

    def run(m):
        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("rows", make(m))

            def forward(self, x):
                whole = (self.rows + (1 + 2j)).abs() if self.rows.is_complex() else self.rows.to(torch.float32)
                return x + whole.cumsum(0).sum(), x * whole.amax(0).sum()

        model = Sum()
        original = model.rows.detach().clone()

        def between(i):
            if i in (5, 11):
                change(model.rows)
            if i == 8:  # restores it
                model.rows.data = original.clone()

        return Case(model, lambda i: (m.rand(4),), between, calls=15)

    run.__name__ = f"a_buffer_{name}"
    return program(run)


for _name in LAYOUTS:
    _layout_program(_name)


@program
def a_weight_that_is_transposed_while_it_is_trained(m):
    model = m.module(nn.Linear(4, 4, bias=False))

    def between(i):
        model.zero_grad()
        if i in (5, 8):
            model.weight.data = model.weight.data.t()

    return Case(model, lambda i: (m.rand(2, 4),), between, lambda: [model.weight.grad], grad, backward, calls=12)


# ---- Parts that cannot be captured on a GPU ----


@torch.library.custom_op("cgtree_programs::groups", mutates_args=())
def _groups(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    y, start = torch.zeros(len(x), weights.shape[2], device=x.device), 0
    for i, end in enumerate(ends.tolist()):
        torch.mm(x[start:end], weights[i], out=y[start:end])
        start = end
    return y


@_groups.register_fake
def _(x, weights, ends):
    return x.new_empty(len(x), weights.shape[2])


def _value_of(x):
    return x.sum().item()


@torch.library.custom_op("cgtree_programs::hidden", mutates_args=())
def _hidden(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + abs(_value_of(x)))


@_hidden.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("cgtree_programs::mixed", mutates_args=())
def _mixed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * float(y.sum())


@_mixed.register_fake
def _(x, y):
    return torch.empty_like(x)


@piece
def constants_of_the_cpu(m):
    def step(x):
        rows = x[torch.tensor([0, 2, 1])] + torch.tensor([1.0, 2.0, 3.0, 4.0]).to(x.device)
        return torch.where(rows > 0, rows, torch.tensor(-3.0)) * torch.tensor(2.5)

    return Case(step, lambda i: (m.rand(3, 4),))


@piece
def a_number_of_the_cpu(m):
    return Case(lambda x, n: (x @ x) * n + n, lambda i: (m.rand(64, 64), torch.tensor(float(i))))


@piece
def a_number_of_the_cpu_that_divides(m):
    return Case(lambda x, n: (x @ x + 1) / n * 2, lambda i: (m.rand(64, 64), torch.tensor(i + 1.5)))


@piece
def an_argument_of_the_cpu(m):
    return Case(lambda x, y: (x + y.to(x.device)).sin() @ x.t(),
                lambda i: (m.rand(8, 64), torch.full((64,), float(i))))


@piece
def a_pinned_tensor_that_is_written_after_the_call(m):
    held = torch.zeros(64, pin_memory=m.device.type != "cpu")
    return Case(lambda x, y: (x + y.to(x.device)).sin() @ x.t(), lambda i: (m.rand(8, 64), held.fill_(i)),
                use=lambda result: held.fill_(-7))


@piece
def indices_of_the_cpu(m):
    return Case(lambda x, rows: (x * 2)[rows].exp() + 1, lambda i: (m.rand(16, 8), m.ints(16, 5).cpu()))


@piece
def numbers_that_are_put_where_indices_of_the_cpu_say(m):
    def step(x, rows, n):
        return x.sin().index_put((rows,), n).index_put((rows + 1,), n, accumulate=True).cos()

    def inputs(i):
        return m.rand(16, 8), torch.randperm(15, generator=torch.Generator().manual_seed(i))[:5], torch.tensor(i + 0.5)

    return Case(step, inputs)


@piece
def an_operator_with_an_operand_of_the_cpu(m):
    return Case(lambda x, y: _mixed(x.sin(), y).exp() + 1, lambda i: (m.rand(16, 8), torch.full((3,), i / 10)))


@piece
def values_that_are_read_as_numbers(m):
    def step(x):
        total = (x * 100).sum().item()
        return x * int(total) + total, torch.full((8,), total, device=x.device) - x[0], x * (total > 0)

    return Case(step, lambda i: (m.rand(8, 8),))


@piece
def a_value_that_decides_nothing(m):
    return Case(lambda x: (x @ x).sin() * (x.sum().item() > 0) + x.mean().item() * (x @ x),
                lambda i: (m.rand(32, 32),))


@piece
def rows_that_are_not_zero(m):
    def step(x):
        y = (x @ x.t()).relu()
        return torch.zeros_like(y).index_add(0, (y.sum(1) > 20).nonzero()[:, 0] * 0, y[y.sum(1) > 20])

    return Case(step, lambda i: (m.rand(16, 16),))


@piece
def masks(m):
    def step(x):
        y = (x @ x.t()).clone()
        y[y < 0] = 0.5
        return y.cumsum(0) + 1

    return Case(step, lambda i: (m.rand(16, 16),))


@piece
def experts_in_groups(m):
    weights, router = m.rand(4, 32, 48), m.rand(32, 4)

    def step(x):
        chosen = (x @ router).softmax(-1).topk(2)
        expert, order = chosen.indices.flatten().sort(stable=True)
        ends = torch.histc(expert.float(), 4, 0, 3).cumsum(0).to(torch.int32)
        y = _groups(x[order // 2], weights, ends)
        y = y.sin() * chosen.values.flatten()[order][:, None]
        return torch.empty_like(y).index_copy(0, order, y).view(len(x), 2, -1).sum(1)

    return Case(step, lambda i: (m.rand(24, 32),))


@piece
def an_operator_that_hides_that_it_waits(m):
    return Case(lambda x: _hidden(x @ x).exp() * 2, lambda i: (m.rand(32, 32),))


@piece
def a_training_step_with_parts_outside(m):
    layer = m.module(nn.Linear(32, 32))

    def step(x, n):
        return functional.linear(x, layer.weight, layer.bias).tanh() / n + layer.weight[torch.tensor([1])]

    return Case(step, lambda i: (m.rand(8, 32), torch.tensor(i + 2.0)), lambda i: layer.zero_grad(),
                lambda: [parameter.grad for parameter in layer.parameters()], grad, backward)


# ---- Modules ----


# By name: the module, and the shapes of its inputs, or a function that makes them.
MODULES = {
    "Bilinear": (lambda: nn.Bilinear(8, 6, 4), (5, 8), (5, 6)),
    "Conv1d": (lambda: nn.Conv1d(4, 8, 3, padding=1), (2, 4, 20)),
    "Conv2d_grouped": (lambda: nn.Conv2d(8, 8, 3, groups=8, padding=1), (2, 8, 12, 12)),
    "Conv3d": (lambda: nn.Conv3d(2, 4, 3), (1, 2, 6, 8, 8)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 3, 2, stride=2), (2, 4, 6, 6)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), (3, 4, 8, 8)),
    "LayerNorm": (lambda: nn.LayerNorm(24), (4, 6, 24)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 8), (3, 8, 10)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), (2, 4, 9, 9)),
    "RMSNorm": (lambda: nn.RMSNorm(24), (4, 24)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), (2, 4, 8, 8)),
    "MaxPool2d_indices": (lambda: nn.MaxPool2d(2, return_indices=True), (2, 3, 8, 8)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((2, 3)), (2, 3, 9, 11)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 3, 7, 7)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (2, 8, 4, 4)),
    "Activations": (lambda: nn.Sequential(nn.GELU(), nn.SiLU(), nn.PReLU(), nn.Softplus(), nn.Hardswish(),
                                          nn.LogSoftmax(-1)), (8, 20)),
    "LSTMCell": (lambda: nn.LSTMCell(12, 16), (3, 12)),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(32, 4, batch_first=True), (2, 10, 32), (2, 10, 32),
                           (2, 10, 32)),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "TransformerDecoderLayer": (lambda: nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), (2, 6, 32),
                                (2, 10, 32)),
    "CosineSimilarity": (lambda: nn.CosineSimilarity(), (6, 12), (6, 12)),
    "CrossEntropyLoss": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), lambda m: (m.rand(8, 10), m.ints(10, 8))),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(100, 8, mode="mean"), lambda m: (
        m.ints(100, 20), torch.cat([m.ints(1, 1), m.ints(20, 3).sort().values]))),
    "Residual": (lambda: Residual(8), (2, 8, 16, 16)),
    "Experts": (lambda: Experts(), (12, 16)),
}


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm, self.up = nn.BatchNorm2d(width), nn.ConvTranspose2d(width, width, 2, 2)

    def forward(self, x):
        low = functional.relu(self.norm(self.first(x)))
        return torch.cat([x, self.up(functional.max_pool2d(x + low, 2))], 1)


class Experts(nn.Module):
    """A mixture of experts whose routing depends on the data, and whose sizes do not."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.up, self.down = (nn.Parameter(torch.empty(4, *shape)) for shape in ((16, 32), (32, 16)))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        hidden = torch.einsum("ti,tkio->tko", x, self.up[chosen]).relu()
        out = torch.einsum("tko,tkoi->tki", hidden, self.down[chosen])
        return (out * weights.unsqueeze(-1)).sum(1), chosen


def _module_program(name):
    build, *shapes = MODULES[name]

    def run(m):
        def inputs(i):
            return shapes[0](m) if callable(shapes[0]) else tuple(m.rand(*shape) for shape in shapes)

        return Case(m.module(build()).eval(), inputs, tolerance=1e-3)

    run.__name__ = name
    return program(run)


for _name in MODULES:
    _module_program(_name)


# ---- Other state that calls depend on, and effects of each call ----


@program
def forward_called_by_its_name(m):
    model = m.module(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    return Case(lambda x: model.forward(x), lambda i: (m.rand(2, 4),))


_scale = [1.0]
_shift = 0.0


@torch.library.custom_op("cgtree_programs::scaled", mutates_args=())
def _scaled(x: torch.Tensor) -> torch.Tensor:
    return x * _scale[0] + _shift


@_scaled.register_fake
def _(x):
    return torch.empty_like(x)


@program
def an_operator_that_reads_globals(m):
    def between(i):
        global _shift  # pylint: disable=global-statement
        _scale[0] = (1.0, 4.0)[i // 6 % 2]
        _shift = (0.0, 2.0)[i // 9 % 2]

    return Case(lambda x: _scaled(x) + 1, lambda i: (m.rand(4),), between, calls=20)
