// ApartPairs: the inputs of a recording that must not share memory when it is replayed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cgtree/values/input_list.h"

namespace cgtree {

// The numbers of two inputs that share memory, or must not.
struct Overlap {
  std::uint32_t first = 0;
  std::uint32_t second = 0;

  explicit operator bool() const noexcept { return first != second; }
};

// Two inputs that must not share memory, and the bytes from the first to the last of each.
struct Apart {
  // For a padded input: its extent follows from the strides of each call.
  static constexpr std::size_t kUnknownBytes = std::size_t{1} << 62;

  Overlap pair;
  std::size_t first_bytes = 0;
  std::size_t second_bytes = 0;
};

// An ApartPairs tests whether inputs that must lie apart do. An input that may move is looked up
// among those with fixed addresses, which are sorted once: 16 copied inputs beside 64 mutated
// static inputs cost 16 searches, not 1,024 comparisons.
class ApartPairs {
 public:
  ApartPairs() = default;
  // `fixed` has the address of each input that never moves, and 0 for inputs that may move.
  // Requires: each pair has an input that may move.
  ApartPairs(std::vector<Apart> pairs, std::span<const std::uintptr_t> fixed);

  // Returns true if the inputs of a pair share memory. Requires: all inputs are defined, and fixed
  // inputs are at their addresses.
  bool meet(const InputList& inputs) const noexcept { return !pairs_.empty() && do_meet(inputs); }

  const std::vector<Apart>& pairs() const noexcept { return pairs_; }

 private:
  struct Fixed {
    std::uintptr_t begin;
    std::uintptr_t furthest;  // the largest end of this input and those before it
    std::uint32_t input;
  };
  // An input that may move, with the fixed inputs that it must not meet, by address.
  struct Moving {
    std::uint32_t input;
    std::size_t bytes;
    std::vector<Fixed> fixed;
  };

  bool do_meet(const InputList& inputs) const noexcept;

  std::vector<Apart> pairs_;
  std::vector<Apart> both_move_;
  std::vector<Moving> moving_;
};

}  // namespace cgtree
