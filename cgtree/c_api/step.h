// CStep: a C function as a step function.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cgtree/c_api.h"
#include "interop/tensor/tensor.h"

namespace cgtree::capi {

// What the C function fails with becomes the exception it is for C++, with the step function's name
// in front: so that the tree takes it as it takes any.
class CStep {
 public:
  CStep(std::string name, const cgt_step& step)
      : name_(std::move(name)), what_("step function '" + name_ + "'"), step_(step) {}
  ~CStep();
  CStep(const CStep&) = delete;
  CStep& operator=(const CStep&) = delete;

  const std::string& name() const noexcept { return name_; }
  std::size_t outputs() const noexcept { return step_.output_count; }

  // Before the first run: what to set if it never returns.
  void attach(std::shared_ptr<std::atomic<bool>> is_abandoned) noexcept {
    is_abandoned_ = std::move(is_abandoned);
  }
  std::vector<Tensor> run(std::span<const Tensor> inputs) const;

 private:
  const std::string name_;
  const std::string what_;  // for messages
  const cgt_step step_;
  std::shared_ptr<std::atomic<bool>> is_abandoned_;
};

}  // namespace cgtree::capi
