// gather: one kernel that copies many tensors between fixed places and places that move: the root
// and the tail node of every recording.
//
// What changes from replay to replay, addresses first of all, are words, its first argument, by
// value; what does not lies in a table in device memory. So patching one node re-binds all tensors,
// and costs little: a parameter block of 8 bytes per tensor. Small values that change from replay
// to replay (seeds, offsets, scalars) ride among the words themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interop/tensor/gather_row.h"
#include "interop/device/kernel_function.h"

namespace cgtree {

enum class GatherWork : std::uint32_t {
  kIn,      // bytes one after another, to the fixed side
  kOut,     // bytes one after another, from the fixed side
  kValues,  // the words themselves, to the fixed side
  kRow,     // of a row that is not linear
};

// One block's work; what the table begins with, one for each block. The rows that are not linear
// follow.
struct GatherChunk {
  std::uint64_t place;   // address on the fixed side; of kRow: the number of the row
  std::uint64_t offset;  // bytes of the copy that other blocks do: before this one's
  std::uint32_t bytes;
  std::uint32_t word;  // the first of the tensor's words
  GatherWork work;
  std::uint32_t unused = 0;
};

// Words one node can take. More chain a second node.
inline constexpr std::size_t kMaxGatherWords = 256;

// Collects what one node does.
class GatherTable {
 public:
  // Both return the number of the first word. Requires that the words fit in kMaxGatherWords.
  std::uint32_t add(const GatherRow& row);
  // `bytes` bytes of words, to `fixed`.
  std::uint32_t add_values(std::uintptr_t fixed, std::size_t bytes);

  std::uint32_t words() const noexcept { return words_; }
  // Blocks; with none there is nothing to launch.
  std::uint32_t chunks() const noexcept { return static_cast<std::uint32_t>(chunks_.size()); }
  // What the kernel reads, wherever it is put. Aligned for 8 bytes.
  std::vector<std::byte> bytes() const;

 private:
  void cut(const GatherChunk& whole, std::uint64_t bytes);

  std::vector<GatherChunk> chunks_;
  std::vector<GatherRow> rows_;
  std::uint32_t words_ = 0;
};

// The kernel's arguments, in order: words (uint64[capacity] by value), table (its address on the
// device), chunks (uint32). One block per chunk.
struct GatherKernel {
  KernelFunction function;
  std::size_t capacity;  // words in the argument; at least as many as asked for
};

// The smallest kernel for this many words. Requires 1 <= words <= kMaxGatherWords.
GatherKernel gather_kernel(std::size_t words) noexcept;

}  // namespace cgtree
