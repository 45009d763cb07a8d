// Calls C functions with handles, and takes back what they made.
#include "cgtree/c_api/callback.h"

#include <fmt/format.h>

#include <exception>

#include "base/log.h"
#include "cgtree/c_api/handles.h"

namespace cgtree::capi {

Callback::Callback(std::string name) : failures_before_(thread_state().error.number) {
  frame_.name = std::move(name);
  frame_.outer = std::exchange(marks.frame, &frame_);
}

Callback::~Callback() {
  marks.frame = frame_.outer;
  for (const std::uint64_t handle : frame_.made) {
    try {
      TensorTable::destroy(handle, "a step function's tensor");
    } catch (const std::exception&) {  // another thread has destroyed it
    }
  }
}

void Callback::rethrow_thrown() const {
  const auto threw = [&](std::string_view what) {
    return StatusError(CGT_STEP_THREW, fmt::format("{} threw: {}", frame_.name, what));
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
  const bool is_known = (status > CGT_OK && status <= CGT_INTERNAL) || status >= CGT_USER_STATUS;
  ErrorRecord error;
  error.status = is_known ? status : CGT_STEP_FAILED;
  error.message =
      said.empty() ? fmt::format("returned status {} ({})", status, cgt_status_name(status)) : said;
  rethrow(error, frame_.name);
}

std::vector<Tensor> tensors_of(std::span<const cgt_tensor> handles, std::string_view what,
                               std::string_view function) {
  std::vector<Tensor> all;
  all.reserve(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i)
    all.push_back(tensor_of(handles[i], fmt::format("{} {} of '{}'", what, i, function)));
  return all;
}

CStep::~CStep() {
  if (step_.release == nullptr) return;
  try {
    step_.release(step_.user);
  } catch (...) {
    log_event(LogLevel::kError, "release_threw function=\"{}\"", name_);
  }
}

std::vector<Tensor> CStep::run(std::span<const Tensor> inputs) const {
  thread_state().step_capture = CGT_CAPTURE_NONE;
  const Callback callback("step function '" + name_ + "'");
  std::vector<cgt_tensor> given;
  given.reserve(inputs.size());
  for (const Tensor& input : inputs)
    given.push_back(make_tensor(Tensor(input)));
  std::vector<cgt_tensor> made(step_.output_count, nullptr);
  try {
    callback.call([&] {
      return step_.body(step_.user, given.data(), given.size(), made.data(), made.size());
    });
    return tensors_of(made, "output", name_);
  } catch (...) {
    thread_state().step_capture = capture_state_now();
    throw;
  }
}

}  // namespace cgtree::capi
