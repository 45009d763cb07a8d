// ThreadState: what the C ABI keeps per thread: the last error, and the step function it is in.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cgtree/c_api.h"

namespace cgtree::capi {

struct ErrorRecord {
  cgt_status status = CGT_OK;
  std::int32_t cuda_code = 0;
  cgt_capture_state capture = CGT_CAPTURE_NONE;
  std::string message;
  std::string where;
  std::uint64_t number = 0;  // grows with each failure on the thread
};

// A step function or another callback that runs, or that was left without returning.
struct StepFrame {
  std::string name;             // "step function 'decode'"
  const void* stack = nullptr;  // where on the stack it was called
  std::shared_ptr<std::atomic<bool>> context_is_abandoned;
  std::vector<std::uint64_t> made;    // tensors' handles
  std::vector<std::uint64_t> states;  // recorded states' handles
  std::string said;                   // by cgt_set_error()
  StepFrame* outer = nullptr;
};

struct ThreadState {
  ErrorRecord error;
  cgt_capture_state step_capture = CGT_CAPTURE_NONE;  // when the last step function failed
  bool is_abandoned = false;
  // Tensors that a step function destroyed and the calls it is in may still use: their places.
  std::vector<std::uint32_t> parked;
};

// What every call looks at: trivial, so that it costs one address.
struct ThreadMarks {
  StepFrame* step = nullptr;  // the innermost
  bool has_parked = false;
};

inline thread_local constinit ThreadMarks marks;

ThreadState& thread_state();

// Throws if the step function that this thread is in was left by longjmp: it is called from a frame
// that lies where the step function's was. Requires marks.step != nullptr.
void check_step_is_there();

inline void check_thread() {
  if (marks.step != nullptr) [[unlikely]]
    check_step_is_there();
}

}  // namespace cgtree::capi
