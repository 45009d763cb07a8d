// Calls a C function with handles, and takes back what it made.
#include "cgtree/c_api/step.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "cgtree/c_api/callback.h"
#include "cgtree/c_api/handles.h"
#include "cgtree/c_api/status.h"

namespace cgtree::capi {

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
  Callback callback(what_, __builtin_frame_address(0), is_abandoned_);
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
