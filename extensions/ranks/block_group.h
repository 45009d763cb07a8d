// BlockGroup: a Group over messages of one size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cgtree/values/group.h"

namespace cgtree {

// A BlockGroup sends words in blocks of one size. Otherwise ranks with different numbers of words
// would wait for each other, or read words that no rank sent.
class BlockGroup final : public Group {
 public:
  static constexpr std::size_t kBlockWords = 64;
  using Block = std::array<std::uint64_t, kBlockWords>;

  // exchange(block) replaces each word of the block by its minimum over all ranks. An exception of
  // it ends the group: each later call of minimum() throws GroupError.
  BlockGroup(int rank, int size, std::function<void(Block&)> exchange)
      : rank_(rank), size_(size), exchange_(std::move(exchange)) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  void minimum(std::span<std::uint64_t> words) override;

 private:
  void fail(std::string_view why) noexcept;

  const int rank_;
  const int size_;
  const std::function<void(Block&)> exchange_;
  bool has_failed_ = false;  // in any way: this rank may be a vote behind the others
  std::string failure_;      // the message of each later call
};

}  // namespace cgtree
