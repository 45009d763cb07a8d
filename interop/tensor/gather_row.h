// GatherRow: one copy of a tensor between a fixed side and a moving side. Kernels of one row
// (copy.h) and of many (the root and tail nodes of recordings) execute it.
//
// The row holds the constant data of replays: the fixed side and, unless the row is padded, the
// sizes and strides of the moving side. The varying data are the row's words, which are passed as
// kernel arguments:
//   words[0]                       address of the moving side
//   words[1 .. rank]               its sizes, in elements         } padded rows only
//   words[1 + rank .. 2 * rank]    its strides, in bytes          }
//
// Example: an input of shape {3, 5} of float32 is copied into a bucket {4, 8} at address F.
// padded_row(kIn, F, {4, 8}, 4) makes a row of rank 2, which takes 1 + 2 * 2 = 5 words. For a
// contiguous input at address A, write_words() writes {A, 3, 5, 20, 4}. The kernel counts the bytes
// of the bucket without gaps: of its 4 * 8 elements it copies those with i < 3 and j < 5, and fills
// the others with zeros. The next call with an input of {2, 7} changes only the words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cgtree {

inline constexpr std::size_t kMaxGatherRank = 8;
inline constexpr std::size_t kMaxGatherElement = 16;  // bytes of an element of a padded row
inline constexpr std::size_t kMaxRowWords = 1 + 2 * kMaxGatherRank;

// The kernels give each block of kGatherThreads threads this many bytes: 4 rounds of 16 bytes per
// thread. With twice as many, 1 and 16 MiB take 0.4 us more on an H200; with half as many, 16 MiB
// take 0.3 us more. Very large copies are cut differently: see GatherTable.
inline constexpr std::uint32_t kGatherChunkBytes = 16 * 1024;
inline constexpr std::uint32_t kGatherThreads = 256;

enum class GatherDirection : std::uint8_t {
  kIn,   // from the moving side to the fixed side
  kOut,  // from the fixed side to the moving side
};

// The contents of the fixed side at elements that the moving side lacks. For kIn only: kOut writes
// nothing there.
enum class GatherFill : std::uint8_t {
  kAny,    // its previous contents
  kZero,   // zero bytes
  kValue,  // GatherRow::value in each element
  kLast,   // the last valid slice of each axis; zeros if an axis has none
};

// The functions below make rows. Tables in device memory contain them unchanged.
struct GatherRow {
  std::uint64_t fixed = 0;    // address
  std::uint64_t element = 1;  // bytes that are contiguous on both sides
  std::uint32_t rank = 0;
  GatherDirection direction = GatherDirection::kIn;
  GatherFill fill = GatherFill::kAny;
  bool is_padded = false;  // the words hold sizes and strides of the moving side
  std::uint8_t value[kMaxGatherElement] = {};
  std::int64_t dims[kMaxGatherRank] = {};           // of the fixed side, in elements
  std::int64_t fixed_strides[kMaxGatherRank] = {};  // in bytes
  std::int64_t strides[kMaxGatherRank] = {};        // of the moving side, in bytes; unused if
                                                    // padded

  // Returns whether both sides are `element` contiguous bytes.
  bool is_linear() const noexcept { return rank == 0; }
  // Returns the bytes of all elements of the fixed side, without gaps.
  std::uint64_t bytes() const noexcept;
  // Returns the number of the row's words: 1, or 1 + 2 * rank.
  std::uint32_t words() const noexcept { return is_padded ? 1 + 2 * rank : 1; }
};

// Makes a row of `bytes` bytes that are contiguous on both sides.
GatherRow linear_row(GatherDirection direction, std::uintptr_t fixed, std::uint64_t bytes);

// Makes a row of the elements of a tensor whose strides, in elements, do not change on either side.
// Gaps are neither read nor written. Axes are joined where possible: the row of a dense tensor is
// linear. An axis with stride 0 on both sides is copied once. If the destination repeats an element
// and the source does not, one of the source's elements is written. Requires: dims.size() <=
// kMaxGatherRank, strides >= 0.
GatherRow strided_row(GatherDirection direction, std::uintptr_t fixed,
                      std::span<const std::int64_t> dims,
                      std::span<const std::int64_t> fixed_strides,
                      std::span<const std::int64_t> strides, std::size_t element);

// Makes a padded row. The fixed side is a row-major bucket of `dims`; the moving side has as many
// axes, and sizes that are at most as large. `value` is the element of kValue. Requires: element <=
// kMaxGatherElement.
GatherRow padded_row(GatherDirection direction, std::uintptr_t fixed,
                     std::span<const std::int64_t> dims, std::size_t element,
                     GatherFill fill = GatherFill::kZero, std::span<const std::byte> value = {});

// Writes the row's words: the address of the moving side and, for a padded row, its sizes and
// strides in elements. Requires: words.size() == row.words().
void write_words(const GatherRow& row, std::uintptr_t moving, std::span<const std::int64_t> sizes,
                 std::span<const std::int64_t> strides, std::span<std::uint64_t> words) noexcept;

// Copies bytes [begin, end) of the row on the host, counted without the gaps of the fixed side.
// `words` are the row's. This is the host body of every kernel that copies rows.
void copy_packed(const GatherRow& row, const std::uint64_t* words, std::uint64_t begin,
                 std::uint64_t end) noexcept;

}  // namespace cgtree
