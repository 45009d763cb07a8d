// TensorList: the outputs of a call; up to eight need no heap.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "interop/tensor/tensor.h"

namespace cgtree {

class TensorList {
 public:
  static constexpr std::size_t kInline = 8;

  TensorList() noexcept {}  // leaves the inline storage raw: most calls have one output
  ~TensorList() { clear(); }
  TensorList(const TensorList&) = delete;
  TensorList& operator=(const TensorList&) = delete;

  // Forgets what it holds, then holds `count` undefined tensors.
  std::span<Tensor> reset(std::size_t count) {
    if (size_ > 0 || !more_.empty()) clear();
    if (count > kInline) [[unlikely]] {
      more_.resize(count);
      return more_;
    }
    for (; size_ < count; ++size_)
      std::construct_at(inline_ + size_);
    return {inline_, size_};
  }

  std::span<Tensor> tensors() noexcept {
    return more_.empty() ? std::span<Tensor>(inline_, size_) : std::span<Tensor>(more_);
  }

 private:
  void clear() noexcept {
    while (size_ > 0)
      std::destroy_at(inline_ + --size_);
    more_.clear();
  }

  std::size_t size_ = 0;  // tensors constructed in inline_
  union {
    Tensor inline_[kInline];
  };
  std::vector<Tensor> more_;  // used instead of inline_ when there are more
};

}  // namespace cgtree
