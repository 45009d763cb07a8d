// Precapture: records the sizes and keys that calls will have before the calls come, to warm up a
// server.
//
//   cgtree::precapture(decode, {}, [&](const cgtree::CallSizes& sizes) {
//     return std::vector<cgtree::Tensor>{make_tokens(sizes["batch"]), kv_cache};
//   });
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cgtree/values/key.h"
#include "extensions/sizes/suggest_buckets.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

class CompiledCore;

// A CallSizes holds the sizes of the dynamic axes of a call, by name, and its key.
class CallSizes {
 public:
  // The size of one axis, by its name.
  using Entry = std::pair<std::string, std::int64_t>;

  CallSizes() = default;
  // Takes the sizes in the order in which inputs name their axes.
  explicit CallSizes(std::vector<Entry> entries, const Key& key = {})
      : entries_(std::move(entries)), key_(key) {}

  // Returns the size of an axis, or an integer of the key. Throws InvalidArgument for an unknown
  // one.
  std::int64_t operator[](std::string_view axis) const;
  // The sizes of the axes, without the integers of the key, in the order in which inputs name them.
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  // The key of the call, which has no parts if the function takes none.
  const Key& key() const noexcept { return key_; }
  friend bool operator==(const CallSizes&, const CallSizes&) = default;

 private:
  std::vector<Entry> entries_;
  Key key_;
};

// Returns "batch = 8, length = 128, key [adapter="en"]".
std::string to_string(const CallSizes& sizes);

// A Precaptured is the result of precapture() or predict_memory() for one combination of sizes.
struct Precaptured {
  // kAlreadyThere: each place had a recording. kLeftOut: `why` has the reason. kPredicted: only
  // from predict_memory().
  enum class Outcome { kRecorded, kAlreadyThere, kLeftOut, kPredicted };

  CallSizes sizes;
  Outcome outcome = Outcome::kLeftOut;
  std::string why;        // for kLeftOut
  std::size_t bytes = 0;  // growth of the context's pools; 0 if they shrank
  // Of the graphs that were, or would be, made, including those evicted since: an estimate.
  std::size_t graph_bytes = 0;
  std::chrono::microseconds time{0};
};

// The report of precapture() or predict_memory(), with sums over the combinations.
struct PrecaptureReport {
  std::vector<Precaptured> entries;  // the largest sizes first
  std::size_t bytes = 0;
  std::size_t graph_bytes = 0;
  std::chrono::microseconds time{0};

  // Returns the number of combinations with this outcome.
  std::size_t count(Precaptured::Outcome outcome) const noexcept;
};

// Returns one line per combination.
std::string to_string(const PrecaptureReport& report);

// The values of a part of the key.
using KeyValues = std::vector<std::variant<std::int64_t, std::string>>;

// The combinations to record, and the limits of recording them.
struct PrecaptureOptions {
  // By name: the sizes of axes that have neither buckets nor a list; for other axes, a replacement.
  std::map<std::string, Sizes> sizes = {};
  // All parts of the key, in its order, by name. A part without values has those of its policy in
  // CompileOptions::keys. Empty: the key has only the parts that CompileOptions::keys names.
  std::vector<std::pair<std::string, KeyValues>> key = {};
  // Returns false for an unwanted combination; empty: all are wanted.
  std::function<bool(const CallSizes&)> wants = {};
  // The number of results of earlier calls that the caller still holds when it calls. A recording
  // does not overwrite them, so each combination is recorded once more for each of them, in places
  // that do not overlap for any sizes of the calls. 1 is for `y = f(x)` in a loop; 0 is for callers
  // that drop the results or call mark_step() before the next call.
  std::size_t held_outputs = 1;
  // No combination is begun after this time.
  std::chrono::microseconds max_time = std::chrono::microseconds::max();
  // Called after each combination; may be empty. If it throws, precapture() does.
  std::function<void(const Precaptured&)> progress = nullptr;
};

// Returns the inputs of a call with these sizes. The call writes into inputs that it mutates.
using MakeInputs = std::function<std::vector<Tensor>(const CallSizes&)>;

// Records each combination of the sizes of the dynamic axes (by default all that policies list) and
// of the parts of the key, the largest first, for any CompileOptions::while_missing, so that a loop
// that holds PrecaptureOptions::held_outputs results finds a recording at each call. Throws as
// make_inputs and CompiledCore::call(), and InvalidArgument for an axis or a part of the key
// without values and for a frozen function; recordings made so far stay.
PrecaptureReport precapture(const CompiledCore& function, const PrecaptureOptions& options,
                            const MakeInputs& make_inputs);

// Returns the memory that precapture() would take, without making graphs: each combination is
// warmed up, and captured as often as it would be recorded, so that the pools show the memory that
// they need. Afterwards they give it back; a pool that grows in place keeps its size while a
// recording lies in it. `bytes` are exact: the growth of the pools in a precapture() after these
// warm-ups, for any allocations of the step function. `graph_bytes` are estimated from the graphs,
// as ContextStats::graph_bytes are, as if none shared an executable graph. Combinations that would
// not be recorded are left out, with the reason; limits on the number of recordings do not count
// predicted ones. Calls `make_inputs` twice for each combination. Throws as precapture();
// OutOfMemory if the pools cannot get the memory that they would need.
PrecaptureReport predict_memory(const CompiledCore& function, const PrecaptureOptions& options,
                                const MakeInputs& make_inputs);

// The next two suggest buckets for the sizes that calls had: CompiledCore::histogram(). A size 0
// counts as the smallest other size. Throw InvalidArgument for an unknown axis, and as above.
Sizes suggest_buckets(const CompiledCore& function, std::string_view axis, std::size_t max_buckets,
                      const SizeCost& cost = {});
// Returns the lists by name; empty for a function without dynamic axes.
std::vector<Buckets> suggest_buckets(const CompiledCore& function, const BucketLimits& limits,
                                     std::span<const SizeCost> costs = {});

}  // namespace cgtree
