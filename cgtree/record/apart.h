// ApartPairs: the inputs of a recording that must not share memory when it is replayed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cgtree/values/input_list.h"

namespace cgtree {

// Two inputs that share memory, or must not, by number.
struct Overlap {
  std::uint32_t first = 0;
  std::uint32_t second = 0;

  explicit operator bool() const noexcept { return first != second; }
};

// Two inputs that must not share memory, and the bytes from the first to the last of each.
struct Apart {
  // For an input that is padded: each call's own strides say how far it reaches.
  static constexpr std::size_t kUnknownBytes = std::size_t{1} << 62;

  Overlap pair;
  std::size_t first_bytes = 0;
  std::size_t second_bytes = 0;
};

// An ApartPairs finds out whether inputs that must lie apart do. An input that may be anywhere is
// looked up among those whose address is always the same, which are sorted once, so that 16 copied
// inputs beside 64 mutated static ones cost 16 searches and not 1,024 comparisons.
class ApartPairs {
 public:
  ApartPairs() = default;
  // `fixed` has the address of each input that is always there, and 0 for those that may move.
  // Requires: a pair has at least one that may move.
  ApartPairs(std::vector<Apart> pairs, std::span<const std::uintptr_t> fixed);

  // Returns true if two of them share memory. Requires: all of them are defined, and those that are
  // fixed are where they have to be.
  bool meet(const InputList& inputs) const noexcept { return !pairs_.empty() && do_meet(inputs); }

  const std::vector<Apart>& pairs() const noexcept { return pairs_; }

 private:
  struct Fixed {
    std::uintptr_t begin;
    std::uintptr_t furthest;  // the end of this one or of one before it
    std::uint32_t input;
  };
  // An input that may move, with those that it must not meet and that do not, by address.
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
