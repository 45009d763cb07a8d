// Evictor: drops recordings when they cost more than they may, least recently used first.
#pragma once

#include <cstddef>
#include <vector>

#include "cgtree/tree/decide.h"
#include "cgtree/tree/extensions.h"

namespace cgtree {

// An Evictor applies the limits of a context to its tree. Recordings of pinned and of frozen
// functions stay.
// Thread safety: used by the thread that is inside the context.
class Evictor {
 public:
  Evictor(Tree& tree, ContextMemory& memory, Extensions& extensions, const Limits& limits) noexcept
      : tree_(tree), memory_(memory), extensions_(extensions), limits_(limits) {}

  // Drops the recording, and tells of `limit`, the reason.
  void evict(Node& node, SkipReason limit) noexcept;
  // The recording is dropped because something has ended that it needs, and not at the caller's
  // wish: if that was too early, the function waits before the next one.
  void note_whether_paid(const Node& node) noexcept;
  // Drops recordings until their graphs take no more memory than they may. `newest`, which was just
  // made, stays.
  void keep_within_graph_bytes(const Node& newest) noexcept;
  // Gives back what the pools hold and no recording uses; returns the bytes. Throws OutOfMemory.
  std::size_t trim();
  // The same; an error is logged.
  std::size_t try_to_trim() noexcept;
  // Trims, which is no eviction. Where limits say kEvict, drops recordings until the pools have
  // given `needed` bytes back, at least one if must_evict. Returns the bytes given back.
  std::size_t make_room(std::size_t needed, bool must_evict = false) noexcept;
  // Drops the recording used longest ago, for want of memory. Returns false if there is none, or
  // limits do not say kEvict.
  bool evict_one() noexcept;
  // Drops all keys of the function with one of these sizes; -1 is none.
  void drop_sizes(FunctionState& function, const AxisSizes& dropped) noexcept;

 private:
  std::vector<Range> footprints() const;

  Tree& tree_;
  ContextMemory& memory_;
  Extensions& extensions_;
  const Limits& limits_;
};

}  // namespace cgtree
