// Names and sentences for skip reasons, mismatches and explanations.
#include "cgtree/values/explanation.h"
#include "base/format.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cgtree {
namespace {

// In the order of SkipReason, as is kReasons.
constexpr std::string_view kReasonNames[] = {
    "disabled",          "no_graph_scope",     "no_graphs",
    "nested_call",       "foreign_capture",    "other_device",
    "other_partition",   "overlapping_inputs", "capture_failed",
    "capture_disturbed", "keeps_tensor",       "static_changed",
    "function_limit",    "context_limit",      "graph_bytes_limit",
    "pool_limit",        "time_limit",         "frozen",
    "backs_off",         "changing_guard",     "dynamic_axis",
    "size_not_listed",   "size_limit",         "above_largest_bucket",
    "not_recorded",      "too_much_padding",   "unsafe_padding"};
static_assert(std::size(kReasonNames) == kSkipReasonCount);

struct ReasonRow {
  std::string_view explanation;
  std::string_view advice;
};

constexpr ReasonRow kReasons[] = {
    {"compiled with enabled = false", "compile it with CompileOptions::enabled = true"},
    {"called while a NoGraph lives on this thread", "end the NoGraph before the call"},
    {"the device has no graphs", "use a device with graphs: cuda, or host"},
    {"called inside another step function, whose recording includes it",
     "nothing: it is replayed with the outer function"},
    {"other code is capturing the stream, and its graph includes the work",
     "call it before or after that capture, or leave the capture to cgtree"},
    {"an input lives on another device", "copy the input to the context's device first"},
    {"the caller's stream belongs to a partition of the processors (a green context), and a "
     "recording would replay on those of the context",
     "give the context a stream of that partition: ContextOptions::stream"},
    {"two inputs share memory, the function writes into one of them, and a graph would work on a "
     "copy of one alone",
     "declare both static, or pass tensors that lie apart"},
    {"an earlier capture failed, most often because the work synchronises, queries or allocates "
     "outside the pool",
     "move what synchronises or queries out of the function, or of Steps out of what runs between "
     "begin() and end(), or into an eager_break(); and allocate with empty(), or before"},
    {"another thread has invalidated an earlier capture: it has waited for the device, or for the "
     "legacy stream",
     "nothing, if it was once: the call is captured again later; else keep other threads from "
     "synchronising the device or the legacy stream while calls are recorded, or precapture()"},
    {"the function keeps a tensor that it made while it was captured, where each replay would "
     "write",
     "make what the function keeps in its first call, or before, or return it"},
    {"static inputs have other addresses than recorded, and OnStaticChange::kThrow forbids it",
     "choose OnStaticChange::kRecord or kDemote"},
    {"the function has as many recordings as CompileOptions::max_recordings",
     "raise CompileOptions::max_recordings, or let AtLimit::kEvict drop old ones"},
    {"the context has as many recordings as ContextOptions::max_recordings",
     "raise ContextOptions::max_recordings, or let AtLimit::kEvict drop old ones"},
    {"the graphs of the context take as much memory as ContextOptions::max_graph_bytes",
     "raise ContextOptions::max_graph_bytes, or let AtLimit::kEvict drop old recordings"},
    {"memory is too short for a recording beside what the context holds",
     "leave the pools more memory: raise ContextOptions::max_bytes, hold fewer outputs, or let "
     "AtLimit::kEvict drop old recordings"},
    {"warming up and recording have taken as long as ContextOptions::max_recording_time",
     "raise ContextOptions::max_recording_time"},
    {"no recording fits, and nothing is recorded while the function is frozen",
     "unfreeze() it, or record such calls before freeze()"},
    {"the last recordings were replayed too rarely to pay, and the next one waits",
     "keep static inputs at one address, or let recordings stay: raise the limit that evicts them, "
     "and pass as inputs the outputs that mark_step() ends"},
    {"a guard has answered otherwise too often for recordings to pay, and the next one waits",
     "ask for what changes rarely, or let the work read the value in a tensor or a step block"},
    {"the size of an axis has varied, and AxisPolicy::kSkip is for that",
     "give the axis buckets, or AxisPolicy::kExact"},
    {"the size of an axis is not in the list of AxisPolicy::kAllowList",
     "add the size to the list, or give the axis buckets"},
    {"an axis has had as many sizes as AxisOptions::max_sizes",
     "raise AxisOptions::max_sizes, pad the sizes to buckets, or let AtMaxSizes::kEvict drop old "
     "ones"},
    {"an axis is larger than the largest of its buckets", "add a larger bucket"},
    {"no recording holds the sizes of the call, and calls make none",
     "precapture() the sizes, or let a SizeLearner find them"},
    {"padding would make the work larger than CompileOptions::max_waste times",
     "add buckets near such sizes, or raise CompileOptions::max_waste"},
    {"zeros would pad an input that is not floating, and the function writes another input: a zero "
     "may be an index, a slot or a length",
     "give InputOptions::padding a value that is no index, such as -1, or the last row, zeros or "
     "anything"},
};
static_assert(std::size(kReasons) == kSkipReasonCount);

// A recording may overwrite many outputs that are still held.
constexpr std::size_t kMismatchesInALine = 3;

// Returns whether, without this reason, the call would be warmed up or recorded.
bool needs_a_recording(SkipReason reason) noexcept {
  switch (reason) {
    case SkipReason::kStaticChanged:
    case SkipReason::kFunctionLimit:
    case SkipReason::kContextLimit:
    case SkipReason::kGraphBytesLimit:
    case SkipReason::kTimeLimit:
    case SkipReason::kFrozen:
    case SkipReason::kBacksOff:
    case SkipReason::kChangingGuard:
      return true;
    default:
      return false;
  }
}

// The parts of a text such as "float32 {4, 2} strides {4, 1} on cuda:0".
struct TypeText {
  explicit TypeText(std::string_view text)
      : dtype(text.substr(0, text.find(' '))),
        dims(text.substr(std::min(dtype.size(), text.size()))),
        device(text.substr(std::min(text.rfind(' '), text.size()))) {
    dims = dims.substr(0, dims.find('}'));
  }
  std::string_view dtype;
  std::string_view dims;
  std::string_view device;
};

// Returns the sizes in " {4, 2".
std::vector<std::string_view> sizes_of(std::string_view dims) {
  std::vector<std::string_view> sizes;
  dims.remove_prefix(std::min(dims.find('{') + 1, dims.size()));
  while (!dims.empty()) {
    const std::size_t end = std::min(dims.find(", "), dims.size());
    sizes.push_back(dims.substr(0, end));
    dims.remove_prefix(std::min(end + 2, dims.size()));
  }
  return sizes;
}

// Returns the only axis along which the sizes differ, if there is one.
std::optional<std::size_t> varying_axis(std::string_view recorded, std::string_view given) {
  const auto before = sizes_of(recorded);
  const auto now = sizes_of(given);
  if (before.size() != now.size()) return std::nullopt;
  std::optional<std::size_t> axis;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (before[i] == now[i]) continue;
    if (axis) return std::nullopt;
    axis = i;
  }
  return axis;
}

std::string advice_on_type(const Mismatch& mismatch, const std::string& input) {
  const TypeText recorded(mismatch.recorded);
  const TypeText given(mismatch.given);
  if (recorded.dtype != given.dtype) {
    return str_format(
        "pass {} as {}, as it was recorded; calls with elements of {} have recordings of their own",
        input, recorded.dtype, given.dtype);
  }
  if (recorded.device != given.device) {
    return str_format("pass {} on{}, as it was recorded", input, recorded.device);
  }
  if (recorded.dims == given.dims) {
    return str_format("pass {} with the strides that were recorded, or a copy of its elements",
                      input);
  }
  const auto axis = varying_axis(recorded.dims, given.dims);
  return str_format(
      "pass {} as it was recorded, or declare the axis that varies{} in InputOptions::dynamic and "
      "give it buckets",
      input, axis ? str_format(", axis {},", *axis) : "");
}

std::string name_of_input(const Mismatch& mismatch) {
  return mismatch.input_name.empty() ? str_format("input {}", mismatch.input)
                                     : str_format("'{}'", mismatch.input_name);
}

// Returns advice for a function that was warmed up with other inputs each time: keep the inputs
// alike.
std::string advice_on_change(const Mismatch& changed, bool has_axes) {
  if (changed.kind != Mismatch::Kind::kSignature) return advice(changed);
  if (has_axes) {
    return "give the axes that vary buckets, so that calls of several sizes share a recording";
  }
  const TypeText before(changed.recorded);
  const TypeText now(changed.given);
  const std::string input = name_of_input(changed);
  if (before.dtype != now.dtype) return str_format("pass {} with elements of one type", input);
  if (before.dims == now.dims) return str_format("pass {} with the same strides each time", input);
  const auto axis = varying_axis(before.dims, now.dims);
  return str_format(
      "declare {} of {} in InputOptions::dynamic and give it buckets, so that calls of several "
      "sizes share a recording",
      axis ? str_format("axis {}", *axis) : "the axes that vary", input);
}

// Returns whether the recording fits except for the addresses of memory.
bool is_of_place(Mismatch::Kind kind) noexcept {
  return kind >= Mismatch::Kind::kStaticAddress;
}

// Returns one sentence with both sides. `before`: names the first side.
std::string both_sides(const Mismatch& mismatch, std::string_view before) {
  using Kind = Mismatch::Kind;
  if (mismatch.kind == Kind::kFootprint) {
    return str_format("{} is held, where it writes {}", mismatch.given, mismatch.recorded);
  }
  if (mismatch.kind == Kind::kInputCount) {
    return str_format("{} inputs {}, {} given", mismatch.recorded, before, mismatch.given);
  }
  if (mismatch.kind == Kind::kKey || mismatch.kind == Kind::kGuard) {
    const bool is_key = mismatch.kind == Kind::kKey;
    return str_format("{} [{}] {}, [{}] given",
                      is_key ? "key" : str_format("guard '{}'", mismatch.input_name),
                      mismatch.recorded, before, mismatch.given);
  }
  const std::string input =
      str_format("input {}{}", mismatch.input,
                 mismatch.input_name.empty() ? "" : str_format(" '{}'", mismatch.input_name));
  if (mismatch.kind == Kind::kOverlap) {
    return str_format("{} shares memory with {}: {}", input, mismatch.recorded, mismatch.given);
  }
  const char* const treatment = mismatch.kind == Kind::kStaticAddress    ? "static "
                                : mismatch.kind == Kind::kManagedAddress ? "managed "
                                                                         : "";
  return str_format("{}{}: {} {}, {} given", treatment, input, mismatch.recorded, before,
                    mismatch.given);
}

// Returns whether the present recordings hold other sizes of dynamic axes.
bool is_of_other_sizes(const Explanation& explanation) {
  return !explanation.axes.empty() &&
         explanation.mismatches.front().kind == Mismatch::Kind::kSignature;
}

}  // namespace

std::string_view name(SkipReason reason) noexcept {
  return kReasonNames[static_cast<int>(reason)];
}

std::string_view explain(SkipReason reason) noexcept {
  return kReasons[static_cast<int>(reason)].explanation;
}

std::string_view advice(SkipReason reason) noexcept {
  return kReasons[static_cast<int>(reason)].advice;
}

std::string_view name(Mismatch::Kind kind) noexcept {
  switch (kind) {
    case Mismatch::Kind::kNone:
      return "none";
    case Mismatch::Kind::kUnusable:
      return "unusable";
    case Mismatch::Kind::kInputCount:
      return "input_count";
    case Mismatch::Kind::kKey:
      return "key";
    case Mismatch::Kind::kSignature:
      return "signature";
    case Mismatch::Kind::kGuard:
      return "guard";
    case Mismatch::Kind::kStaticAddress:
      return "static_address";
    case Mismatch::Kind::kManagedAddress:
      return "managed_address";
    case Mismatch::Kind::kAlignment:
      return "alignment";
    case Mismatch::Kind::kOverlap:
      return "overlap";
    case Mismatch::Kind::kFootprint:
      return "footprint";
  }
  return "unknown";
}

std::string to_string(const Mismatch& mismatch) {
  return both_sides(mismatch, "recorded");
}

std::string advice(const Mismatch& mismatch) {
  using Kind = Mismatch::Kind;
  const std::string input = name_of_input(mismatch);
  switch (mismatch.kind) {
    case Kind::kNone:
      break;
    case Kind::kUnusable:
      return str_format(
          "pass a tensor that is alive as {}: keep() an output that is to outlive "
          "mark_step()",
          input);
    case Kind::kInputCount:
      return "pass as many inputs and buffers as in the recorded call, or compile one function for "
             "each number";
    case Kind::kKey:
      return "leave out of the key what the work does not depend on, or round an integer of it up "
             "with the option `keys`";
    case Kind::kSignature:
      return advice_on_type(mismatch, input);
    case Kind::kGuard:
      return str_format("let {} answer as before: each answer has recordings of its own", input);
    case Kind::kStaticAddress:
      return str_format(
          "keep {} at one address, or do not declare it static: then it is copied; a binding of "
          "Steps may be copied, or be per session",
          input);
    case Kind::kManagedAddress:
      return str_format(
          "pass the output of the same call as {}, and let go of the outputs of a step before the "
          "next, in a context with steps by mark_step()",
          input);
    case Kind::kAlignment:
      return str_format("align {} as it was when recorded, or choose Rebind::kNever", input);
    case Kind::kOverlap:
      return str_format("pass {} and {} that lie apart", input, mismatch.recorded);
    case Kind::kFootprint:
      return "let go of outputs before the next call, or in a context with steps call mark_step() "
             "where one begins";
  }
  return {};
}

std::string_view name(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::kReplay:
      return "replay";
    case Outcome::kRecord:
      return "record";
    case Outcome::kWarmUp:
      return "warm_up";
    case Outcome::kRunEagerly:
      return "run_eagerly";
    case Outcome::kThrow:
      return "throw";
  }
  return "unknown";
}

std::string difference(const Explanation& explanation) {
  using Outcome = Outcome;
  if (explanation.outcome == Outcome::kReplay) return {};
  std::string text;
  const auto add = [&](std::string_view more) {
    if (!more.empty()) text += str_format("{}{}", text.empty() ? "" : "; ", more);
  };
  if (explanation.skip_reason) add(explain(*explanation.skip_reason));
  add(explanation.detail);
  for (std::size_t i = 0; i < explanation.mismatches.size(); ++i) {
    if (i == kMismatchesInALine) {
      add(str_format("and {} more", explanation.mismatches.size() - i));
      break;
    }
    add(to_string(explanation.mismatches[i]));
  }
  if (explanation.changed.kind != Mismatch::Kind::kNone) {
    add(str_format("the function has no recording, and its calls differ: {}",
                   both_sides(explanation.changed, "in the last")));
  }
  if (explanation.made_again) add("the recording of such calls was dropped");
  if (!explanation.last_failure.empty())
    add(str_format("the last call threw \"{}\"", explanation.last_failure));
  if (!text.empty()) return text;
  return explanation.outcome == Outcome::kWarmUp
             ? "the function has no recording, and is called with such inputs for the first time"
             : "the function was warmed up with such inputs, and has no recording of them";
}

std::string advice(const Explanation& explanation) {
  using Outcome = Outcome;
  if (explanation.outcome == Outcome::kReplay) return {};
  std::string text;
  if (explanation.skip_reason) text = advice(*explanation.skip_reason);
  const bool wants_a_recording =
      !explanation.skip_reason || needs_a_recording(*explanation.skip_reason);
  const bool has_mismatch = wants_a_recording && !explanation.mismatches.empty();
  const bool is_of_other_key =
      has_mismatch && explanation.mismatches.front().kind == Mismatch::Kind::kKey;
  if (is_of_other_key && text.empty()) {
    text = str_format(
        "nothing: each key has recordings of its own, and {}; leave out of the key what the work "
        "does not depend on",
        explanation.outcome == Outcome::kWarmUp ? "the second call with this one is recorded"
                                                : "calls with this one are replayed from now on");
  } else if (has_mismatch && is_of_other_sizes(explanation)) {
    if (text.empty()) {
      text =
          "nothing: each size that calls are padded to has a recording of its own; precapture() "
          "makes them beforehand";
    }
  } else if (has_mismatch && explanation.skip_reason && is_of_limit(*explanation.skip_reason) &&
             is_of_place(explanation.mismatches.front().kind)) {
    text = str_format("{}; or {}", advice(explanation.mismatches.front()), text);
  } else if (has_mismatch) {
    text += str_format("{}{}", text.empty() ? "" : "; to need no new recording, ",
                       advice(explanation.mismatches.front()));
  }
  if (!explanation.last_failure.empty() && !explanation.skip_reason) {
    return "mend what the last call threw: a call that throws is neither a warm-up nor a recording";
  }
  if (text.empty() && explanation.changed.kind != Mismatch::Kind::kNone) {
    return advice_on_change(explanation.changed, !explanation.axes.empty());
  }
  if (text.empty() && explanation.made_again) {
    return "nothing: such calls are replayed from the next one on; where recordings are evicted in "
           "turn, raise the limit";
  }
  if (!text.empty()) return text;
  return explanation.outcome == Outcome::kWarmUp
             ? "nothing: the second such call is recorded, and replayed from the third on"
             : "nothing: such calls are replayed from the next one on";
}

std::string to_string(const CallOutcome& outcome) {
  const auto& reason = outcome.skip_reason;
  return str_format("{}{}", name(outcome.outcome),
                    reason ? str_format(" ({})", name(*reason)) : "");
}

std::string to_string(const Explanation& explanation) {
  std::string text(name(explanation.outcome));
  if (explanation.outcome == Outcome::kReplay) {
    text += str_format(" node {}", explanation.node);
  } else {
    if (explanation.skip_reason) text += str_format(" ({})", name(*explanation.skip_reason));
    text += str_format(": {}\n  to replay: {}", difference(explanation), advice(explanation));
  }
  for (const AxisInUse& axis : explanation.axes) {
    text += str_format("\n  {} '{}': {}", axis.is_of_key ? "key" : "axis", axis.name, axis.actual);
    if (axis.padded <= axis.actual) continue;
    text += str_format(", {} to {}", axis.is_of_key ? "rounded up" : "padded", axis.padded);
  }
  for (const std::string& note : explanation.notes)
    text += "\n  " + note;
  return text;
}

}  // namespace cgtree
