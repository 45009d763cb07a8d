// Python functions as kernels of the host device. A storage that the recording keeps holds the data
// of the graph node.
#include "python/extension/module.h"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/frame.h"
#include "extensions/flow/body.h"
#include "interop/device/graph_api.h"
#include "interop/device/kernel.h"
#include "interop/device/stream.h"
#include "interop/exchange/foreign_array.h"
#include "interop/exchange/foreign_memory.h"
#include "interop/tensor/empty.h"
#include "python/extension/compiled.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

// The first error of a function since the thread's last launch or replay: the host device runs work
// on the thread that launches or replays.
struct Raised {
  std::optional<PythonError> error;
};

std::optional<PythonError>& raised() noexcept {
  return of_thread<Raised>().error;
}

struct HostCall {
  std::shared_ptr<void> function;
  std::vector<ForeignArray> operands;  // of memory that belongs to the recording

  void run() const {
    // The tensors have no stream, because a host function must not call the device.
    const Reference arguments = new_tuple(operands.size(), [&](std::size_t i) {
      return make_tensor(wrap_array(ForeignArray(operands[i]), {}, {}));
    });
    (void)call_python(static_cast<PyObject*>(function.get()), arguments.get());
  }
};

void run_call(void* data) {
  if (!interpreter_is_alive()) return;
  const GilAcquire gil;
  const NoCollection none;
  try {
    static_cast<const HostCall*>(data)->run();
  } catch (...) {
    set_error_in_flight();
    const PythonError error;
    if (!raised()) raised() = error;
  }
}

void run_kernel(const LaunchDims&, const void* const* arguments) {
  run_call(*static_cast<void* const*>(arguments[0]));
}

// The body of a branch or loop may call no host functions. The audit of a recording reads the
// arguments of a kernel: the addresses are among them.
void launch_in_body(StreamRef stream, HostCall* call) {
  const std::size_t count = 1 + call->operands.size();
  if (count > kMaxKernelArguments) {
    throw InvalidArgument(str_format("launch() in a body with {} tensors: expected at most {}",
                                     count - 1, kMaxKernelArguments - 1));
  }
  std::array<KernelArgument, kMaxKernelArguments> arguments;
  arguments[0] = {&call, sizeof(call)};
  for (std::size_t i = 1; i < count; ++i)
    arguments[i] = {&call->operands[i - 1].data, sizeof(void*)};
  enqueue_kernel(stream, {"a Python function", &run_kernel, nullptr}, {},
                 std::span(arguments).first(count));
}

void enqueue(std::shared_ptr<HostCall> call, const std::vector<Tensor>& tensors) {
  const StreamRef stream = current_stream();
  if (stream.device().type != DeviceType::kHost) {
    throw InvalidArgument(str_format(
        "launch() runs a Python function as a kernel of the host device, but the current stream is "
        "of {}: launch CuPy, Numba, Triton or PyTorch work on current_stream() instead",
        to_string(stream.device())));
  }
  const bool is_in_body = BodyMemory::is_current();
  HostCall* const called = is_in_body ? call.get() : nullptr;
  if (is_in_body) {
    launch_in_body(stream, called);
  } else {
    check(stream.graphs().launch_host_function(stream.handle(), &run_call, call.get()), "launch");
  }
  for (const Tensor& tensor : tensors)
    note_use(tensor.storage(), stream);
  const std::size_t bytes = is_in_body ? sizeof(HostCall) : 0;
  const StorageRef kept =
      import_memory({stream.device(), called, bytes, std::move(call), {}, false}, StreamRef());
  // Each run of a body makes a new HostCall, whose address is a parameter of the kernel.
  if (is_in_body) current_allocator()->made_elsewhere(kept);
  note_use(kept, stream);
}

// Enqueues function(*tensors) on the current stream of the host device, so that step functions can
// be tried without a GPU. It is recorded as a graph node and called at each replay, with separate
// tensors of the same memory.
void launch(Callable function, Rest given) {
  auto call = std::make_shared<HostCall>();
  call->function = keep_for_step(function.object);
  std::vector<Tensor> tensors;
  for (PyObject* const object : given) {
    tensors.push_back(expect_object<Tensor>(object, "launch"));
    call->operands.push_back(array_of(tensors.back()));
  }
  without_gil([&] {
    enqueue(std::move(call), tensors);
    tensors.clear();
  });
  throw_raised_in_launch();
}

}  // namespace

void throw_raised_in_launch() {
  if (!raised()) [[likely]] {
    return;
  }
  const PythonError error = *raised();
  raised().reset();
  throw error;
}

void add_host_launch(PyObject* module) {
  add_functions(module, {bind_function<&launch>("launch")});
}

}  // namespace cgtree::python
