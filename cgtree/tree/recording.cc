// Decides whether a recording fits a call.
#include "cgtree/tree/recording.h"

namespace cgtree {
namespace {

using Kind = Mismatch::Kind;

Kind kind_of(const Recording& recording, const InputRecord& record, const Tensor& tensor,
             const LaneMemory& memory) {
  if (!tensor.defined() || tensor.storage()->state() != Storage::State::kLive) {
    return Kind::kUnusable;
  }
  if (tensor.dtype() != record.dtype || tensor.shape() != record.shape ||
      tensor.device() != recording.device) {
    return Kind::kSignature;
  }
  if (record.treatment == Treatment::kCopied) return Kind::kNone;
  if (record.treatment == Treatment::kStatic) {
    return tensor.address() == record.address ? Kind::kNone : Kind::kStaticAddress;
  }
  return tensor.address() == record.address && memory.manages(*tensor.storage())
             ? Kind::kNone
             : Kind::kManagedAddress;
}

}  // namespace

Mismatch fits(const Recording& recording, InputList inputs, const LaneMemory& memory) {
  if (inputs.size() != recording.inputs.size()) {
    return {Kind::kInputCount, 0, recording.inputs.size(), inputs.size()};
  }
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    const InputRecord& record = recording.inputs[i];
    const Kind kind = kind_of(recording, record, inputs[i], memory);
    if (kind == Kind::kNone) [[likely]] {
      continue;
    }
    const bool by_address = kind == Kind::kStaticAddress || kind == Kind::kManagedAddress;
    return {kind, i, by_address ? record.address : 0, by_address ? inputs[i].address() : 0};
  }
  if (memory.live().intersects(recording.conflicts)) return {Kind::kFootprint, 0, 0, 0};
  return {};
}

}  // namespace cgtree
