// Calls a C function with handles, and takes back what it made.
#include "cgtree/c_api/step.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "base/log.h"
#include "cgtree/c_api/handles.h"
#include "cgtree/c_api/status.h"

namespace cgtree::capi {
namespace {

// While it lives, the thread is inside the step function. The frame is on the heap, where it stays
// if the step function leaves by longjmp.
class FrameScope {
 public:
  FrameScope(const std::string& name, const void* stack,
             std::shared_ptr<std::atomic<bool>> is_abandoned)
      : frame_(std::make_unique<StepFrame>()) {
    frame_->name = name;
    frame_->stack = stack;
    frame_->context_is_abandoned = std::move(is_abandoned);
    frame_->outer = std::exchange(marks.step, frame_.get());
  }
  ~FrameScope() {
    marks.step = frame_->outer;
    for (const std::uint64_t handle : frame_->made) {
      try {
        tensors().destroy(handle, "a step function's tensor");
      } catch (const std::exception&) {  // another thread has destroyed it
      }
    }
  }
  FrameScope(const FrameScope&) = delete;
  FrameScope& operator=(const FrameScope&) = delete;

  StepFrame& frame() noexcept { return *frame_; }

 private:
  std::unique_ptr<StepFrame> frame_;
};

}  // namespace

CStep::~CStep() {
  if (step_.release == nullptr) return;
  try {
    step_.release(step_.user);
  } catch (...) {
    log_event(LogLevel::kError, "release_threw function=\"{}\"", name_);
  }
}

std::vector<Tensor> CStep::run(std::span<const Tensor> inputs) const {
  const std::uint64_t failures = thread_state().error.number;
  thread_state().step_capture = CGT_CAPTURE_NONE;
  FrameScope scope(name_, __builtin_frame_address(0), is_abandoned_);
  std::vector<cgt_tensor> given;
  given.reserve(inputs.size());
  for (const Tensor& input : inputs)
    given.push_back(make_tensor(Tensor(input)));
  std::vector<cgt_tensor> made(step_.output_count, nullptr);
  try {
    const cgt_status status = call(given, made);
    if (status != CGT_OK) fail(status, failures, scope.frame().said);
    std::vector<Tensor> outputs;
    outputs.reserve(made.size());
    for (std::size_t i = 0; i < made.size(); ++i)
      outputs.push_back(tensor_of(made[i], fmt::format("output {} of '{}'", i, name_)));
    return outputs;
  } catch (...) {
    thread_state().step_capture = capture_state_now();
    throw;
  }
}

cgt_status CStep::call(const std::vector<cgt_tensor>& inputs,
                       std::vector<cgt_tensor>& outputs) const {
  const auto threw = [&](std::string_view what) {
    return StatusError(CGT_STEP_THREW, fmt::format("step function '{}' threw: {}", name_, what));
  };
  try {
    return step_.body(step_.user, inputs.data(), inputs.size(), outputs.data(), outputs.size());
  } catch (const std::exception& error) {
    throw threw(error.what());
  } catch (...) {
    throw threw("an exception of unknown type");
  }
}

void CStep::fail(cgt_status status, std::uint64_t failures_before, const std::string& said) const {
  const std::string before = fmt::format("step function '{}'", name_);
  const ErrorRecord& last = thread_state().error;
  if (said.empty() && last.number != failures_before && last.status == status) {
    rethrow(last, before);
  }
  ErrorRecord error;
  error.status =
      cgt_status_name(status)[0] == 'C' || status >= CGT_USER_STATUS ? status : CGT_STEP_FAILED;
  error.message =
      said.empty() ? fmt::format("returned status {} ({})", status, cgt_status_name(status)) : said;
  rethrow(error, before);
}

}  // namespace cgtree::capi
