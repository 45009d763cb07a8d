// Options of a context and of a compiled function. extensions/watch/option_table.h has a row for
// each.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/values/axes.h"
#include "interop/device/handles.h"
#include "interop/device/stream.h"

namespace cgtree {

class Engine;         // cgtree/tree/engine.h
class Extension;      // cgtree/tree/extension.h
class Group;          // cgtree/values/group.h
class SegmentSource;  // allocator/pool/segment_source.h

// Makes an extension of a context whose engine is there but for its extensions. Throws for options
// that it cannot follow.
using ExtensionFactory = std::function<std::unique_ptr<Extension>(Engine&)>;

// The treatment of a call that needs one recording more than a limit allows.
enum class AtLimit {
  kRunEagerly,
  kEvict,  // the recording used longest ago is evicted
  kThrow,  // CaptureError
};

// A NewRecording is the argument of ContextOptions::before_first_launch. Everything is borrowed.
struct NewRecording {
  std::string_view function;
  std::string_view key;  // "" for none
  // More than one if the step function has eager breaks. On the cuda device the handles are
  // cudaGraph_t and cudaGraphExec_t. With max_switch_nodes an executable graph may have been made
  // from the graph of an earlier recording, and replays patch it.
  std::span<const GraphHandle> graphs;
  std::span<const ExecHandle> execs;
};

// The options of a context. They are fixed once it is made.
struct ContextOptions {
  // The name in metrics and profilers ("decode-0"), by default that of the device. Contexts whose
  // metrics are scraped together need different ones.
  std::string name = "";
  // The stream on which calls outside of any StreamScope launch their work. Requires: it outlives
  // the context and its tensors. By default the context makes a blocking stream, which is ordered
  // with the legacy stream and so with the host copies of Tensor.
  std::optional<StreamRef> stream = std::nullopt;
  // Released after the context and its tensors; it may own the stream and the segments.
  std::shared_ptr<const void> owner = nullptr;
  // The bytes of device memory that the pools of the context may hold. OutOfMemory beyond that.
  std::size_t max_bytes = SIZE_MAX;
  // The source of the pools' memory. Requires: it outlives the context and its tensors. By default
  // all contexts of a device share one (DeviceMemory::shared()).
  SegmentSource* segments = nullptr;
  // Each pool is one range of addresses, in which memory is mapped as it is needed, so that less of
  // it stays unused than with segments of fixed sizes: at the end of the pools of recordings, and
  // around the blocks in the pool of eager calls. Requires a device that maps memory, or
  // `segments` that grow; otherwise InvalidArgument.
  bool pools_grow_in_place = false;
  // A recording that is made because an output is held where an earlier one writes, or because an
  // output of the context lies elsewhere than before, has its own outputs apart from those of all
  // recordings: a loop that holds results into its next round settles after one more recording of
  // each function. It takes as much more memory as it has outputs, of which predict_memory() does
  // not know. InvalidArgument in a group.
  bool outputs_lie_apart = false;
  // The number of recordings that the context keeps.
  std::size_t max_recordings = 1024;
  // The bytes of device memory that the graphs of the recordings may hold, as
  // record/graph_bytes.h estimates them. The last recording to be made may exceed it.
  std::size_t max_graph_bytes = SIZE_MAX;
  // The total time that warming up and recording may take. After that, recordings are replayed and
  // all other calls run eagerly, also with kEvict, because eviction gives no time back.
  std::chrono::microseconds max_recording_time = std::chrono::microseconds::max();
  // With kEvict, recordings are also evicted when `max_bytes` or the memory of the device, which
  // other contexts share, runs out.
  AtLimit at_limit = AtLimit::kRunEagerly;
  // Makes two mistakes of step functions errors: launching on the legacy stream, and launching on
  // the context's stream in place of current_stream(). Otherwise that work is silently missing from
  // the recording. It costs nothing at replay. Requires: while a call records, no other thread uses
  // the legacy stream or the context's stream.
  bool checked = false;
  // The ranks that decide together with this context: each has a context with the same options but
  // for the name, the device, its stream and memory, and the event file, and makes the same calls
  // (docs/multi_gpu.md). A replay asks nothing of the group; every other call votes twice. Where
  // the device maps memory, the pools grow in place, so that addresses depend on nothing else.
  std::shared_ptr<Group> group = nullptr;
  // Called between the instantiation of a recording and its first launch: all-reduces of other
  // libraries register there the addresses that they have captured. In a group all ranks call it,
  // or none. If it throws, so does the call.
  std::function<void(const NewRecording&)> before_first_launch = nullptr;
  // The extensions of the context, in any order; each says its place (cgtree/tree/extension.h).
  // watch(), audit() and verify() of extensions/ make those that //:cgtree adds where the list has
  // none of the kind. InvalidArgument for two of a kind.
  std::vector<ExtensionFactory> extensions = {};
};

// Whether a graph works on the caller's own input, in place of a copy, and gets its address at each
// replay (docs/rebinding.md). Inputs for which a second capture does not prove
// it possible are copied. The step function is called once more when it is recorded.
enum class Rebind : std::uint8_t {
  kNever,
  kAuto,    // if it is thought to be cheaper than the copy
  kAlways,  // if it is possible
};

// The options of one input.
struct InputOptions {
  // The name in messages.
  std::string name = "";
  // The address stays the same from call to call (weights, a KV cache), so the input is checked and
  // not copied. Another address gets a recording of its own, unless on_static_change says
  // otherwise.
  bool is_static = false;
  // The alignment in bytes of an address that is used in place, a power of two. An input that is
  // not aligned is copied, because kernels that were chosen for an aligned address may fail on it.
  std::size_t alignment = 16;
  // The function writes into the input.
  bool is_mutated = false;
  // The largest difference between a verified replay and an eager run in what they write here; see
  // OutputOptions.
  double tolerance = 0;
  // Without effect on inputs that are static, padded or passed by value.
  Rebind rebind = Rebind::kNever;
  // The axes whose size varies from call to call.
  std::vector<DynamicAxis> dynamic = {};
  // The values beyond the actual sizes of dynamic axes.
  Padding padding = {};
  // A call throws InvalidArgument if there are gaps between the elements of the input. Without it a
  // padded input may have gaps, which its copy has not: the function sees them only where the call
  // runs eagerly.
  bool require_contiguous = false;
};

// The options of one output.
struct OutputOptions {
  std::string name = "";  // for messages
  // The axes that the function gives the padded size; they are sliced to the actual one.
  std::vector<DynamicAxis> dynamic = {};
  // The largest difference between a verified replay and an eager run, for floating types:
  // |replayed - eager| <= tolerance * max(1, |eager|). 0: equal bit for bit. Infinity: not
  // compared, for a function that leaves some elements undefined, for instance.
  double tolerance = 0;
  // Whether the graph writes the output straight into its buffer, if there is one.
  Rebind rebind = Rebind::kNever;
};

// The treatment of a call whose static inputs have other addresses than recorded.
enum class OnStaticChange {
  kRecord,  // the call is recorded for these addresses
  kDemote,  // the same, but an input that has changed max_static_changes times is copied afterwards
  kThrow,   // CaptureError, which names all that changed
};

// The treatment of a call of a frozen function for which no recording fits.
enum class WhenFrozen {
  kRunEagerly,
  kThrow,  // CaptureError, which says why the nearest recording cannot be replayed
};

// The options of a compiled function. compile() throws InvalidArgument if they contradict each
// other.
struct CompileOptions {
  // By position; further inputs have the defaults.
  std::vector<InputOptions> inputs = {};
  // The policies of dynamic axes. An axis that is in neither list has AxisPolicy::kExact.
  std::vector<Buckets> buckets = {};
  std::vector<AxisOptions> axes = {};
  // The policies of integers of the key, as those of axes. Where a policy pads, the value is
  // rounded up: the work sees the rounded value, and calls with the same one share recordings. Each
  // call must have these parts. Other parts of a key are taken as they are.
  std::vector<AxisOptions> keys = {};
  // A call is not padded if that makes its work larger than this many times, and then runs eagerly.
  // The work is the product of the sizes of all axes and of `keys`.
  double max_waste = std::numeric_limits<double>::infinity();
  WhileMissing while_missing = WhileMissing::kRecord;
  // By position; further outputs have no dynamic axes.
  std::vector<OutputOptions> outputs = {};
  // If false, all calls run eagerly.
  bool enabled = true;
  // A call that cannot be graphed throws instead of running eagerly.
  bool require_graph = false;
  OnStaticChange on_static_change = OnStaticChange::kRecord;
  std::size_t max_static_changes = 4;  // moves of one input that are recorded, for kDemote
  // Recordings of this function at most.
  std::size_t max_recordings = 128;
  AtLimit at_limit = AtLimit::kRunEagerly;
  // Counts where it is larger than VerifyOptions::first of the context.
  std::size_t verify_first = 0;
  // Recordings that differ in at most this many nodes share an executable graph: a replay of one
  // after another patches these, for about half a microsecond each. 0: none do. Not in a group.
  std::size_t max_switch_nodes = 0;
  // The step may leave stream-ordered memory allocated (cudaMallocAsync()), as engines do that
  // allocate their outputs. The recording owns that memory, which has the same address after each
  // replay. It is valid until the recording is replayed again or dropped, and counts as bytes of
  // the graph. Without the option a step that leaves memory runs eagerly.
  bool keeps_allocations = false;
};

}  // namespace cgtree
