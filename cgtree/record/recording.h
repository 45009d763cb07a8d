// Recording: a captured step function and all one must know to replay it.
#pragma once

#include <cstdint>
#include <vector>

#include "cgtree/mismatch.h"
#include "cgtree/memory/footprint.h"
#include "cgtree/record/gather_node.h"
#include "cgtree/record/input_check.h"
#include "cgtree/memory/kept_storages.h"
#include "cgtree/memory/live_mask.h"
#include "cgtree/axes/shape_cache.h"
#include "cgtree/record/signature.h"
#include "cgtree/memory/slot.h"
#include "interop/device/graph.h"

namespace cgtree {

enum class Treatment {
  kStatic,      // the caller promised the address
  kManaged,     // an output of an earlier recording, at that address
  kCopied,      // anywhere on the device; the root node copies it
  kCopiedBack,  // the same, and the tail node copies it back: the function writes into it
  kValue,       // a scalar of the host's; rides among the root node's arguments
  kBuffer,      // anywhere on the device; the tail node copies an output to it
  kNoBuffer,    // the caller gave none: an output as usual
};

inline bool is_copied(Treatment treatment) noexcept {
  return treatment == Treatment::kCopied || treatment == Treatment::kCopiedBack;
}

struct InputRecord {
  Shape shape;
  DType dtype = DType::kFloat32;
  Treatment treatment = Treatment::kCopied;
  std::uintptr_t address = 0;  // static, managed: where it must be; copied: where the copy is
};

// Axis `axis` of an output has the true size of axis `input_axis` of input `input`.
struct OutputSlice {
  std::uint32_t axis = 0;
  std::uint32_t input = 0;
  std::uint32_t input_axis = 0;
};

// Two inputs that share memory, or must not. By number.
struct Overlap {
  std::uint32_t first = 0;
  std::uint32_t second = 0;

  explicit operator bool() const noexcept { return first != second; }
};

// Two inputs that must not share memory, and the bytes from the first to the last of either.
struct Apart {
  Overlap pair;
  std::size_t first_bytes = 0;
  std::size_t second_bytes = 0;
};

struct OutputRecord {
  enum class Kind {
    kSlot,      // memory of its own
    kSame,      // the storage of output `index` of this call
    kInput,     // the storage of input, or buffer, `index`
    kConstant,  // a tensor from outside the call, the same each time
  };

  Kind kind = Kind::kSlot;
  std::uint32_t index = 0;
  Slot* slot = nullptr;
  StorageRef constant;
  std::size_t byte_offset = 0;
  Shape shape;
  DType dtype = DType::kFloat32;
  std::vector<OutputSlice> slices;
  ShapeCache sliced;  // of a record with slices: the shapes handed out
};

// Device memory that an executable graph takes for a kernel node. Source: measured, driver 580,
// CUDA 13.0.
inline constexpr std::size_t kGraphBytesPerNode = 3072;

struct RecordingCosts {
  std::size_t nodes = 0;       // of the graph
  std::size_t step_nodes = 0;  // the step function's among them
  std::int64_t record_us = 0;  // from the first restore to the first launch
  std::uint64_t replays = 0;
  std::uint64_t patches = 0;  // replays whose copied inputs had moved, or that draw

  std::size_t graph_bytes() const noexcept { return nodes * kGraphBytesPerNode; }
};

struct Recording {
  // Sets `inputs`, and `checks` to ask the same of them.
  void set_inputs(std::vector<InputRecord> records);

  // Constant once recorded.
  Device device;
  std::vector<InputRecord> inputs;  // the last `buffers` of them are buffers
  InputChecks checks;
  std::size_t buffers = 0;
  std::vector<Apart> apart;
  std::vector<OutputRecord> outputs;
  Footprint footprint;
  KeptStorages kept;                // host memory behind a copy, for one
  std::vector<StorageRef> lengths;  // of axes, which root nodes write
  Graph graph;
  GraphExec exec;

  // The lane's.
  std::vector<GatherNode> roots;
  std::vector<GatherNode> tails;
  SlotSet conflicts;  // slots that overlap the footprint, of the first slots_known
  std::uint32_t slots_known = 0;
  RecordingCosts costs;
};

// Tells the graph where the inputs are, and takes what a replay draws. True if a root or tail node
// had to be patched. If it throws, no generator has moved.
inline bool bind(Recording& recording, InputList inputs) {
  bool patched = false;
  std::size_t bound = 0;
  try {
    for (; bound < recording.roots.size(); ++bound)
      patched = recording.roots[bound].bind(recording.exec, inputs) || patched;
    for (GatherNode& tail : recording.tails)
      patched = tail.bind(recording.exec, inputs) || patched;
  } catch (...) {
    for (std::size_t i = 0; i < bound; ++i)
      recording.roots[i].give_back_draws();
    throw;
  }
  return patched;
}

// Launches what is bound; if that is refused, gives back what would have been drawn.
inline Code launch(Recording& recording, StreamRef stream) {
  const Code code = recording.exec.api().launch(recording.exec.handle(), stream.handle());
  if (!ok(code)) [[unlikely]] {
    for (GatherNode& root : recording.roots)
      root.give_back_draws();
  }
  return code;
}

// What about input `i` alone keeps the recording from being replayed; kNone if nothing does.
Mismatch::Kind fits_input(const Recording& recording, std::uint32_t i, InputList inputs,
                          const ContextMemory& memory);

// Whether the recording may be replayed with these inputs while these slots are live. Pure, and the
// only gate in front of a replay. `memory` tells managed tensors from others. Borrowed inputs do
// not fit unless their producers were waited for.
template <bool kTakesBorrowed>
Mismatch fits(const Recording& recording, InputList inputs, const ContextMemory& memory);

}  // namespace cgtree
