// Compares a call with the recordings that are there.
#include "cgtree/tree/cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
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

std::optional<Change> change_of(const Recording& recording, std::uint32_t i, const Tensor& input,
                                const LaneMemory& memory) {
  const InputRecord& record = recording.inputs[i];
  const std::string recorded_at = fmt::format("{:#x}", record.address);
  if (!input.defined()) return Change{Kind::kUnusable, i, recorded_at, "nothing"};
  if (input.storage()->state() != Storage::State::kLive) {
    return Change{Kind::kUnusable, i, recorded_at, "a stale tensor"};
  }
  std::string recorded = type_of(record.dtype, record.shape, recording.device);
  std::string given = type_of(input.dtype(), input.shape(), input.device());
  if (recorded != given) return Change{Kind::kSignature, i, std::move(recorded), std::move(given)};
  if (record.treatment == Treatment::kCopied) return std::nullopt;
  const bool is_static = record.treatment == Treatment::kStatic;
  given = fmt::format("{:#x}", input.address());
  if (!is_static && !memory.manages(*input.storage())) {
    given += ", not an output of this context";
  } else if (input.address() == record.address) {
    return std::nullopt;
  }
  return Change{is_static ? Kind::kStaticAddress : Kind::kManagedAddress, i, recorded_at,
                std::move(given)};
}

void add_held_outputs(const Recording& recording, const LaneMemory& memory,
                      std::vector<Change>& found) {
  memory.live().for_each([&](std::uint32_t number) {
    const Slot& slot = memory.slot(number);
    for (const Range& written : recording.footprint.ranges()) {
      if (!written.overlaps(slot.range)) continue;
      const StorageTag& tag = slot.current->tag;
      found.push_back({Kind::kFootprint, 0, range_of(written),
                       fmt::format("output {} of '{}' at {}", tag.position,
                                   memory.function_name(tag.function), range_of(slot.range))});
    }
  });
}

}  // namespace

std::vector<Change> changes(const Recording& recording, InputList inputs,
                            const LaneMemory& memory) {
  if (inputs.size() != recording.inputs.size()) {
    return {{Kind::kInputCount, 0, std::to_string(recording.inputs.size()),
             std::to_string(inputs.size())}};
  }
  std::vector<Change> found;
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    if (auto change = change_of(recording, i, inputs[i], memory)) found.push_back(*change);
  }
  add_held_outputs(recording, memory, found);
  return found;
}

Cause find_cause(const FunctionState& function, const Node& current, InputList inputs,
                 const LaneMemory& memory) {
  Cause nearest;
  auto best = std::tuple(true, true, std::size_t{0}, std::uint32_t{0});  // less is nearer
  for (const auto& [hash, keys] : function.keys) {
    for (const auto& key : keys) {
      for (const Node* node : key->nodes) {
        std::vector<Change> found = changes(node->recording, inputs, memory);
        const std::tuple rank(!key->signature.matches(inputs), node->parent != &current,
                              found.size(), node->id);
        if (nearest.nearest != 0 && best <= rank) continue;
        best = rank;
        nearest = {node->id, std::move(found)};
      }
    }
  }
  return nearest;
}

std::string to_string(const Change& change) {
  switch (change.kind) {
    case Kind::kFootprint:
      return fmt::format("{} is held, where it writes {}", change.given, change.recorded);
    case Kind::kInputCount:
      return fmt::format("{} inputs recorded, {} given", change.recorded, change.given);
    default:
      break;
  }
  const char* const treatment = change.kind == Kind::kStaticAddress    ? "static "
                                : change.kind == Kind::kManagedAddress ? "managed "
                                                                       : "";
  return fmt::format("{}input {}: {} recorded, {} given", treatment, change.input, change.recorded,
                     change.given);
}

}  // namespace cgtree
