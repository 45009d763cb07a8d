// Precapture: records the sizes and keys that calls will have before the calls come, to warm up a
// server.
//
//   decode.precapture({}, [&](const cgtree::CallSizes& sizes) {
//     return std::vector<cgtree::Tensor>{make_tokens(sizes["batch"]), kv_cache};
//   });
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cgtree/key.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A CallSizes holds the sizes of the dynamic axes of a call, by name, and its key.
class CallSizes {
 public:
  struct Entry {
    std::string axis;
    std::int64_t size = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };

  CallSizes() = default;
  explicit CallSizes(std::vector<Entry> entries, const Key& key = {})
      : entries_(std::move(entries)), key_(key) {}

  // Returns the size of an axis, or an integer of the key. Throws InvalidArgument for an unknown
  // one.
  std::int64_t operator[](std::string_view axis) const;
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  const Key& key() const noexcept { return key_; }
  friend bool operator==(const CallSizes&, const CallSizes&) = default;

 private:
  std::vector<Entry> entries_;
  Key key_;
};

// Returns "batch = 8, length = 128, key [adapter="en"]".
std::string to_string(const CallSizes& sizes);

// A Precaptured says what precapture() did for one combination of sizes, or what predict_memory()
// has found.
struct Precaptured {
  enum class Outcome { kRecorded, kAlreadyThere, kLeftOut, kPredicted };

  CallSizes sizes;
  Outcome outcome = Outcome::kLeftOut;
  std::string why;              // for kLeftOut
  std::size_t bytes = 0;        // growth of the pools of the context
  std::size_t graph_bytes = 0;  // of the graphs that were, or would be, made: an estimate
  std::chrono::microseconds time{0};
};

struct PrecaptureReport {
  std::vector<Precaptured> entries;  // the largest sizes first
  std::size_t bytes = 0;
  std::size_t graph_bytes = 0;
  std::chrono::microseconds time{0};

  std::size_t count(Precaptured::Outcome outcome) const noexcept;
};

// Returns one line per combination.
std::string to_string(const PrecaptureReport& report);

struct PrecaptureOptions {
  struct Sizes {
    std::string axis;
    std::vector<std::int64_t> sizes;
  };

  // A part of the key, and its values.
  struct KeyValues {
    std::string name;
    std::vector<std::variant<std::int64_t, std::string>> values;
  };

  // The sizes of axes that have neither buckets nor a list; for other axes, a replacement of
  // theirs.
  std::vector<Sizes> sizes;
  // All parts of the key, in its order. A part without values has those of its policy in
  // CompileOptions::keys. Empty: the key has just the parts that CompileOptions::keys names.
  std::vector<KeyValues> key = {};
  // How many results of earlier calls the caller still holds when it calls. A recording does not
  // overwrite what is held, so each combination is recorded once more for each of them, in places
  // that do not overlap whatever the sizes of the calls are. 1 is for `y = f(x)` in a loop; 0 is
  // for callers that drop the results or call mark_step() before the next call.
  std::size_t held_outputs = 1;
  // No combination is begun after this time, or when the pools of the context hold this many bytes.
  std::chrono::microseconds max_time = std::chrono::microseconds::max();
  std::size_t max_bytes = SIZE_MAX;
  // Is called after each combination. May be empty.
  std::function<void(const Precaptured&)> progress;
};

// Returns the inputs of a call with these sizes. The call writes into inputs that it mutates.
using MakeInputs = std::function<std::vector<Tensor>(const CallSizes&)>;

}  // namespace cgtree
