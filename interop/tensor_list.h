// TensorList: the outputs of a call; up to eight need no heap.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "interop/tensor.h"

namespace cgtree {

class TensorList {
 public:
  static constexpr std::size_t kInline = 8;

  // Forgets what it holds, then holds `count` undefined tensors.
  std::span<Tensor> reset(std::size_t count) {
    if (count <= kInline) {
      for (std::size_t i = 0; i < size_; ++i)
        inline_[i] = Tensor();
      size_ = count;
      more_.clear();
    } else {
      size_ = 0;
      more_.assign(count, Tensor());
    }
    return tensors();
  }

  std::span<Tensor> tensors() noexcept {
    return more_.empty() ? std::span<Tensor>(inline_.data(), size_) : std::span<Tensor>(more_);
  }

 private:
  std::array<Tensor, kInline> inline_;
  std::size_t size_ = 0;
  std::vector<Tensor> more_;  // used instead of inline_ when longer
};

}  // namespace cgtree
