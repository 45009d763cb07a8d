// From what a C function answers, throws or leaves behind to exceptions.
#include "cgtree/c_api/callback.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "cgtree/c_api/handles.h"
#include "cgtree/c_api/status.h"

namespace cgtree::capi {

Callback::Callback(const std::string& what, const void* stack,
                   std::shared_ptr<std::atomic<bool>> is_abandoned)
    : frame_(std::make_unique<StepFrame>()), failures_before_(thread_state().error.number) {
  frame_->name = what;
  frame_->stack = stack;
  frame_->context_is_abandoned = std::move(is_abandoned);
  frame_->outer = std::exchange(marks.step, frame_.get());
}

Callback::~Callback() {
  marks.step = frame_->outer;
  for (const std::uint64_t handle : frame_->made) {
    try {
      tensors().destroy(handle, "a step function's tensor");
    } catch (const std::exception&) {  // another thread has destroyed it
    }
  }
  for (const std::uint64_t state : frame_->states)
    recorded_states().destroy(state, "a recorded state");  // nobody else can
}

void Callback::rethrow_thrown() const {
  const auto threw = [&](std::string_view what) {
    return StatusError(CGT_STEP_THREW, fmt::format("{} threw: {}", frame_->name, what));
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
  const std::string& said = frame_->said;
  const ErrorRecord& last = thread_state().error;
  if (said.empty() && last.number != failures_before_ && last.status == status) {
    rethrow(last, frame_->name);
  }
  ErrorRecord error;
  error.status =
      cgt_status_name(status)[0] == 'C' || status >= CGT_USER_STATUS ? status : CGT_STEP_FAILED;
  error.message =
      said.empty() ? fmt::format("returned status {} ({})", status, cgt_status_name(status)) : said;
  rethrow(error, frame_->name);
}

std::vector<Tensor> tensors_of(std::span<const cgt_tensor> handles, std::string_view what,
                               std::string_view function) {
  std::vector<Tensor> all;
  all.reserve(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i)
    all.push_back(tensor_of(handles[i], fmt::format("{} {} of '{}'", what, i, function)));
  return all;
}

}  // namespace cgtree::capi
