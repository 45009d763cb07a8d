// Counts causes, compares warm-ups, and names causes.
#include "extensions/watch/call_causes.h"
#include "base/format.h"

#include <array>
#include <cctype>
#include <iterator>
#include <mutex>
#include <new>
#include <utility>

namespace cgtree {
namespace {

using Kind = Mismatch::Kind;

struct CauseText {
  std::string_view name;
  std::string_view text;
};

// In the order of Cause.
constexpr CauseText kCauseTexts[] = {
    {"first", "its first"},
    {"made_again", "its recording was dropped"},
    {"bad_input", "an input was null or stale"},
    {"input_count", "another number of inputs"},
    {"key", "another key"},
    {"shape", "another shape or type"},
    {"guard", "another answer of a guard"},
    {"static_moved", "a static input moved"},
    {"output_moved", "another output as an input"},
    {"alignment", "an input was less aligned"},
    {"overlap", "inputs shared memory"},
    {"output_held", "an output was held"},
};
static_assert(std::size(kCauseTexts) == kCauseCount);

// The texts of a recurring failure differ in counts and addresses.
std::string without_numbers(std::string_view text) {
  std::string rest;
  bool in_number = false;
  for (const char c : text) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    in_number = is_digit || (in_number && std::isxdigit(static_cast<unsigned char>(c)) != 0) ||
                (in_number && c == 'x');
    if (!in_number) rest += c;
  }
  return rest;
}

std::uint64_t& counter_of(std::array<std::uint64_t, kCauseCount>& counts, Cause cause) {
  return counts[static_cast<std::size_t>(cause)];
}

}  // namespace

std::string_view name(Cause cause) noexcept {
  return kCauseTexts[static_cast<int>(cause)].name;
}

std::string_view explain(Cause cause) noexcept {
  return kCauseTexts[static_cast<int>(cause)].text;
}

static_assert(static_cast<int>(Cause::kBadInput) == static_cast<int>(Kind::kUnusable) + 1);
static_assert(static_cast<int>(Cause::kOutputHeld) == static_cast<int>(Kind::kFootprint) + 1);

// Both have the same order; kMadeAgain has no kind.
Cause cause_of(Kind kind) noexcept {
  return kind == Kind::kNone ? Cause::kFirst : static_cast<Cause>(static_cast<int>(kind) + 1);
}

Cause cause_of(const Explanation& why) noexcept {
  if (why.made_again) return Cause::kMadeAgain;
  return why.mismatches.empty() ? Cause::kFirst : cause_of(why.mismatches.front().kind);
}

std::string sides_of_change(const Mismatch& changed) {
  if (changed.kind == Kind::kKey)
    return str_format("the key was [{}], then [{}]", changed.recorded, changed.given);
  if (changed.kind == Kind::kInputCount)
    return str_format("there were {} inputs, then {}", changed.recorded, changed.given);
  return str_format("input {}{} was {}, then {}", changed.input,
                    changed.input_name.empty() ? "" : str_format(" '{}'", changed.input_name),
                    changed.recorded, changed.given);
}

Mismatch change_between(const Signature& before, const Signature& now, const Function& function) {
  if (before.key() != now.key()) {
    return {.kind = Kind::kKey, .recorded = before.key(), .given = now.key()};
  }
  if (before.size() != now.size()) {
    return {.kind = Kind::kInputCount,
            .recorded = std::to_string(before.size()),
            .given = std::to_string(now.size())};
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (before.type(i) == now.type(i)) continue;
    return {.kind = Kind::kSignature,
            .input = static_cast<std::uint32_t>(i),
            .input_name = function.input_options(i).name,
            .recorded = before.type(i),
            .given = now.type(i)};
  }
  return {};
}

CallCauses::Entry& CallCauses::entry_of(const FunctionState& function) {
  const auto found = entries_.find(function.id);
  if (found != entries_.end()) return found->second;
  if (entries_.size() >= kMostFunctions) {
    add(forgotten_, entries_.begin()->second);
    entries_.erase(entries_.begin());
  }
  Entry& entry = entries_[function.id];
  entry.function = function.name;
  return entry;
}

void CallCauses::add(Sums& sums, const Entry& entry) {
  const bool has_room = sums.size() < kMostFunctions || sums.contains(entry.function);
  FunctionCauses& sum = sums[has_room ? entry.function : ""];
  for (std::size_t i = 0; i < kCauseCount; ++i) {
    sum.warm_ups[i] += entry.causes.warm_ups[i];
    sum.recordings[i] += entry.causes.recordings[i];
  }
  if (entry.causes.changed.kind != Kind::kNone) sum.changed = entry.causes.changed;
  if (!entry.causes.last_failure.empty()) sum.last_failure = entry.causes.last_failure;
}

CallCauses::WarmUp CallCauses::note_warm_up(const FunctionState& function,
                                            const Signature& inputs) noexcept try {
  const std::lock_guard lock(mutex_);
  Entry& entry = entry_of(function);
  const std::uint64_t others = function.counters.replays + function.counters.recordings;
  WarmUp one;
  if (entry.inputs) one.changed = change_between(*entry.inputs, inputs, function);
  ++counter_of(entry.causes.warm_ups, cause_of(one.changed.kind));
  if (entry.replays_and_recordings != others) entry.warm_ups = 0;
  entry.replays_and_recordings = others;
  one.count = ++entry.warm_ups;
  entry.inputs = inputs;
  if (one.changed.kind != Kind::kNone) entry.causes.changed = one.changed;
  return one;
} catch (const std::bad_alloc&) {  // the warm-up is not counted
  return {};
}

std::uint64_t CallCauses::note_recording(const Node& node) noexcept try {
  const std::lock_guard lock(mutex_);
  return ++counter_of(entry_of(*node.function).causes.recordings, cause_of(node.why));
} catch (const std::bad_alloc&) {
  return 0;
}

std::uint64_t CallCauses::note_failure(const FunctionState& function,
                                       std::string_view what) noexcept try {
  const std::lock_guard lock(mutex_);
  Entry& entry = entry_of(function);
  entry.causes.last_failure = what;
  const std::string text = without_numbers(what);
  const bool has_room = entry.failures.size() < kMostTexts || entry.failures.contains(text);
  return ++entry.failures[has_room ? text : ""];
} catch (const std::bad_alloc&) {
  return 1;
}

Mismatch CallCauses::change(const FunctionState& function, InputList inputs) const {
  const Signature now(inputs);
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(function.id);
  const bool is_known = found != entries_.end() && found->second.inputs;
  return is_known ? change_between(*found->second.inputs, now, function) : Mismatch{};
}

std::map<std::uint32_t, FunctionCauses> CallCauses::all() const {
  const std::lock_guard lock(mutex_);
  std::map<std::uint32_t, FunctionCauses> all;
  for (const auto& [function, entry] : entries_)
    all.emplace(function, entry.causes);
  return all;
}

std::map<std::string, FunctionCauses, std::less<>> CallCauses::by_name() const {
  const std::lock_guard lock(mutex_);
  Sums sums = forgotten_;
  for (const auto& [function, entry] : entries_)
    add(sums, entry);
  return sums;
}

}  // namespace cgtree
