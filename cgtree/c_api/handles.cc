// The tables, and tensors that step functions make and destroy.
#include "cgtree/c_api/handles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "cgtree/c_api/status.h"

namespace cgtree::capi {

constinit Immortal<ContextTable> context_table;
constinit Immortal<FunctionTable> function_table;
constinit Immortal<TensorTable> tensor_table;
constinit Immortal<GeneratorTable> generator_table;
constinit Immortal<RecordedStateTable> recorded_state_table;

namespace {

constexpr std::string_view kKinds[] = {"nothing",  "a context",   "a function",
                                       "a tensor", "a generator", "a recorded state"};

}  // namespace

std::string_view name_of_kind(std::uint64_t handle) noexcept {
  const std::uint64_t kind = handle >> (kIndexBits + kGenerationBits);
  return kind < std::size(kKinds) ? kKinds[kind] : kKinds[0];
}

void throw_bad_handle(std::uint64_t handle, HandleKind expected, std::string_view what) {
  const std::string_view wanted = kKinds[static_cast<std::size_t>(expected)];
  if (handle == 0) throw HandleError(fmt::format("{} is NULL: expected {}", what, wanted));
  const std::string_view found = name_of_kind(handle);
  if (found == wanted) {
    throw HandleError(fmt::format(
        "{} is {:#x}, {} that was destroyed, or never made here: use a handle until it is "
        "destroyed, and those made inside a step function until it returns",
        what, handle, wanted));
  }
  throw HandleError(
      fmt::format("{} is {:#x}, the handle of {}: expected {}", what, handle, found, wanted));
}

void throw_abandoned_context() {
  throw StatusError(CGT_STEP_ABANDONED,
                    "this context is inside a step function that was left by longjmp on another "
                    "thread, and cannot go on; make another context");
}

cgt_tensor make_tensor(Tensor&& tensor) {
  StepFrame* const step = marks.step;
  if (step != nullptr) [[unlikely]]
    step->made.reserve(step->made.size() + 1);
  const std::uint64_t handle = tensors().make(std::move(tensor), step);
  if (step != nullptr) [[unlikely]]
    step->made.push_back(handle);
  return handle_of<cgt_tensor>(handle);
}

void destroy_tensor(cgt_tensor handle) {
  const std::uint64_t number = number_of(handle);
  if (marks.step == nullptr) [[likely]] {
    return tensors().destroy(number, "the tensor");
  }
  if (tensors().peek(number, "the tensor").frame == marks.step) {
    std::erase(marks.step->made, number);
    return tensors().destroy(number, "the tensor");
  }
  // A call that this step function is part of may have it as an input.
  ThreadState& thread = thread_state();
  thread.parked.reserve(thread.parked.size() + 1);
  thread.parked.push_back(tensors().end(number, "the tensor"));
  marks.has_parked = true;
}

void Release::operator()(void* owner) const noexcept {
  try {
    release(owner);
  } catch (...) {
    log_event(LogLevel::kError, "release_threw owner={}", owner);
  }
}

void release_parked() noexcept {
  marks.has_parked = false;
  for (const std::uint32_t place : std::exchange(thread_state().parked, {}))
    tensors().release(place);
}

}  // namespace cgtree::capi
