// Sorts fixed inputs by address, and looks up moving inputs among them.
#include "cgtree/record/apart.h"

#include <algorithm>
#include <utility>

#include "interop/tensor/tensor.h"

namespace cgtree {

ApartPairs::ApartPairs(std::vector<Apart> pairs, std::span<const std::uintptr_t> fixed)
    : pairs_(std::move(pairs)) {
  for (Apart apart : pairs_) {
    if (fixed[apart.pair.first] != 0) {
      std::swap(apart.pair.first, apart.pair.second);
      std::swap(apart.first_bytes, apart.second_bytes);
    }
    const auto [first, second] = apart.pair;
    if (fixed[second] == 0) {
      both_move_.push_back(apart);
      continue;
    }
    auto known = std::ranges::find(moving_, first, &Moving::input);
    if (known == moving_.end()) {
      known = moving_.insert(moving_.end(), {first, apart.first_bytes, {}});
    }
    known->fixed.push_back({fixed[second], fixed[second] + apart.second_bytes, second});
  }
  for (Moving& moving : moving_) {
    std::ranges::sort(moving.fixed, {}, &Fixed::begin);
    for (std::size_t i = 1; i < moving.fixed.size(); ++i) {
      moving.fixed[i].furthest = std::max(moving.fixed[i].furthest, moving.fixed[i - 1].furthest);
    }
  }
}

bool ApartPairs::do_meet(const InputList& inputs) const noexcept {
  for (const Apart& apart : both_move_) {
    const Tensor& first = inputs[apart.pair.first];
    const Tensor& second = inputs[apart.pair.second];
    if (first.address() + apart.first_bytes <= second.address() ||
        second.address() + apart.second_bytes <= first.address()) [[likely]] {
      continue;
    }
    if (may_overlap(first, second)) return true;
  }
  for (const Moving& moving : moving_) {
    const Tensor& input = inputs[moving.input];
    const std::uintptr_t begin = input.address();
    auto behind = std::ranges::lower_bound(moving.fixed, begin + moving.bytes, {}, &Fixed::begin);
    while (behind != moving.fixed.begin() && (--behind)->furthest > begin) {
      if (may_overlap(input, inputs[behind->input])) return true;
    }
  }
  return false;
}

}  // namespace cgtree
