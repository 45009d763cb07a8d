// SkipReason: why a call runs eagerly on purpose.
#pragma once

#include <string_view>

namespace cgtree {

enum class SkipReason {
  kDisabled,            // CompileOptions::enabled is false
  kNoGraphScope,        // called while a NoGraph lives on the thread
  kNoGraphs,            // the device has no graphs
  kNestedCall,          // made inside another step function, whose recording includes it
  kForeignCapture,      // the caller's or the context's stream is being captured by other code
  kOtherDevice,         // an input lives on another device
  kMutatedInput,        // the function writes into an input: OnMutatedInput
  kOverlappingInputs,   // two inputs share memory, one is written and one copied
  kCaptureFailed,       // an earlier capture failed: the function does what cannot be captured
  kStaticChanged,       // a static input moved: OnStaticChange::kThrow
  kTooSmall,            // fewer graph nodes than CompileOptions::min_graph_nodes
  kFunctionLimit,       // CompileOptions::max_recordings is reached
  kContextLimit,        // ContextOptions::max_recordings is reached
  kGraphBytesLimit,     // ContextOptions::max_graph_bytes is reached
  kPoolLimit,           // of evictions only: the pools' memory was short
  kTimeLimit,           // ContextOptions::max_recording_time is spent
  kDynamicAxis,         // an axis has varied: AxisPolicy::kSkip
  kSizeNotListed,       // AxisPolicy::kAllowList does not name the size of an axis
  kSizeLimit,           // an axis has as many sizes as AxisOptions::max_sizes
  kAboveLargestBucket,  // an axis is larger than the largest of its buckets
  kNotRecorded,  // no recording holds the sizes, and CompileOptions::while_missing forbids one
};

inline constexpr int kSkipReasonCount = 21;

// Returns whether the reason is about the size of a dynamic axis.
constexpr bool is_of_axes(SkipReason reason) noexcept {
  return reason >= SkipReason::kDynamicAxis;
}

// Returns "mutated_input", ...: the name in counters, logs and JSON.
std::string_view name(SkipReason reason) noexcept;

// Returns one sentence: what the reason means, and what to do to get a graph.
std::string_view explain(SkipReason reason) noexcept;

}  // namespace cgtree
