// Callback: a call of a C function of the caller's that makes handles and answers a status.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/c_api.h"
#include "cgtree/c_api/thread_state.h"
#include "interop/tensor/tensor.h"

namespace cgtree::capi {

// While it lives, the thread is inside the function: the handles that it makes end with it, and
// that it was left by longjmp is noticed.
class Callback {
 public:
  // `what` names it in messages: "step function 'decode'". `stack` is where on the stack the caller
  // is, `is_abandoned` its context's.
  Callback(const std::string& what, const void* stack,
           std::shared_ptr<std::atomic<bool>> is_abandoned);
  ~Callback();
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;

  // Calls function(), which answers a cgt_status. What it fails with becomes the exception it is
  // for C++, with its name in front; throws StatusError for what it throws.
  template <typename Function>
  void call(const Function& function) const {
    cgt_status status = CGT_OK;
    try {
      status = function();
    } catch (...) {
      rethrow_thrown();
    }
    if (status != CGT_OK) fail(status);
  }

 private:
  [[noreturn]] void rethrow_thrown() const;
  [[noreturn]] void fail(cgt_status status) const;

  // On the heap, where it stays if the function leaves by longjmp.
  std::unique_ptr<StepFrame> frame_;
  const std::uint64_t failures_before_;
};

// What the handles stand for. Throws HandleError that names the first that is none: "output 1 of
// 'decode'".
std::vector<Tensor> tensors_of(std::span<const cgt_tensor> handles, std::string_view what,
                               std::string_view function);

}  // namespace cgtree::capi
