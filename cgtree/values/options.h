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

// Makes an extension of a context. The engine is complete except for its extensions. Throws for
// options that the extension refuses.
using ExtensionFactory = std::function<std::unique_ptr<Extension>(Engine&)>;

// The treatment of a call that needs a recording beyond a limit.
enum class AtLimit {
  kRunEagerly,
  kEvict,  // the least recently used recording is evicted
  kThrow,  // CaptureError
};

// A NewRecording is the argument of ContextOptions::before_first_launch. Everything is borrowed.
struct NewRecording {
  std::string_view function;
  std::string_view key;  // "" for none
  // More than one if the step function has eager breaks. On the cuda device the handles are
  // cudaGraph_t and cudaGraphExec_t. With max_switch_nodes, `execs` may hold an executable graph
  // that was made from the graph of an earlier recording, and that replays patch.
  std::span<const GraphHandle> graphs;
  std::span<const ExecHandle> execs;
};

// The options of a context. They are fixed once it is made.
struct ContextOptions {
  // The name in metrics and profilers ("decode-0"), by default that of the device. Contexts whose
  // metrics are scraped together need different names.
  std::string name = "";
  // The stream on which calls outside of any StreamScope launch their work. Requires: it outlives
  // the context and its tensors. By default the context makes a blocking stream, which is ordered
  // with the legacy stream and so with the host copies of Tensor.
  std::optional<StreamRef> stream = std::nullopt;
  // Released after the context and its tensors; it may own the stream and the segments.
  std::shared_ptr<const void> owner = nullptr;
  // The bytes of device memory that the pools of the context may hold. Allocations beyond that
  // throw OutOfMemory.
  std::size_t max_bytes = SIZE_MAX;
  // The source of the pools' memory. Requires: it outlives the context and its tensors. By default
  // all contexts of a device share one (DeviceMemory::shared()).
  SegmentSource* segments = nullptr;
  // Makes each pool one range of addresses, in which memory is mapped as it is needed. Less memory
  // stays unused than with segments of fixed sizes: at the end of the pools of recordings, and
  // around the blocks in the pool of eager calls. Requires a device that maps memory, or `segments`
  // that grow; otherwise InvalidArgument.
  bool pools_grow_in_place = false;
  // Gives some recordings outputs that no other recording shares: those made because an output is
  // held where an earlier recording writes, or because an output of the context lies elsewhere than
  // before. A loop that holds results into its next round then settles after one more recording of
  // each function. Each such recording takes additional memory for its outputs, which
  // predict_memory() does not include. InvalidArgument in a group.
  bool outputs_lie_apart = false;
  // The largest number of recordings that the context keeps.
  std::size_t max_recordings = 1024;
  // The bytes of device memory that the graphs of the recordings may hold, as record/graph_bytes.h
  // estimates them. The last recording may exceed it.
  std::size_t max_graph_bytes = SIZE_MAX;
  // The total time that warming up and recording may take. After that, recordings are replayed and
  // all other calls run eagerly, even with kEvict, because eviction frees no time.
  std::chrono::microseconds max_recording_time = std::chrono::microseconds::max();
  // With kEvict, recordings are also evicted when `max_bytes` or the memory of the device, which
  // other contexts share, runs out.
  AtLimit at_limit = AtLimit::kRunEagerly;
  // Makes two mistakes of step functions errors: launching on the legacy stream, and launching on
  // the context's stream instead of current_stream(). Without this option, such work is silently
  // missing from the recording. It costs nothing at replay. Requires: while a call records, no
  // other thread uses the legacy stream or the context's stream.
  bool checked = false;
  // The ranks that decide together with this context. Each rank has a context with the same
  // options, except for the name, the device, its stream and memory, and the event file, and makes
  // the same calls (docs/multi_gpu.md). A replay does not use the group; every other call votes
  // twice. On devices that map memory, the pools grow in place, so that addresses depend on nothing
  // else.
  std::shared_ptr<Group> group = nullptr;
  // Called between the instantiation of a recording and its first launch: all-reduces of other
  // libraries register the addresses there that they captured. In a group all ranks call it, or
  // none. empty() gives memory there that it may keep, and the launch follows its work on
  // current_stream(). If it throws, so does the call.
  std::function<void(const NewRecording&)> before_first_launch = nullptr;
  // The extensions of the context, in any order; each class states its place
  // (cgtree/tree/extension.h). watch(), audit() and verify() of extensions/ make extensions that
  // //:cgtree otherwise adds with defaults. InvalidArgument for two extensions of a kind.
  std::vector<ExtensionFactory> extensions = {};
};

// The choice whether a graph works on the caller's own input instead of a copy, and gets its
// address at each replay (docs/rebinding.md). Inputs for which a second capture does not prove this
// possible are copied. The step function is called once more when it is recorded.
enum class Rebind : std::uint8_t {
  kNever,
  kAuto,    // if it is estimated to be cheaper than the copy
  kAlways,  // if it is possible
};

// The options of one input.
struct InputOptions {
  // The name in messages.
  std::string name = "";
  // The address stays the same from call to call (weights, a KV cache), so the input is checked and
  // not copied. Another address gets another recording, unless on_static_change says otherwise.
  bool is_static = false;
  // The alignment in bytes of an address that is used in place, a power of two. A less aligned
  // input is copied, because kernels that were chosen for an aligned address may fail on it.
  std::size_t alignment = 16;
  // The function writes into the input.
  bool is_mutated = false;
  // The largest difference that verification allows between the values which a replay and an eager
  // run write here; see OutputOptions.
  double tolerance = 0;
  // Without effect on inputs that are static, padded or passed by value.
  Rebind rebind = Rebind::kNever;
  // The axes whose size varies from call to call.
  std::vector<DynamicAxis> dynamic = {};
  // The values beyond the actual sizes of dynamic axes.
  Padding padding = {};
  // Makes a call throw InvalidArgument if there are gaps between the elements of the input. Without
  // it, a padded input may have gaps. Its copy has none, so the function sees them only when the
  // call runs eagerly.
  bool require_contiguous = false;
};

// The options of one output.
struct OutputOptions {
  std::string name = "";  // for messages
  // The axes to which the function gives the padded size; they are sliced to the actual size.
  std::vector<DynamicAxis> dynamic = {};
  // The largest difference between a verified replay and an eager run, for floating types:
  // |replayed - eager| <= tolerance * max(1, |eager|). 0: equal bit for bit. Infinity: not
  // compared, for example because the function leaves some elements undefined.
  double tolerance = 0;
  // The choice whether the graph writes the output straight into its buffer, if there is one.
  Rebind rebind = Rebind::kNever;
};

// The treatment of a call whose static inputs have other addresses than recorded.
enum class OnStaticChange {
  kRecord,  // the call is recorded for these addresses
  kDemote,  // the same, but an input that moved max_static_changes times is copied afterwards
  kThrow,   // CaptureError, which names all inputs that moved
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
  // The policies of integers of the key, which work as those of axes. A policy that pads rounds the
  // value up: the work sees the rounded value, and calls with the same rounded value share
  // recordings. Each call must have these parts. Other parts of a key are not changed.
  std::vector<AxisOptions> keys = {};
  // A call runs eagerly if padding would multiply its work by more than this. The work is the
  // product of the sizes of all axes and of `keys`.
  double max_waste = std::numeric_limits<double>::infinity();
  WhileMissing while_missing = WhileMissing::kRecord;
  // By position; further outputs have no dynamic axes.
  std::vector<OutputOptions> outputs = {};
  // If false, all calls run eagerly.
  bool enabled = true;
  // If true, a call that cannot be graphed throws instead of running eagerly.
  bool require_graph = false;
  OnStaticChange on_static_change = OnStaticChange::kRecord;
  std::size_t max_static_changes = 4;  // moves of one input that are recorded, for kDemote
  // The largest number of recordings of this function.
  std::size_t max_recordings = 128;
  AtLimit at_limit = AtLimit::kRunEagerly;
  // The number of first replays to verify; used if it is larger than VerifyOptions::first of the
  // context.
  std::size_t verify_first = 0;
  // Recordings that differ in at most this many nodes share an executable graph. A replay of one
  // after another patches these nodes, for about half a microsecond each. 0: no sharing. Not in a
  // group.
  std::size_t max_switch_nodes = 0;
  // Lets the step leave stream-ordered memory allocated (cudaMallocAsync()), as engines do that
  // allocate their outputs. The recording owns that memory, which has the same address after each
  // replay. It is valid until the recording is replayed again or dropped, and counts as bytes of
  // the graph. Without the option, a step that leaves memory allocated runs eagerly.
  bool keeps_allocations = false;
};

}  // namespace cgtree
