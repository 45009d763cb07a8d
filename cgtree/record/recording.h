// Recording: a captured step function, with the data that replays need.
//
// How a recording is shared. A recording may be replayed after any calls, as long as no held output
// lies where it writes. An example, y = f(x) with the output held until it is overwritten:
//
//   call 1   warms f up; its output lives in slot 0
//   call 2   y of call 1 is held: records R1, whose output is slot 1. The footprint of R1 is
//            slot 1 and its scratch memory; conflicts = {1}
//   call 3   slot 1 is held: R1 would overwrite it, fits() says kFootprint. Slot 0 is free again,
//            so R2 is recorded with its output there; conflicts = {0}
//   call 4   slot 0 is held, slot 1 is not: R1 fits and is replayed. From here on R1 and R2 take
//            turns, and nothing more is recorded.
//
// The state in which R1 was recorded is irrelevant: the live mask and the footprint decide.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/published.h"
#include "cgtree/axes/axis_plan.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/memory/live_mask.h"
#include "cgtree/memory/recorded_memory.h"
#include "cgtree/memory/slots.h"
#include "cgtree/memory/step_memory.h"
#include "cgtree/record/apart.h"
#include "cgtree/record/attachment.h"
#include "cgtree/record/call.h"
#include "cgtree/record/gather_node.h"
#include "cgtree/record/input_run.h"
#include "cgtree/values/eager_break.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/guard.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"

namespace cgtree {

// An InputRecord describes one input, or buffer, of a recorded call.
//
// A call may have hundreds of inputs; proving that they fit is then most of its cost. The common
// case is therefore one branch per input, taken on the `or` of all differences: address_mask and
// plain_dtype give the words to compare for an input that fits plainly. An input that does not fit
// plainly may still fit: fits_input() decides.
struct InputRecord {
  InputRecord(const Shape& input_shape, DType input_dtype, Treatment input_treatment,
              std::uintptr_t input_address, const StorageDomain* input_domain = nullptr)
      : shape(input_shape),
        address(input_address),
        address_mask(stays(input_treatment, input_domain) ? ~std::uintptr_t{0} : 0),
        plain_dtype(stays(input_treatment, input_domain) || may_move(input_treatment)
                        ? static_cast<std::uint64_t>(input_dtype)
                        : kNeverPlain),
        plain_domain(input_domain),
        dtype(input_dtype),
        treatment(input_treatment) {}

  // Changes it to the record of an input that may be anywhere, if aligned to `alignment` bytes.
  void rebind(std::size_t alignment) noexcept {
    treatment = Treatment::kRebound;
    address = 0;
    address_mask = alignment - 1;
  }

  Shape shape;
  // Static and managed inputs: the required address. Copied inputs: the address of the copy.
  std::uintptr_t address;
  std::uintptr_t address_mask;        // the bits in which an input's address must equal `address`
  std::uint64_t plain_dtype;          // the dtype, or kNeverPlain
  const StorageDomain* plain_domain;  // null, or the context's domain
  DType dtype;
  Treatment treatment;

 private:
  static constexpr std::uint64_t kNeverPlain = ~std::uint64_t{0};  // equals no dtype

  // An output of the context at the address of an earlier output is read in place, whichever it is.
  static bool stays(Treatment treatment, const StorageDomain* domain) noexcept {
    return treatment == Treatment::kStatic ||
           (treatment == Treatment::kManaged && domain != nullptr);
  }
};

namespace detail {

// Returns 0 if the input fits plainly.
// Inlined by attribute, as is everything that a replay does for each input.
template <bool kTakesBorrowed>
[[gnu::always_inline]] inline std::uint64_t difference(const InputRecord& record,
                                                       const Tensor& input, Device device) {
  const Storage* const storage = input.storage().get();
  if (storage == nullptr) [[unlikely]] {
    return 1;
  }
  return ((input.address() ^ record.address) & record.address_mask) |
         static_cast<std::uint64_t>(input.shape() != record.shape) |
         (static_cast<std::uint64_t>(input.dtype()) ^ record.plain_dtype) |
         storage->difference<kTakesBorrowed>(device, record.plain_domain);
}

}  // namespace detail

// Returns the first of the inputs [begin, end) that does not fit plainly, or `end`. Requires:
// records has an entry for each input.
template <bool kTakesBorrowed>
[[gnu::always_inline]] inline std::uint32_t first_not_plain(const std::vector<InputRecord>& records,
                                                            const InputList& inputs,
                                                            std::uint32_t begin, std::uint32_t end,
                                                            Device device) noexcept {
  const InputRecord* const record = records.data();
  const auto differs = [device](const InputRecord& one, const Tensor& input)
      __attribute__((always_inline)) {
    return detail::difference<kTakesBorrowed>(one, input, device);
  };
  if (const Tensor* const tensors = inputs.contiguous()) {
    while (begin < end && differs(record[begin], tensors[begin]) == 0)
      ++begin;
  } else {
    while (begin < end && differs(record[begin], inputs[begin]) == 0)
      ++begin;
  }
  return begin;
}

// An OutputSlice says that axis `axis` of an output has the actual size of axis `input_axis` of
// input `input`.
struct OutputSlice {
  std::uint32_t axis = 0;
  std::uint32_t input = 0;
  std::uint32_t input_axis = 0;
};

// An OutputRecord says where the memory of a replay's output comes from.
struct OutputRecord {
  enum class Kind {
    kSlot,      // its own memory
    kSame,      // the storage of output `index` of this call
    kInput,     // the storage of input, or buffer, `index`
    kConstant,  // a constant tensor from outside the call
    kCopied,    // copy `index`: see Recording::copies_of_outputs
  };

  // The members that replays read for each output come first, in one cache line.
  Kind kind = Kind::kSlot;
  std::uint32_t index = 0;
  Slot* slot = nullptr;
  std::size_t byte_offset = 0;
  Shape shape;
  DType dtype = DType::kFloat32;
  std::vector<OutputSlice> slices;
  ShapeSupply shapes;   // of `shape`
  ShapeCache sliced;    // the shapes handed out, if there are slices
  StorageRef constant;  // of kConstant
};

struct RecordingCosts {
  std::size_t nodes = 0;            // of the graph
  std::size_t step_nodes = 0;       // nodes of the graph that the step function launched
  std::size_t kernels = 0;          // of the graph
  std::size_t allocations = 0;      // of stream-ordered memory, by nodes of the graph
  std::size_t allocated_bytes = 0;  // the part that no node frees
  std::size_t graph_bytes = 0;      // estimated, with allocated_bytes; in a group, the largest
  std::int64_t record_us = 0;       // from the first restore until outputs can be handed out
  std::int64_t audit_us = 0;        // the part for reading its graphs
  // Read by any thread.
  Published<std::uint64_t> replays;
  Published<std::uint64_t> patches;   // replays whose inputs had moved, or that draw random numbers
  Published<std::uint64_t> verified;  // replays compared with an eager run
  Published<std::uint64_t> unverified;  // replays due for it, but not compared
};

struct Recording {
  // Constant once recorded.
  Device device;
  std::vector<InputRecord> inputs;  // the last `buffers` of them are buffers
  std::size_t buffers = 0;
  std::string key;  // of the call; see Key
  Guards guards;    // not tested by fits()
  ApartPairs apart;
  std::vector<OutputRecord> outputs;
  // The copies of outputs, as bytes. The tail node makes them in memory that each call allocates,
  // so that the recording writes no memory that may be held. The tail node makes them, in memory
  // that each call allocates: the recording writes none that may be held.
  std::vector<Shape> copies_of_outputs;
  std::vector<RebindChoice> rebinds;  // one for each input, or buffer, that may be rebound
  Footprint footprint;
  KeptStorages kept;                    // memory of replays besides footprint and inputs
  std::vector<const Storage*> written;  // the part that calls in the step write in place
  std::vector<PlainUse> plain_uses;     // besides those of inputs
  std::vector<StorageRef> lengths;      // results of axis_length(); root nodes write them
  Graph graph;
  GraphExec exec;
  // The part after an eager_break().
  struct Further {
    std::shared_ptr<const EagerBreak> before;  // called before the graph
    Graph graph;
    GraphExec exec;
  };
  std::vector<Further> further;

  // Returns the bodies of a conditional node of a graph or body; none for another node.
  std::span<const GraphHandle> bodies_of(NodeHandle node) const noexcept {
    for (const ConditionalBodies& conditional : bodies)
      if (conditional.node == node) return conditional.graphs;
    return {};
  }
  // Calls visit(graph) for each graph, and then for each body.
  template <typename Visit>
  void for_each_graph_and_body(Visit&& visit) {
    for_each_graph([&](const Graph& graph, const GraphExec&) { visit(graph.handle()); });
    for (const ConditionalBodies& conditional : bodies)
      for (const GraphHandle body : conditional.graphs)
        visit(body);
  }
  // Calls visit(graph, exec) for each, in the order of their launches.
  template <typename Visit>
  void for_each_graph(Visit&& visit) {
    visit(graph, exec);
    for (Further& next : further)
      visit(next.graph, next.exec);
  }
  Graph& last_graph() noexcept { return further.empty() ? graph : further.back().graph; }
  const GraphExec& last_exec() const noexcept {
    return further.empty() ? exec : further.back().exec;
  }

  bool copies_outputs() const noexcept { return !copies_of_outputs.empty(); }
  // Returns true if the work draws random numbers.
  bool draws_numbers() const;

  // Changed by the thread that is inside the context.
  const Tensor* output_copies = nullptr;  // during a replay: the destinations of the copies
  InputRun statics;
  InputRun copies;
  bool has_runs = false;          // one of the two is not empty
  bool has_to_bind = false;       // there are root or tail nodes, or a share
  bool has_bound_copies = false;  // the graph has the addresses of the known copies
  std::vector<GatherNode> roots;
  std::vector<GatherNode> tails;      // and attachments, for rebound inputs
  std::unique_ptr<Attachment> share;  // null if the executable graph serves this recording alone
  SlotSet conflicts;  // slots that overlap the footprint; see Tree::learn_conflicts()
  std::uint32_t refused_launches = 0;
  bool runs_once = false;  // the step keeps a tensor that it made: launched once, not kept
  std::uint32_t refused_patches = 0;  // with a share, or inputs that may be rebound
  RecordingCosts costs;

  std::unique_ptr<Attachment> findings;                              // null: not examined
  std::vector<ConditionalBodies> bodies;                             // constant once recorded
  std::shared_ptr<bool> frees_left = std::make_shared<bool>(false);  // see graph_memory.h
};

// Returns the pairs of inputs that must lie apart, grouped by the input that may move.
ApartPairs apart_of(std::vector<Apart> pairs, std::span<const InputRecord> inputs);
// Finds the runs of inputs, and whether bind() has work to do.
void find_runs(Recording& recording);

// As bind(), for a recording that shares its executable graph.
[[gnu::cold]] bool take_share(Recording& recording);

// As bind(), for a recording with root or tail nodes, or a share.
inline bool bind_nodes(Recording& recording, const InputList& inputs) {
  const bool are_known = recording.copies.is_known<true>(inputs);
  const bool have_stayed = std::exchange(recording.has_bound_copies, false) && are_known;
  if (are_known) recording.copies.note_use();
  bool patched = false;
  std::size_t bound = 0;
  try {
    if (recording.share != nullptr) patched = take_share(recording);
    for (; bound < recording.roots.size(); ++bound)
      patched = recording.roots[bound].bind(recording.exec, inputs, have_stayed) || patched;
    for (GatherNode& tail : recording.tails)
      patched = tail.bind(recording.last_exec(), inputs, have_stayed) || patched;
    recording.has_bound_copies = are_known;
  } catch (...) {
    for (std::size_t i = 0; i < bound; ++i)
      recording.roots[i].give_back_draws();
    if (!recording.rebinds.empty() || recording.share) ++recording.refused_patches;
    throw;
  }
  return patched;
}

// Writes the addresses of inputs to the graph, and takes the draws of a replay: a TakenDraws must
// follow. Returns whether a root or tail node was patched. Throws DeviceError, OutOfMemory; then no
// generator has moved.
inline bool bind(Recording& recording, const InputList& inputs) {
  return recording.has_to_bind && bind_nodes(recording, inputs);
}

// A TakenDraws returns generators to their positions before bind(), unless keep() was called: a
// call that throws after bind() draws nothing. Generators that another thread has used stay.
class TakenDraws {
 public:
  TakenDraws() = default;
  // Requires: bind() has returned for this recording.
  explicit TakenDraws(Recording& recording) noexcept : recording_(&recording) {}
  ~TakenDraws() { give_back(); }
  TakenDraws(const TakenDraws&) = delete;
  TakenDraws& operator=(const TakenDraws&) = delete;

  // Says that the recording was moved.
  void moved_to(Recording& recording) noexcept { recording_ = &recording; }
  // Says that the call has succeeded.
  void keep() noexcept { recording_ = nullptr; }
  void give_back() noexcept {
    if (recording_ == nullptr) return;
    for (GatherNode& root : std::exchange(recording_, nullptr)->roots)
      root.give_back_draws();
  }

 private:
  Recording* recording_ = nullptr;
};

// The current device decides which stream is the default one.
[[gnu::cold]] Code launch_on_default(const GraphExec& exec, StreamRef stream);

// Makes the stream wait for readers of memory that the recording writes, inputs excepted.
inline void wait_for_readers(const Recording& recording, ContextStream& stream) {
  for (const Storage* const storage : recording.written)
    stream.wait_for_readers(*storage);
}

// Launches the bound graph, up to the first break.
inline Code launch(Recording& recording, const ContextStream& stream) {
  const GraphExec& exec = recording.exec;
  const StreamHandle handle = stream.handle();
  const Code code = handle <= StreamHandle::kPerThread ? launch_on_default(exec, stream.get())
                                                       : exec.api().launch(exec.handle(), handle);
  if (ok(code)) [[likely]] {
    for (GatherNode& root : recording.roots)
      root.launched(stream.get());
  }
  return code;
}

// Returns whether the recording checks that an input lies in the range, or its graph contains an
// address in it, or may contain one because it was not examined.
bool refers_to(const Recording& recording, Range range) noexcept;

// Returns the mismatch of input `i` alone, or kNone.
Mismatch::Kind fits_input(const Recording& recording, std::uint32_t i, const InputList& inputs,
                          const ContextMemory& memory);

// Returns kNone if the recording may be replayed with these inputs while these slots are live, else
// the first mismatch. Pure, and together with Recording::guards the only test before a replay.
// `memory` distinguishes managed tensors. kTakesBorrowed: borrowed inputs, and memory of other
// contexts, may fit; requires that the stream waits for their producers.
template <bool kTakesBorrowed>
Mismatch::Kind fits(const Recording& recording, const InputList& inputs,
                    const ContextMemory& memory);

}  // namespace cgtree
