// Callbacks of C: how one is called, and CStep, a C function as a step function.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cgtree/c_api.h"
#include "cgtree/c_api/status.h"
#include "interop/tensor/tensor.h"

namespace cgtree::capi {

// A Callback is a call of a C function that makes handles and returns a status. While it lives, the
// thread is inside the function, and the handles that the function makes end with it.
class Callback {
 public:
  // `name` names the function in messages: "step function 'decode'".
  explicit Callback(std::string name);
  ~Callback();
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;

  // Calls function(), which returns a cgt_status. A status that is not CGT_OK is thrown as the
  // exception that it stands for, with the name in front of its message. Throws StatusError for an
  // exception that leaves the function.
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

  CallbackFrame frame_;
  const std::uint64_t failures_before_;
};

// Returns the tensors of handles that a callback wrote. Throws HandleError that names the first
// wrong one: "output 1 of 'decode'".
std::vector<Tensor> tensors_of(std::span<const cgt_tensor> handles, std::string_view what,
                               std::string_view function);

// A CStep is a C function as a step function. It owns the user data.
class CStep {
 public:
  CStep(std::string name, const cgt_step& step) : name_(std::move(name)), step_(step) {}
  ~CStep();
  CStep(const CStep&) = delete;
  CStep& operator=(const CStep&) = delete;

  const std::string& name() const noexcept { return name_; }
  std::size_t outputs() const noexcept { return step_.output_count; }

  // Throws what Callback::call() throws.
  std::vector<Tensor> run(std::span<const Tensor> inputs) const;

 private:
  const std::string name_;
  const cgt_step step_;
};

}  // namespace cgtree::capi
