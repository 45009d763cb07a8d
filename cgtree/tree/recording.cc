// Decides whether a recording fits a call.
#include "cgtree/tree/recording.h"

#include "interop/overlap.h"
#include "interop/scalar.h"

namespace cgtree {

using Kind = Mismatch::Kind;

Kind fits_input(const Recording& recording, std::uint32_t i, InputList inputs,
                const LaneMemory& memory) {
  const InputRecord& record = recording.inputs[i];
  const Tensor& input = inputs[i];
  if (!input.defined()) {
    return record.treatment == Treatment::kNoBuffer ? Kind::kNone : Kind::kUnusable;
  }
  if (input.storage()->state() != Storage::State::kLive) return Kind::kUnusable;
  if (input.dtype() != record.dtype || inputs.shape(i) != record.shape) return Kind::kSignature;
  if (input.device() != recording.device) {
    return record.treatment == Treatment::kValue && is_scalar(input) ? Kind::kNone
                                                                     : Kind::kSignature;
  }
  switch (record.treatment) {
    case Treatment::kStatic:
      return input.address() == record.address ? Kind::kNone : Kind::kStaticAddress;
    case Treatment::kManaged:
      return input.address() == record.address && memory.manages(*input.storage()) &&
                     inputs.in_place(i)
                 ? Kind::kNone
                 : Kind::kManagedAddress;
    case Treatment::kCopied:
    case Treatment::kCopiedBack:
    case Treatment::kBuffer:
      return Kind::kNone;
    case Treatment::kValue:
    case Treatment::kNoBuffer:
      break;
  }
  return Kind::kSignature;
}

void Recording::set_inputs(std::vector<InputRecord> records) {
  inputs = std::move(records);
  checks.clear();
  checks.reserve(inputs.size());
  for (const InputRecord& input : inputs) {
    const bool is_plain = input.treatment == Treatment::kStatic || is_copied(input.treatment) ||
                          input.treatment == Treatment::kBuffer;
    checks.push_back({input.shape, input.address,
                      input.treatment == Treatment::kStatic ? ~std::uintptr_t{0} : 0,
                      is_plain ? static_cast<std::uint64_t>(input.dtype) : kNeverPlain});
  }
}

Mismatch fits(const Recording& recording, InputList inputs, const LaneMemory& memory) {
  if (inputs.size() != recording.inputs.size() || inputs.buffers() != recording.buffers) {
    return {Kind::kInputCount, 0, recording.inputs.size(), inputs.size()};
  }
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    i = first_not_plain(recording.checks, inputs, i, recording.device);
    if (i == inputs.size()) break;
    const Kind kind = fits_input(recording, i, inputs, memory);
    if (kind == Kind::kNone) continue;
    const bool by_address = kind == Kind::kStaticAddress || kind == Kind::kManagedAddress;
    return {kind, i, by_address ? recording.inputs[i].address : 0,
            by_address ? inputs[i].address() : 0};
  }
  for (const Overlap& pair : recording.apart) {
    if (may_overlap(inputs[pair.first], inputs[pair.second])) return {Kind::kOverlap, pair.first};
  }
  if (memory.live().intersects(recording.conflicts)) return {Kind::kFootprint, 0, 0, 0};
  return {};
}

}  // namespace cgtree
