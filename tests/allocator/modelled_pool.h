// A pool, compared with a simple model: maps from addresses to sizes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <vector>

#include "allocator/pool/pool.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {

enum class Action {
  kAllocate,
  kFree,
  kBadFree,
  kCheckpoint,
  kForget,
  kRestore,
  kRestoreDeclared,
  kRestoreMisdeclared,
  kRestoreLive,
  kTrim,
  kGiveBack,
  kFailNext,
  kReopen
};

// One step. `value` selects sizes and operands; any value is a legal step.
struct Step {
  Action action;
  std::uint32_t value;
};

std::ostream& operator<<(std::ostream& out, const Step& step);

// Executes each step on the pool and on the model, and throws std::logic_error if they differ.
class ModelledPool {
 public:
  explicit ModelledPool(Growth growth);
  ~ModelledPool();

  void take(const Step& step);

  const Pool& pool() const { return *pool_; }

 private:
  using Sizes = std::map<std::uintptr_t, std::size_t>;
  struct Known {
    std::size_t number;  // counted over all segments so far
    std::size_t bytes;
    friend bool operator==(const Known&, const Known&) = default;
  };
  using Segments = std::map<std::uintptr_t, Known>;

  struct Saved {
    PoolCheckpoint checkpoint;
    Sizes live;
    Segments segments;
    std::size_t pool;  // its number
  };

  void open();
  void allocate(std::uint32_t value);
  void free(std::uint32_t value);
  void free_badly(std::uint32_t value);
  void checkpoint();
  void forget(std::uint32_t value);
  enum class Declaration { kAll, kRight, kWrong };
  void restore(std::uint32_t value, Declaration declaration);
  void restore_live(std::uint32_t value);
  void trim(bool spares_pinned);
  void reopen();

  std::optional<Range> best_fit(std::size_t bytes) const;
  bool is_here(const Segments& segments) const;
  std::size_t pinned_bytes(std::uintptr_t address, const Known& known) const;
  std::size_t bytes_after_trim(std::uintptr_t address, const Known& known,
                               bool spares_pinned) const;
  void misdeclare(std::vector<void*>& dying, std::uint32_t value) const;
  void expect_delta(const PoolDelta& delta, const Sizes& before, const Sizes& after);
  void note_segments();
  void compare();

  const Growth growth_;
  FakeSegmentSource source_{std::size_t{128} << 20};
  std::optional<Pool> pool_;
  Sizes live_;
  Segments segments_;
  std::size_t segments_seen_ = 0;
  std::size_t pools_closed_ = 0;
  std::vector<Saved> saved_;
};

}  // namespace cgtree
