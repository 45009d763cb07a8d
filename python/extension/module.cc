// The extension module cgtree._cgtree: its functions, and how it is made.
#include "python/extension/module.h"
#include "python/extension/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cgtree/record/step.h"
#include "cgtree/values/axes.h"
#include "cgtree/values/graph_scope.h"
#include "extensions/scopes/scope.h"
#include "extensions/watch/recent_events.h"
#include "interop/device/stream.h"
#include "interop/exchange/lent_memory.h"
#include "interop/tensor/empty.h"
#include "python/extension/context.h"
#include "python/extension/errors.h"
#include "python/extension/import.h"
#include "python/extension/python.h"
#include "python/extension/stream.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

Reference make_empty(PyObject*, PyObject* arguments, PyObject* keywords) {
  const auto [sizes, type, place] =
      read_arguments<3>(arguments, keywords, {"empty", {"shape", "dtype", "device"}, 1});
  const Shape shape(to_integers(sizes, "a size"));
  const DType dtype = type == nullptr ? DType::kFloat32 : to_dtype(type);
  const std::optional<Device> device = device_for_empty(to_optional_device(place));
  return make_tensor(without_gil([&] { return empty(shape, dtype, device); }));
}

template <typename T>
Tensor integer_scalar(PyObject* object, DType dtype) {
  const std::int64_t value = to_int64(object, "value");
  const auto narrow = static_cast<T>(value);
  if (static_cast<std::int64_t>(narrow) != value) {
    throw InvalidArgument(
        fmt::format("scalar(): {} is out of the range of {}", value, name(dtype)));
  }
  return scalar(narrow);
}

Tensor scalar_from(PyObject* object, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return scalar(to_bool(object));
    case DType::kInt8:
      return integer_scalar<std::int8_t>(object, dtype);
    case DType::kInt16:
      return integer_scalar<std::int16_t>(object, dtype);
    case DType::kInt32:
      return integer_scalar<std::int32_t>(object, dtype);
    case DType::kInt64:
      return integer_scalar<std::int64_t>(object, dtype);
    case DType::kUInt8:
      return integer_scalar<std::uint8_t>(object, dtype);
    case DType::kUInt16:
      return integer_scalar<std::uint16_t>(object, dtype);
    case DType::kUInt32:
      return integer_scalar<std::uint32_t>(object, dtype);
    case DType::kUInt64:
      return scalar(static_cast<std::uint64_t>(to_address(object, "value")));
    case DType::kFloat32:
      return scalar(static_cast<float>(to_double(object)));
    case DType::kFloat64:
      return scalar(to_double(object));
    default:
      throw InvalidArgument(fmt::format("scalar(): {} is not supported", name(dtype)));
  }
}

Reference make_scalar(PyObject*, PyObject* arguments, PyObject* keywords) {
  const auto [value, type] =
      read_arguments<2>(arguments, keywords, {"scalar", {"value", "dtype"}, 1});
  const DType natural = PyBool_Check(value)         ? DType::kBool
                        : PyIndex_Check(value) != 0 ? DType::kInt64
                                                    : DType::kFloat64;
  return make_tensor(scalar_from(value, type == nullptr ? natural : to_dtype(type)));
}

SyncPolicy to_sync(PyObject* object) {
  if (object == Py_True) return SyncPolicy::kEventWait;
  if (object == Py_False) return SyncPolicy::kIgnore;
  return to_choice<SyncPolicy>(object, "sync",
                               {{"wait", SyncPolicy::kEventWait},
                                {"synchronize", SyncPolicy::kSynchronize},
                                {"enqueue", SyncPolicy::kEnqueue},
                                {"ignore", SyncPolicy::kIgnore}});
}

// The arguments of what imports an array.
struct ImportArguments {
  PyObject* array;
  PyObject* owner;
  ObjectImport options;
};

ImportArguments read_import(PyObject* arguments, PyObject* keywords, const char* function) {
  const auto [array, owner, stream, sync, dtype, device] =
      read_arguments<6>(arguments, keywords,
                        {function, {"array", "owner", "stream", "sync", "dtype", "device"}, 1, 1});
  ObjectImport options;
  options.device = to_optional_device(device);
  if (stream != nullptr) {
    const std::optional<Device> place = options.device ? options.device : device_of_stream(stream);
    options.consumer = to_stream(stream, place.value_or(Device::best()));
  }
  if (sync != nullptr) options.sync = to_sync(sync);
  if (dtype != nullptr) options.dtype = to_dtype(dtype);
  return {array, owner, options};
}

Reference as_tensor(PyObject*, PyObject* arguments, PyObject* keywords) {
  const ImportArguments given = read_import(arguments, keywords, "as_tensor");
  return make_tensor(import_object(given.array, given.options));
}

Reference from_cuda_array(PyObject*, PyObject* arguments, PyObject* keywords) {
  const ImportArguments given = read_import(arguments, keywords, "from_cuda_array_interface");
  return make_tensor(import_cuda_array(given.array, given.owner, given.options));
}

Reference from_array(PyObject*, PyObject* arguments, PyObject* keywords) {
  const ImportArguments given = read_import(arguments, keywords, "from_array_interface");
  return make_tensor(import_host_array(given.array, given.owner, given.options));
}

Reference from_dlpack_object(PyObject*, PyObject* arguments, PyObject* keywords) {
  const ImportArguments given = read_import(arguments, keywords, "from_dlpack");
  return make_tensor(import_dlpack(given.array, given.options));
}

Reference make_view(PyObject*, PyObject* arguments) {
  const auto [of, place, sizes, steps, type] = read_arguments<5>(
      arguments, nullptr, {"view", {"owner", "address", "shape", "strides", "dtype"}, 5});
  const Tensor& owner = expect_tensor(of, "view");
  const std::uintptr_t address = to_address(place, "address");
  const std::vector<std::int64_t> dims = to_integers(sizes, "a size");
  std::vector<std::int64_t> strides = to_integers(steps, "a stride");
  const DType dtype = to_dtype(type);
  if (strides.size() != dims.size()) throw InvalidArgument("view(): one stride per dimension");
  for (std::int64_t& stride : strides)
    stride /= static_cast<std::int64_t>(size_of(dtype));
  const Shape shape(dims, strides);
  const std::uintptr_t begin = owner.storage()->address();
  const std::size_t held = owner.storage()->bytes();
  std::size_t bytes = 0;
  const bool is_huge =
      __builtin_mul_overflow(static_cast<std::size_t>(shape.extent()), size_of(dtype), &bytes);
  if (bytes == 0 && !is_huge) return make_tensor(Tensor(owner.storage(), 0, Shape(dims), dtype));
  if (is_huge || bytes > held || address < begin || address - begin > held - bytes) {
    throw InvalidArgument(
        fmt::format("view(): {} bytes at {:#x} are not in {}", bytes, address, describe(owner)));
  }
  return make_tensor(Tensor(owner.storage(), address - begin, shape, dtype));
}

// ---- Memory that other libraries know by its address alone ----

constexpr const char* kLease = "cgtree.lease";

void drop_lease(PyObject* capsule) {
  auto* const lease = static_cast<Lease*>(PyCapsule_GetPointer(capsule, kLease));
  if (!interpreter_is_alive()) return;
  const GilRelease released;  // the owner of the memory may wait
  delete lease;
}

Reference lend(PyObject*, PyObject* object) {
  auto lease = std::make_unique<Lease>(expect_tensor(object, "lend").storage());
  Reference capsule = checked(PyCapsule_New(lease.get(), kLease, drop_lease));
  (void)lease.release();
  return capsule;
}

Reference lent(PyObject*, PyObject* object) {
  StorageRef storage = find_lent(std::nullopt, to_address(object, "address"), 1);
  if (!storage) return Reference::borrow(Py_None);
  const auto bytes = static_cast<std::int64_t>(storage->bytes());
  return make_tensor(Tensor(std::move(storage), 0, {bytes}, DType::kUInt8));
}

Reference length_of_axis(PyObject*, PyObject* axis) {
  return make_tensor(axis_length(to_text(axis, "axis")));
}

Reference get_current_key(PyObject*) {
  Reference dict = checked(PyDict_New());
  add_key(dict.get(), current_key());
  return dict;
}

Reference get_current_stream(PyObject*) {
  return make_stream(current_stream(), nullptr);
}

void refuse(PyObject*, PyObject* why) {
  refuse_capture(to_text(why, "a reason"));
}

bool is_in_step(PyObject*) {
  return current_allocator() != nullptr;
}

const void* context_of_step(PyObject*) {
  return StepScope::innermost();
}

// While the thread captures, what allocates or frees device memory is refused otherwise.
Reference call_relaxed(PyObject*, PyObject* function) {
  const StreamRef current = current_stream_or_none();
  const RelaxedCapture relaxed(current ? current.api().graphs() : nullptr);
  return checked(PyObject_CallNoArgs(function));
}

std::string best_device(PyObject*) {
  return to_string(Device::best());
}

void set_level(PyObject*, PyObject* object) {
  set_log_level(to_choice<LogLevel>(object, "level",
                                    {{"trace", LogLevel::kTrace},
                                     {"debug", LogLevel::kDebug},
                                     {"info", LogLevel::kInfo},
                                     {"warn", LogLevel::kWarn},
                                     {"error", LogLevel::kError},
                                     {"off", LogLevel::kOff}}));
}

void dump_on_signal(PyObject*, PyObject* arguments, PyObject* keywords) {
  const auto [path, signals] =
      read_arguments<2>(arguments, keywords, {"dump_events_on_signal", {"path", "signals"}, 2});
  std::vector<int> numbers;
  for (const std::int64_t number : to_integers(signals, "a signal"))
    numbers.push_back(static_cast<int>(std::clamp<std::int64_t>(number, -1, 1 << 16)));
  dump_events_on_signal(to_text(path, "path"), numbers);
}

Reference scope_open(PyObject*, PyObject* name) {
  return checked(PyLong_FromUnsignedLongLong(open_scope(to_text(name, "the name of a scope"))));
}

void scope_close(PyObject*, PyObject* scope) {
  const std::uint64_t id = PyLong_AsUnsignedLongLong(scope);
  if (PyErr_Occurred() != nullptr) throw PythonError();
  close_scope(id);
}

void end_interpreter(PyObject*) {
  interpreter_ends();
}

PyMethodDef module_functions[] = {
    method<make_empty>(
        "empty",
        "empty(shape, dtype='float32', device=None) -> Tensor\n\nContents are not set. Inside a "
        "step function: memory of the context's pool. Outside: of `device`, by default that of the "
        "current stream, else the best one. Raises InvalidArgument, OutOfMemory.\n\n"
        ">>> cgtree.empty((2, 3), device=\"host\")\n"
        "cgtree.Tensor(float32 {2, 3} on host:0)\n"),
    method<make_scalar>(
        "scalar",
        "scalar(value, dtype=None) -> Tensor\n\nA number that rides along with a call. Default: "
        "bool, int64 or float64. Raises InvalidArgument where the type cannot hold it.\n\n"
        ">>> cgtree.scalar(2.5)\n"
        "cgtree.Tensor(float64 {} on host:0)\n"),
    method<as_tensor>("as_tensor",
                      "as_tensor(array, *, stream=None, sync=None, dtype=None, device=None) -> "
                      "Tensor\n\nWhatever array of another library, without a copy; keeps it. "
                      "`stream`: where it will be used first. `sync`: 'wait' (default), "
                      "'synchronize', 'enqueue', 'ignore'. Raises BoundaryError (KeyError, "
                      "TypeError, ValueError or BufferError), CaptureError, DeviceError.\n\n"
                      ">>> x = cgtree.empty((2, 3), device=\"host\")\n"
                      ">>> cgtree.as_tensor(x).data_ptr == x.data_ptr\n"
                      "True\n"),
    method<from_cuda_array>(
        "from_cuda_array_interface",
        "from_cuda_array_interface(array, *, owner=None, stream=None, sync=None, dtype=None, "
        "device=None) -> Tensor\n\nOf an object or the protocol's dict; keeps `owner` alone. "
        "`device`: 'host' reads it as memory of the host device. Raises as as_tensor().\n\n"
        ">>> x = cgtree.empty((2, 3), device=\"host\")\n"
        ">>> interface = x.cuda_array_interface()\n"
        ">>> cgtree.from_cuda_array_interface(interface, owner=x, device=\"host\")\n"
        "cgtree.Tensor(float32 {2, 3} on host:0)\n"),
    method<from_array>(
        "from_array_interface",
        "from_array_interface(array, *, owner=None, dtype=None) -> Tensor\n\nNumPy's interface: "
        "memory of the host; keeps `owner` alone. Raises as as_tensor().\n\n"
        ">>> x = cgtree.empty((2, 3), device=\"host\")\n"
        ">>> cgtree.from_array_interface(x)\n"
        "cgtree.Tensor(float32 {2, 3} on host:0)\n"),
    method<from_dlpack_object>("from_dlpack",
                               "from_dlpack(array, *, stream=None, device=None) -> Tensor\n\nOf an "
                               "object with __dlpack__, or a capsule. Raises as as_tensor().\n\n"
                               ">>> x = cgtree.empty((2, 3), device=\"host\")\n"
                               ">>> cgtree.from_dlpack(x.__dlpack__()).shape\n"
                               "(2, 3)\n"),
    method<make_view>(
        "view",
        "view(owner, address, shape, strides, dtype) -> Tensor: a part of the memory of `owner`; "
        "strides in bytes. Raises InvalidArgument.\n\n"
        ">>> x = cgtree.empty((2, 3), device=\"host\")\n"
        ">>> cgtree.view(x, x.data_ptr + 4, (2,), (12,), \"float32\")  # its second column\n"
        "cgtree.Tensor(float32 {2} strides {3} on host:0)\n",
        METH_VARARGS),
    method<launch>("launch",
                   "launch(function, *tensors)\n\nOn the host device: enqueues function(*tensors) "
                   "on the current stream; recorded, and called at each replay. Raises what it "
                   "raises; InvalidArgument on another device.\n\n"
                   ">>> stream, seen = cgtree.Stream(\"host\"), []\n"
                   ">>> with stream:\n"
                   "...     cgtree.launch(seen.append, cgtree.scalar(3))\n"
                   ">>> stream.synchronize()\n"
                   ">>> seen\n"
                   "[cgtree.Tensor(int64 {} on host:0)]\n",
                   METH_VARARGS),
    method<compile_function>("compile", "compile(context, name, function, options)", METH_VARARGS),
    method<thread_groups>("thread_groups",
                          "thread_groups(size, time_limit=60) -> list of Group\n\nThe groups of "
                          "`size` ranks that are threads of this process, one for each. A rank "
                          "waits `time_limit` seconds for the others, and one whose Group and "
                          "context have ended has left: then they raise GroupError.\n\n"
                          ">>> (alone,) = cgtree.thread_groups(1)\n"
                          ">>> context = cgtree.Context(\"host\", group=alone)\n"),
    method<break_eagerly>(
        "eager_break",
        "eager_break(function)\n\nInside a step: calls function(value) at this point of it, in "
        "each replay too, and never in a capture: the graph ends in front of it, and another one "
        "begins behind it. value(i) is input or binding i, which is passed by value, as bytes. The "
        "function enqueues its work on current_stream(), may wait for the device, and holds no "
        "tensor of the step. Raises InvalidArgument outside of a step, CaptureError.\n\n"
        ">>> lengths = []\n"
        ">>> def step(x, block):\n"
        "...     cgtree.eager_break(lambda value: lengths.append(value(1)[0]))\n"
        "...     return x\n"
        ">>> f = cgtree.Context(\"host\").compile(step)\n"
        ">>> for length in (3, 4, 5, 6):\n"
        "...     y = f(cgtree.empty((2,), device=\"host\"), cgtree.step_block(bytes([length])))\n"
        ">>> lengths\n"
        "[3, 4, 5, 6]\n"),
    method<branch_of>(
        "branch",
        "branch(predicate, then, otherwise=None, *, generators=())\n\nRuns then() if the predicate "
        "is not 0, else "
        "otherwise(), and returns a copy of what that returned: None, a tensor, or a tuple or list "
        "of tensors, the same from both. Without otherwise() both return None. `predicate`: int32 "
        "or bool, one element, on the device. A step that runs eagerly reads it on the host, and a "
        "recording has both ways, of which each replay takes the one that its value says. "
        "`generators`: those that bodies draw from; each run of a body draws numbers of its own. "
        "Raises what a body raises, and InvalidArgument for one that does what it may not "
        "(docs/control_flow.md).\n\n"
        ">>> x, flag = cgtree.empty((2,), device=\"host\"), cgtree.empty((), \"int32\", "
        "\"host\")\n"
        ">>> flag.copy_from(cgtree.scalar(1, \"int32\"))\n"
        ">>> def step(x, flag):\n"
        "...     return cgtree.branch(flag, lambda: x, lambda: x.reshape(2))\n"
        ">>> cgtree.Context(\"host\").compile(step)(x, flag).shape\n"
        "(2,)\n"),
    method<choose_of>(
        "choose",
        "choose(index, bodies, *, generators=())\n\nRuns the body with the number that `index` "
        "has, int32; none if "
        "there is none with that number. Bodies return None. Else as branch().\n\n"
        ">>> index = cgtree.empty((), \"int32\", \"host\")\n"
        ">>> index.copy_from(cgtree.scalar(1, \"int32\"))\n"
        ">>> with cgtree.Stream(\"host\"):\n"
        "...     cgtree.choose(index, [lambda: print(\"no\"), lambda: print(\"yes\")])\n"
        "yes\n"),
    method<choose_results_of>(
        "choose_results",
        "choose_results(index, bodies, *, generators=())\n\nchoose() with bodies that return "
        "tensors, all of the "
        "same shapes and types: returns copies of what the body returned that ran. The last body "
        "is for all numbers that have none.\n\n"
        ">>> index = cgtree.empty((), \"int32\", \"host\")\n"
        ">>> index.copy_from(cgtree.scalar(7, \"int32\"))\n"
        ">>> x, y = cgtree.empty((2,), device=\"host\"), cgtree.empty((2,), device=\"host\")\n"
        ">>> y.copy_from(x)\n"
        ">>> with cgtree.Stream(\"host\"):\n"
        "...     z = cgtree.choose_results(index, [lambda: x, lambda: y])\n"
        ">>> z.tobytes() == y.tobytes()\n"
        "True\n"),
    method<loop_of>(
        "loop",
        "loop(max_rounds, body, *, rows=None, generators=()) -> Tensor\n\nRuns body() until the "
        "tensor that it returns, one "
        "element of int32 or bool, is 0, or it has run `max_rounds` times, which is no error. The "
        "first round always runs. Returns the number of rounds, an int32 on the device. With "
        "`rows`, a LoopStream, body() returns the flag and the row of the round, which the "
        "LoopStream hands out. Else as branch().\n\n"
        ">>> flag = cgtree.empty((), \"int32\", \"host\")\n"
        ">>> flag.copy_from(cgtree.scalar(1, \"int32\"))\n"
        ">>> with cgtree.Stream(\"host\") as stream:\n"
        "...     rounds = cgtree.loop(3, lambda: flag)\n"
        ">>> rounds\n"
        "cgtree.Tensor(int32 {} on host:0)\n"),
    method<refuse>(
        "refuse_capture",
        "refuse_capture(why)\n\nFor a step whose work turns out to be one that cannot be "
        "captured: if it is being captured, the capture fails with this reason, and the "
        "work runs once more, without a graph, as all later calls of the kind do. "
        "Otherwise nothing happens.\n\n"
        ">>> cgtree.refuse_capture(\"no capture is open\")\n"),
    method<step_block_of>(
        "step_block",
        "step_block(data) -> Tensor\n\nBytes of the host, such as struct.pack() makes, as an input "
        "that is passed by value: a tensor of uint8 that a step function finds on the device, in "
        "each replay with the bytes of its call.\n\n"
        ">>> cgtree.step_block(b\"abc\").shape\n"
        "(3,)\n"),
    method<length_of_axis>(
        "axis_length",
        "axis_length(axis) -> Tensor\n\nInside a step function with dynamic axes: the size that "
        "the call gives the axis, where the step function sees it padded: an int64 without "
        "dimensions on the device, right for each replay. For kernels to read; not to be returned. "
        "Raises InvalidArgument.\n\n"
        ">>> context = cgtree.Context(\"host\")\n"
        ">>> def step(x):\n"
        "...     return x, cgtree.axis_length(\"batch\").dtype == \"int64\" and x\n"
        ">>> f = context.compile(step, dynamic={\"x\": {0: \"batch\"}}, buckets={\"batch\": [4]},\n"
        "...                     outputs_dynamic=[{0: \"batch\"}, {0: \"batch\"}])\n"
        ">>> f(cgtree.empty((3, 2), device=\"host\"))[0].shape\n"
        "(3, 2)\n"),
    method<get_current_key>(
        "current_key",
        "current_key() -> {name: int or str}\n\nInside a step function: the key of the call, with "
        "the values that the work is to use, which may be rounded up. Raises InvalidArgument "
        "outside.\n\n"
        ">>> context = cgtree.Context(\"host\")\n"
        ">>> f = context.compile(lambda x: (print(cgtree.current_key()), x)[1])\n"
        ">>> y = f(cgtree.empty((3,), device=\"host\"), key={\"beams\": 4})\n"
        "{'beams': 4}\n"),
    method<suggest_buckets_of>(
        "suggest_buckets",
        "suggest_buckets(histogram, max_buckets, cost=None) -> list of int\n\nAt most "
        "`max_buckets` sizes, ascending, padding to which costs least for a dict {size: how often "
        "it came}. `cost(size)`: of one call padded to it, must not fall as sizes grow; default: "
        "the size. Exact. Raises InvalidArgument, and what `cost` raises.\n\n"
        ">>> cgtree.suggest_buckets({1: 90, 5: 10, 30: 4}, max_buckets=2)\n"
        "[1, 30]\n"),
    method<get_current_stream>(
        "current_stream",
        "current_stream() -> Stream\n\nWhere a step function launches its work. Raises "
        "InvalidArgument outside of step functions and of `with stream:`.\n\n"
        ">>> stream = cgtree.Stream(\"host\")\n"
        ">>> with stream:\n"
        "...     cgtree.current_stream().ptr == stream.ptr\n"
        "True\n"),
    method<is_in_step>("is_in_step",
                       "is_in_step() -> bool: inside a step function.\n\n"
                       ">>> cgtree.is_in_step()\nFalse\n"),
    method<context_of_step>(
        "context_of_step",
        "context_of_step() -> int: a number of the context whose step function runs on this "
        "thread; 0 outside. Numbers are used again after a context has ended."),
    method<call_relaxed>(
        "call_relaxed",
        "call_relaxed(function): calls it in the relaxed mode of captures of the current stream's "
        "device, in which a thread that captures may allocate and free device memory."),
    method<best_device>("best_device",
                        "best_device() -> str: the first GPU, else the host device.\n\n"
                        ">>> context = cgtree.Context(cgtree.best_device())\n"),
    method<set_level>(
        "set_log_level",
        "set_log_level(level): 'trace', 'debug', 'info', 'warn', 'error' or 'off'.\n\n"
        ">>> cgtree.set_log_level(\"warn\")\n"),
    method<dump_on_signal>("_dump_events_on_signal", "What dump_events_on_signal() does."),
    method<scope_open>("_open_scope", "What `with Scope()` begins with."),
    method<scope_close>("_close_scope", "What `with Scope()` ends with."),
    method<lend>("lend",
                 "lend(tensor) -> an object that keeps the tensor's memory, and by which lent() "
                 "finds it. For libraries that take an address."),
    method<lent>("lent",
                 "lent(address) -> Tensor or None: the memory that was lent to another library and "
                 "holds the address, as bytes."),
    method<torch_options>("torch_options", "torch_options(*, use_steps=None, device=None)"),
    method<torch_statistics>("torch_statistics", "torch_statistics() -> dict"),
    method<torch_ran_out>("torch_ran_out",
                          "torch_ran_out() -> str or None: why the last allocation of PyTorch's on "
                          "this thread failed; it is told once."),
    method<end_interpreter>("_interpreter_ends", "Called at exit."),
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "cgtree._cgtree",
                          "What cgtree is made of.",
                          -1,
                          module_functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

// Registers the function after which no thread takes the lock any more.
void register_at_exit(PyObject* module) {
  const Reference atexit = checked(PyImport_ImportModule("atexit"));
  const Reference end = checked(PyObject_GetAttrString(module, "_interpreter_ends"));
  (void)checked(PyObject_CallMethod(atexit.get(), "register", "O", end.get()));
}

Reference make_module() {
  load_errors();
  Reference module = checked(PyModule_Create(&definition));
  add_tensor_type(module.get());
  add_stream_type(module.get());
  add_context_type(module.get());
  add_compiled_type(module.get());
  add_generator_type(module.get());
  add_flat_call_type(module.get());
  add_recent_calls_type(module.get());
  add_settings_type(module.get());
  add_steps_type(module.get());
  add_group_type(module.get());
  add_progress_watch_type(module.get());
  add_loop_stream_type(module.get());
  register_at_exit(module.get());
  return module;
}

}  // namespace

PyTypeObject* add_type(PyObject* module, const Type& type, int bytes) {
  std::vector<PyType_Slot> slots = type.others;
  const auto add = [&](int slot, void* value) {
    if (value != nullptr) slots.push_back({slot, value});
  };
  add(Py_tp_new, reinterpret_cast<void*>(type.make));
  add(Py_tp_dealloc, reinterpret_cast<void*>(type.dealloc));
  add(Py_tp_doc, const_cast<char*>(type.doc));
  add(Py_tp_methods, type.methods);
  add(Py_tp_getset, type.properties);
  slots.push_back({0, nullptr});
  PyType_Spec spec = {type.name, bytes, 0, Py_TPFLAGS_DEFAULT | type.flags, slots.data()};
  Reference made = checked(PyType_FromSpec(&spec));
  check_status(PyModule_AddObjectRef(module, std::strrchr(type.name, '.') + 1, made.get()));
  return reinterpret_cast<PyTypeObject*>(made.release());
}

}  // namespace cgtree::python

extern "C" PyMODINIT_FUNC PyInit__cgtree() {
  return cgtree::python::guarded([] { return cgtree::python::make_module().release(); });
}
