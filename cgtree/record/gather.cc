// The table of a gather node, the kernel's host body, and the choice among the kernel's sizes.
#include "cgtree/record/gather.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/check.h"
#include "interop/device/kernel.h"
#include "interop/device/stream.h"
#ifdef CGTREE_WITH_CUDA
#include "cgtree/record/cuda/gather_kernel.h"
#endif

namespace cgtree {
namespace {

void do_chunk(const GatherChunk& chunk, const std::uint64_t* words, const GatherRow* rows) {
  const auto fixed = [&] { return reinterpret_cast<void*>(chunk.place); };
  const auto moving = [&] { return reinterpret_cast<void*>(words[chunk.word] + chunk.offset); };
  switch (chunk.work) {
    case GatherWork::kIn:
      std::memmove(fixed(), moving(), chunk.bytes);
      return;
    case GatherWork::kOut:
      std::memmove(moving(), fixed(), chunk.bytes);
      return;
    case GatherWork::kValues:
      std::memcpy(fixed(), words + chunk.word, chunk.bytes);
      return;
    case GatherWork::kRow:
      return copy_packed(rows[chunk.place], words + chunk.word, chunk.offset,
                         chunk.offset + chunk.bytes);
  }
}

void gather_on_host(const LaunchDims&, const void* const* arguments) {
  const auto* words = static_cast<const std::uint64_t*>(arguments[0]);
  const auto* chunks = *static_cast<const GatherChunk* const*>(arguments[1]);
  const std::uint32_t count = *static_cast<const std::uint32_t*>(arguments[2]);
  const auto* rows = reinterpret_cast<const GatherRow*>(chunks + count);
  for (const GatherChunk& chunk : std::span(chunks, count))
    do_chunk(chunk, words, rows);
}

void write_on_host(const LaunchDims&, const void* const* arguments) {
  const auto to = *static_cast<const std::uintptr_t*>(arguments[1]);
  const auto bytes = *static_cast<const std::uint32_t*>(arguments[2]);
  std::memcpy(reinterpret_cast<void*>(to), arguments[0], bytes);
}

constexpr std::size_t kCapacities[] = {1, 4, 16, 64, kMaxGatherWords};
static_assert(sizeof(GatherChunk) % alignof(GatherRow) == 0, "rows follow chunks");

}  // namespace

std::uint32_t GatherTable::add(const GatherRow& row) {
  GatherChunk chunk = {row.fixed, 0, 0, words_,
                       row.direction == GatherDirection::kIn ? GatherWork::kIn : GatherWork::kOut};
  const std::uint64_t bytes = row.bytes();
  if (!row.is_linear()) {
    chunk.work = GatherWork::kRow;
    chunk.place = rows_.size();
    if (bytes > 0) rows_.push_back(row);
  }
  words_ += row.words();
  CGTREE_CHECK(words_ <= kMaxGatherWords);
  cut(chunk, bytes);
  return chunk.word;
}

std::uint32_t GatherTable::add_values(std::uintptr_t fixed, std::size_t bytes) {
  const std::uint32_t word = words_;
  words_ += static_cast<std::uint32_t>((bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
  CGTREE_CHECK(words_ <= kMaxGatherWords);
  cut({fixed, 0, 0, word, GatherWork::kValues}, bytes);
  return word;
}

// Copies larger than the second-level cache take 4 % less time in chunks of twice the size. Source:
// measured, 256 MiB, H200.
void GatherTable::cut(const GatherChunk& whole, std::uint64_t bytes) {
  constexpr std::uint64_t kLarge = std::uint64_t{64} << 20;
  const std::uint64_t most = bytes < kLarge ? kGatherChunkBytes : 2 * kGatherChunkBytes;
  for (std::uint64_t offset = 0; offset < bytes; offset += most) {
    GatherChunk chunk = whole;
    if (chunk.work != GatherWork::kRow) chunk.place += offset;
    chunk.offset = offset;
    chunk.bytes = static_cast<std::uint32_t>(std::min(bytes - offset, most));
    chunks_.push_back(chunk);
  }
}

std::vector<std::byte> GatherTable::bytes() const {
  std::vector<std::byte> bytes;
  for (const auto part : {std::as_bytes(std::span(chunks_)), std::as_bytes(std::span(rows_))})
    bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

GatherKernel gather_kernel(std::size_t words) noexcept {
  CGTREE_CHECK(words >= 1 && words <= kMaxGatherWords);
  const std::size_t capacity =
      *std::lower_bound(std::begin(kCapacities), std::end(kCapacities), words);
  const void* cuda = nullptr;
#ifdef CGTREE_WITH_CUDA
  cuda = cuda::gather_function(capacity);
#endif
  return {{"gather", &gather_on_host, cuda}, capacity};
}

void write_values(StreamRef stream, std::uintptr_t to, const void* data, std::size_t bytes) {
  const void* cuda = nullptr;
#ifdef CGTREE_WITH_CUDA
  cuda = cuda::write_function();
#endif
  const KernelFunction kernel = {"write_values", &write_on_host, cuda};
  std::array<std::uint64_t, kMaxGatherWords> words = {};
  for (std::size_t offset = 0; offset < bytes; offset += sizeof(words)) {
    const auto here = static_cast<std::uint32_t>(std::min(bytes - offset, sizeof(words)));
    std::memcpy(words.data(), static_cast<const std::byte*>(data) + offset, here);
    const std::uintptr_t place = to + offset;
    const KernelArgument arguments[] = {
        {words.data(), sizeof(words)}, {&place, sizeof(place)}, {&here, sizeof(here)}};
    enqueue_kernel(stream, kernel, {.block = {kGatherThreads}}, arguments);
  }
}

}  // namespace cgtree
