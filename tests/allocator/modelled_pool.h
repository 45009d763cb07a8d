// A pool beside the simplest thing it can be compared with: maps from addresses to sizes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <vector>

#include "allocator/pool.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {

enum class Verb { kAllocate, kFree, kCheckpoint, kRestore, kRestoreLive, kTrim, kFailNext };

// One step. `value` picks sizes and operands; any value is a legal step.
struct Step {
  Verb verb;
  std::uint32_t value;
};

std::ostream& operator<<(std::ostream& out, const Step& step);

// Takes every step on the pool and on the model, and throws std::logic_error where they disagree.
class ModelledPool {
 public:
  ~ModelledPool();

  void take(const Step& step);

  const Pool& pool() const { return pool_; }

 private:
  using Sizes = std::map<std::uintptr_t, std::size_t>;
  // Value: which segment of all there have been.
  using Segments = std::map<std::uintptr_t, std::size_t>;

  struct Saved {
    PoolCheckpoint checkpoint;
    Sizes live;
    Segments segments;
  };

  void allocate(std::uint32_t value);
  void free(std::uint32_t value);
  void restore(std::uint32_t value);
  void restore_live(std::uint32_t value);
  void trim();

  std::optional<Range> best_fit(std::size_t bytes) const;
  void expect_delta(const PoolDelta& delta, const Sizes& before, const Sizes& after);
  void note_new_segments();
  void compare();

  FakeSegmentSource source_{std::size_t{192} << 20};
  Pool pool_{source_, {.name = "modelled", .max_bytes = std::size_t{128} << 20}};
  Sizes live_;
  Segments segments_;
  std::size_t segments_seen_ = 0;
  std::vector<Saved> saved_;
};

}  // namespace cgtree
