// Calls C functions, makes and destroys handles of tensors, and makes messages for wrong handles.
#include "bindings/c/handles.h"

#include <exception>
#include <utility>

#include "base/format.h"
#include "base/log_event.h"
#include "base/room.h"

namespace cgtree::capi {

void throw_bad_handle(std::uint64_t handle, HandleKind expected, std::string_view what) {
  constexpr std::string_view kKinds[] = {"nothing",     "a context", "a function",   "a tensor",
                                         "a generator", "a watch",   "a loop stream"};
  const std::string_view wanted = kKinds[static_cast<std::size_t>(expected)];
  const std::string name =
      what.empty() ? str_format("the {}", wanted.substr(2)) : std::string(what);
  if (handle == 0) throw HandleError(str_format("{} is NULL: expected {}", name, wanted));
  const std::uint64_t kind = handle >> (kIndexBits + kGenerationBits);
  const std::string_view found = kKinds[kind < std::size(kKinds) ? kind : 0];
  if (found == wanted) {
    throw HandleError(str_format(
        "{} is {:#x}, {} that was destroyed, or never made here: use a handle until it is "
        "destroyed, and those made inside a step function until it returns",
        name, handle, wanted));
  }
  throw HandleError(
      str_format("{} is {:#x}, the handle of {}: expected {}", name, handle, found, wanted));
}

std::vector<Generator> generators_of(const cgt_generator* generators, std::size_t count) {
  std::vector<Generator> all;
  for (const cgt_generator each : span_of_c(generators, count, "the array of generators"))
    all.push_back(*GeneratorTable::pin(each, str_format("generator {}", all.size())));
  return all;
}

cgt_tensor make_tensor(Tensor&& tensor) {
  CallbackFrame* const frame = marks().frame;
  if (frame != nullptr) [[unlikely]]
    make_room(frame->made);
  const cgt_tensor handle = TensorTable::make(std::move(tensor), frame);
  if (frame != nullptr) [[unlikely]]
    frame->made.push_back(handle);
  return handle;
}

void destroy_tensor(cgt_tensor handle) {
  if (marks().frame == nullptr || handle == nullptr) [[likely]]
    return TensorTable::destroy(handle);
  const CallbackFrame* const owner = TensorTable::get(handle).frame;
  for (CallbackFrame* frame = marks().frame;; frame = frame->outer) {
    if (frame == owner) {
      if (frame != nullptr) std::erase(frame->made, handle);
      return TensorTable::destroy(handle);
    }
    if (frame == nullptr || !frame->is_body) break;
  }
  std::vector<std::uint32_t>& parked = thread_state().parked;
  make_room(parked);
  parked.push_back(TensorTable::end(handle));
  marks().has_parked = true;
}

void give_out(std::span<Tensor> made, cgt_tensor* outputs) {
  std::size_t done = 0;
  try {
    for (; done < made.size(); ++done)
      outputs[done] = make_tensor(std::move(made[done]));
  } catch (...) {
    while (done > 0)
      destroy_tensor(std::exchange(outputs[--done], nullptr));
    throw;
  }
}

Callback::Callback(std::string name, bool is_body) : failures_before_(thread_state().error.number) {
  frame_.name = std::move(name);
  frame_.is_body = is_body;
  frame_.outer = std::exchange(marks().frame, &frame_);
}

Callback::~Callback() {
  marks().frame = frame_.outer;
  for (const cgt_tensor handle : frame_.made) {
    try {
      TensorTable::destroy(handle);
    } catch (const std::exception&) {  // another thread has destroyed it
    }
  }
}

void Callback::rethrow_thrown() const {
  const auto threw = [&](std::string_view what) {
    return StatusError(CGT_STEP_THREW, str_format("{} threw: {}", frame_.name, what));
  };
  try {
    throw;
  } catch (const std::exception& error) {
    throw threw(error.what());
  } catch (...) {
    throw threw("an exception of unknown type");
  }
}

void Callback::fail(cgt_status status) const {
  const std::string& said = frame_.said;
  const ErrorRecord& last = thread_state().error;
  if (said.empty() && last.number != failures_before_ && last.status == status) {
    rethrow(last, frame_.name);
  }
  ErrorRecord error;
  error.status = is_failure(status) ? status : CGT_STEP_FAILED;
  error.message =
      said.empty() ? str_format("returned status {} ({})", status, cgt_status_name(status)) : said;
  rethrow(error, frame_.name);
}

std::vector<Tensor> tensors_of(std::span<const cgt_tensor> handles, std::string_view what,
                               std::string_view function) {
  std::vector<Tensor> all;
  all.reserve(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i)
    all.push_back(tensor_of(handles[i], str_format("{} {} of '{}'", what, i, function)));
  return all;
}

void ParkedScope::release_parked() noexcept {
  marks().has_parked = false;
  for (const std::uint32_t slot : std::exchange(thread_state().parked, {}))
    TensorTable::release(slot);
}

std::shared_ptr<void> take_over(void* owner, void (*release)(void*)) {
  if (release == nullptr) return nullptr;
  return {owner, [release](void* taken) noexcept {
            try {
              release(taken);
            } catch (...) {
              log_event(LogLevel::kError, "release_threw owner={}", taken);
            }
          }};
}

}  // namespace cgtree::capi
