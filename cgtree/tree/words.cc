// Describes the mismatches that prevent a replay, with both sides of each.
#include "cgtree/tree/words.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/format.h"
#include "cgtree/axes/axis_layout.h"
#include "interop/tensor/tensor.h"

namespace cgtree {
namespace {

using Kind = Mismatch::Kind;

// Patching a node costs at most 1.6 us, with 4 KB of arguments; in this time so many bytes are
// copied, at 2 TB/s read and written. Source: measured, one H200: 256 MiB take 135 us (copy_bench).
constexpr std::size_t kLargeCopyBytes = 3'200'000;

std::string type_of(DType dtype, const Shape& shape, Device device) {
  return str_format("{} {} on {}", name(dtype), to_string(shape), to_string(device));
}

std::string range_of(const Range& range) {
  return str_format("[{:#x}, {:#x})", range.address, range.end());
}

std::string range_of(const Tensor& tensor) {
  const auto extent = extent_bytes(tensor);
  return range_of(Range{tensor.address(), extent});
}

std::string counts(std::size_t inputs, std::size_t buffers) {
  return buffers == 0 ? std::to_string(inputs) : str_format("{} and {} buffers", inputs, buffers);
}

std::string given_address(const Mismatch& mismatch, InputList inputs, const ContextMemory& memory) {
  const Tensor& input = inputs[mismatch.input];
  if (!input.defined()) return "a null tensor";
  if (mismatch.kind == Kind::kUnusable) return "a stale tensor";
  std::string given = str_format("{:#x}", input.address());
  if (mismatch.kind != Kind::kManagedAddress) return given;
  if (!memory.manages(*input.storage())) return given + ", not an output of this context";
  if (inputs.in_place(mismatch.input)) return given;
  return given + str_format(", where {} is to be padded", to_string(input.shape()));
}

// Returns both sides of a mismatch of an input: recorded and given.
std::pair<std::string, std::string> sides_of_input(const Mismatch& mismatch,
                                                   const Recording& recording, InputList inputs,
                                                   const ContextMemory& memory) {
  const InputRecord& record = recording.inputs[mismatch.input];
  const Tensor& input = inputs[mismatch.input];
  if (mismatch.kind == Kind::kSignature) {
    return {type_of(record.dtype, record.shape, recording.device),
            type_of(input.dtype(), inputs.shape(mismatch.input), input.device())};
  }
  if (record.treatment == Treatment::kNoBuffer) return {"no buffer", "one"};
  if (mismatch.kind == Kind::kAlignment) {
    return {str_format("aligned to {} bytes", record.address_mask + 1),
            str_format("{:#x}", input.address())};
  }
  return {str_format("{:#x}", record.address), given_address(mismatch, inputs, memory)};
}

// Another thread may have released the output since the mismatch was found.
std::pair<std::string, std::string> sides_of_output(const Mismatch& mismatch,
                                                    const Recording& recording,
                                                    const ContextMemory& memory) {
  const Slot& slot = memory.slot(mismatch.other);
  const Holder held = slot.holder;
  return {range_of(recording.footprint.ranges()[mismatch.input]),
          str_format("output {} of '{}' at {}", held.output, memory.function_name(held.function),
                     range_of(slot.range))};
}

void add_sides(std::vector<Mismatch>& mismatches, const Node* nearest, const DecisionInput& facts,
               const Call& call) {
  const InputList& inputs = call.inputs();
  for (Mismatch& mismatch : mismatches) {
    if (mismatch.is_of_input()) {
      mismatch.input_name = facts.function.input_options(mismatch.input).name;
    }
    if (mismatch.kind == Kind::kOverlap) {
      mismatch.recorded = call.describe(mismatch.other);
      mismatch.given = str_format("{} and {}", range_of(inputs[mismatch.input]),
                                  range_of(inputs[mismatch.other]));
    } else if (nearest == nullptr || mismatch.kind == Kind::kGuard) {
      continue;
    } else if (mismatch.kind == Kind::kInputCount) {
      const Recording& recording = nearest->recording;
      mismatch.recorded = counts(recording.inputs.size() - recording.buffers, recording.buffers);
      mismatch.given = counts(inputs.step_size(), inputs.buffers());
    } else if (mismatch.kind == Kind::kKey) {
      mismatch.recorded = nearest->recording.key;
      mismatch.given = inputs.key();
    } else if (mismatch.kind == Kind::kFootprint) {
      std::tie(mismatch.recorded, mismatch.given) =
          sides_of_output(mismatch, nearest->recording, facts.memory);
    } else {
      std::tie(mismatch.recorded, mismatch.given) =
          sides_of_input(mismatch, nearest->recording, inputs, facts.memory);
    }
  }
}

std::string on_other_device(const Call& call, Device device) {
  for (std::size_t i = 0; i < call.inputs().size(); ++i) {
    const Device other = call.inputs()[i].device();
    if (call.treatment(i) == Treatment::kValue || other == device) continue;
    return str_format("{} is on {}, the context on {}", call.describe(i), to_string(other),
                      to_string(device));
  }
  return {};
}

// Returns " with zeros in input 0 'slots', and the function writes input 2 'cache'"; "" if only
// functions that it calls write inputs.
std::string unsafe_inputs_of(const Call& call) {
  const AxisPlan& plan = *call.function().axes;
  std::string text;
  std::size_t written = 0;
  for (std::size_t i = 0; i < call.inputs().step_size(); ++i) {
    if (!plan.pads(i) || !plan.is_unsafe(i, call.inputs()[i].dtype())) continue;
    text += (text.empty() ? " with zeros in " : ", ") + call.describe(i);
    for (written = 0; written == i || !call.function().input_options(written).is_mutated;)
      ++written;
  }
  if (text.empty()) return text;
  return str_format("{}, and the function writes {}", text, call.describe(written));
}

std::string tried_again_after(const Backoff& backoff) {
  return str_format("; it is tried again after {} more call{}", backoff.calls_left(),
                    backoff.calls_left() == 1 ? "" : "s");
}

// Returns the subject of the reason in this call; "" if the reason needs none.
std::string detail_of(SkipReason reason, const DecisionInput& facts, const Call& call) {
  const FunctionState& function = facts.function;
  if (reason == SkipReason::kUnsafePadding)
    return function.axes->why_not(reason, call.axes()) + unsafe_inputs_of(call);
  if (is_of_axes(reason)) return function.axes->why_not(reason, call.axes());
  const KeyState* const key = function.find(call);
  const Limits& limits = facts.limits;
  const Spent& spent = facts.tree.spent;
  switch (reason) {
    case SkipReason::kOtherDevice:
      return on_other_device(call, facts.memory.device());
    case SkipReason::kOtherPartition:
      return str_format("stream {:#x}",
                        static_cast<std::uintptr_t>(facts.memory.stream().handle()));
    case SkipReason::kCaptureFailed:
    case SkipReason::kCaptureDisturbed:
    case SkipReason::kKeepsTensor:
    case SkipReason::kPoolLimit:
      if (key == nullptr || !key->captures.waits()) return key ? key->capture_failure : "";
      if (key->captures.calls_left() == Backoff::kForGood) {
        return key->capture_failure + "; captures do not allow that, and it is not tried again";
      }
      return key->capture_failure + tried_again_after(key->captures);
    case SkipReason::kBacksOff:
    case SkipReason::kChangingGuard:
      if (function.evictions.waits()) {
        return str_format("{} recordings in a row were dropped after fewer than {} replays{}",
                          function.evictions.failures(), KeyState::kPays,
                          tried_again_after(function.evictions));
      }
      if (key == nullptr || !key->remakes.waits()) return {};
      return str_format("{} recordings in a row were followed by fewer than {} replays{}",
                        key->remakes.failures(), KeyState::kPays, tried_again_after(key->remakes));
    case SkipReason::kFunctionLimit:
      return str_format("{} recordings, max_recordings is {}", function.recordings.get(),
                        function.options.max_recordings);
    case SkipReason::kContextLimit:
      return str_format("{} recordings, max_recordings is {}", facts.tree.nodes().size(),
                        limits.recordings);
    case SkipReason::kGraphBytesLimit:
      return str_format(
          "graphs of {} bytes{}, max_graph_bytes is {}", spent.graph_bytes.get(),
          key != nullptr && key->is_too_large ? " without its own, which is larger" : "",
          limits.graph_bytes);
    case SkipReason::kTimeLimit:
      return str_format("{} us spent, max_recording_time is {} us",
                        spent.recording_time.get().count(), limits.recording_time.count());
    default:
      return {};
  }
}

// `node`: the recording that would be replayed, or null.
std::vector<std::string> notes_on_copies(const Call& call, const Node* node) {
  constexpr std::uint64_t kManyReplays = 100;
  const bool stayed = node != nullptr && node->recording.costs.patches.get() == 0;
  const std::uint64_t in_place = stayed ? node->recording.costs.replays.get() : 0;
  const InputList& inputs = call.inputs();
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < inputs.step_size(); ++i) {
    const Treatment treatment =
        node != nullptr ? node->recording.inputs[i].treatment : call.treatment(i);
    const bool is_large = inputs[i].bytes() > kLargeCopyBytes;
    if (!is_copied(treatment) || (!is_large && in_place < kManyReplays)) continue;
    notes.push_back(str_format(
        "{}: {} bytes are copied {}at each call, {}: declare it static, and keep it where it is{}",
        call.describe(i), inputs[i].bytes(),
        treatment == Treatment::kCopiedBack ? "in and back " : "",
        is_large ? str_format("more than is worth it ({})", kLargeCopyBytes)
                 : str_format("and have not moved in {} replays", in_place),
        is_large ? ", or let it be rebound" : ""));
  }
  return notes;
}

}  // namespace

Explanation explain(const Decision& decision, const DecisionInput& facts, const Call& call,
                    const Extensions& extensions) {
  Explanation why = explain(decision, facts, call);
  const FunctionState& function = facts.function;
  if (why.skip_reason) why.detail = detail_of(*why.skip_reason, facts, call);
  add_sides(why.mismatches, facts.tree.find(why.nearest), facts, call);
  if (function.axes != nullptr) why.axes = function.axes->in_use(call.axes(), !why.skip_reason);
  if (why.outcome == Outcome::kReplay) return why;
  const std::optional<CallOutcome> last = function.last_outcome.get();
  if (last && last->outcome == Outcome::kThrow)
    why.last_failure = facts.tree.last_failure(function);
  extensions.explain(why, function, call);
  return why;
}

std::vector<std::string> notes_on(const Decision& decision, const Call& call) {
  std::vector<std::string> notes = notes_on_copies(call, decision.node);
  if (decision.node == nullptr) return notes;
  const Recording& recording = decision.node->recording;
  if (recording.copies_outputs()) {
    notes.push_back(str_format(
        "its outputs are copied to memory of their own, because recordings were made again and "
        "again while outputs were held: {}",
        difference(decision.node->why)));
  }
  for (const RebindChoice& choice : recording.rebinds) {
    notes.push_back(
        choice.is_rebound
            ? str_format("{} is rebound in {} nodes", call.describe(choice.input), choice.nodes)
            : str_format("{} is not rebound: {}", call.describe(choice.input), choice.why));
  }
  for (const auto& more : {notes_on_outputs(call.function(), call.axes(), recording),
                           notes_on_padding(call.function(), call.axes(), &recording)})
    notes.insert(notes.end(), more.begin(), more.end());
  return notes;
}

// An output inside an input is the caller's; notes_on_outputs() covers outputs of padded size.
std::vector<std::string> notes_on_padding(const Function& function, const CallAxes& axes,
                                          const Recording* recording) {
  if (function.axes == nullptr) return {};
  const AxisPlan& plan = *function.axes;
  const AxisLayout& layout = plan.layout();
  std::vector<std::string> notes;
  const auto has = [](const std::vector<AxisUse>& uses, std::size_t tensor, std::uint32_t axis) {
    return std::ranges::any_of(
        uses, [&](const AxisUse& use) { return use.tensor == tensor && use.axis == axis; });
  };
  for (const AxisUse& use : layout.inputs) {
    if (!plan.rule(use.axis).pads() || plan.is_unsafe(axes, use.axis) ||
        plan.padding(use.tensor).kind != Padding::Kind::kUnset) {
      continue;
    }
    const std::vector<InputOptions>& inputs = function.options.inputs;
    const std::string& axis = plan.rule(use.axis).name();
    const auto add = [&](const std::string& what, std::string_view does) {
      notes.push_back(str_format(
          "{} is padded with zeros along '{}', and {} has no such axis: it {} what the function "
          "makes "
          "of them; choose InputOptions::padding (Padding::zeros() if they are right), or read "
          "axis_length(\"{}\")",
          text_of_input(use.tensor, inputs[use.tensor].name), axis, what, does, axis));
    };
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].is_mutated && !has(layout.inputs, i, use.axis))
        add(text_of_input(i, inputs[i].name) + ", which is written,", "keeps");
    if (recording == nullptr || !recording->lengths.empty()) continue;
    const std::vector<OutputOptions>& outputs = function.options.outputs;
    const std::int64_t padded = recording->inputs[use.tensor].shape.dim(static_cast<int>(use.dim));
    for (std::size_t i = 0; i < recording->outputs.size(); ++i) {
      const OutputRecord& output = recording->outputs[i];
      if (output.kind == OutputRecord::Kind::kInput || has(layout.outputs, i, use.axis) ||
          std::ranges::count(output.shape.dims(), padded) > 0) {
        continue;
      }
      add(text_of_output(i, i < outputs.size() ? outputs[i].name : ""), "shows");
    }
  }
  return notes;
}

std::vector<std::string> notes_on_outputs(const Function& function, const CallAxes& axes,
                                          const Recording& recording) {
  if (function.axes == nullptr) return {};
  const AxisLayout& layout = function.axes->layout();
  const auto is_declared = [&](std::size_t output, std::uint32_t axis) {
    return std::ranges::any_of(layout.outputs, [&](const AxisUse& use) {
      return use.tensor == output && use.axis == axis;
    });
  };
  std::vector<std::string> notes;
  for (std::uint32_t i = 0; i < recording.outputs.size(); ++i) {
    const OutputRecord& output = recording.outputs[i];
    if (output.kind == OutputRecord::Kind::kInput) continue;
    const auto has_axis = [&](const AxisUse& use) {
      const auto dim = static_cast<int>(use.dim);
      const std::int64_t padded = axes.padded[use.axis];
      return function.axes->rule(use.axis).pads() && padded > 1 && dim < output.shape.rank() &&
             output.shape.dim(dim) == padded && !is_declared(i, use.axis);
    };
    const auto use = std::ranges::find_if(layout.inputs, has_axis);
    if (use == layout.inputs.end()) continue;
    const std::vector<OutputOptions>& outputs = function.options.outputs;
    const std::string& axis = function.axes->rule(use->axis).name();
    notes.push_back(str_format(
        "{} has {} at its axis {}, as '{}' is padded, and is not cut to the size of the call: "
        "declare OutputOptions::dynamic {{{{{}, \"{}\"}}}}, unless it is another axis",
        text_of_output(i, i < outputs.size() ? outputs[i].name : ""), axes.padded[use->axis],
        use->dim, axis, use->dim, axis));
  }
  return notes;
}

}  // namespace cgtree
