// The host bodies of gather, its table, and the choice among its sizes.
#include "interop/tensor/gather.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "interop/tensor/gather_walk.h"
#include "interop/device/kernel.h"
#ifdef CGTREE_WITH_CUDA
#include "interop/tensor/cuda/gather.h"
#endif

namespace cgtree {
namespace {

void fill_value(const GatherRow& row, std::byte* to, std::uint64_t bytes, std::uint64_t packed) {
  for (std::uint64_t i = 0; i < bytes; ++i)
    to[i] = static_cast<std::byte>(row.value[(packed + i) % row.element]);
}

void do_part(const GatherRow& row, GatherAct act, std::byte* fixed, std::byte* moving,
             std::uint64_t bytes, std::uint64_t packed) {
  switch (act) {
    case GatherAct::kLeave:
      return;
    case GatherAct::kCopy:
      // memmove: a source may be the destination itself.
      if (row.direction == GatherDirection::kIn) std::memmove(fixed, moving, bytes);
      if (row.direction == GatherDirection::kOut) std::memmove(moving, fixed, bytes);
      return;
    case GatherAct::kZero:
      std::memset(fixed, 0, bytes);
      return;
    case GatherAct::kValue:
      return fill_value(row, fixed, bytes, packed);
  }
}

// Packed bytes [begin, end) of the row.
void copy_row(const GatherRow& row, const std::uint64_t* words, std::uint64_t begin,
              std::uint64_t end) {
  const GatherWalk walk = walk_of(row, words);
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t within = at % walk.run;
    const std::uint64_t bytes = std::min(walk.run - within, end - at);
    const GatherPlace place = place_of(row, walk, at / walk.run);
    const std::uint64_t fixed = row.fixed + static_cast<std::uint64_t>(place.fixed) + within;
    const std::uint64_t moving = walk.moving + static_cast<std::uint64_t>(place.moving) + within;
    do_part(row, act_on(row, walk, place), reinterpret_cast<std::byte*>(fixed),
            reinterpret_cast<std::byte*>(moving), bytes, at);
    at += bytes;
  }
}

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
      return copy_row(rows[chunk.place], words + chunk.word, chunk.offset,
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

void row_on_host(const LaunchDims&, const void* const* arguments) {
  const auto& row = *static_cast<const GatherRow*>(arguments[0]);
  const auto* words = static_cast<const std::uint64_t*>(arguments[1]);
  copy_row(row, words, 0, *static_cast<const std::uint64_t*>(arguments[2]));
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

void GatherTable::cut(const GatherChunk& whole, std::uint64_t bytes) {
  for (std::uint64_t offset = 0; offset < bytes; offset += kGatherChunkBytes) {
    GatherChunk chunk = whole;
    if (chunk.work != GatherWork::kRow) chunk.place += offset;
    chunk.offset = offset;
    chunk.bytes =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes - offset, kGatherChunkBytes));
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

KernelFunction row_kernel() noexcept {
  const void* cuda = nullptr;
#ifdef CGTREE_WITH_CUDA
  cuda = cuda::row_function();
#endif
  return {"copy_row", &row_on_host, cuda};
}

}  // namespace cgtree
