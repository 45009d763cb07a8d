// find_addresses(): the positions of inputs' addresses in a captured graph, proved by a second
// capture of the same step with the inputs elsewhere.
//
// Example: a step with input x is captured with x at 0x7000 and again with x at 0x9000.
//
//   node     parameters in the first     in the second
//   scale    {0x7000, 0x100, 2.0}        {0x9000, 0x100, 2.0}
//   add      {0x100, 0x7040, 0x200}      {0x100, 0x9040, 0x200}
//
// Two words differ. Both pointed into x, and differ by the distance that x moved. Nothing else
// differs, and no unchanged word points into x: so these two words are all that the graph knows of
// x, and adding a distance to them moves x.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "interop/device/node_contents.h"

namespace cgtree {

// A GraphContents describes the work of a captured graph, as far as it can be read.
struct GraphContents {
  std::vector<NodeContents> nodes;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;  // by number; sorted
  // Words that the graph reads from host memory: a table there may contain addresses.
  std::vector<std::uint64_t> host_words;
  std::string opaque;  // the reason why it may use addresses that are not here, or ""
};

// A MovedInput is an input that lies elsewhere in each of two captures.
struct MovedInput {
  std::uintptr_t first = 0;
  std::uintptr_t second = 0;
  std::size_t bytes = 0;

  std::uintptr_t distance() const noexcept { return second - first; }
  // Returns the alignment in bytes that both places have: kernels that load several elements at
  // once need at most 256.
  std::size_t alignment() const noexcept;
};

// An AddressWord is eight bytes that hold an address: bytes of a kernel's parameters from `offset`
// on, or the address of NodeContents::memory[offset / 8].
struct AddressWord {
  std::uint32_t node = 0;
  std::uint32_t offset = 0;

  auto operator<=>(const AddressWord&) const = default;
};

struct FoundAddress {
  std::vector<AddressWord> words;  // by node
  std::string why_not;             // the reason why these may not be all, or ""

  bool is_proved() const noexcept { return why_not.empty(); }
  // Returns the numbers of the nodes with a word of it, ascending.
  std::vector<std::uint32_t> nodes() const;
};

// Returns a FoundAddress for each input. Pure.
std::vector<FoundAddress> find_addresses(const GraphContents& first, const GraphContents& second,
                                         std::span<const MovedInput> inputs);

// Returns the bytes of a node that may hold addresses, in the layout of AddressWord.
std::vector<std::byte> address_bytes(const NodeContents& node);

}  // namespace cgtree
