// Attachment: a part of an extension that a recording owns, and that acts when it is replayed.
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

// A RebindChoice is the fate of an input, or buffer, that may be rebound.
struct RebindChoice {
  std::uint32_t input = 0;
  bool is_rebound = false;
  std::size_t nodes = 0;  // that have its address; 0 if that is not proved
  std::string why;
};

// A recording has up to three: its audit, which knows the addresses in its graphs; a rebinding in
// place of a tail node, which patches the addresses of inputs; and its share in an executable graph
// of several recordings. Each overrides its own function.
class Attachment {
 public:
  Attachment() = default;
  Attachment(const Attachment&) = default;
  Attachment& operator=(const Attachment&) = default;
  virtual ~Attachment() = default;

  // Returns whether a graph has an address in the range.
  virtual bool refers_to(Range) const noexcept { return true; }
  // From now on each replay patches the addresses of the input: they count no more. Returns an
  // object that is to end outside of locks, or null.
  virtual std::shared_ptr<const void> forget_input(std::uint32_t) noexcept { return nullptr; }
  // `addresses`: of the inputs that are rebound, in the order of GatherNode's list. If a node
  // cannot be patched, it and those behind it are left to the next call.
  virtual Code bind(const GraphExec&, std::span<const std::uint64_t> /*addresses*/) {
    return Code::kSuccess;
  }
  // Makes the executable graph do the work of the recording, but for its root and tail nodes.
  // Returns true if it did that of another recording. Throws DeviceError; the next call goes on.
  virtual bool take() { return false; }
};

}  // namespace cgtree
