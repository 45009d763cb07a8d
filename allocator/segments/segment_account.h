// SegmentAccount: what pools that belong together share of a segment cache.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "allocator/segments/budget.h"
#include "allocator/segments/segment_source.h"

namespace cgtree {

// A SegmentAccount says where the segments of some pools come from and how many bytes they may
// hold. The three pools of a context share one, and so do all pools that a program limits together.
//
// Two budgets are charged for a segment:
//
//   budget()   while a pool of the account holds it
//   reserve()  as long as the cache has it from the source, also while it is cached
//
// Example: a context with max_bytes = 64 MiB frees a segment of 20 MiB. Its budget has 20 MiB more
// room at once. The reserve, which is the device's budget, still has the segment, and any other
// pool of the device may take it from the cache.
//
// Thread safety: all functions may be called from any thread.
class SegmentAccount {
 public:
  using Source = std::shared_ptr<SegmentSource>;
  struct Options {
    std::string name = "pools";  // the budget's, for messages
    std::size_t max_bytes = SIZE_MAX;
    // The source of the segments; null for the cache's upstream. It lives as long as the cache has
    // a segment of it.
    Source source = nullptr;
    // The budget for all segments of the source; null for the cache's. An account of host memory
    // has one of its own, so that neither device pools nor recordings are released for its sake.
    std::shared_ptr<Budget> reserve = nullptr;
  };

  explicit SegmentAccount(Options options)
      : budget_(std::move(options.name), options.max_bytes),
        source_(std::move(options.source)),
        reserve_(std::move(options.reserve)) {}

  Budget& budget() noexcept { return budget_; }
  const Source& source() const noexcept { return source_; }
  const std::shared_ptr<Budget>& reserve() const noexcept { return reserve_; }

 private:
  Budget budget_;
  const Source source_;
  const std::shared_ptr<Budget> reserve_;
};

}  // namespace cgtree
