// Evictor: drops recordings beyond the limits, least recently used first.
#pragma once

#include <cstddef>
#include <vector>

#include "cgtree/tree/decide.h"
#include "cgtree/tree/extensions.h"

namespace cgtree {

// An Evictor applies the limits of a context to its tree. Recordings of pinned and frozen functions
// stay.
// Thread safety: used by the thread that is inside the context.
class Evictor {
 public:
  Evictor(Tree& tree, ContextMemory& memory, Extensions& extensions, const Limits& limits) noexcept
      : tree_(tree), memory_(memory), extensions_(extensions), limits_(limits) {}

  // Drops the recording, and reports `limit` as the reason.
  void evict(Node& node, SkipReason limit) noexcept;
  // Notes that the recording is dropped at a limit, or because an output that it uses has ended,
  // and not by the caller's request: if it did not pay by then, the function waits before the next
  // recording.
  void note_whether_paid(const Node& node) noexcept;
  // Drops recordings until their graphs fit the limit. `newest`, the last to be made, stays.
  void keep_within_graph_bytes(const Node& newest) noexcept;
  // Releases unused memory of the pools to its source; returns the bytes. Throws OutOfMemory.
  std::size_t trim();
  // As trim(), but logs an error.
  std::size_t try_to_trim() noexcept;
  // Trims, which is not an eviction. If limits say kEvict, drops recordings until the pools have
  // released `needed` bytes; if must_evict, at least one recording. Returns the bytes.
  std::size_t make_room(std::size_t needed, bool must_evict = false) noexcept;
  // Drops the least recently used recording, for lack of memory. Returns false if there is none, or
  // if limits do not say kEvict.
  bool evict_one() noexcept;
  // Drops all keys of the function with one of these sizes; -1 matches none.
  void drop_sizes(FunctionState& function, const AxisSizes& dropped) noexcept;

 private:
  std::vector<Range> footprints() const;

  Tree& tree_;
  ContextMemory& memory_;
  Extensions& extensions_;
  const Limits& limits_;
};

}  // namespace cgtree
