// Precapture: warming a server: recording the sizes that calls will have before they come.
//
//   const cgtree::PrecaptureReport report = decode.precapture({}, [&](const cgtree::CallSizes&
//   sizes) {
//     return std::vector<cgtree::Tensor>{make_tokens(sizes["batch"]), kv_cache}; });
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/tensor/tensor.h"

namespace cgtree {

// The sizes of a call's dynamic axes, by name.
class CallSizes {
 public:
  struct Entry {
    std::string axis;
    std::int64_t size = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };

  CallSizes() = default;
  explicit CallSizes(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  // Throws InvalidArgument for an axis that the function does not have.
  std::int64_t operator[](std::string_view axis) const;
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  friend bool operator==(const CallSizes&, const CallSizes&) = default;

 private:
  std::vector<Entry> entries_;
};

// "batch = 8, length = 128".
std::string to_string(const CallSizes& sizes);

// One combination of sizes.
struct Precaptured {
  enum class Outcome { kRecorded, kAlreadyThere, kLeftOut };

  CallSizes sizes;
  Outcome outcome = Outcome::kLeftOut;
  std::string why;        // of kLeftOut
  std::size_t bytes = 0;  // that the context's pools grew by
  std::chrono::microseconds time{0};
};

struct PrecaptureReport {
  std::vector<Precaptured> entries;  // in the order in which they were taken: the largest first
  std::size_t bytes = 0;
  std::chrono::microseconds time{0};

  std::size_t count(Precaptured::Outcome outcome) const noexcept;
};

// One line per combination.
std::string to_string(const PrecaptureReport& report);

struct PrecaptureOptions {
  struct Sizes {
    std::string axis;
    std::vector<std::int64_t> sizes;
  };

  // For axes that have neither buckets nor a list; of the others, in place of all their sizes.
  std::vector<Sizes> sizes;
  // What is not begun before this time is over, or when the context's pools hold as much, is left
  // out.
  std::chrono::microseconds max_time = std::chrono::microseconds::max();
  std::size_t max_bytes = SIZE_MAX;
  // Told of each combination when it is done.
  std::function<void(const Precaptured&)> progress;
};

// The inputs of a call with these sizes. Functions write into those that they mutate.
using MakeInputs = std::function<std::vector<Tensor>(const CallSizes&)>;

}  // namespace cgtree
