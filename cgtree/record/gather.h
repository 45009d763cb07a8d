// gather: one kernel that copies many tensors between fixed and moving addresses: the root and the
// tail node of every recording.
//
// Values that change between replays, mostly addresses, are the kernel's words, its first argument.
// Constant values are in a table in device memory. Patching one node therefore rebinds all tensors,
// and costs a parameter block of 8 bytes per tensor. Small values that change between replays
// (seeds, offsets, scalars) are among the words, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interop/device/kernel_function.h"
#include "interop/tensor/gather_row.h"

namespace cgtree {

class StreamRef;

enum class GatherWork : std::uint32_t {
  kIn,      // copies contiguous bytes to the fixed side
  kOut,     // copies contiguous bytes from the fixed side
  kValues,  // copies the words themselves to the fixed side
  kRow,     // copies a part of a row that is not linear
};

// A GatherChunk is the work of one block. The table begins with one chunk per block; the rows that
// are not linear follow.
struct GatherChunk {
  std::uint64_t place;   // address on the fixed side; kRow: the number of the row
  std::uint64_t offset;  // bytes of the copy before this chunk
  std::uint32_t bytes;
  std::uint32_t word;  // the first of the tensor's words
  GatherWork work;
  std::uint32_t unused = 0;
};

// The largest number of words of one node. Further words need a second node.
inline constexpr std::size_t kMaxGatherWords = 256;

// A GatherTable collects the work of one node.
class GatherTable {
 public:
  // Adds a copy. This function and the next return the number of the first word. Requires that the
  // words fit in kMaxGatherWords.
  std::uint32_t add(const GatherRow& row);
  // Adds a copy of `bytes` bytes of words to `fixed`.
  std::uint32_t add_values(std::uintptr_t fixed, std::size_t bytes);

  std::uint32_t words() const noexcept { return words_; }
  // Returns the number of blocks; with 0 there is nothing to launch.
  std::uint32_t chunks() const noexcept { return static_cast<std::uint32_t>(chunks_.size()); }
  // Returns the table, for any address that is aligned to 8 bytes.
  std::vector<std::byte> bytes() const;

 private:
  void cut(const GatherChunk& whole, std::uint64_t bytes);

  std::vector<GatherChunk> chunks_;
  std::vector<GatherRow> rows_;
  std::uint32_t words_ = 0;
};

// The arguments of the kernel, in order: words (uint64[capacity]), table (its address on the
// device), chunks (uint32). It takes one block per chunk.
struct GatherKernel {
  KernelFunction function;
  std::size_t capacity;  // words in the argument; at least the requested number
};

// Returns the smallest kernel for this many words. Requires: 1 <= words <= kMaxGatherWords.
GatherKernel gather_kernel(std::size_t words) noexcept;

// Enqueues launches that write the bytes at `data` to the address `to` on the device; the bytes are
// copied now. Throws DeviceError.
void write_values(StreamRef stream, std::uintptr_t to, const void* data, std::size_t bytes);

}  // namespace cgtree
