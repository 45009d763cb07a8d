"""What users of PyTorch write first, as cases of torch_newcomer.py: each is compared with eager.

A case is a function of a Trial. Its first line of documentation is what the table shows.
"""

import collections
import dataclasses
import signal
import threading
import typing
import warnings

import torch
from torch import nn
from torch.nn import functional

import cgtree
import cgtree.torch

CASES = {}
torch._dynamo.config.recompile_limit = 64  # each case tries many ways of calling one function


def compiled_of(function):
    return cgtree.torch.compile(function, kernels="eager")


def replays_of(compiled):
    return cgtree.torch.stats(compiled)["replays"]


def case(*needs):
    """Adds a case. `needs`: "cuda", or modules that must be there."""
    def add(function):
        CASES[function.__name__] = (function, needs)
        return function
    return add


def tensors_of(value):
    """Returns the tensors in a result, whatever holds them."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(_plain(value))
            if isinstance(leaf, torch.Tensor)]


def _plain(value):
    if dataclasses.is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def on_threads(count, work):
    """Calls work() on each of so many threads, and raises what the first of them has raised."""
    failed = []

    def call():
        try:
            work()
        except BaseException as error:  # pylint: disable=broad-except
            failed.append(error)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


class Wrong(Exception):
    """A result differs, or a promise was not kept."""


class Trial:
    """Makes inputs on a device, and compares. `inputs`: how many a module is tried with."""

    def __init__(self, device, inputs=100):
        self.device, self.inputs = torch.device(device), inputs

    def rand(self, *shape, **options):
        return torch.randn(*shape, device=self.device, **options)

    def expect(self, condition, what):
        if not condition:
            raise Wrong(what)

    def expect_equal(self, got, want, tolerance=0.0):
        self.expect(type(got) is type(want), f"{type(got)} in place of {type(want)}")
        got, want = tensors_of(got), tensors_of(want)
        self.expect(len(got) == len(want), f"{len(got)} tensors in place of {len(want)}")
        for a, b in zip(got, want):
            self.expect(type(a) is type(b) and a.shape == b.shape and a.dtype == b.dtype
                        and a.device == b.device,
                        f"{type(a).__name__} {a.shape} {a.dtype} in place of {b.shape} {b.dtype}")
            a, b = a.detach(), b.detach()
            if tolerance != 0 or not torch.equal(a, b):
                torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

    @staticmethod
    def _overwrite(got, arguments):
        for tensor in tensors_of(got):
            if not any(tensor is given for given in arguments):
                tensor.fill_(77)

    def compare(self, compiled, eager, inputs, calls=8, tolerance=0.0, replays=2, poison=True):
        """Calls both with the same new inputs, and compares the results and what became of the
        inputs. Then the results are overwritten, and released."""
        before = replays_of(compiled)
        for _ in range(calls):
            args, kwargs = inputs()
            copies = torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
            want = eager(*copies[0], **copies[1])
            got = compiled(*args, **kwargs)
            self.expect_equal(got, want, tolerance)
            self.expect_equal(tensors_of((args, kwargs)), tensors_of(copies), tolerance)
            if poison:
                self._overwrite(got, tensors_of((args, kwargs)))
            del got
        done = replays_of(compiled) - before
        self.expect(done >= replays, f"{done} replays of {calls} calls; {cgtree.torch.stats(compiled)}")


@case()
def results_are_tensors(trial):
    """y = step(x); y + 1"""
    def step(x):
        return torch.tanh(x) * 2

    trial.compare(compiled_of(step), step, lambda: ((trial.rand(64, 32),), {}))
    y = compiled_of(step)(trial.rand(4))
    trial.expect(isinstance(y + 1, torch.Tensor), "no torch.Tensor")


@case()
def keyword_arguments(trial):
    """keyword arguments, defaults"""
    def step(x, *, weight, bias=None, scale=2.0):
        y = functional.linear(x, weight, bias) * scale
        return y

    compiled = compiled_of(step)
    for bias in (None, trial.rand(8)):
        trial.compare(compiled, step, lambda b=bias: ((trial.rand(4, 16),),
                                                      {"weight": trial.rand(8, 16), "bias": b}))


@case()
def numbers_and_containers(trial):
    """numbers, None, strings, lists and dicts as arguments"""
    def step(x, n, how, options, more):
        y = x * n + (options["offset"] or 0)
        y = y.relu() if how == "relu" else y.tanh()
        return [y + z for z in more]

    compiled = compiled_of(step)
    for n, how, offset in ((2, "relu", None), (2.0, "tanh", 3), (True, "relu", 0.5)):
        trial.compare(compiled, step, lambda n=n, how=how, offset=offset: (
            (trial.rand(8), n, how, {"offset": offset}, [trial.rand(8), trial.rand(8)]), {}))


Pair = collections.namedtuple("Pair", "first second")


class Typed(typing.NamedTuple):
    value: torch.Tensor
    count: int


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple
    loss: torch.Tensor | None = None


@case()
def modules_that_return_structures(trial):
    """modules that return a dict, a named tuple, a dataclass"""
    class Net(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.linear, self.kind = nn.Linear(16, 8), kind

        def forward(self, x):
            y = self.linear(x)
            return {"dict": lambda: {"y": y, "nested": {"z": y + 1}},
                    "pair": lambda: Pair(y, y * 2), "typed": lambda: Typed(y, 3),
                    "dataclass": lambda: Output(y, (y + 1, y + 2)),
                    "list": lambda: [y, None, "text"], "max": lambda: y.max(0)}[self.kind]()

    for kind in ("dict", "pair", "typed", "dataclass", "list", "max"):
        model = Net(kind).to(trial.device).eval()
        with torch.no_grad():
            trial.compare(compiled_of(model), model, lambda: ((trial.rand(4, 16),), {}))


@case("transformers")
def model_outputs(trial):
    """a transformers model that returns a ModelOutput"""
    import transformers
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, vocab_size=100)
    model = transformers.LlamaForCausalLM(config).to(trial.device).eval()
    compiled = compiled_of(model)
    with torch.no_grad():
        trial.compare(compiled, model, lambda: (
            (), {"input_ids": torch.randint(0, 100, (2, 12), device=trial.device),
                 "use_cache": False}), tolerance=1e-5)


class Model:
    """A class of a user's, with a compiled method."""

    def __init__(self, trial, factor):
        self.net, self.factor = nn.Linear(8, 8).to(trial.device), factor

    def eager(self, x):
        return self.net(x) * self.factor

    step = compiled_of(eager)


@case()
def methods(trial):
    """decorate a method; two instances"""
    first, second = Model(trial, 2.0), Model(trial, 3.0)
    with torch.no_grad():
        for model in (first, second, first):
            trial.compare(model.step, model.eager, lambda: ((trial.rand(4, 8),), {}))
        first.factor = 5.0
        trial.compare(first.step, first.eager, lambda: ((trial.rand(4, 8),), {}))


@case()
def forward_of_a_module(trial):
    """decorate forward() of a module"""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def eager(self, x):
            return self.inner(x).relu()

        forward = compiled_of(eager)

    model = Net().to(trial.device)
    with torch.no_grad():
        trial.compare(model.forward, model.eager, lambda: ((trial.rand(4, 8),), {}))
        trial.expect_equal(model(x := trial.rand(4, 8)), model.eager(x))


@case()
def swapped_weights(trial):
    """swap a weight, by assignment, by .data, by load_state_dict, by a submodule"""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).to(trial.device)
    compiled = compiled_of(model)

    def check():
        trial.compare(compiled, model, lambda: ((trial.rand(4, 8),), {}))

    with torch.no_grad():
        check()
        model[0].weight = nn.Parameter(trial.rand(8, 8))
        check()
        model[2].weight.data = trial.rand(4, 8)
        check()
        model[0].weight.copy_(trial.rand(8, 8))
        check()
        model.load_state_dict({k: trial.rand(*v.shape) for k, v in model.state_dict().items()},
                              assign=True)
        check()
        model[2] = nn.Linear(8, 4).to(trial.device)
        check()


@case()
def training_and_eval(trial):
    """train() and eval() of one module, batch norm's statistics"""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).to(trial.device)
    twin = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).to(trial.device)
    twin.load_state_dict(model.state_dict())
    compiled = compiled_of(model)
    with torch.no_grad():
        for mode in (True, False, True, False):
            model.train(mode), twin.train(mode)
            trial.compare(compiled, twin, lambda: ((trial.rand(16, 8),), {}), tolerance=1e-6)
            trial.expect_equal(list(model.state_dict().values()),
                               list(twin.state_dict().values()), 1e-6)


@case()
def compiled_in_compiled(trial):
    """a compiled function inside of another"""
    @compiled_of
    def inner(x):
        return x.sin() + 1

    def outer(x):
        return inner(x) * inner(x + 1)

    def eager(x):
        return (x.sin() + 1) * ((x + 1).sin() + 1)

    trial.compare(inner, lambda x: x.sin() + 1, lambda: ((trial.rand(8),), {}))
    trial.compare(compiled_of(outer), eager, lambda: ((trial.rand(8),), {}))


@case()
def two_threads(trial):
    """two threads call one function, and one module"""
    model = nn.Linear(32, 32).to(trial.device)
    compiled = compiled_of(model)

    def work(calls=50):
        with torch.no_grad():
            trial.compare(compiled, model, lambda: ((trial.rand(16, 32),), {}), calls=calls)

    work(8)  # PyTorch raises in a call while another thread compiles

    on_threads(2, work)


@case()
def writes_into_arguments(trial):
    """x.add_(1) on an argument that was not declared"""
    def step(x, y):
        x.add_(1)
        return x * y

    trial.compare(compiled_of(step), step,
                  lambda: ((trial.rand(8, 8), trial.rand(8, 8)), {}))

    def only_writes(x, times):
        for _ in range(times):
            x.mul_(2)

    compiled = compiled_of(only_writes)
    for times in (1, 3):
        trial.compare(compiled, only_writes, lambda n=times: ((trial.rand(8), n), {}))

    def writes_some(x, y):  # which argument is written depends on the sizes
        if x.shape[0] > 4:
            y.add_(x.sum())
        return x + 1

    compiled = compiled_of(writes_some)
    for size in (2, 8, 2, 8):
        trial.compare(compiled, writes_some, lambda n=size: ((trial.rand(n), trial.rand(3)), {}),
                      calls=6, replays=1)


@case()
def writes_into_the_closure(trial):
    """in-place writes into buffers and tensors of the closure (a KV cache)"""
    cache, twin = trial.rand(4, 16).zero_(), trial.rand(4, 16).zero_()

    def make(memory):
        def step(x, position):
            memory.index_copy_(1, position, x)
            return memory.sum(1)
        return step

    compiled, eager = compiled_of(make(cache)), make(twin)
    place = iter(range(100))

    def inputs():
        return (trial.rand(4, 1), torch.tensor([next(place) % 16], device=trial.device)), {}

    trial.compare(compiled, eager, inputs, calls=20, tolerance=1e-6)
    trial.expect_equal(cache, twin)



@case()
def returns_its_arguments(trial):
    """returns an argument, a view of one, a parameter, a view of one, the same twice"""
    weight = nn.Parameter(trial.rand(8, 8), requires_grad=False)

    def step(x):
        y = x * 2
        return x, x[1:3], x.t(), weight, weight[0], y, y

    compiled = compiled_of(step)
    trial.compare(compiled, step, lambda: ((trial.rand(4, 4),), {}), poison=False)
    x = trial.rand(4, 4)
    got = compiled(x)
    trial.expect(got[0] is x and got[3] is weight and got[5] is got[6], "another object")
    trial.expect(got[4].data_ptr() == weight.data_ptr(), "no view of the parameter")


@case()
def other_sizes(trial):
    """sizes that change, and results whose form depends on them"""
    def step(x):
        return list(x.split(4)), x.shape[0], x.sum()

    compiled = compiled_of(step)
    for rows in (8, 12, 8, 5, 12):
        trial.compare(compiled, step, lambda n=rows: ((trial.rand(n, 3),), {}), calls=6,
                      tolerance=1e-6, replays=1)


@case()
def layouts_and_types(trial):
    """strided, transposed, broadcast, empty, 0-d; half, bfloat16, integers, bool"""
    def step(x):
        return (x + x).clone(), x == x

    compiled = compiled_of(step)
    kinds = [torch.float32, torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8]
    if trial.device.type == "cuda":
        kinds += [torch.float16, torch.bfloat16]
    for dtype in kinds:
        for make in (lambda x: x, lambda x: x.t(), lambda x: x[::2, 1:], lambda x: x[:1].expand(6, 5),
                     lambda x: x[0, 0], lambda x: x[:0]):
            trial.compare(compiled, step, lambda m=make, d=dtype: (
                (m((trial.rand(6, 5) * 10).to(d)),), {}), calls=5, replays=1)


@case()
def held_results(trial):
    """results that are held keep their values; released ones give their memory back"""
    def step(x):
        return x * 3 + 1

    compiled = compiled_of(step)
    held = []
    for _ in range(12):
        x = trial.rand(1000)
        held.append((compiled(x), x))
        if len(held) > 3:
            held.pop(0)
        for y, given in held:
            trial.expect_equal(y, step(given))
    trial.expect(replays_of(compiled) > 0, f"no replay: {cgtree.torch.stats(compiled)}")


@case()
def kept_results(trial):
    """results that are all kept, as an evaluation keeps them, are replayed"""
    def step(x):
        return x * 3 + 1

    compiled = compiled_of(step)
    kept = []
    for _ in range(60):
        x = trial.rand(1000)
        kept.append((compiled(x), x))
    for y, given in kept:
        trial.expect_equal(y, step(given))
    trial.expect(replays_of(compiled) > 40, f"few replays: {cgtree.torch.stats(compiled)}")


@case()
def results_as_arguments(trial):
    """results of one compiled function are arguments of the next"""
    a = compiled_of(lambda x: x.sin())
    b = compiled_of(lambda x: x.cos() + 1)
    for _ in range(10):
        x = trial.rand(64)
        y = a(x)
        z = b(b(y))
        trial.expect_equal(z, (x.sin().cos() + 1).cos() + 1)
    trial.expect(replays_of(b) > 0, f"{cgtree.torch.stats(b)}")


@case()
def modes(trial):
    """no_grad, inference_mode, grad with results that need gradients"""
    model = nn.Linear(8, 8).to(trial.device)
    compiled = compiled_of(model)

    def inputs():
        return (trial.rand(4, 8),), {}

    with torch.no_grad():
        trial.compare(compiled, model, inputs)
    with torch.inference_mode():
        trial.compare(compiled, model, inputs)
    for _ in range(4):
        x = trial.rand(4, 8)
        compiled(x).square().sum().backward()
        got, model.weight.grad = model.weight.grad, None
        model(x).square().sum().backward()
        trial.expect_equal(got, model.weight.grad, 1e-5)
        model.weight.grad = None
    with torch.no_grad():
        trial.compare(compiled, model, inputs)


@case()
def a_value_that_is_read_back(trial):
    """.item() in a step: what comes before and after it is recorded"""
    def step(x):
        return x * x.sum().item()

    trial.compare(compiled_of(step), step, lambda: ((trial.rand(8),), {}), tolerance=1e-6)


@case()
def errors_of_the_function(trial):
    """an exception of the function comes out, and the next call works"""
    def step(x, fail):
        if fail:
            raise KeyError("of the user")
        return x + 1

    compiled = compiled_of(step)
    for fail in (True, False, True):
        if fail:
            for _ in range(3):
                try:
                    compiled(trial.rand(4), True)
                except KeyError:
                    continue
                raise Wrong("no KeyError")
        else:
            trial.compare(compiled, step, lambda: ((trial.rand(4), False), {}), replays=0)


@case()
def numbers_of_the_closure(trial):
    """a number of the closure and a global that change"""
    scale = 2.0

    def step(x):
        return x * scale

    compiled = compiled_of(step)
    for scale in (2.0, 3.0, 2.0):
        trial.compare(compiled, step, lambda: ((trial.rand(8),), {}))


# ---- What cannot be recorded ----


def _right(trial, compiled, step, inputs, calls=5):
    """Expects right results, recorded or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(calls):
            args = inputs()
            got, want = compiled(*args), step(*args)
            same = torch.equal(_dense(got), _dense(want))
            trial.expect(same, f"{got} in place of {want}")


def _dense(tensor):
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.is_nested:
        return torch.cat([part.flatten() for part in tensor.unbind()])
    return tensor.to_dense() if tensor.layout != torch.strided else tensor.as_subclass(torch.Tensor)


class Marked(torch.Tensor):
    """A subclass of a user's."""


@case()
def odd_tensors(trial):
    """sparse, quantised, nested and conjugate tensors, and tensors of a user's class"""
    def step(x):
        return x * 2

    dense = trial.rand(4, 4).relu()
    kinds = [("torch.sparse_coo", dense.to_sparse), ("torch.sparse_csr", dense.to_sparse_csr),
             ("Marked", lambda: trial.rand(4).as_subclass(Marked)),
             ("conjugate", lambda: torch.view_as_complex(trial.rand(4, 2)).conj()),
             ("negative", lambda: torch.view_as_complex(trial.rand(4, 2)).conj().imag),
             ("nested", lambda: torch.nested.nested_tensor([trial.rand(2), trial.rand(3)]))]
    for _, make in kinds:
        compiled = compiled_of(step)
        trial.compare(compiled, step, lambda: ((trial.rand(4, 4),), {}), replays=0)
        _right(trial, compiled, step, lambda m=make: (m(),))
        trial.compare(compiled, step, lambda: ((trial.rand(4, 4),), {}), replays=0)
    if trial.device.type == "cpu":
        compiled = compiled_of(lambda x: x.dequantize() + 1)
        _right(trial, compiled, lambda x: x.dequantize() + 1,
               lambda: (torch.quantize_per_tensor(trial.rand(4), 0.1, 0, torch.qint8),))


@case()
def odd_results(trial):
    """results that are sparse, conjugate, or of a user's class"""
    for _, step in (("torch.sparse_coo", lambda x: x.relu().to_sparse()),
                    ("Marked", lambda x: (x + 1).as_subclass(Marked)),
                    ("conjugate", lambda x: torch.complex(x, x).conj())):
        _right(trial, compiled_of(step), step, lambda: (trial.rand(4, 4),))


@case()
def data_dependent_control_flow(trial):
    """a branch on a value, a loop until a value, a size from a mask"""
    def branch(x):
        return x * 2 if x.sum() > 0 else x - 1

    def loop(x):
        while x.abs().max() > 0.5:
            x = x / 2
        return x

    def mask(x):
        return x[x > 0] * 3

    for step in (branch, loop, mask):
        compiled = compiled_of(step)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(20):
                x = trial.rand(8)
                trial.expect_equal(compiled(x), step(x))


@case()
def attributes_of_modules(trial):
    """a number that is an attribute of a module, and changes"""
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.scale = nn.Linear(8, 8), 1.0

        def forward(self, x):
            return self.linear(x) * self.scale

    model = Scaled().to(trial.device)
    compiled = compiled_of(model)
    with torch.no_grad():
        for scale in (1.0, 2.0, 1.0):
            model.scale = scale
            trial.compare(compiled, model, lambda: ((trial.rand(4, 8),), {}), replays=1)


@case()
def modes_of_functions(trial):
    """a default device, a default type, precision of products: modes that change between calls"""
    def step(x):
        return x + torch.ones(3, device=x.device), torch.zeros(2)

    compiled = compiled_of(step)
    for mode in (torch.device("cpu"), torch.device("meta"), torch.device("cpu")):
        for _ in range(4):
            with mode:
                x = torch.rand(3, device=trial.device)
                got, want = compiled(x), step(x)
            trial.expect(got[1].device == want[1].device, f"{got[1].device}, not {want[1].device}")
            trial.expect_equal(got[0], want[0])
    try:
        for dtype in (torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            x = trial.rand(3)
            for _ in range(4):
                trial.expect_equal(compiled(x), step(x))
    finally:
        torch.set_default_dtype(torch.float32)


@case()
def what_a_list_holds_changes(trial):
    """arguments in lists and dicts that are changed between calls"""
    compiled = compiled_of(lambda xs, how: sum(xs) * how["scale"])
    xs, how = [trial.rand(4), trial.rand(4)], {"scale": 2}
    for number in range(30):
        if number % 7 == 3:
            xs.append(trial.rand(4))
        if number % 11 == 5:
            how["scale"] = number
        xs[0] = trial.rand(4)
        trial.expect_equal(compiled(xs, how), sum(xs) * how["scale"])
    trial.expect(replays_of(compiled) > 0, f"{cgtree.torch.stats(compiled)}")


@case("cuda")
def results_on_the_host(trial):
    """a result on the CPU beside one on the GPU"""
    def step(x):
        return x + 1, torch.ones(2)

    trial.compare(compiled_of(step), step, lambda: ((trial.rand(4),), {}), replays=0)



@case()
def a_fork(trial):
    """a process that forks after it has recorded"""
    import os

    def step(x):
        return x * 2

    compiled = compiled_of(step)
    x = trial.rand(4)
    for _ in range(5):
        compiled(x)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that hangs
        status = 1
        try:
            status = 0 if torch.equal(compiled(x), step(x)) else 2
        except RuntimeError:  # PyTorch's, whose GPU is lost after a fork
            status = 0 if trial.device.type == "cuda" else 3
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    trial.expect(status == 0, f"the child ended with {status}")
    trial.compare(compiled, step, lambda: ((trial.rand(4),), {}))


# ---- What needs a GPU ----


def _draws(trial, step, inputs, calls=10, seeds=(1, 2)):
    """Compares draws: the same seed for both, at once and in the middle."""
    compiled = compiled_of(step)
    for seed in seeds:
        args = [inputs() for _ in range(calls)]
        torch.manual_seed(seed)
        want = [step(*given) for given in args] + [torch.rand(5, device=trial.device)]
        torch.manual_seed(seed)
        got = [compiled(*given).clone() for given in args] + [torch.rand(5, device=trial.device)]
        for number, (a, b) in enumerate(zip(got, want)):
            trial.expect(torch.equal(a, b), f"seed {seed}: call {number} draws something else")
    trial.expect(replays_of(compiled) >= calls // 2, f"{cgtree.torch.stats(compiled)}")
    return compiled


@case("cuda")
def dropout(trial):
    """torch.nn.functional.dropout"""
    _draws(trial, lambda x: functional.dropout(x, 0.5) + functional.dropout(x, 0.2),
           lambda: (trial.rand(1000),))


@case("cuda")
def multinomial(trial):
    """torch.multinomial, rand, randint, bernoulli"""
    _draws(trial, lambda p: torch.multinomial(p, 4), lambda: (trial.rand(16, 100).abs(),))
    _draws(trial, lambda x: x + torch.rand_like(x) + torch.randn(x.shape, device=x.device)
           + torch.randint(0, 9, x.shape, device=x.device) + torch.bernoulli(x.sigmoid()),
           lambda: (trial.rand(333),))


@case("cuda")
def generators(trial):
    """a torch.Generator of the user's; get_rng_state() between calls"""
    generator = torch.Generator(trial.device)

    def step(x):
        return x + torch.rand(x.shape, device=x.device, generator=generator)

    compiled = compiled_of(step)
    for seed in (3, 4):
        args = [trial.rand(100) for _ in range(8)]
        generator.manual_seed(seed)
        want = [step(x) for x in args]
        generator.manual_seed(seed)
        trial.expect(all(torch.equal(compiled(x), y) for x, y in zip(args, want)), "other numbers")
    trial.expect(replays_of(compiled) > 4, f"{cgtree.torch.stats(compiled)}")
    state = generator.get_state()
    x = trial.rand(100)
    first = compiled(x).clone()
    generator.set_state(state)
    trial.expect(torch.equal(compiled(x), first), "set_state() has no effect")


@case("cuda")
def autocast(trial):
    """autocast, with its cache, in and out of steps"""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(trial.device)
    compiled = compiled_of(model)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.no_grad(), torch.autocast("cuda", dtype=dtype):
            trial.compare(compiled, model, lambda: ((trial.rand(16, 64),), {}), tolerance=1e-2)
    with torch.no_grad():
        trial.compare(compiled, model, lambda: ((trial.rand(16, 64),), {}), tolerance=1e-5)

    def whole(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(x) + model(x)

    with torch.no_grad():
        trial.compare(compiled_of(whole), whole, lambda: ((trial.rand(16, 64),), {}),
                      tolerance=1e-2)


@case("cuda")
def backward_inside(trial):
    """a training step: forward, backward(), SGD"""
    def build(seed):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)).to(trial.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def train(x, y):
            optimizer.zero_grad(set_to_none=False)
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()
        return model, train

    (model, train), (twin, eager) = build(0), build(0)
    for _ in range(2):  # so that the gradients are there
        args = trial.rand(16, 32), trial.rand(16, 1)
        train(*args), eager(*args)
    compiled = compiled_of(train)
    trial.compare(compiled, eager, lambda: ((trial.rand(16, 32), trial.rand(16, 1)), {}),
                  calls=20, tolerance=1e-4)
    trial.expect_equal(list(model.parameters()), list(twin.parameters()), 1e-4)


@case("cuda")
def gradients_inside(trial):
    """torch.autograd.grad() inside of a step"""
    def step(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad((x ** 3).sum(), x)[0]

    trial.compare(compiled_of(step), step, lambda: ((trial.rand(100),), {}))


@case("cuda")
def side_streams(trial):
    """a side stream in a step; calls on a stream of the user's; record_stream"""
    side = torch.cuda.Stream()

    def step(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x.sin()
        z = x.cos()
        torch.cuda.current_stream().wait_stream(side)
        return y + z

    compiled = compiled_of(step)
    trial.compare(compiled, step, lambda: ((trial.rand(1000),), {}))
    mine = torch.cuda.Stream()
    with torch.cuda.stream(mine):
        trial.compare(compiled, step, lambda: ((trial.rand(1000),), {}))
        y = compiled(trial.rand(1000))
    y.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(mine)
    del y


@case("cuda")
def two_contexts_on_two_streams(trial):
    """two threads with long kernels, on streams of their own"""
    weight = trial.rand(512, 512) / 20

    def step(x):
        for _ in range(20):
            x = torch.tanh(x @ weight)
        return x

    compiled = compiled_of(step)
    with torch.no_grad():  # PyTorch raises in a call while another thread compiles
        compiled(trial.rand(512, 512))

    def work():
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            trial.compare(compiled, step, lambda: ((trial.rand(512, 512),), {}), calls=40)

    on_threads(3, work)



@case("cuda")
def foreign_capture(trial):
    """called while PyTorch captures a graph of its own"""
    def step(x):
        return x * 2 + 1

    compiled = compiled_of(step)
    x = trial.rand(64)
    for _ in range(5):
        compiled(x)
    graph = torch.cuda.CUDAGraph()
    other = compiled_of(step)
    with torch.cuda.graph(graph):
        y = compiled(x) + other(x) * 0 + 1
    x.copy_(trial.rand(64))
    graph.replay()
    trial.expect_equal(y, step(x) + 1)
    trial.compare(compiled, step, lambda: ((trial.rand(64),), {}))


@case("cuda")
def memory(trial):
    """memory_allocated() works, and does not grow with calls"""
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).to(trial.device)
    compiled = compiled_of(model)
    with torch.no_grad():
        for _ in range(5):
            compiled(trial.rand(64, 256))
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(200):
            compiled(trial.rand(64, 256))
        torch.cuda.synchronize()
    trial.expect(torch.cuda.memory_allocated() == before,
                 f"{torch.cuda.memory_allocated() - before} bytes more")


@case("cuda", "use_allocator")
def on_our_allocator(trial):
    """use_allocator(): memory_allocated(), results, views, writes"""
    trial.expect(torch.cuda.memory_allocated() > 0 or trial.rand(4) is None or
                 torch.cuda.memory_allocated() >= 0, "memory_allocated()")
    for name in ("results_are_tensors", "keyword_arguments", "modules_that_return_structures",
                 "writes_into_arguments", "returns_its_arguments", "held_results", "kept_results", "dropout",
                 "side_streams", "swapped_weights", "backward_inside", "autocast"):
        try:
            CASES[name][0](trial)
        except Exception as error:
            raise Wrong(f"{name}: {type(error).__name__}: {error}") from error
    big = trial.rand(1 << 20)
    trial.expect(torch.cuda.memory_allocated() >= big.nbytes, "memory_allocated() is too small")


@case("cuda")
def decoder(trial):
    """a decoder of 16 layers, and a step of generation"""

    class Decoder(nn.Module):  # classes of torch.nn share a limit of PyTorch's on recompiling
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, dropout=0.0)
            self.layers = nn.TransformerEncoder(layer, 16, enable_nested_tensor=False)

        def forward(self, x):
            return self.layers(x)

    torch.manual_seed(0)
    model = Decoder().to(trial.device).eval()
    compiled = compiled_of(model)
    with torch.no_grad():
        trial.compare(compiled, model, lambda: ((trial.rand(1, 16, 256),), {}), tolerance=1e-4)


@case("cuda", "cupy")
def cupy_matrix_product(trial):
    """CuPy: x @ w in a step of cgtree.compile(framework="cupy")"""
    import cupy

    step = cgtree.compile(lambda x, w: x @ w, framework="cupy")
    for _ in range(6):
        x, w = cupy.random.rand(16, 16), cupy.random.rand(16, 16)
        cgtree.mark_step()
        y = cupy.from_dlpack(step(x, w))
        cupy.testing.assert_allclose(y, x @ w, rtol=1e-6)


@case("cuda")
def draws_on_the_host(trial):
    """a generator that is not CUDA's"""
    generator = torch.Generator()

    def step(x):
        return x + torch.rand(4, generator=generator).to(x.device)

    compiled = compiled_of(step)
    seen = {compiled(torch.zeros(4, device=trial.device)).sum().item() for _ in range(6)}
    trial.expect(len(seen) == 6, "the same numbers again")


@case("cuda")
def a_module_that_moves(trial):
    """a module on the GPU, on the CPU, on the GPU"""
    model = nn.Linear(8, 8).to(trial.device)
    compiled = compiled_of(model)
    with torch.no_grad():
        for device in (trial.device, torch.device("cpu"), trial.device):
            model.to(device)
            for _ in range(6):
                x = torch.rand(2, 8, device=device)
                trial.expect_equal(compiled(x), model(x), 1e-6)
        try:
            compiled(torch.rand(2, 8))
        except RuntimeError:
            pass
        else:
            raise Wrong("no error for an argument on another device than the module")


@case("cuda")
def arguments_on_two_devices(trial):
    """an argument of the CPU beside one of the GPU"""
    def step(x, n):
        return x * n.to(x.device)

    compiled = compiled_of(step)
    _right(trial, compiled, step, lambda: (trial.rand(4), torch.rand(4)))
    trial.compare(compiled, step, lambda: ((trial.rand(4), trial.rand(4)), {}))


@case("cuda", "triton")
def a_backend_of_the_compiler(trial):
    """torch.compile(module, backend=cgtree.torch.backend)"""
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).to(trial.device)
    compiled = torch.compile(model, backend=cgtree.torch.backend)
    with torch.no_grad():
        for _ in range(10):
            x = trial.rand(16, 64)
            trial.expect_equal(compiled(x), model(x), 1e-3)
    x = trial.rand(16, 64)
    compiled(x).sum().backward()
    got, model[0].weight.grad = model[0].weight.grad, None
    model(x).sum().backward()
    trial.expect_equal(got, model[0].weight.grad, 1e-2)
