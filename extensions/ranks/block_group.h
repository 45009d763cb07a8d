// BlockGroup: a Group over messages of one size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "extensions/ranks/group.h"

namespace cgtree {

// Where ranks that give another number of words would wait for each other, or read what was never
// sent, words go in blocks of one size.
class BlockGroup : public Group {
 public:
  void minimum(std::span<std::uint64_t> words) final;

 protected:
  static constexpr std::size_t kBlockWords = 64;
  using Block = std::array<std::uint64_t, kBlockWords>;

  // Replaces each word of the block by the smallest of all ranks. Whatever it throws ends the
  // group: each later call of minimum() throws GroupError.
  virtual void exchange(Block& block) = 0;

 private:
  void fail(std::string_view why) noexcept;

  bool has_failed_ = false;  // in any way: this rank may be a vote behind the others
  std::string failure_;      // what each call throws then
};

}  // namespace cgtree
