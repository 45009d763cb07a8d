// Scope: a name for the work that a step function launches in a block.
//
//   cgtree::Tensor decode(cgtree::Tensor x) {
//     for (int i = 0; i < kLayers; ++i) {
//       const cgtree::Scope layer("layer " + std::to_string(i));
//       const cgtree::Scope attention("attention");
//       ...                                        // nodes of "layer 3/attention"
//     }
//   }
//
// Each node of a recording has the path of the scopes that were open on the calling thread when it
// was captured, also on a side stream. Snapshots list them, and tools/scope_times adds up a
// profiler's times by path (docs/scopes.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cgtree {

// A Scope is open from its constructor to its destructor, on the thread that made it. Scopes may
// close in any order: a path has the names of the open scopes, in the order in which they were
// opened. Scopes that a step function, or the work of a step, leaves open are closed at its end,
// and the log warns. Replays run no step function, so a scope costs them nothing; in an eager call
// a scope costs a copy of its name.
//
// 255 bytes of a name count, and 2,047 of a path; both are cut after a whole character. Bytes of a
// name that are not UTF-8, and control characters, become '?'. A scope whose name is empty adds
// nothing to a path. Scopes beyond kMostOpen have no name.
class Scope {
 public:
  static constexpr std::size_t kMostOpen = 64;  // on one thread

  // The name is copied.
  explicit Scope(std::string_view name) noexcept;
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const std::uint64_t id_;
};

// The same for languages without destructors: returns the scope for close_scope(), which does
// nothing for a closed scope, or a scope of another thread.
std::uint64_t open_scope(std::string_view name) noexcept;
// See open_scope().
void close_scope(std::uint64_t scope) noexcept;

}  // namespace cgtree
