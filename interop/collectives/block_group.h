// BlockGroup: a Group over messages of one size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "interop/collectives/group.h"

namespace cgtree {

// Where ranks that give another number of words would wait for each other, or read what was never
// sent, words go in blocks of one size.
class BlockGroup : public Group {
 public:
  void minimum(std::span<std::uint64_t> words) final;

 protected:
  static constexpr std::size_t kBlockWords = 64;
  using Block = std::array<std::uint64_t, kBlockWords>;

  // Replaces each word of the block by the smallest of all ranks. Throws GroupError.
  virtual void exchange(Block& block) = 0;

 private:
  std::string failure_;  // what each call throws once one has failed
};

}  // namespace cgtree
