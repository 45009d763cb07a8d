// CurrentDevice: makes a GPU current on this thread, and the one before again at its end.
#pragma once

#include <cuda_runtime_api.h>

#include "interop/device/cuda/runtime.h"

namespace cgtree::cuda {

class CurrentDevice {
 public:
  explicit CurrentDevice(int id) noexcept {
    code_ = to_code(cudaGetDevice(&before_));
    if (ok(code_) && before_ != id) code_ = to_code(cudaSetDevice(id));
    is_changed_ = ok(code_) && before_ != id;
  }
  ~CurrentDevice() {
    if (is_changed_) (void)cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  Code code() const noexcept { return code_; }

 private:
  int before_ = 0;
  bool is_changed_ = false;
  Code code_ = Code::kSuccess;
};

}  // namespace cgtree::cuda
