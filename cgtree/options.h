// Options of a context and of a compiled function: structs with defaults.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/segments/segment_source.h"
#include "cgtree/axes.h"
#include "interop/device/stream.h"

namespace cgtree {

// What happens to a call that needs a recording more than a limit allows.
enum class AtLimit {
  kRunEagerly,
  kEvict,  // the least recently used recording is evicted
  kThrow,  // CaptureError
};

struct ContextOptions {
  // Where calls launch their work; must outlive the context and its tensors. Default: a blocking
  // stream of the context's own, which is ordered with the legacy stream, and so with Tensor's host
  // copies.
  std::optional<StreamRef> stream;
  // Let go of when the context and its tensors are gone; may own the stream, and the segments.
  std::shared_ptr<const void> owner = nullptr;
  // Bytes of device memory the context may take for its pools. Going over is OutOfMemory.
  std::size_t max_bytes = SIZE_MAX;
  // Where the pools' memory comes from; must outlive the context and its tensors. Default: what all
  // contexts of the device share (allocator/caching/device_allocator.h).
  SegmentSource* segments = nullptr;
  // Each pool is one range of addresses, and memory is mapped at its end as it is needed, in place
  // of segments of fixed sizes: less of it stays unused. For devices that map memory, or `segments`
  // that grow; InvalidArgument elsewhere.
  bool pools_grow_in_place = false;
  // Recordings the context keeps at most.
  std::size_t max_recordings = 1024;
  // Bytes of device memory that the graphs of the recordings may take, counted as
  // kGraphBytesPerNode for each node. The last recording to be made may go over.
  std::size_t max_graph_bytes = SIZE_MAX;
  // Time that warming up and recording may take, in all. What was recorded is replayed after that,
  // and everything else runs eagerly (kEvict too: time does not come back).
  std::chrono::microseconds max_recording_time = std::chrono::microseconds::max();
  // With kEvict recordings also go when memory is short: `max_bytes`, or the device's, which other
  // contexts share.
  AtLimit at_limit = AtLimit::kRunEagerly;
  // A file to which what happens is appended as lines of JSON; empty: none. Events: warm_up,
  // record, skip, evict, failure; and replay, where told so.
  std::string event_file;
  bool event_file_has_replays = false;
  // Makes two mistakes of step functions errors instead of work that is silently missing from
  // the recording: launching on the legacy stream, and on the context's stream in place of
  // current_stream(). Costs nothing at replay; but while a call records, no other thread may use
  // the legacy stream or the context's.
  bool checked = false;
};

// What the caller promises about one input.
struct InputOptions {
  // For messages.
  std::string name;
  // The address stays the same from call to call (weights, a KV cache): it is checked, not copied.
  // Another address gets a recording of its own, unless on_static_change says otherwise.
  bool is_static = false;
  // Bytes that a static address is a multiple of; where one is not, the input is copied to where it
  // would be, because kernels that were chosen for an aligned one may misbehave. A power of two.
  std::size_t alignment = 16;
  // The function writes into it.
  bool is_mutated = false;
  // Axes whose size varies from call to call.
  std::vector<DynamicAxis> dynamic = {};
  // Where a dynamic axis is padded.
  Padding padding = {};
};

// What happens to a call with an eager input that the function writes into, and that is not static.
enum class OnMutatedInput {
  kCopyBack,        // a graph: copied in before the work and, its elements, back behind it
  kSkip,            // it runs eagerly
  kSkipManagedToo,  // and so it does where the input is an output of an earlier call
  kReject,          // InvalidArgument, naming the input
};

// What happens when static inputs of a function have other addresses than recorded.
enum class OnStaticChange {
  kRecord,  // a recording for these addresses
  kDemote,  // the same; an input that has changed max_static_changes times is copied from then on
  kThrow,   // CaptureError, naming all that changed
};

struct CompileOptions {
  // By position; inputs beyond the end have the defaults.
  std::vector<InputOptions> inputs;
  // What is done about dynamic axes; those that neither list names are AxisPolicy::kExact.
  std::vector<Buckets> buckets = {};
  std::vector<AxisOptions> axes = {};
  WhileMissing while_missing = WhileMissing::kRecord;
  // By position; outputs beyond the end have no dynamic axes.
  std::vector<OutputOptions> outputs = {};
  // False: always run eagerly.
  bool enabled = true;
  // Throw instead of running eagerly when a call cannot be graphed.
  bool require_graph = false;
  OnStaticChange on_static_change = OnStaticChange::kRecord;
  std::size_t max_static_changes = 4;  // recordings that the moves of one input cost: kDemote
  OnMutatedInput on_mutated_input = OnMutatedInput::kCopyBack;
  // A recording with fewer graph nodes is not worth a launch of its own: the function runs eagerly.
  std::size_t min_graph_nodes = 0;
  // Recordings of this function at most.
  std::size_t max_recordings = 128;
  AtLimit at_limit = AtLimit::kRunEagerly;
  // Its recordings are never evicted.
  bool is_pinned = false;
};

}  // namespace cgtree
