// Decides whether a recording fits a call.
#include "cgtree/tree/recording.h"

#include <fmt/format.h>

namespace cgtree {
namespace {

Mismatch mismatch_of(const Recording& recording, const InputRecord& record, std::uint32_t i,
                     const Tensor& tensor, const LaneMemory& memory) {
  using Kind = Mismatch::Kind;
  if (tensor.dtype() != record.dtype || tensor.shape() != record.shape ||
      tensor.device() != recording.device) {
    return {Kind::kSignature, i, 0, 0};
  }
  if (record.treatment == Treatment::kCopied) return {};
  const std::uintptr_t address = tensor.address();
  if (record.treatment == Treatment::kStatic) {
    return address == record.address ? Mismatch{}
                                     : Mismatch{Kind::kStaticAddress, i, record.address, address};
  }
  const bool same = address == record.address && memory.manages(*tensor.storage());
  return same ? Mismatch{} : Mismatch{Kind::kManagedAddress, i, record.address, address};
}

}  // namespace

Mismatch fits(const Recording& recording, InputList inputs, const LaneMemory& memory) {
  if (inputs.size() != recording.inputs.size()) {
    return {Mismatch::Kind::kInputCount, 0, recording.inputs.size(), inputs.size()};
  }
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    const Mismatch mismatch = mismatch_of(recording, recording.inputs[i], i, *inputs[i], memory);
    if (!mismatch.fits()) return mismatch;
  }
  if (memory.live().intersects(recording.conflicts)) return {Mismatch::Kind::kFootprint, 0, 0, 0};
  return {};
}

std::string to_string(const Mismatch& mismatch) {
  switch (mismatch.kind) {
    case Mismatch::Kind::kNone:
      return "fits";
    case Mismatch::Kind::kInputCount:
      return fmt::format("{} inputs recorded, {} given", mismatch.recorded, mismatch.given);
    case Mismatch::Kind::kSignature:
      return fmt::format("input {}: another shape, dtype or device than recorded", mismatch.input);
    case Mismatch::Kind::kStaticAddress:
      return fmt::format("static input {}: address {:#x} recorded, {:#x} given", mismatch.input,
                         mismatch.recorded, mismatch.given);
    case Mismatch::Kind::kManagedAddress:
      return fmt::format("managed input {}: address {:#x} recorded, {:#x} given", mismatch.input,
                         mismatch.recorded, mismatch.given);
    case Mismatch::Kind::kFootprint:
      return "an output that is still held lies where this recording writes";
  }
  return "unknown";
}

}  // namespace cgtree
