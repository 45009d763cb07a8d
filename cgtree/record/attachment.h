// Attachment: a part of an extension that a recording owns, and that acts at its replays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "allocator/pool/block.h"
#include "interop/device/code.h"

namespace cgtree {

class GraphExec;

// A RebindChoice says whether an input, or buffer, that may be rebound is rebound.
struct RebindChoice {
  std::uint32_t input = 0;
  bool is_rebound = false;
  std::size_t nodes = 0;  // nodes that have its address; 0 if unproved
  std::string why;
};

// A recording has up to three: its audit, which knows the addresses in its graphs; a rebinding
// instead of a tail node, which patches the addresses of inputs; and its share of an executable
// graph that serves several recordings. Each overrides its own function.
class Attachment {
 public:
  Attachment() = default;
  Attachment(const Attachment&) = default;
  Attachment& operator=(const Attachment&) = default;
  virtual ~Attachment() = default;

  // Returns whether a graph has an address in the range.
  virtual bool refers_to(Range) const noexcept { return true; }
  // Says that each replay now patches the addresses of the input, so that they no longer count.
  // Returns an object to be destroyed outside of locks, or null.
  virtual std::shared_ptr<const void> forget_input(std::uint32_t) noexcept { return nullptr; }
  // Patches nodes. `addresses`: of the rebound inputs, in the order of GatherNode's list. If a node
  // cannot be patched, the next call patches it and those after it.
  virtual Code bind(const GraphExec&, std::span<const std::uint64_t> /*addresses*/) {
    return Code::kSuccess;
  }
  // Makes the executable graph do the work of this recording, except its root and tail nodes.
  // Returns true if it did the work of another recording before. Throws DeviceError; the next call
  // continues.
  virtual bool take() { return false; }
};

}  // namespace cgtree
