// Rebinding and ExecShare: what patches nodes of a step in an executable graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "interop/device/graph.h"

namespace cgtree {

// A RebindChoice says what became of an input, or buffer, that may be rebound.
struct RebindChoice {
  std::uint32_t input = 0;
  bool is_rebound = false;
  std::size_t nodes = 0;  // that have its address; 0 if that is not proved
  std::string why;
};

// A Rebinding belongs to a recording, which asks it to bind in place of a node of its own.
class Rebinding {
 public:
  virtual ~Rebinding() = default;

  // `addresses`: of the inputs that are rebound, in the order of GatherNode's list. If a node
  // cannot be patched, it and those behind it are left to the next call.
  virtual Code bind(const GraphExec& exec, std::span<const std::uint64_t> addresses) = 0;
};

// An ExecShare belongs to a recording. Its executable graph does what one of those that share it
// was recorded to do.
class ExecShare {
 public:
  virtual ~ExecShare() = default;

  // Makes the executable graph do what the recording was recorded to do, but for its root and tail
  // nodes. Returns whether it was another one's turn. Throws DeviceError; the next call goes on.
  virtual bool take() = 0;
};

}  // namespace cgtree
