// Compares a call with the recordings that are there.
#include "cgtree/tree/cause.h"

#include <fmt/format.h>

#include <tuple>

namespace cgtree {
namespace {

using Kind = Mismatch::Kind;

std::string type_of(DType dtype, const Shape& shape, Device device) {
  return fmt::format("{} {} on {}", name(dtype), to_string(shape), to_string(device));
}

std::string range_of(const Range& range) {
  return fmt::format("[{:#x}, {:#x})", range.address, range.end());
}

Change change_of(Kind kind, const Recording& recording, std::uint32_t i, InputList inputs,
                 const LaneMemory& memory) {
  const InputRecord& record = recording.inputs[i];
  const Tensor& input = inputs[i];
  if (kind == Kind::kSignature) {
    return {kind, i, "", type_of(record.dtype, record.shape, recording.device),
            type_of(input.dtype(), inputs.shape(i), input.device())};
  }
  std::string given = "nothing";
  if (input.defined()) {
    given = kind == Kind::kUnusable ? "a stale tensor" : fmt::format("{:#x}", input.address());
  }
  if (kind == Kind::kManagedAddress && !memory.manages(*input.storage())) {
    given += ", not an output of this context";
  } else if (kind == Kind::kManagedAddress && !inputs.in_place(i)) {
    given += fmt::format(", where {} is to be padded", to_string(input.shape()));
  }
  return {kind, i, "", fmt::format("{:#x}", record.address), std::move(given)};
}

// The size of changes(), held outputs counted as one.
std::size_t count_changes(const Recording& recording, InputList inputs, const LaneMemory& memory) {
  if (inputs.size() != recording.inputs.size()) return 1;
  std::size_t count = memory.live().intersects(recording.conflicts);
  for (std::uint32_t i = 0; i < inputs.size(); ++i)
    count += fits_input(recording, i, inputs, memory) != Kind::kNone;
  return count;
}

void add_held_outputs(const Recording& recording, const LaneMemory& memory,
                      std::vector<Change>& found) {
  memory.live().for_each([&](std::uint32_t number) {
    const Slot& slot = memory.slot(number);
    for (const Range& written : recording.footprint.ranges()) {
      if (!written.overlaps(slot.range)) continue;
      const StorageTag& tag = slot.current->tag;
      found.push_back({Kind::kFootprint, 0, "", range_of(written),
                       fmt::format("output {} of '{}' at {}", tag.position,
                                   memory.function_name(tag.function), range_of(slot.range))});
    }
  });
}

}  // namespace

std::vector<Change> changes(const Recording& recording, InputList inputs,
                            const LaneMemory& memory) {
  if (inputs.size() != recording.inputs.size()) {
    return {{Kind::kInputCount, 0, "", std::to_string(recording.inputs.size()),
             std::to_string(inputs.size())}};
  }
  std::vector<Change> found;
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    const Kind kind = fits_input(recording, i, inputs, memory);
    if (kind != Kind::kNone) found.push_back(change_of(kind, recording, i, inputs, memory));
  }
  add_held_outputs(recording, memory, found);
  return found;
}

Cause find_cause(const FunctionState& function, const Node& current, InputList inputs,
                 const LaneMemory& memory) {
  const Node* nearest = nullptr;
  auto best = std::tuple(true, true, std::size_t{0}, std::uint32_t{0});  // less is nearer
  for (const auto& [hash, keys] : function.keys) {
    for (const auto& key : keys) {
      const bool other_key = !key->signature.matches(inputs);
      for (const Node* node : key->nodes) {
        const std::tuple rank(other_key, node->parent != &current,
                              count_changes(node->recording, inputs, memory), node->id);
        if (nearest != nullptr && best <= rank) continue;
        best = rank;
        nearest = node;
      }
    }
  }
  if (nearest == nullptr) return {};
  Cause cause{nearest->id, changes(nearest->recording, inputs, memory)};
  for (Change& change : cause.changes) {
    if (change.is_of_input()) change.input_name = function.input_options(change.input).name;
  }
  return cause;
}

}  // namespace cgtree
