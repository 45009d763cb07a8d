"""Types of the extension."""

from typing import (
    Any, Callable, Literal, NotRequired, Sequence, TypeAlias, TypedDict, TypeVar, Unpack, overload)

from cgtree._options import ContextOptions

DType: TypeAlias = Any  # a name such as "float32" or "<f4", a NumPy or PyTorch dtype
Dims: TypeAlias = int | Sequence[int]
Device: TypeAlias = str | tuple[int, int]  # "auto", "cuda:0", "host", or DLPack's two numbers
StreamLike: TypeAlias = Stream | int | Any  # or has __cuda_stream__(), cuda_stream or ptr
Array: TypeAlias = Any  # any object with one of the protocols
Sync: TypeAlias = Literal["wait", "synchronize", "enqueue", "ignore"] | bool

# Results of the bodies of a branch.
Results = TypeVar("Results", None, Tensor, tuple[Tensor, ...], list[Tensor])

Outcome: TypeAlias = Literal["replay", "record", "warm_up", "run_eagerly", "throw"]

class FunctionStats(TypedDict):
    calls: int
    warm_ups: int
    recordings: int
    replays: int
    failures: int
    evictions: int
    kept_recordings: int
    frozen: int
    verified: int
    differed: int
    unverified: dict[str, int]
    skips: dict[str, int]
    last_failure: NotRequired[str]  # of one function

class ContextStats(FunctionStats):
    generations: int
    restores: int
    root_patches: int
    graph_bytes: int
    recording_microseconds: int
    live_outputs: int
    pool_reserved_bytes: int
    pool_live_bytes: int
    text: str

class Explanation(TypedDict):
    outcome: Outcome
    skip_reason: str
    difference: str
    advice: str
    text: str

class InspectedWord(TypedDict):
    place: str
    value: int
    memory: str
    is_foreign: bool
    is_gone: bool

class InspectedNode(TypedDict):
    number: int
    name: str
    scope: str
    words: list[InspectedWord]

class InspectionReport(TypedDict):
    recording: int
    why_not: str
    nodes: int
    runs: int
    failed: InspectedNode | None
    error: str
    suspects: list[InspectedNode]
    text: str

class CaptureComparison(TypedDict):
    recording: int
    why_not: str
    nodes: int
    recorded: InspectedNode | None
    difference: str
    text: str

class Precaptured(TypedDict):
    sizes: dict[str, int | str]
    outcome: Literal["recorded", "already_there", "left_out", "predicted"]
    why: str
    bytes: int
    graph_bytes: int
    seconds: float

class PrecaptureReport(TypedDict):
    entries: list[Precaptured]
    bytes: int
    graph_bytes: int
    seconds: float
    text: str

# Seed, blocks drawn, and the recording it was taken in, if any.
GeneratorState: TypeAlias = tuple[int, int, GeneratorToken | None]

class Tensor:
    """A typed, shaped view of device memory; a handle: copying it copies no data.

    Made by empty(), as_tensor(), from_dlpack() and compiled functions. Other libraries take it
    through __cuda_array_interface__, __dlpack__ and, on the host device, __array_interface__.

    >>> x = cgtree.empty((2, 3), "int32", device="host")
    >>> x.shape, x.strides, x.nbytes
    ((2, 3), (12, 4), 24)
    """
    __dlpack_c_exchange_api__: object
    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes, in elements: a tuple of int."""
    @property
    def strides(self) -> tuple[int, ...]:
        """Steps of the axes, in bytes: a tuple of int."""
    @property
    def dtype(self) -> str:
        """Name of the element type, such as 'float32'."""
    @property
    def device(self) -> str:
        """Device of the memory, such as 'cuda:0' or 'host:0'."""
    @property
    def ndim(self) -> int:
        """Number of axes."""
    @property
    def size(self) -> int:
        """Number of elements."""
    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
    @property
    def nbytes(self) -> int:
        """Number of bytes: size * itemsize."""
    @property
    def data_ptr(self) -> int:
        """Address of the first element, on its device. Raises StaleTensor."""
    @property
    def is_contiguous(self) -> bool:
        """True if the elements are row-major, without gaps."""
    @property
    def read_only(self) -> bool:
        """True if the memory may not be written."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the protocol. Raises AttributeError on the host device. Raises
        StaleTensor."""
    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's protocol. Raises AttributeError on other devices than the host device. Raises
        StaleTensor."""
    def cuda_array_interface(
        self, *, version: int | None = None, pending: Sequence[StreamLike] = (), idle: bool = False
    ) -> dict[str, Any]:
        """The protocol's dict, on every device. `pending`: streams on which work on the tensor may
        be pending; the exported stream waits for them. `idle`: nothing is pending, so 'stream' is
        None. Raises InvalidArgument for another version than 0 to 3, StaleTensor.
        """
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """As in the Python array API standard. Raises BufferError or ValueError (both are
        BoundaryError), CaptureError, StaleTensor.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """Type and id of the device, as DLPack's numbers."""
    def on_stream(self, stream: Stream) -> Tensor:
        """The same memory with contents that this Stream orders; the Stream lives as long as the
        tensor.
        Raises InvalidArgument for a tensor of a context, and for a stream that is not cgtree's
        own.
        """
    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """A view with as many elements; a size of -1 is computed from the others. Raises
        InvalidArgument unless the tensor is contiguous.
        """
    def copy_from(self, source: Array) -> None:
        """Copies the elements of a tensor or array of the same shape and dtype, in order with the
        current stream. Waits where the source is memory of the host.
        """
    def note_use(self, stream: StreamLike) -> None:
        """Call this after enqueuing work that uses the tensor on another stream than that of the
        calls: the memory is not used again before that work is done.
        """
    def tobytes(self) -> bytes:
        """The elements in row-major order; waits until they are there."""
    def __getitem__(self, key: Any) -> Tensor: ...
    def __len__(self) -> int: ...

class Stream:
    """A queue of work on a device. `external`: another library's stream, or a cudaStream_t as an
    int; it is borrowed. `with stream:` makes it current on the thread. Raises InvalidArgument.

    >>> stream = cgtree.Stream("host")
    >>> with stream:
    ...     x = cgtree.empty((2, 3))
    >>> stream.synchronize()
    """
    def __init__(
        self, device: Device = "auto", *, blocking: bool = False, external: StreamLike | None = None
    ) -> None: ...
    @property
    def ptr(self) -> int:
        """The handle: a cudaStream_t as an int; 1 legacy, 2 per thread."""
    @property
    def device(self) -> str:
        """Its device, such as 'cuda:0'."""
    @property
    def is_capturing(self) -> bool:
        """True while work on it is recorded instead of run."""
    @property
    def capture_id(self) -> int:
        """The id of the capture it is in; 0 for none."""
    def synchronize(self) -> None:
        """Waits until all work so far is done."""
    def wait_for(self, other: StreamLike) -> None:
        """Later work waits for the work on `other` so far; the host does not wait."""
    def close(self) -> None:
        """Gives the stream back; objects that still need it keep it alive. Later use raises
        InvalidArgument."""
    def __cuda_stream__(self) -> tuple[int, int]:
        """A zero and the handle."""
    def __enter__(self) -> Stream:
        """Makes it current on this thread."""
    def __exit__(self, *error: object) -> None:
        """Makes the stream before it current again."""

class Context:
    def __init__(
        self,
        device: Device = "auto",
        *,
        stream: StreamLike | None = None,
        group: Group | None = None,
        **options: Unpack[ContextOptions],
    ) -> None: ...
    @property
    def stream(self) -> Stream:
        """The Stream on which calls launch their work. Your own work that reads outputs or writes
        inputs belongs there too, or must be ordered with it.
        """
    @property
    def device(self) -> str:
        """Such as 'cuda:0'."""
    @property
    def closed(self) -> bool:
        """True after close()."""
    def mark_step(self) -> None:
        """Outputs of earlier calls may be overwritten from now on; touching a held one raises
        StaleTensor. Raises ConcurrentUse.
        """
    def release_captured(self, capture: int | None = None) -> int:
        """Tells the context that a graph of the caller, into which work of this context was
        captured, is gone: the graph of the capture with this id (Stream.capture_id), or all of
        them. Returns the number of tensors that were kept for it. Raises ConcurrentUse.
        """
    def trim(self, to_device: bool = False) -> int:
        """Gives memory that no recording and no output uses back to the device's cache, where other
        contexts find it; returns the bytes. to_device: also gives the memory of the cache back to
        the device, for other libraries. Raises ConcurrentUse.
        """
    def release_memory(self) -> int:
        """For a server that goes idle: drops all recordings, and gives all memory that no output
        uses back to the device; functions stay warmed up. Waits until all work is done. Returns the
        bytes of the pools. Raises ConcurrentUse, and CaptureError while the stream is captured.
        """
    def keep(self, output: Tensor) -> None:
        """Holds this output until it is released: mark_step() does not end it. Raises StaleTensor,
        ConcurrentUse, and InvalidArgument for another context's.
        """
    def declare(self, name: str, address: int, nbytes: int) -> None:
        """Declares memory that recordings refer to and that is not a tensor, such as a workspace or
        table of a library: it lives until undeclare(). Another range under the same name means that
        the memory has moved: the recordings that refer to the old range are dropped.
        """
    def undeclare(self, name: str) -> None:
        """Ends the declaration of memory: the recordings that refer to it are dropped, now or
        before the next call. Any thread.
        """
    def invalidate(self, address: int, nbytes: int) -> int:
        """Drops the recordings that refer to memory in the range; returns how many. Raises
        ConcurrentUse.
        """
    def synchronize(self) -> None:
        """Waits until all work launched by calls is done. Raises DeviceError."""
    def close(self) -> None:
        """Ends the context. Later use, of its functions too, raises InvalidArgument; tensors it
        made stay.
        """
    def stats(self) -> ContextStats:
        """Calls, warm_ups, recordings, replays, failures, skips by reason; bytes of pools and
        graphs; 'text' is all of it as a table.
        """
    def verification(self) -> str:
        """Counts of the verified replays so far, and of those left out, as text."""
    def metrics_text(self) -> str:
        """Metrics of this context for Prometheus (docs/metrics.md). Any thread."""
    def snapshot_json(self) -> str:
        """The tree as JSON."""
    def watch_progress(self, watch: ProgressWatch | None) -> None:
        """From now on replays leave marks, by which the ProgressWatch says where a replay hangs;
        None ends this (docs/hangs.md). Raises ConcurrentUse, and InvalidArgument on a device that
        cannot leave marks.
        """
    def recent_events(self) -> str:
        """The last 1,000 events other than replays, as the lines of an event file (docs/events.md).
        Any thread.
        """
    def dump_events(self, path: str) -> None:
        """Writes them to a file. Raises InvalidArgument if it cannot be opened or written. Any
        thread.
        """
    def _enter_eager(self) -> None:
        """Begins `with eager()`."""
    def _leave_eager(self) -> None:
        """Ends `with eager()`."""

class CompiledFunction:
    """A compiled step function: f(*inputs, out=None, key=None). Inputs may be given by name.

    The first call with given shapes runs the step function (warm up), the second records it, later
    ones replay: then its Python code does not run. Inputs are tensors, or arrays of other
    libraries. `out`: arrays for the outputs, by position. `key`: {name: int or str}, other values
    on which the work depends: calls with different keys share no recording; see current_key().
    Raises InvalidArgument, StaleTensor, ConcurrentUse, OutOfMemory, CaptureError, DeviceError, and
    errors of the step function; then everything is as before the call.

    >>> context = cgtree.Context("host")
    >>> f = context.compile(lambda x: x)
    >>> x = cgtree.empty((3,), device="host")
    >>> for _ in range(3):
    ...     y = f(x)
    ...     print(f.last_outcome()[0])
    warm_up
    record
    replay
    """
    @property
    def name(self) -> str:
        """As given to compile()."""
    @property
    def __name__(self) -> str: ...
    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The step function."""
    def __call__(
        self,
        *inputs: Array,
        out: Array | Sequence[Array | None] | None = None,
        key: dict[str, int | str] | None = None,
        **named: Array,
    ) -> Any: ...
    def explain(
        self, *inputs: Array, key: dict[str, int | str] | None = None, **named: Array
    ) -> Explanation:
        """Predicts the 'outcome' of this call: 'difference' has both sides of the difference to the
        nearest recording, 'advice' says which change avoids it, and 'text' has everything.
        """
    def inspect(
        self, *inputs: Array, key: dict[str, int | str] | None = None, **named: Array
    ) -> InspectionReport:
        """Runs the nodes of the recording that this call would replay, each alone: 'failed' is the
        first node with an 'error', 'suspects' point to memory that nothing keeps, and 'text' has
        everything. 'why_not' says why no node was run. It does the work of a replay; after an error
        of the device the process cannot use the device any more.
        """
    def compare_captures(
        self, *inputs: Array, key: dict[str, int | str] | None = None, **named: Array
    ) -> CaptureComparison:
        """Captures the step function once more without a launch, and compares the capture with the
        recording that this call would replay: 'difference' says how the capture differs at the node
        'recorded', 'why_not' why nothing was compared, and 'text' has everything.
        """
    def compare_runs(
        self, *inputs: Array, key: dict[str, int | str] | None = None, **named: Array
    ) -> CaptureComparison:
        """Runs the nodes of that recording and those of a new capture, each alone and from equal
        memory: 'recorded' is the first node after which the two differ, and 'difference' says
        where. Mutated inputs are put back.
        """
    def stats(self) -> FunctionStats:
        """Calls, warm_ups, recordings, replays, failures, kept_recordings, skips by reason;
        'last_failure', the text of the last call that raised, if any did.
        """
    def freeze(self, when: Literal["run_eagerly", "throw"] = "run_eagerly") -> None:
        """From now on calls of this thread warm up, record and evict nothing. A call for which no
        recording fits runs eagerly, or raises CaptureError for 'throw'.
        """
    def unfreeze(self) -> None:
        """Ends freeze()."""
    def last_outcome(self) -> tuple[Outcome, str] | None:
        """The outcome of this thread's last call, 'replay', 'record', 'warm_up', 'run_eagerly' or
        'throw', and the reason why it ran eagerly, or ''. None before the first call.
        """
    def histogram(self, axis: str) -> dict[int, int]:
        """The sizes that calls gave a dynamic axis, {size: count}, for up to 4,096 sizes. Raises
        InvalidArgument for an axis that the function does not have.
        """
    def suggest_buckets(
        self, axis: str, max_buckets: int, cost: Callable[[int], float] | None = None
    ) -> list[int]:
        """As cgtree.suggest_buckets(), for histogram(axis)."""
    def suggest_all_buckets(self, max_combinations: int) -> dict[str, list[int]]:
        """The buckets {axis: sizes} with the least cost for all axes, and all integers of the key
        that have options, together, with at most `max_combinations` combinations of one bucket of
        each. The cost of a call is the product of its sizes.
        """
    def precapture(
        self,
        make_inputs: Callable[[dict[str, Any]], Array | Sequence[Array]],
        *,
        sizes: dict[str, Sequence[int]] | None = None,
        key: dict[str, Sequence[int | str] | None] | None = None,
        max_time: float | None = None,
        progress: Callable[[Precaptured], object] | None = None,
        held_outputs: int = 1,
    ) -> PrecaptureReport:
        """Records each combination of the sizes of the dynamic axes before calls come, the largest
        first. `make_inputs({axis: size})` makes the inputs of such a call. `sizes`: {axis:
        sizes}, by default all buckets and lists. `key`: {name: values} of all parts of the key,
        None for the values of the options; the dict that `make_inputs` gets has them too.
        Combinations that are not begun within `max_time` seconds are left out.
        `progress(entry)` is called for each. `held_outputs`: the number of results of earlier calls
        that are still held at a call. The report: 'entries' (each 'sizes', 'outcome': 'recorded',
        'already_there' or 'left_out', 'why', 'bytes', 'graph_bytes', 'seconds'), 'bytes',
        'graph_bytes', 'seconds', 'text'. Raises errors of the functions and of calls, and
        InvalidArgument for an axis without sizes; recordings made until then stay.
        """
    def predict_memory(
        self,
        make_inputs: Callable[[dict[str, Any]], Array | Sequence[Array]],
        *,
        sizes: dict[str, Sequence[int]] | None = None,
        key: dict[str, Sequence[int | str] | None] | None = None,
        max_time: float | None = None,
        progress: Callable[[Precaptured], object] | None = None,
        held_outputs: int = 1,
    ) -> PrecaptureReport:
        """The cost of precapture() with the same arguments, as its report with the outcome
        'predicted': each combination is run once and captured, but no graph is made, and the pools
        give back the memory that they needed. 'bytes' are exact, 'graph_bytes' an estimate from the
        graphs.
        """

class Group:
    """The ranks that decide together, as seen by one of them, for Context(group=...).

    minimum(words): takes a list of ints in [0, 2**64), waits until all ranks have called it, and
    returns the minimum of each int over the ranks; it raises if a rank does not come. Only calls
    that are not replays ask it. With torch.distributed, whose integers are signed, send each word
    in two halves. thread_groups() makes the groups of ranks that are threads.

    >>> alone = cgtree.Group(0, 1, lambda words: words)
    >>> context = cgtree.Context("host", group=alone)
    """
    def __init__(
        self, rank: int, size: int, minimum: Callable[[list[int]], Sequence[int]]
    ) -> None: ...
    def rank(self) -> int: ...
    def size(self) -> int: ...

class ProgressWatch:
    """Says where replays hang, by marks that they leave on their way, for Context.watch_progress().

    every_nth_replay: n to have every n-th replay of each recording leave marks; 0: only the next
    replay after one that exceeded the limit. time_limit: the seconds within which a replay must
    end; 0: no limit. on_timeout(text): is called on a thread of the watch, once for each replay
    that exceeds the limit; by default the text is logged. times_scopes: replays that leave marks
    are timed by scope, for metrics_text(). One watch may be given to several contexts.

    >>> watch = cgtree.ProgressWatch(time_limit=10, on_timeout=print)
    >>> context = cgtree.Context("host")
    >>> context.watch_progress(watch)
    >>> "no replay was watched yet" in watch.report()
    True
    """
    def __init__(
        self,
        every_nth_replay: int = 1,
        time_limit: float = 30,
        on_timeout: Callable[[str], object] | None = None,
        times_scopes: bool = False,
    ) -> None: ...
    def report(self) -> str:
        """Progress of the replays of its contexts that have not ended, and the ranks that they wait
        for (docs/hangs.md). Does not wait. Any thread.
        """
    def report_json(self) -> str:
        """The same as JSON. `python -m cgtree report` brings those of ranks that are processes
        together.
        """

class LoopStream:
    """Rows that a loop on the device hands out while it runs, one row for each round: for
    loop(max_rounds, body, rows=...). Rows have up to `row_bytes` bytes, a multiple of 4, and are
    kept while the host is up to `rows` rows behind; then rows are lost, because the device does not
    wait. Loops of one LoopStream must not run at the same time. Raises InvalidArgument for other
    sizes, OutOfMemory.

    >>> rows = cgtree.LoopStream("host", row_bytes=4, rows=16)
    >>> flag = cgtree.empty((), "int32", "host")
    >>> flag.copy_from(cgtree.scalar(1, "int32"))
    >>> with cgtree.Stream("host"):
    ...     rounds = cgtree.loop(2, lambda: (flag, flag), rows=rows)
    >>> rows.next(timeout=1)
    (b'\\x01\\x00\\x00\\x00', 1, 0, False)
    >>> row, loop, round, is_last = rows.next(timeout=1)
    >>> round, is_last
    (1, True)
    """
    def __init__(self, device: Device, row_bytes: int, rows: int) -> None: ...
    def next(self, timeout: float | None = None) -> tuple[bytes, int, int, bool] | None:
        """Waits for the next row, for `timeout` seconds at most; returns None if there is none by
        then. `row`: its bytes; `loop`: the number of its loop, counted from 1 over all loops with
        this LoopStream; `round`: from 0 on. Other threads run meanwhile, and Ctrl-C is heard.
        Raises InvalidArgument if rows were lost, with their number; the next call continues with
        the oldest row that is left. Raises ConcurrentUse while another thread waits.
        """
    def stop(self) -> None:
        """Ends the loop of the row that next() would return, with the round that runs, or with its
        first round if the loop has not begun. A loop whose body raised has ended: once its rows are
        read, this ends the loop after it. Any thread.
        """

class Steps:
    def __init__(
        self,
        context: Context,
        name: str,
        bindings: Sequence[tuple[str, bool, bool, int, bool, bool]],
        options: dict[str, Any],
        capture_mode: Literal["global", "thread_local", "relaxed"],
    ) -> None: ...
    def begin(
        self,
        bindings: Sequence[Any],
        key: dict[str, int | str] | None = None,
        stream: StreamLike | None = None,
    ) -> bool:
        """True if the work must be enqueued."""
    def inspect(
        self,
        bindings: Sequence[Any],
        key: dict[str, int | str] | None = None,
        stream: StreamLike | None = None,
    ) -> InspectionReport:
        """As that of a CompiledFunction."""
    def compare_captures(
        self,
        work: Callable[[list[int]], object],
        bindings: Sequence[Any],
        key: dict[str, int | str] | None = None,
        stream: StreamLike | None = None,
    ) -> CaptureComparison:
        """As that of a CompiledFunction; `work` is called instead of the loop's body."""
    def end(self) -> bool:
        """Call this when the work is enqueued; returns True if it must be enqueued once more."""
    def leave(self) -> None:
        """Leaves the open step, if there is one."""
    def address(self, binding: int) -> int:
        """The address of binding i for the work: its own, or that of a copy."""
    def is_captured(self) -> bool:
        """True while the work is captured, so that it must not wait."""
    def stats(self) -> FunctionStats:
        """As that of a CompiledFunction."""
    def last_outcome(self) -> tuple[str, str] | None:
        """As that of a CompiledFunction."""
    def invalidate(self, address: int, nbytes: int) -> int:
        """Drops the recordings that use memory in the range. Call it before giving the memory
        away."""

class GeneratorToken: ...
class Generator:
    """A source of random numbers: a seed, and the position in its sequence. It serves every device,
    and uniform numbers and integers are the same on each. In step functions each replay draws the
    numbers that an eager call would draw then; a call that raises gives its draws back. Outside,
    work goes to the current stream, else to the device's legacy stream. Any thread may use it.

    >>> generator = cgtree.Generator(7)
    >>> generator
    cgtree.Generator(seed=7, offset=0)
    """
    def __init__(self, seed: int = 0) -> None: ...
    @property
    def seed(self) -> int:
        """The seed of its sequence."""
    def set_seed(self, seed: int) -> None:
        """Begins the sequence of `seed`, 0 to 2**64 - 1; this takes effect at the next draw or
        replay. Raises InvalidArgument while a step function is recorded.
        """
    def state(self) -> GeneratorState:
        """The position: `offset` blocks of four 32-bit words were drawn. `recording` is None
        outside of recordings; a state taken while a step function is recorded is accepted only by
        set_state() in the same call.
        """
    def set_state(self, state: GeneratorState) -> None:
        """Continues from the state; this takes effect at the next draw or replay. Raises
        InvalidArgument for a state of a recording outside of that recording, and for any other
        state inside it.
        """
    def uniform(
        self, shape: Dims | None = None, *, out: Tensor | None = None, device: Device | None = None
    ) -> Tensor:
        """Float32 in [0, 1): a tensor of this shape, made as empty() makes it, or `out`, which is
        contiguous. Raises InvalidArgument, then nothing was drawn; OutOfMemory.
        """
    def normal(
        self, shape: Dims | None = None, *, mean: float = 0, deviation: float = 1,
        out: Tensor | None = None, device: Device | None = None
    ) -> Tensor:
        """Float32, as uniform()."""
    def integers(
        self, low: int, high: int, shape: Dims | None = None, *,
        out: Tensor | None = None, device: Device | None = None
    ) -> Tensor:
        """Int64 in [low, high), as uniform(). Raises InvalidArgument also for low >= high."""

def thread_groups(size: int, time_limit: float = 60) -> list[Group]:
    """The groups of `size` ranks that are threads of this process, one for each. A rank waits
    `time_limit` seconds for the others. A rank whose Group and context have ended has left: calls
    of the others then raise GroupError.

    >>> (alone,) = cgtree.thread_groups(1)
    >>> context = cgtree.Context("host", group=alone)
    """
class BreakValues:
    def value(self, input: int) -> bytes:
        """Input or binding number `input`, which is passed by value."""

def eager_break(function: Callable[[Callable[[int], bytes]], Any]) -> None:
    """Inside a step: calls function(value) at this point of each run and each replay, never in a
    capture: the graph ends before it, and another graph begins after it. value(i) is input or
    binding i, which is passed by value, as bytes. The function enqueues its work on
    current_stream(), may wait for the device, and holds no tensor of the step. Raises
    InvalidArgument outside of a step, CaptureError.

    >>> lengths = []
    >>> def step(x, block):
    ...     cgtree.eager_break(lambda value: lengths.append(value(1)[0]))
    ...     return x
    >>> f = cgtree.Context("host").compile(step)
    >>> for length in (3, 4, 5, 6):
    ...     y = f(cgtree.empty((2,), device="host"), cgtree.step_block(bytes([length])))
    >>> lengths
    [3, 4, 5, 6]
    """
def decide(name: str, function: Callable[[], int]) -> int:
    """Inside a step: returns function(), a decision of the host on which the work depends. A
    recording keeps the function, and each later call asks it before a replay: with another answer
    the call runs the step, and gets another recording. The function keeps alive the objects that it
    reads, and calls neither the context nor the device; the call raises any error that it raises
    before a replay.

    >>> splits = [2]
    >>> def step(x):
    ...     return x if cgtree.decide("splits", lambda: splits[0]) == 2 else cgtree.empty((1,))
    >>> f = cgtree.Context("host").compile(step)
    >>> shapes = []
    >>> for answer in (2, 2, 2, 3, 2):
    ...     splits[0] = answer
    ...     shapes.append(f(cgtree.empty((2,), device="host")).shape)
    >>> shapes
    [(2,), (2,), (2,), (1,), (2,)]
    """
def refuse_capture(why: str) -> None:
    """For a step that finds out that its work cannot be captured: if a capture is open, it fails
    with this reason, and the work runs once more without a graph, as all later calls of the kind
    do. Otherwise nothing happens.

    >>> cgtree.refuse_capture("no capture is open")
    """
@overload
def branch(
    predicate: Array,
    then: Callable[[], None],
    otherwise: None = None,
    *,
    generators: Sequence[Generator] = (),
) -> None:
    """Runs then() if the predicate is not 0, else otherwise(), and returns a copy of its result:
    None, a tensor, or a tuple or list of tensors, the same from both. Without otherwise() both
    return None. `predicate`: int32 or bool, one element, on the device. A step that runs eagerly
    reads the predicate on the host; a recording has both bodies, and each replay runs the body that
    its predicate selects. `generators`: the generators from which bodies draw; each run of a body
    draws new numbers. Raises errors of a body, and InvalidArgument for a body that breaks the rules
    (docs/control_flow.md).

    >>> x, flag = cgtree.empty((2,), device="host"), cgtree.empty((), "int32", "host")
    >>> flag.copy_from(cgtree.scalar(1, "int32"))
    >>> def step(x, flag):
    ...     return cgtree.branch(flag, lambda: x, lambda: x.reshape(2))
    >>> cgtree.Context("host").compile(step)(x, flag).shape
    (2,)
    """
@overload
def branch(
    predicate: Array,
    then: Callable[[], Results],
    otherwise: Callable[[], Results],
    *,
    generators: Sequence[Generator] = (),
) -> Results: ...
def choose(
    index: Array, bodies: Sequence[Callable[[], None]], *, generators: Sequence[Generator] = ()
) -> None:
    """Runs the body whose number is the value of `index`, int32; none if no body has that number.
    Bodies return None. Otherwise as branch().

    >>> index = cgtree.empty((), "int32", "host")
    >>> index.copy_from(cgtree.scalar(1, "int32"))
    >>> with cgtree.Stream("host"):
    ...     cgtree.choose(index, [lambda: print("no"), lambda: print("yes")])
    yes
    """
def choose_results(
    index: Array, bodies: Sequence[Callable[[], Results]], *, generators: Sequence[Generator] = ()
) -> Results:
    """As choose(), with bodies that return tensors, all of the same shapes and types: returns
    copies of the results of the body that ran. The last body runs for all numbers without a body.

    >>> index = cgtree.empty((), "int32", "host")
    >>> index.copy_from(cgtree.scalar(7, "int32"))
    >>> x, y = cgtree.empty((2,), device="host"), cgtree.empty((2,), device="host")
    >>> y.copy_from(x)
    >>> with cgtree.Stream("host"):
    ...     z = cgtree.choose_results(index, [lambda: x, lambda: y])
    >>> z.tobytes() == y.tobytes()
    True
    """
@overload
def loop(
    max_rounds: int,
    body: Callable[[], Array],
    *,
    rows: None = None,
    generators: Sequence[Generator] = (),
) -> Tensor:
    """Runs body() until the tensor that it returns, one element of int32 or bool, is 0, or until
    `max_rounds` rounds ran, which is not an error. The first round always runs. Returns the number
    of rounds, an int32 on the device. With `rows`, a LoopStream, body() returns the flag and the
    row of the round, which the LoopStream hands out. Otherwise as branch().

    >>> flag = cgtree.empty((), "int32", "host")
    >>> flag.copy_from(cgtree.scalar(1, "int32"))
    >>> with cgtree.Stream("host") as stream:
    ...     rounds = cgtree.loop(3, lambda: flag)
    >>> rounds
    cgtree.Tensor(int32 {} on host:0)
    """
@overload
def loop(
    max_rounds: int,
    body: Callable[[], tuple[Array, Array] | list[Array]],
    *,
    rows: LoopStream,
    generators: Sequence[Generator] = (),
) -> Tensor: ...
def step_block(data: bytes | bytearray | memoryview) -> Tensor:
    """Bytes of the host, such as struct.pack() makes, as an input that is passed by value: a tensor
    of uint8 that a step function reads on the device; each replay sees the bytes of its call.

    >>> cgtree.step_block(b"abc").shape
    (3,)
    """
def empty(shape: Dims, dtype: DType = "float32", device: Device | None = None) -> Tensor:
    """Contents are not set. Inside a step function: memory of the context's pool. Outside: of
    `device`, by default that of the current stream, else the best one. Raises InvalidArgument,
    OutOfMemory.

    >>> cgtree.empty((2, 3), device="host")
    cgtree.Tensor(float32 {2, 3} on host:0)
    """
def scalar(value: bool | int | float, dtype: DType | None = None) -> Tensor:
    """A number that a call passes by value. Default: bool, int64 or float64. Raises InvalidArgument
    where the type cannot hold it.

    >>> cgtree.scalar(2.5)
    cgtree.Tensor(float64 {} on host:0)
    """
def as_tensor(
    array: Array,
    *,
    stream: StreamLike | None = None,
    sync: Sync | None = None,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """Any array of another library, without a copy; keeps it alive. `stream`: the stream that uses
    it first. `sync`: 'wait' (default), 'synchronize', 'enqueue', 'ignore'. Raises BoundaryError
    (KeyError, TypeError, ValueError or BufferError), CaptureError, DeviceError.

    >>> x = cgtree.empty((2, 3), device="host")
    >>> cgtree.as_tensor(x).data_ptr == x.data_ptr
    True
    """
def from_cuda_array_interface(
    array: Array | dict[str, Any],
    *,
    owner: object = None,
    stream: StreamLike | None = None,
    sync: Sync | None = None,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """A tensor of an object or of the protocol's dict; keeps only `owner` alive. `device`: 'host'
    reads it as memory of the host device. Raises as as_tensor().

    >>> x = cgtree.empty((2, 3), device="host")
    >>> interface = x.cuda_array_interface()
    >>> cgtree.from_cuda_array_interface(interface, owner=x, device="host")
    cgtree.Tensor(float32 {2, 3} on host:0)
    """
def from_array_interface(
    array: Array | dict[str, Any], *, owner: object = None, dtype: DType | None = None
) -> Tensor:
    """A tensor of NumPy's interface: memory of the host; keeps only `owner` alive. Raises as
    as_tensor().

    >>> x = cgtree.empty((2, 3), device="host")
    >>> cgtree.from_array_interface(x)
    cgtree.Tensor(float32 {2, 3} on host:0)
    """
def from_dlpack(
    array: object, *, stream: StreamLike | None = None, device: Device | None = None
) -> Tensor:
    """A tensor of an object with __dlpack__, or of a capsule. Raises as as_tensor().

    >>> x = cgtree.empty((2, 3), device="host")
    >>> cgtree.from_dlpack(x.__dlpack__()).shape
    (2, 3)
    """
def view(
    owner: Tensor, address: int, shape: Sequence[int], strides: Sequence[int], dtype: DType
) -> Tensor:
    """A part of the memory of `owner`; strides in bytes. Raises InvalidArgument.

    >>> x = cgtree.empty((2, 3), device="host")
    >>> cgtree.view(x, x.data_ptr + 4, (2,), (12,), "float32")  # its second column
    cgtree.Tensor(float32 {2} strides {3} on host:0)
    """
def launch(function: Callable[..., Any], *tensors: Tensor) -> None:
    """On the host device: enqueues function(*tensors) on the current stream; a recording calls it
    at each replay. Raises errors of the function; InvalidArgument on another device.

    >>> stream, seen = cgtree.Stream("host"), []
    >>> with stream:
    ...     cgtree.launch(seen.append, cgtree.scalar(3))
    >>> stream.synchronize()
    >>> seen
    [cgtree.Tensor(int64 {} on host:0)]
    """
def compile(
    context: Context, name: str, function: Callable[..., Any], options: dict[str, Any]
) -> CompiledFunction: ...
def axis_length(axis: str) -> Tensor:
    """Inside a step function with dynamic axes: the size that the call gives the axis, where the
    step function sees the padded size: an int64 without dimensions on the device, right for each
    replay. For kernels to read; it must not be returned. Raises InvalidArgument.

    >>> context = cgtree.Context("host")
    >>> def step(x):
    ...     return x, cgtree.axis_length("batch").dtype == "int64" and x
    >>> f = context.compile(step, dynamic={"x": {0: "batch"}}, buckets={"batch": [4]},
    ...                     outputs_dynamic=[{0: "batch"}, {0: "batch"}])
    >>> f(cgtree.empty((3, 2), device="host"))[0].shape
    (3, 2)
    """
def current_key() -> dict[str, int | str]:
    """Inside a step function: the key of the call, with the values that the work must use, which
    may be rounded up. Raises InvalidArgument outside.

    >>> context = cgtree.Context("host")
    >>> f = context.compile(lambda x: (print(cgtree.current_key()), x)[1])
    >>> y = f(cgtree.empty((3,), device="host"), key={"beams": 4})
    {'beams': 4}
    """
def suggest_buckets(
    histogram: dict[int, int], max_buckets: int, cost: Callable[[int], float] | None = None
) -> list[int]:
    """At most `max_buckets` sizes, ascending, with the least cost of padding for a dict {size:
    number of calls}. `cost(size)`: the cost of one call padded to this size; it must not fall as
    sizes grow; default: the size. Exact. Raises InvalidArgument, and errors of `cost`.

    >>> cgtree.suggest_buckets({1: 90, 5: 10, 30: 4}, max_buckets=2)
    [1, 30]
    """
def current_stream() -> Stream:
    """The stream on which a step function launches its work. Raises InvalidArgument outside of step
    functions and of `with stream:`.

    >>> stream = cgtree.Stream("host")
    >>> with stream:
    ...     cgtree.current_stream().ptr == stream.ptr
    True
    """
def is_in_step() -> bool:
    """True while a step function runs on this thread.

    >>> cgtree.is_in_step()
    False
    """
class FlatCall:
    """Calls of a CompiledFunction with a flat list of inputs. `expected`: for each input (a tensor
    of this layout and type, is_static), or (value, None). `apart`: (a, b, distance): two tensors;
    neither may lie between the first and the last byte of the other, else WrongValue, unless
    `distance` is not 0 and b begins that many bytes after a. `finish(outputs, inputs)`: makes the
    results after the step function ran. `recover(error, inputs)`: makes the results of a call that
    failed, or raises. `reader`: offsets in bytes: of the tensor's address in a Python object, of
    the storage's in a tensor, of the memory's in a storage, of the rank and of the dispatch keys in
    a tensor; and the bits of these keys with which memory holds other values. `settings`: a
    Settings, whose present values are expected of calls.
    """
    def __init__(
        self,
        compiled: CompiledFunction,
        type: type,
        parameter_type: type,
        as_strided: Callable[..., Any],
        expected: tuple[tuple[Any, bool | None], ...],
        apart: tuple[tuple[int, int, int], ...],
        finish: Callable[[list[Any], list[Any]], list[Any]],
        recover: Callable[[BaseException, list[Any]], list[Any]],
        reader: tuple[int, int, int, int, int, int] = (-1, 0, 0, 0, 0, 0),
        settings: Settings | None = None,
    ) -> None: ...
    def call(self, inputs: list[Any]) -> Any:
        """Makes the call, clears the list and returns the list of results. Returns NotImplemented
        if the inputs differ from the expected ones; then the list is as before.
        """
    def set_results(self, results: Sequence[tuple[int, Any]] | None) -> None:
        """The source of each result of a replay: (0, output), (1, input), (2, value), (3, (input,
        shape, strides, elements)), a view of an input that begins so many elements after it, or (4,
        result), an earlier result. None: finish() makes the results.
        """
    def set_before(self, before: Callable[[], None] | None) -> None:
        """A function to call before each call, or None."""
    def set_state(self, state: Callable[[], Any], known: Any) -> None:
        """A call expects that state() returns a value equal to `known`."""

class Settings:
    """Settings of a library. Each is the result of function(object, first, second), with this
    number of bytes: addresses, and two numbers that it may ignore.
    """
    def __init__(self, getters: tuple[tuple[int, int, int, int, int], ...]) -> None: ...
    def read(self) -> tuple[int, ...]:
        """The values of all settings now."""

class RecentCalls:
    """The FlatCalls of a graph that were used last."""
    def call(self, inputs: list[Any]) -> Any:
        """Makes the call, clears the list and returns the list of results. Returns NotImplemented
        if no FlatCall has these inputs; then the list is as before.
        """
    def call_with_arguments(self, *arguments: Any) -> Any:
        """As call(), with the arguments of set_path(); calls its function where no FlatCall
        fits."""
    def set_calls(self, calls: Sequence[FlatCall]) -> None:
        """FlatCalls, the most recent first."""
    def set_path(
        self,
        function: Callable[..., Any],
        path: tuple[int, Sequence[int], Sequence[int]] | None,
    ) -> None:
        """For calls with `count` arguments: the argument of each input, and for each result of the
        call the result of the graph, or -1 for None; empty: in the same order. None: the function
        is always called.
        """

def context_of_step() -> int:
    """A number of the context whose step function runs on this thread; 0 outside. Numbers are used
    again after a context ended.
    """
def call_relaxed(function: Callable[[], Any]) -> Any:
    """Calls the function in the relaxed capture mode of the current stream's device, in which a
    thread that captures may allocate and free device memory.
    """
def best_device() -> str:
    """The first GPU, else the host device.

    >>> context = cgtree.Context(cgtree.best_device())
    """
def set_log_level(level: Literal["trace", "debug", "info", "warn", "error", "off"]) -> None:
    """Sets the least level that is logged.

    >>> cgtree.set_log_level("warn")
    """
def _dump_events_on_signal(path: str, signals: Sequence[int]) -> None:
    """Implements dump_events_on_signal()."""
def _metrics_text_of(contexts: Sequence[Context]) -> str:
    """As cgtree.metrics_text(), of these contexts."""
def _open_scope(name: str) -> int:
    """Begins `with Scope()`."""
def _close_scope(scope: int) -> None:
    """Ends `with Scope()`."""
class Lent: ...
def lend(tensor: Tensor) -> Lent:
    """Keeps the tensor's memory alive, and lets lent() find it by an address. For libraries that
    take an address.
    """
def lent(address: int) -> Tensor | None:
    """The memory that was lent to another library and contains the address, as bytes."""
def torch_options(*, use_steps: bool | None = None, device: Device | None = None) -> None: ...
def torch_statistics() -> dict[str, int]: ...
def torch_ran_out() -> str | None:
    """The reason why PyTorch's last allocation on this thread failed; returned once."""
def _interpreter_ends() -> None: ...
