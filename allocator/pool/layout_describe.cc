// Says what lies at an address, for messages.
#include <fmt/format.h>

#include <algorithm>

#include "allocator/pool/layout.h"

namespace cgtree {

std::string Layout::describe(std::uintptr_t address) const {
  if (address == 0) return "null";
  const Segment* const segment = find(address);
  if (segment == nullptr) return fmt::format("{:#x}, in no segment of the pool", address);
  const BlockTable::Walk walk = blocks(*segment);
  const Block block = *std::find_if(walk.begin(), walk.end(), [&](const Block& candidate) {
    return address < candidate.range.end();
  });
  const std::string place =
      fmt::format("block [{:#x}, {:#x}) of segment [{:#x}, {:#x})", block.range.address,
                  block.range.end(), segment->range().address, segment->range().end());
  if (!block.is_live()) return fmt::format("{:#x}, already free: in the free {}", address, place);
  const std::size_t offset = address - block.range.address;
  if (offset == 0) return fmt::format("{:#x}, the live {}", address, place);
  return fmt::format("{:#x}, {} bytes into the live {}", address, offset, place);
}

}  // namespace cgtree
