// Compares a call with the recordings that are there.
#include "cgtree/tree/cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "cgtree/record/treatment.h"
#include "interop/tensor/overlap.h"

namespace cgtree {
namespace {

using Kind = Mismatch::Kind;

std::string type_of(DType dtype, const Shape& shape, Device device) {
  return fmt::format("{} {} on {}", name(dtype), to_string(shape), to_string(device));
}

std::string range_of(const Range& range) {
  return fmt::format("[{:#x}, {:#x})", range.address, range.end());
}

bool is_of_size(const Recording& recording, InputList inputs) {
  return inputs.size() == recording.inputs.size() && inputs.buffers() == recording.buffers;
}

std::string counts(std::size_t inputs, std::size_t buffers) {
  return buffers == 0 ? std::to_string(inputs) : fmt::format("{} and {} buffers", inputs, buffers);
}

Change change_of(Kind kind, const Recording& recording, std::uint32_t i, InputList inputs,
                 const ContextMemory& memory) {
  const InputRecord& record = recording.inputs[i];
  const Tensor& input = inputs[i];
  if (kind == Kind::kSignature) {
    return {kind, i, "", type_of(record.dtype, record.shape, recording.device),
            type_of(input.dtype(), inputs.shape(i), input.device())};
  }
  std::string given = "nothing";
  if (record.treatment == Treatment::kNoBuffer) return {kind, i, "", "no buffer", "one"};
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

std::string range_of(const Tensor& tensor) {
  const auto extent = static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype());
  return range_of(Range{tensor.address(), extent});
}

Change change_of(const Overlap& overlap, InputList inputs) {
  return {
      Kind::kOverlap,
      overlap.first,
      "",
      fmt::format("input {}", overlap.second),
      fmt::format("{} and {}", range_of(inputs[overlap.first]), range_of(inputs[overlap.second])),
      overlap.second};
}

bool meet(InputList inputs, const Overlap& pair) {
  const Tensor& first = inputs[pair.first];
  const Tensor& second = inputs[pair.second];
  return first.defined() && second.defined() && may_overlap(first, second);
}

// The size of changes(), held outputs counted as one.
std::size_t count_changes(const Recording& recording, InputList inputs, const ContextMemory& memory) {
  if (!is_of_size(recording, inputs)) return 1;
  std::size_t count = memory.live().intersects(recording.conflicts);
  for (std::uint32_t i = 0; i < inputs.size(); ++i)
    count += fits_input(recording, i, inputs, memory) != Kind::kNone;
  for (const Apart& apart : recording.apart)
    count += meet(inputs, apart.pair);
  return count;
}

void add_held_outputs(const Recording& recording, const ContextMemory& memory,
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
                            const ContextMemory& memory) {
  if (!is_of_size(recording, inputs)) {
    return {{Kind::kInputCount, 0, "",
             counts(recording.inputs.size() - recording.buffers, recording.buffers),
             counts(inputs.step_size(), inputs.buffers())}};
  }
  std::vector<Change> found;
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    const Kind kind = fits_input(recording, i, inputs, memory);
    if (kind != Kind::kNone) found.push_back(change_of(kind, recording, i, inputs, memory));
  }
  for (const Apart& apart : recording.apart) {
    if (meet(inputs, apart.pair)) found.push_back(change_of(apart.pair, inputs));
  }
  add_held_outputs(recording, memory, found);
  return found;
}

Cause find_cause(const FunctionState& function, const Node& current, InputList inputs,
                 const ContextMemory& memory) {
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
  Cause cause;
  if (nearest != nullptr) cause = {nearest->id, changes(nearest->recording, inputs, memory)};
  const auto is_overlap = [](const Change& change) { return change.kind == Kind::kOverlap; };
  if (std::none_of(cause.changes.begin(), cause.changes.end(), is_overlap)) {
    const Overlap overlap = find_overlap(function, memory, inputs);
    if (overlap) cause.changes.push_back(change_of(overlap, inputs));
  }
  for (Change& change : cause.changes) {
    if (change.is_of_input()) change.input_name = function.input_options(change.input).name;
    if (is_overlap(change)) change.recorded = describe_input(function, inputs, change.other);
  }
  return cause;
}

}  // namespace cgtree
