// How the threads of a block copy a row: with the widest words that both sides are aligned for, and
// several of them in flight per thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interop/tensor/gather_row.h"
#include "interop/tensor/gather_walk.h"

namespace cgtree::cuda {

// The words of a kernel, passed as a kernel argument.
template <std::size_t Count>
struct Words {
  std::uint64_t list[Count];
};

template <typename T>
inline __device__ T* at(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// How many words a thread reads before it writes the first.
constexpr int kInFlight = 8;

// Copies `count` words. Requires that both addresses are aligned for them.
template <typename Word>
inline __device__ void copy_words(std::uint64_t to, std::uint64_t from, std::uint32_t count) {
  for (std::uint32_t first = threadIdx.x; first < count; first += kInFlight * kGatherThreads) {
    Word held[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const std::uint32_t word = first + i * kGatherThreads;
      if (word < count) held[i] = at<const Word>(from)[word];
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const std::uint32_t word = first + i * kGatherThreads;
      if (word < count) at<Word>(to)[word] = held[i];
    }
  }
}

// Copies bytes up to the first address that is a multiple of a word, then words, then the remaining
// bytes. Requires that both addresses have the same remainder.
template <typename Word>
inline __device__ void copy_aligned(std::uint64_t to, std::uint64_t from, std::uint32_t bytes) {
  const auto before = static_cast<std::uint32_t>((0 - to) % sizeof(Word));
  const std::uint32_t head = before < bytes ? before : bytes;
  const std::uint32_t words = (bytes - head) / sizeof(Word);
  const std::uint32_t tail = head + words * sizeof(Word);
  if (threadIdx.x < head) at<std::byte>(to)[threadIdx.x] = at<const std::byte>(from)[threadIdx.x];
  copy_words<Word>(to + head, from + head, words);
  for (std::uint32_t i = tail + threadIdx.x; i < bytes; i += kGatherThreads)
    at<std::byte>(to)[i] = at<const std::byte>(from)[i];
}

inline __device__ void copy_linear(std::uint64_t to, std::uint64_t from, std::uint32_t bytes) {
  const std::uint64_t apart = to ^ from;
  if (apart % 16 == 0) return copy_aligned<uint4>(to, from, bytes);
  if (apart % 8 == 0) return copy_aligned<std::uint64_t>(to, from, bytes);
  if (apart % 4 == 0) return copy_aligned<std::uint32_t>(to, from, bytes);
  if (apart % 2 == 0) return copy_aligned<std::uint16_t>(to, from, bytes);
  copy_words<std::uint8_t>(to, from, bytes);
}

// Returns the word of the fill's pattern that is `packed` bytes into the row.
template <typename Word>
inline __device__ Word pattern_word(const GatherRow& row, std::uint64_t packed) {
  Word word;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(&word);
  const auto first = static_cast<std::uint32_t>(packed % row.element);
#pragma unroll 1  // each byte divides
  for (std::uint32_t i = 0; i < sizeof(Word); ++i)
    bytes[i] = row.value[(first + i) % static_cast<std::uint32_t>(row.element)];
  return word;
}

// A word that was read, and the address to write it to; 0: it is not written.
template <typename Word>
struct Held {
  Word word;
  std::uint64_t to;
};

// Reads word number `index` of the row, counted from its first byte.
template <typename Word>
inline __device__ Held<Word> read_word(const GatherRow& row, const GatherWalk& walk,
                                       std::uint64_t words_of_run, std::uint64_t index) {
  const std::uint64_t run = quotient(index, words_of_run);
  const std::uint64_t within = (index - run * words_of_run) * sizeof(Word);
  const GatherPlace place = place_of(row, walk, run);
  const std::uint64_t fixed = row.fixed + place.fixed + within;
  const std::uint64_t moving = walk.moving + place.moving + within;
  const bool is_in = row.direction == GatherDirection::kIn;
  switch (act_on(row, walk, place)) {
    case GatherAct::kCopy:
      return {*at<const Word>(is_in ? moving : fixed), is_in ? fixed : moving};
    case GatherAct::kZero:
      return {Word{}, fixed};
    case GatherAct::kValue:
      return {pattern_word<Word>(row, index * sizeof(Word)), fixed};
    default:
      return {Word{}, 0};
  }
}

// Copies packed bytes [begin, end) of the row. Requires that both are multiples of a word.
template <typename Word>
inline __device__ void copy_runs(const GatherRow& row, const GatherWalk& walk, std::uint64_t begin,
                                 std::uint64_t end) {
  constexpr int kHeld = 4;
  const std::uint64_t words_of_run = walk.run / sizeof(Word);
  const std::uint64_t last = end / sizeof(Word);
  for (std::uint64_t first = begin / sizeof(Word) + threadIdx.x; first < last;
       first += kHeld * kGatherThreads) {
    Held<Word> held[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const std::uint64_t index = first + i * kGatherThreads;
      held[i].to = 0;
      if (index < last) held[i] = read_word<Word>(row, walk, words_of_run, index);
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (held[i].to != 0) *at<Word>(held[i].to) = held[i].word;
    }
  }
}

inline __device__ void copy_row(const GatherRow& row, const std::uint64_t* words,
                                std::uint64_t begin, std::uint64_t end) {
  const GatherWalk walk = walk_of(row, words);
  switch (walk.width) {
    case 16:
      return copy_runs<uint4>(row, walk, begin, end);
    case 8:
      return copy_runs<std::uint64_t>(row, walk, begin, end);
    case 4:
      return copy_runs<std::uint32_t>(row, walk, begin, end);
    case 2:
      return copy_runs<std::uint16_t>(row, walk, begin, end);
    default:
      return copy_runs<std::uint8_t>(row, walk, begin, end);
  }
}

}  // namespace cgtree::cuda
