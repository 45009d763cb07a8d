// Handles that callbacks make and destroy, and messages about wrong handles.
#include "cgtree/c_api/handles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace cgtree::capi {

void throw_bad_handle(std::uint64_t handle, HandleKind expected, std::string_view what) {
  constexpr std::string_view kKinds[] = {"nothing", "a context", "a function", "a tensor",
                                         "a generator"};
  const std::string_view wanted = kKinds[static_cast<std::size_t>(expected)];
  if (handle == 0) throw HandleError(fmt::format("{} is NULL: expected {}", what, wanted));
  const std::uint64_t kind = handle >> (kIndexBits + kGenerationBits);
  const std::string_view found = kKinds[kind < std::size(kKinds) ? kind : 0];
  if (found == wanted) {
    throw HandleError(fmt::format(
        "{} is {:#x}, {} that was destroyed, or never made here: use a handle until it is "
        "destroyed, and those made inside a step function until it returns",
        what, handle, wanted));
  }
  throw HandleError(
      fmt::format("{} is {:#x}, the handle of {}: expected {}", what, handle, found, wanted));
}

cgt_tensor make_tensor(Tensor&& tensor) {
  CallbackFrame* const frame = marks.frame;
  if (frame != nullptr) [[unlikely]]
    frame->made.reserve(frame->made.size() + 1);
  const std::uint64_t handle = TensorTable::make(std::move(tensor), frame);
  if (frame != nullptr) [[unlikely]]
    frame->made.push_back(handle);
  return handle_of<cgt_tensor>(handle);
}

void destroy_tensor(cgt_tensor handle) {
  const std::uint64_t number = number_of(handle);
  if (marks.frame == nullptr) [[likely]] {
    return TensorTable::destroy(number, "the tensor");
  }
  if (TensorTable::get(number, "the tensor").frame == marks.frame) {
    std::erase(marks.frame->made, number);
    return TensorTable::destroy(number, "the tensor");
  }
  std::vector<std::uint32_t>& parked = thread_state().parked;
  parked.reserve(parked.size() + 1);
  parked.push_back(TensorTable::end(number, "the tensor"));
  marks.has_parked = true;
}

void ParkedScope::release_parked() noexcept {
  marks.has_parked = false;
  for (const std::uint32_t slot : std::exchange(thread_state().parked, {}))
    TensorTable::release(slot);
}

void Release::operator()(void* owner) const noexcept {
  try {
    release(owner);
  } catch (...) {
    log_event(LogLevel::kError, "release_threw owner={}", owner);
  }
}

}  // namespace cgtree::capi
