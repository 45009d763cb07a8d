// InputChecks: what nearly every replay has to ask of its inputs, as a few words to compare.
//
// A call may have hundreds of inputs, and to prove that they fit is most of what it costs then: so
// there is one branch per input, taken by one `or` of all differences.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "cgtree/input_list.h"

namespace cgtree {

// What one input has to be to fit plainly: the common case alone.
struct InputCheck {
  Shape shape;
  std::uintptr_t address = 0;
  std::uintptr_t address_mask = 0;  // all ones where the address must be this one, else 0
  std::uint64_t dtype = 0;
};

// No dtype: an input that needs more than a look.
inline constexpr std::uint64_t kNeverPlain = ~std::uint64_t{0};

using InputChecks = std::vector<InputCheck>;

namespace detail {

inline std::uint64_t difference(const InputCheck& check, const Tensor& input, Device device) {
  const Storage* const storage = input.storage().get();
  if (storage == nullptr) [[unlikely]] {
    return 1;
  }
  return ((input.address() ^ check.address) & check.address_mask) |
         input.shape().difference(check.shape) |
         (static_cast<std::uint64_t>(input.dtype()) ^ check.dtype) |
         (static_cast<std::uint64_t>(storage->state()) ^
          static_cast<std::uint64_t>(Storage::State::kLive)) |
         (std::bit_cast<std::uint64_t>(storage->device()) ^ std::bit_cast<std::uint64_t>(device));
}

}  // namespace detail

// The first input from `begin` on that does not fit plainly, or the number of inputs. One that does
// not may fit all the same. Requires a check for each input.
inline std::uint32_t first_not_plain(const InputChecks& checks, InputList inputs,
                                     std::uint32_t begin, Device device) noexcept {
  const auto size = static_cast<std::uint32_t>(inputs.size());
  const InputCheck* const check = checks.data();
  if (const Tensor* const tensors = inputs.contiguous()) {
    while (begin < size && detail::difference(check[begin], tensors[begin], device) == 0)
      ++begin;
  } else {
    while (begin < size && detail::difference(check[begin], inputs[begin], device) == 0)
      ++begin;
  }
  return begin;
}

}  // namespace cgtree
