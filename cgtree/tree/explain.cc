// explain(): finds the nearest recording, and formats both sides of each mismatch.
#include "cgtree/tree/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "interop/tensor/tensor.h"

namespace cgtree {
namespace {

using Kind = Mismatch::Kind;

std::string type_of(DType dtype, const Shape& shape, Device device) {
  return fmt::format("{} {} on {}", name(dtype), to_string(shape), to_string(device));
}

std::string range_of(const Range& range) {
  return fmt::format("[{:#x}, {:#x})", range.address, range.end());
}

std::string range_of(const Tensor& tensor) {
  const auto extent = static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype());
  return range_of(Range{tensor.address(), extent});
}

bool has_same_count(const Recording& recording, InputList inputs) {
  return inputs.size() == recording.inputs.size() && inputs.buffers() == recording.buffers;
}

std::string counts(std::size_t inputs, std::size_t buffers) {
  return buffers == 0 ? std::to_string(inputs) : fmt::format("{} and {} buffers", inputs, buffers);
}

Mismatch mismatch_of(Kind kind, const Recording& recording, std::uint32_t i, InputList inputs,
                     const ContextMemory& memory) {
  const InputRecord& record = recording.inputs[i];
  const Tensor& input = inputs[i];
  if (kind == Kind::kSignature) {
    return {kind, i, "", type_of(record.dtype, record.shape, recording.device),
            type_of(input.dtype(), inputs.shape(i), input.device())};
  }
  if (record.treatment == Treatment::kNoBuffer) return {kind, i, "", "no buffer", "one"};
  if (kind == Kind::kAlignment) {
    return {kind, i, "", fmt::format("aligned to {} bytes", record.address_mask + 1),
            fmt::format("{:#x}", input.address())};
  }
  std::string given = "a null tensor";
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

Mismatch mismatch_of(const Overlap& overlap, InputList inputs) {
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

// Returns the number of mismatches, all held outputs counted as one.
std::size_t count_mismatches(const Recording& recording, InputList inputs,
                             const ContextMemory& memory) {
  if (!has_same_count(recording, inputs)) return 1;
  std::size_t count = memory.live().intersects(recording.conflicts);
  count += inputs.key() != recording.key;
  for (std::uint32_t i = 0; i < inputs.size(); ++i)
    count += fits_input(recording, i, inputs, memory) != Kind::kNone;
  for (const Apart& apart : recording.apart.pairs())
    count += meet(inputs, apart.pair);
  return count;
}

void add_held_outputs(const Recording& recording, const ContextMemory& memory,
                      std::vector<Mismatch>& found) {
  memory.live().for_each([&](std::uint32_t number) {
    const Slot& slot = memory.slot(number);
    for (const Range& written : recording.footprint.ranges()) {
      if (!written.overlaps(slot.range)) continue;
      const StorageTag& tag = slot.current()->tag;
      found.push_back({Kind::kFootprint, 0, "", range_of(written),
                       fmt::format("output {} of '{}' at {}", tag.position,
                                   memory.function_name(tag.function), range_of(slot.range))});
    }
  });
}

// Compares the call with the nearest recording of the function.
void compare(const FunctionState& function, const Call& call, const ContextMemory& memory,
             Explanation& why) {
  // It is made again, and differs from no other.
  if (const KeyState* const own = function.find(call);
      own != nullptr && own->was_recorded && own->nodes.empty()) {
    return;
  }
  const Node* nearest = nullptr;
  auto best = std::tuple(true, std::size_t{0}, std::uint32_t{0});  // less is nearer
  for (const auto& [hash, keys] : function.keys) {
    for (const auto& key : keys) {
      const bool other_key = !key->signature.matches(call.inputs());
      for (const Node* node : key->nodes) {
        const std::tuple rank(other_key, count_mismatches(node->recording, call.inputs(), memory),
                              node->id);
        if (nearest != nullptr && best <= rank) continue;
        best = rank;
        nearest = node;
      }
    }
  }
  if (nearest != nullptr) {
    why.nearest = nearest->id;
    why.mismatches = find_mismatches(nearest->recording, call.inputs(), memory);
  }
  const auto is_overlap = [](const Mismatch& mismatch) { return mismatch.kind == Kind::kOverlap; };
  if (std::none_of(why.mismatches.begin(), why.mismatches.end(), is_overlap)) {
    if (const Overlap overlap = call.find_overlap()) {
      why.mismatches.push_back(mismatch_of(overlap, call.inputs()));
    }
  }
  for (Mismatch& mismatch : why.mismatches) {
    if (mismatch.is_of_input()) {
      mismatch.input_name = function.input_options(mismatch.input).name;
    }
    if (is_overlap(mismatch)) mismatch.recorded = call.describe(mismatch.other);
  }
}

std::string on_other_device(const Call& call, Device device) {
  for (std::size_t i = 0; i < call.inputs().size(); ++i) {
    const Device other = call.inputs()[i].device();
    if (call.treatment(i) == Treatment::kValue || other == device) continue;
    return fmt::format("{} is on {}, the context on {}", call.describe(i), to_string(other),
                       to_string(device));
  }
  return {};
}

}  // namespace

std::vector<Mismatch> find_mismatches(const Recording& recording, InputList inputs,
                                      const ContextMemory& memory) {
  if (!has_same_count(recording, inputs)) {
    return {{Kind::kInputCount, 0, "",
             counts(recording.inputs.size() - recording.buffers, recording.buffers),
             counts(inputs.step_size(), inputs.buffers())}};
  }
  std::vector<Mismatch> found;
  if (inputs.key() != recording.key) {
    found.push_back({Kind::kKey, 0, "", recording.key, std::string(inputs.key())});
  }
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    const Kind kind = fits_input(recording, i, inputs, memory);
    if (kind != Kind::kNone) found.push_back(mismatch_of(kind, recording, i, inputs, memory));
  }
  for (const Apart& apart : recording.apart.pairs()) {
    if (meet(inputs, apart.pair)) found.push_back(mismatch_of(apart.pair, inputs));
  }
  add_held_outputs(recording, memory, found);
  return found;
}

std::string detail_of(SkipReason reason, const Situation& situation, const Call& call) {
  const FunctionState& function = situation.function;
  if (is_of_axes(reason)) return function.axes->why_not(reason, call.axes());
  const KeyState* const key = function.find(call);
  const Limits& limits = situation.limits;
  const Spent& spent = situation.tree.spent;
  switch (reason) {
    case SkipReason::kOtherDevice:
      return on_other_device(call, situation.memory.device());
    case SkipReason::kMutatedInput:
      return call.describe(call.find_unwanted_write().value_or(0));
    case SkipReason::kCaptureFailed:
      if (key == nullptr || key->captures_to_try > 0) return key ? key->capture_failure : "";
      if (key->calls_to_rest == KeyState::kForGood) {
        return key->capture_failure + "; captures do not allow that, and it is not tried again";
      }
      return fmt::format("{}; it is tried again after {} more call{}", key->capture_failure,
                         key->calls_to_rest, key->calls_to_rest == 1 ? "" : "s");
    case SkipReason::kTooSmall:
      // 0: the graph of another rank had too few.
      if (key == nullptr || key->too_few_nodes == 0) return {};
      return fmt::format("{} nodes, min_graph_nodes is {}", key->too_few_nodes,
                         function.options.min_graph_nodes);
    case SkipReason::kFunctionLimit:
      return fmt::format("{} recordings, max_recordings is {}", function.recordings.get(),
                         function.options.max_recordings);
    case SkipReason::kContextLimit:
      return fmt::format("{} recordings, max_recordings is {}", situation.tree.nodes().size(),
                         limits.recordings);
    case SkipReason::kGraphBytesLimit:
      return fmt::format(
          "graphs of {} bytes{}, max_graph_bytes is {}", spent.graph_bytes.get(),
          key != nullptr && key->is_too_large ? " without its own, which is larger" : "",
          limits.graph_bytes);
    case SkipReason::kTimeLimit:
      return fmt::format("{} us spent, max_recording_time is {} us",
                         spent.recording_time.get().count(), limits.recording_time.count());
    default:
      return {};
  }
}

Explanation explain(const Decision& decision, const Situation& situation, const Call& call) {
  const FunctionState& function = situation.function;
  Explanation why;
  why.outcome = decision.outcome;
  if (why.outcome == Outcome::kReplay) why.node = decision.node->id;
  const bool is_graphed = why.outcome != Outcome::kRunEagerly && why.outcome != Outcome::kThrow;
  if (!is_graphed) {
    why.skip_reason = decision.reason;
    why.detail = detail_of(decision.reason, situation, call);
  }
  if (why.outcome != Outcome::kReplay) compare(function, call, situation.memory, why);
  if (function.axes != nullptr) why.axes = function.axes->in_use(call.axes(), is_graphed);
  return why;
}

}  // namespace cgtree
