// What the C ABI's handles stand for, and from one to the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cgtree/c_api.h"
#include "cgtree/c_api/handle_table.h"
#include "cgtree/c_api/thread_state.h"
#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "interop/random/generator.h"

namespace cgtree::capi {

struct ContextObject {
  Context context;
  // A step function of it was left by longjmp: it is busy for ever.
  std::shared_ptr<std::atomic<bool>> is_abandoned;
};

// What precapture asks and leaves.
struct Warming {
  explicit Warming(std::vector<std::string> names) : axes(std::move(names)) {}

  const std::vector<std::string> axes;  // as the options name them
  std::mutex mutex;
  std::string report;  // of the last one, JSON; guarded by mutex
};

struct FunctionObject {
  CompiledCore core;
  std::size_t outputs;
  std::shared_ptr<std::atomic<bool>> is_abandoned;  // the context
  std::unique_ptr<Warming> warming;
};

struct TensorObject {
  Tensor tensor;
  const StepFrame* frame = nullptr;                   // the step function it was made in
  std::unique_ptr<std::int64_t[]> byte_strides = {};  // that an export has handed out
};

using ContextTable = HandleTable<ContextObject, HandleKind::kContext, Keeping::kPins>;
using FunctionTable = HandleTable<FunctionObject, HandleKind::kFunction, Keeping::kPins>;
using TensorTable = HandleTable<TensorObject, HandleKind::kTensor, Keeping::kHandle>;
using GeneratorTable = HandleTable<Generator, HandleKind::kGenerator, Keeping::kPins>;
// What GeneratorState::recording is; they end with the step function that took them.
using RecordedStateTable =
    HandleTable<std::shared_ptr<const void>, HandleKind::kRecordedState, Keeping::kPins>;

// A table that no destructor of the program ends: handles may be used until the process is gone.
template <typename Table>
union Immortal {
  constexpr Immortal() : table() {}
  ~Immortal() {}
  Table table;
};

extern Immortal<ContextTable> context_table;
extern Immortal<FunctionTable> function_table;
extern Immortal<TensorTable> tensor_table;
extern Immortal<GeneratorTable> generator_table;
extern Immortal<RecordedStateTable> recorded_state_table;

inline ContextTable& contexts() noexcept {
  return context_table.table;
}
inline FunctionTable& functions() noexcept {
  return function_table.table;
}
inline TensorTable& tensors() noexcept {
  return tensor_table.table;
}
inline GeneratorTable& generators() noexcept {
  return generator_table.table;
}
inline RecordedStateTable& recorded_states() noexcept {
  return recorded_state_table.table;
}

template <typename Handle>
std::uint64_t number_of(Handle* handle) noexcept {
  static_assert(sizeof(handle) == sizeof(std::uint64_t), "handles are numbers of 64 bits");
  return reinterpret_cast<std::uint64_t>(handle);
}
template <typename Handle>
Handle handle_of(std::uint64_t number) noexcept {
  return reinterpret_cast<Handle>(number);
}

// Throw HandleError; `what` names it in the message.
inline const Tensor& tensor_of(cgt_tensor handle, std::string_view what = "the tensor") {
  return tensors().peek(number_of(handle), what).tensor;
}
inline ContextTable::Pin context_of(cgt_context handle) {
  return contexts().pin(number_of(handle), "the context");
}
inline FunctionTable::Pin function_of(cgt_function handle) {
  return functions().pin(number_of(handle), "the function");
}

// Of a context, or of a function for its context. Tells one that another caller is inside from one
// that never gets free again. Throws StatusError.
[[noreturn]] void throw_abandoned_context();
template <typename Object>
void expect_not_abandoned(const Object& object) {
  if (object.is_abandoned->load(std::memory_order_acquire)) throw_abandoned_context();
}

// Throws OutOfMemory. Inside a step function it belongs to that.
cgt_tensor make_tensor(Tensor&& tensor);
// Throws HandleError.
void destroy_tensor(cgt_tensor handle);

// An owner of the caller's, as a shared_ptr's deleter.
struct Release {
  void (*release)(void*);
  void operator()(void* owner) const noexcept;
};

// When the last call that the thread is in is over: what step functions destroyed goes.
void release_parked() noexcept;

struct ParkedScope {
  ~ParkedScope() {
    if (marks.has_parked && marks.step == nullptr) [[unlikely]]
      release_parked();
  }
};

}  // namespace cgtree::capi
