// AxisRule: the policy of one dynamic axis and the sizes that it has learned. Histogram: counts the
// sizes of calls.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/published.h"
#include "cgtree/axes/axis_layout.h"
#include "cgtree/values/axes.h"
#include "cgtree/values/explanation.h"

namespace cgtree {

// An AxisChoice is the decision of an axis about one size.
struct AxisChoice {
  enum class Kind {
    kSize,        // the step function sees `padded`
    kNextLarger,  // it sees the next larger size that is recorded, if any
    kSkip,        // the call runs eagerly, for `reason`
    kThrow,       // the call throws InvalidArgument, for `reason`
  };

  Kind kind = Kind::kSize;
  std::int64_t padded = 0;
  SkipReason reason = SkipReason::kDisabled;
};

// An AxisRule decides as a pure function of the size and of earlier calls of note() and admit().
class AxisRule {
 public:
  // Requires: layout_of() has checked the options.
  explicit AxisRule(AxisOptions options, bool is_of_key = false);

  const AxisOptions& options() const noexcept { return options_; }
  const std::string& name() const noexcept { return options_.name; }
  // Returns whether the size is an integer of the key.
  bool is_of_key() const noexcept { return is_of_key_; }
  bool is_learned() const noexcept { return options_.policy == AxisPolicy::kLearned; }
  // Returns "axis 'batch'" or "'draft' of the key".
  std::string text() const;
  // Returns whether the step function may see a larger size than the actual one.
  bool pads() const noexcept { return cgtree::pads(options_); }
  // Returns the size rounded up by the policy; the size itself if the policy does not round, or if
  // sizes are learned, because these change. Any thread.
  std::int64_t rounded(std::int64_t actual) const noexcept;

  AxisChoice choose(std::int64_t actual) const noexcept;
  // Returns the reason that a size is not graphed, with both sides, or "".
  std::string why_not(std::int64_t actual) const;

  // Replaces the sizes of kLearned, ascending.
  void set_sizes(Sizes sizes) noexcept { options_.sizes = std::move(sizes); }

  // Notes that a call had this size. Does not allocate.
  void note(std::int64_t actual) noexcept;
  // Notes that this size was warmed up, and returns the size that must be dropped in exchange, if
  // any. Does not allocate.
  std::optional<std::int64_t> admit(std::int64_t padded) noexcept;

 private:
  struct Known {
    std::int64_t size;
    std::uint64_t last_used;
  };

  bool is_capped() const noexcept { return options_.max_sizes != SIZE_MAX; }
  const Known* find(std::int64_t size) const noexcept;

  std::optional<std::int64_t> round_up(std::int64_t actual) const noexcept;

  AxisOptions options_;
  bool is_of_key_ = false;
  std::vector<Known> known_;  // the sizes warmed up, if max_sizes limits them
  std::uint64_t uses_ = 0;
  std::optional<std::int64_t> first_;  // kSkip: the size of the first call
  bool has_varied_ = false;            // kSkip
};

// The upper bits of the hashes of neighbouring sizes differ (Knuth's multiplicative hashing).
inline std::uint64_t hash_of_sizes(std::span<const std::int64_t> sizes) noexcept {
  std::uint64_t hash = 0;
  for (const std::int64_t size : sizes)
    hash = (std::rotl(hash, 31) + static_cast<std::uint64_t>(size)) * 0x9e3779b97f4a7c15ULL;
  return hash;
}

// A Histogram is a hash table with open addressing that is never more than half full. Counting a
// size again neither allocates nor takes the lock. Size is one size, or an array of them.
// Thread safety: one thread adds, any thread reads.
template <typename Size>
class Histogram {
 public:
  // The number of distinct sizes; calls with further sizes are counted by uncounted().
  static constexpr std::size_t kMaxSizes = 4096;

  // Never fails: if memory is short, the size is not counted.
  void add(const Size& size) noexcept {
    const std::size_t at = find(entries_, size);
    if (entries_[at].count == 0) [[unlikely]] {
      return add_new(size);
    }
    ++entries_[at].count;
  }

  std::map<Size, std::uint64_t> counts() const {
    std::vector<std::pair<Size, std::uint64_t>> counts;
    for_each([&](const Size& size, std::uint64_t count) { counts.emplace_back(size, count); });
    return {counts.begin(), counts.end()};
  }
  // Calls visit(size, count) for each size, in no order. Does not allocate.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.count > 0) visit(entry.size, entry.count.get());
    }
  }
  std::uint64_t uncounted() const noexcept { return uncounted_; }

 private:
  struct Entry {
    Size size = {};
    Published<std::uint64_t> count;
  };

  static std::uint64_t hash(const Size& size) noexcept {
    if constexpr (std::is_integral_v<Size>) {
      return hash_of_sizes(std::span(&size, 1));
    } else {
      return hash_of_sizes(size);
    }
  }

  // Returns the index of the size, or the index where it would be added.
  static std::size_t find(const std::vector<Entry>& entries, const Size& size) noexcept {
    std::size_t at = hash(size) >> 32;
    for (at &= entries.size() - 1; entries[at].count > 0 && entries[at].size != size;)
      at = (at + 1) & (entries.size() - 1);
    return at;
  }
  void add_new(const Size& size) noexcept {
    const std::lock_guard lock(mutex_);
    if (!make_room()) {
      ++uncounted_;
      return;
    }
    Entry& entry = entries_[find(entries_, size)];
    entry.size = size;
    entry.count = 1;
    ++sizes_;
  }
  bool make_room() noexcept {
    if (2 * (sizes_ + 1) <= entries_.size()) return true;
    if (sizes_ >= kMaxSizes) return false;
    try {
      std::vector<Entry> more(2 * entries_.size());
      for (const Entry& entry : entries_) {
        if (entry.count > 0) more[find(more, entry.size)] = entry;
      }
      entries_.swap(more);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  mutable Mutex<LockRank::kLeaf> mutex_;  // held while an entry is added, and by readers
  std::vector<Entry> entries_ = std::vector<Entry>(16);  // the number is a power of two
  std::size_t sizes_ = 0;
  Published<std::uint64_t> uncounted_;
};

}  // namespace cgtree
