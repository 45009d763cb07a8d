// Group: the ranks that take their decisions together, and the one message that they exchange.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cgtree {

// A Group connects one rank to the others. A context calls it at each call that is not a replay
// (ContextOptions::group). Implement it over any connection between the ranks; extensions/ranks has
// groups over threads, over collectives of devices, and over MPI.
//
// Thread safety: used by one thread at a time.
class Group {
 public:
  virtual ~Group() = default;
  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  virtual int rank() const noexcept = 0;  // in [0, size())
  virtual int size() const noexcept = 0;  // the number of ranks

  // Replaces each word by the smallest value that any rank gives for it. Returns when all ranks
  // have called it, each with the same number of words. Must not enqueue work on streams of the
  // caller's.
  //
  // Throws GroupError if a rank has left, or does not call within the implementation's time limit,
  // which is required. After that each call throws.
  virtual void minimum(std::span<std::uint64_t> words) = 0;
};

// Returns whether `mine` is true on all ranks. Throws as minimum().
bool agree(Group& group, bool mine);

// Returns the largest of the sizes that the ranks give, in one exchange: data-parallel ranks pad
// their batches to it, even empty batches (docs/multi_gpu.md). Throws as minimum(), and
// InvalidArgument on all ranks for a negative size on one.
std::int64_t agree_size(Group& group, std::int64_t size);

// Returns the words of all ranks, rank by rank. Throws as minimum().
std::vector<std::uint64_t> gather(Group& group, std::span<const std::uint64_t> mine);

}  // namespace cgtree
