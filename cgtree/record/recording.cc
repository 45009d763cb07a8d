// Decides whether a recording fits a call.
#include "cgtree/record/recording.h"

#include "interop/tensor/overlap.h"
#include "interop/tensor/empty.h"

namespace cgtree {

using Kind = Mismatch::Kind;

namespace {

bool may_be_anywhere(Treatment treatment) {
  return treatment == Treatment::kCopied || treatment == Treatment::kCopiedBack ||
         treatment == Treatment::kBuffer;
}

bool is_usable(const Storage& storage) {
  const Storage::State state = storage.state();
  return state == Storage::State::kLive || state == Storage::State::kBorrowed;
}

bool is_borrowed(const Tensor& input) {
  return input.defined() && input.storage()->state() == Storage::State::kBorrowed;
}

}  // namespace

Kind fits_input(const Recording& recording, std::uint32_t i, InputList inputs,
                const ContextMemory& memory) {
  const InputRecord& record = recording.inputs[i];
  const Tensor& input = inputs[i];
  if (!input.defined()) [[unlikely]] {
    return record.treatment == Treatment::kNoBuffer ? Kind::kNone : Kind::kUnusable;
  }
  if (!is_usable(*input.storage())) return Kind::kUnusable;
  if (input.dtype() != record.dtype || inputs.shape(i) != record.shape) return Kind::kSignature;
  if (input.device() != recording.device) [[unlikely]] {
    return record.treatment == Treatment::kValue && is_scalar(input) ? Kind::kNone
                                                                     : Kind::kSignature;
  }
  if (may_be_anywhere(record.treatment)) return Kind::kNone;
  if (record.treatment == Treatment::kStatic) {
    return input.address() == record.address ? Kind::kNone : Kind::kStaticAddress;
  }
  if (record.treatment != Treatment::kManaged) return Kind::kSignature;
  return input.address() == record.address && memory.manages(*input.storage()) && inputs.in_place(i)
             ? Kind::kNone
             : Kind::kManagedAddress;
}

void Recording::set_inputs(std::vector<InputRecord> records) {
  inputs = std::move(records);
  checks.clear();
  checks.reserve(inputs.size());
  for (const InputRecord& input : inputs) {
    const bool is_static = input.treatment == Treatment::kStatic;
    const bool is_plain = is_static || may_be_anywhere(input.treatment);
    checks.push_back({input.shape, input.address, is_static ? ~std::uintptr_t{0} : 0,
                      is_plain ? static_cast<std::uint64_t>(input.dtype) : kNeverPlain});
  }
}

template <bool kTakesBorrowed>
Mismatch fits(const Recording& recording, InputList inputs, const ContextMemory& memory) {
  if (inputs.size() != recording.inputs.size() || inputs.buffers() != recording.buffers) {
    return {Kind::kInputCount, 0, recording.inputs.size(), inputs.size()};
  }
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    i = first_not_plain(recording.checks, inputs, i, recording.device);
    if (i == inputs.size()) break;
    if (!kTakesBorrowed && is_borrowed(inputs[i])) return {Kind::kUnusable, i, 0, 0};
    const Kind kind = fits_input(recording, i, inputs, memory);
    if (kind == Kind::kNone) continue;
    const bool by_address = kind == Kind::kStaticAddress || kind == Kind::kManagedAddress;
    return {kind, i, by_address ? recording.inputs[i].address : 0,
            by_address ? inputs[i].address() : 0};
  }
  for (const Apart& apart : recording.apart) {
    const Tensor& first = inputs[apart.pair.first];
    const Tensor& second = inputs[apart.pair.second];
    if (first.address() + apart.first_bytes <= second.address() ||
        second.address() + apart.second_bytes <= first.address()) [[likely]] {
      continue;
    }
    if (may_overlap(first, second)) return {Kind::kOverlap, apart.pair.first};
  }
  if (memory.live().intersects(recording.conflicts)) return {Kind::kFootprint, 0, 0, 0};
  return {};
}

template Mismatch fits<false>(const Recording&, InputList, const ContextMemory&);
template Mismatch fits<true>(const Recording&, InputList, const ContextMemory&);

}  // namespace cgtree
