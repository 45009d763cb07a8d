// GatherRow: one tensor that gather copies between a fixed place and one that moves.
//
// What stays is in the row: the fixed side, and, unless they ride by value, the sizes and strides
// of the side that moves. What changes from replay to replay are the row's words, by value:
//   words[0]                       address of the moving side
//   words[1 .. rank]               its sizes, in elements         } padded rows only
//   words[1 + rank .. 2 * rank]    its strides, in bytes          }
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cgtree {

inline constexpr std::size_t kMaxGatherRank = 8;
inline constexpr std::size_t kMaxGatherElement = 16;  // bytes of an element of a padded row
inline constexpr std::size_t kMaxRowWords = 1 + 2 * kMaxGatherRank;

// The kernels give each block of kGatherThreads threads this many bytes: 8 rounds of 16 bytes per
// thread.
inline constexpr std::uint32_t kGatherChunkBytes = 32 * 1024;
inline constexpr std::uint32_t kGatherThreads = 256;

enum class GatherDirection : std::uint8_t {
  kIn,   // from the side that moves to the fixed one
  kOut,  // from the fixed side to the one that moves
};

// What the fixed side holds where the moving side has no elements. Of kIn only: kOut writes nothing
// there.
enum class GatherFill : std::uint8_t {
  kAny,    // what was there before
  kZero,   // zero bytes
  kValue,  // GatherRow::value in each element
  kLast,   // the last valid slice of each axis; zeros where an axis has none
};

// Lies in the table on the device as it is. Made by the functions below.
struct GatherRow {
  std::uint64_t fixed = 0;    // address
  std::uint64_t element = 1;  // bytes that lie together on both sides
  std::uint32_t rank = 0;
  GatherDirection direction = GatherDirection::kIn;
  GatherFill fill = GatherFill::kAny;
  bool is_padded = false;  // sizes and strides of the moving side ride by value
  std::uint8_t value[kMaxGatherElement] = {};
  std::int64_t dims[kMaxGatherRank] = {};           // of the fixed side, in elements
  std::int64_t fixed_strides[kMaxGatherRank] = {};  // in bytes
  std::int64_t strides[kMaxGatherRank] = {};        // of the moving side, in bytes; not if padded

  // Both sides are dense, in the same order: `element` bytes one after another.
  bool is_linear() const noexcept { return rank == 0; }
  // Bytes of all elements of the fixed side, without gaps.
  std::uint64_t bytes() const noexcept;
  // Words it takes: 1, or 1 + 2 * rank.
  std::uint32_t words() const noexcept { return is_padded ? 1 + 2 * rank : 1; }
};

// `bytes` bytes, one after another on both sides.
GatherRow linear_row(GatherDirection direction, std::uintptr_t fixed, std::uint64_t bytes);

// The elements of a tensor, whose strides on either side (in elements) do not change; gaps are
// neither read nor written. As few axes as will do: a dense tensor's row is linear. A stride of 0
// on both sides is copied once; where the destination repeats an element and the source does not,
// what it gets is one of them. Requires dims.size() <= kMaxGatherRank, strides >= 0.
GatherRow strided_row(GatherDirection direction, std::uintptr_t fixed,
                      std::span<const std::int64_t> dims,
                      std::span<const std::int64_t> fixed_strides,
                      std::span<const std::int64_t> strides, std::size_t element);

// The fixed side is a bucket, row-major, of `dims`; the moving side has as many axes, of sizes that
// are not larger. `value`: kValue's element. Requires element <= kMaxGatherElement.
GatherRow padded_row(GatherDirection direction, std::uintptr_t fixed,
                     std::span<const std::int64_t> dims, std::size_t element,
                     GatherFill fill = GatherFill::kZero, std::span<const std::byte> value = {});

// Writes the row's words: where the moving side is now and, of a padded row, its sizes and its
// strides (in elements). Requires words.size() == row.words().
void write_words(const GatherRow& row, std::uintptr_t moving, std::span<const std::int64_t> sizes,
                 std::span<const std::int64_t> strides, std::span<std::uint64_t> words) noexcept;

// Copies bytes [begin, end) of the row on the host, counted without the gaps of the fixed side.
// `words` are the row's. This is the host body of every kernel that copies rows.
void copy_packed(const GatherRow& row, const std::uint64_t* words, std::uint64_t begin,
                 std::uint64_t end) noexcept;

}  // namespace cgtree
