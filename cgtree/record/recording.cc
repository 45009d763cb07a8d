// Decides whether a recording fits a call.
#include "cgtree/record/recording.h"

#include <algorithm>
#include <utility>

#include "interop/device/device_api.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

using Kind = Mismatch::Kind;

namespace {

bool is_usable(const Storage& storage) {
  const Storage::State state = storage.state();
  return state == Storage::State::kLive || state == Storage::State::kBorrowed;
}

// Returns true if the input is memory that others write, unordered with the context's stream.
bool has_producer(const Tensor& input, const ContextMemory& memory) {
  if (!input.defined()) return false;
  const Storage& storage = *input.storage();
  return storage.state() == Storage::State::kBorrowed ||
         (storage.domain() != nullptr && storage.domain() != &memory && !is_by_value(input));
}

}  // namespace

bool Recording::draws_numbers() const {
  bool draws = false;
  for (const GatherNode& root : roots)
    root.for_each_draw([&](const auto&...) { draws = true; });
  return draws;
}

bool refers_to(const Recording& recording, Range range) noexcept {
  const bool checks_input = std::ranges::any_of(recording.inputs, [&](const InputRecord& input) {
    const auto extent = static_cast<std::size_t>(input.shape.extent()) * size_of(input.dtype);
    return input.treatment == Treatment::kStatic && range.overlaps({input.address, extent});
  });
  return checks_input || recording.findings == nullptr || recording.findings->refers_to(range);
}

Kind fits_input(const Recording& recording, std::uint32_t i, const InputList& inputs,
                const ContextMemory& memory) {
  const InputRecord& record = recording.inputs[i];
  const Tensor& input = inputs[i];
  if (!input.defined()) [[unlikely]] {
    return record.treatment == Treatment::kNoBuffer ? Kind::kNone : Kind::kUnusable;
  }
  if (!is_usable(*input.storage())) return Kind::kUnusable;
  if (input.dtype() != record.dtype || inputs.shape(i) != record.shape) return Kind::kSignature;
  const bool is_value = record.treatment == Treatment::kValue;
  if (is_by_value(input) != is_value) return Kind::kSignature;
  if (is_value) return Kind::kNone;
  if (input.device() != recording.device) return Kind::kSignature;
  if (record.treatment == Treatment::kRebound) {
    return (input.address() & record.address_mask) == 0 ? Kind::kNone : Kind::kAlignment;
  }
  if (may_move(record.treatment)) return Kind::kNone;
  if (record.treatment == Treatment::kStatic) {
    return input.address() == record.address ? Kind::kNone : Kind::kStaticAddress;
  }
  if (record.treatment != Treatment::kManaged) return Kind::kSignature;
  return input.address() == record.address && memory.manages(*input.storage()) && inputs.in_place(i)
             ? Kind::kNone
             : Kind::kManagedAddress;
}

namespace {

// As fits(), for the inputs [begin, end) alone.
template <bool kTakesBorrowed>
[[gnu::always_inline]] inline Kind fit(const Recording& recording, const InputList& inputs,
                                       const ContextMemory& memory, std::uint32_t begin,
                                       std::uint32_t end) {
  for (std::uint32_t i = begin; i < end; ++i) {
    i = first_not_plain<kTakesBorrowed>(recording.inputs, inputs, i, end, recording.device);
    if (i == end) break;
    if (!kTakesBorrowed && has_producer(inputs[i], memory)) return Kind::kUnusable;
    const Kind kind = fits_input(recording, i, inputs, memory);
    if (kind != Kind::kNone) return kind;
  }
  return Kind::kNone;
}

}  // namespace

template <bool kTakesBorrowed>
Kind fits(const Recording& recording, const InputList& inputs, const ContextMemory& memory) {
  if (inputs.size() != recording.inputs.size() || inputs.buffers() != recording.buffers) {
    return Kind::kInputCount;
  }
  if (inputs.key() != recording.key) return Kind::kKey;
  const auto size = static_cast<std::uint32_t>(inputs.size());
  std::uint32_t begin = 0, known = 0;
  if (recording.has_runs) {
    // Inputs between the known runs are tested singly.
    const bool copies_first = recording.copies.begin() < recording.statics.begin();
    for (const InputRun* const run : {copies_first ? &recording.copies : &recording.statics,
                                      copies_first ? &recording.statics : &recording.copies}) {
      if (!run->is_known<kTakesBorrowed>(inputs)) continue;
      const Kind kind = fit<kTakesBorrowed>(recording, inputs, memory, begin, run->begin());
      if (kind != Kind::kNone) return kind;
      begin = run->end();
      known += run->end() - run->begin();
    }
  }
  const Kind kind = fit<kTakesBorrowed>(recording, inputs, memory, begin, size);
  if (kind != Kind::kNone) return kind;
  // Known inputs have not moved since a replay for which they lay apart.
  if (known != size && recording.apart.meet(inputs)) return Kind::kOverlap;
  if (memory.live().intersects(recording.conflicts)) return Kind::kFootprint;
  return Kind::kNone;
}

template Kind fits<false>(const Recording&, const InputList&, const ContextMemory&);
template Kind fits<true>(const Recording&, const InputList&, const ContextMemory&);

ApartPairs apart_of(std::vector<Apart> pairs, std::span<const InputRecord> inputs) {
  std::vector<std::uintptr_t> fixed;
  for (const InputRecord& input : inputs)
    fixed.push_back(may_move(input.treatment) ? 0 : input.address);
  return ApartPairs(std::move(pairs), fixed);
}

void find_runs(Recording& recording) {
  recording.statics = InputRun(recording.inputs, InputRun::Of::kStatic);
  recording.copies = InputRun(recording.inputs, InputRun::Of::kCopied);
  recording.has_runs = !recording.statics.is_empty() || !recording.copies.is_empty();
  recording.has_to_bind =
      !recording.roots.empty() || !recording.tails.empty() || recording.share != nullptr;
  for (std::vector<GatherNode>* const nodes : {&recording.roots, &recording.tails}) {
    for (GatherNode& node : *nodes)
      node.note_copies(recording.copies);
  }
}

bool take_share(Recording& recording) {
  if (!recording.share->take()) return false;
  for (std::vector<GatherNode>* const nodes : {&recording.roots, &recording.tails}) {
    for (GatherNode& node : *nodes)
      node.forget_patch();
  }
  return true;
}

Code launch_on_default(const GraphExec& exec, StreamRef stream) {
  const DeviceScope current = stream.make_device_current();
  return exec.api().launch(exec.handle(), stream.handle());
}

}  // namespace cgtree
