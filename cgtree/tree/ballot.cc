// Votes on the actions of the ranks of a group, and on their results.
#include "cgtree/tree/ballot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"

namespace cgtree {
namespace {

// The words of a vote.
enum Word { kDigest, kNotDigest, kKindAndRank, kTime, kGraphBytes, kCapture };
constexpr std::array<std::uint64_t, 6> kNothing = {UINT64_MAX, UINT64_MAX, UINT64_MAX,
                                                   UINT64_MAX, UINT64_MAX, UINT64_MAX};

// A message of a rank about itself: 15 words of 8 characters, and an end.
using Text = std::array<std::uint64_t, 16>;

Text to_words(std::string_view text) {
  Text words{};
  std::memcpy(words.data(), text.data(), std::min(text.size(), sizeof words - 1));
  return words;
}

std::string to_string(std::span<const std::uint64_t> words) {
  return std::string(reinterpret_cast<const char*>(words.data()));
}

// A message is short: it names only limits that were set.
std::string in_words(const ContextOptions& options) {
  const ContextOptions usual;
  std::string words = str_format(" with at most {} recordings", options.max_recordings);
  if (options.max_graph_bytes != usual.max_graph_bytes)
    words += str_format(", {} bytes of graphs", options.max_graph_bytes);
  if (options.max_recording_time != usual.max_recording_time)
    words += str_format(", {} us of recording", options.max_recording_time.count());
  if (options.at_limit != usual.at_limit)
    words += str_format(", at_limit {}", static_cast<int>(options.at_limit));
  if (options.checked) words += ", checked";
  if (options.before_first_launch != nullptr) words += ", before_first_launch";
  return words;
}

// The minimum of this word over all ranks is the largest value.
constexpr std::uint64_t largest(std::uint64_t value) {
  return ~value;
}

// Each option is named in a structured binding, which does not compile after an option is added:
// its meaning for the group must be decided then.

void add(Digest& digest, std::string_view text) {
  digest.add(text);
}

void add(Digest& digest, double number) {
  digest.add(std::bit_cast<std::uint64_t>(number));
}

template <typename Number>
requires std::is_integral_v<Number> || std::is_enum_v<Number>
void add(Digest& digest, Number number) {
  digest.add(static_cast<std::uint64_t>(number));
}

void add(Digest& digest, const DynamicAxis& dynamic);
void add(Digest& digest, const Padding& padding);
void add(Digest& digest, const AxisOptions& options);
void add(Digest& digest, const Buckets& buckets);
void add(Digest& digest, const InputOptions& options);
void add(Digest& digest, const OutputOptions& options);

template <typename Value>
void add(Digest& digest, const std::vector<Value>& values) {
  digest.add(values.size());
  for (const Value& value : values)
    add(digest, value);
}

template <typename... Values>
void add_all(Digest& digest, const Values&... values) {
  (add(digest, values), ...);
}

void add(Digest& digest, const DynamicAxis& dynamic) {
  const auto& [axis, name] = dynamic;
  add_all(digest, axis, name);
}

void add(Digest& digest, const Padding& padding) {
  const auto& [kind, value] = padding;
  add_all(digest, kind, value);
}

void add(Digest& digest, const AxisOptions& options) {
  const auto& [name, policy, sizes, multiple_of, largest, max_sizes, at_max_sizes, above_largest] =
      options;
  add_all(digest, name, policy, sizes, multiple_of, largest, max_sizes, at_max_sizes,
          above_largest);
}

void add(Digest& digest, const Buckets& buckets) {
  const auto& [axis, sizes, above_largest] = buckets;
  add_all(digest, axis, sizes, above_largest);
}

// Names are for messages alone, and may distinguish shards.
void add(Digest& digest, const InputOptions& options) {
  const auto& [name, is_static, alignment, is_mutated, tolerance, rebind, dynamic, padding,
               require_contiguous] = options;
  add_all(digest, is_static, alignment, is_mutated, tolerance, rebind, dynamic, padding,
          require_contiguous);
}

void add(Digest& digest, const OutputOptions& options) {
  const auto& [name, dynamic, tolerance, rebind] = options;
  add_all(digest, dynamic, tolerance, rebind);
}

}  // namespace

// The name, the stream and the memory are a rank's own; outputs_lie_apart is refused in a group.
// Extensions describe their options in words.
Digest digest_of(const ContextOptions& options) {
  const auto& [name, stream, owner, max_bytes, segments, pools_grow_in_place, outputs_lie_apart,
               max_recordings, max_graph_bytes, max_recording_time, at_limit, checked, group,
               before_first_launch, extensions] = options;
  Digest digest;
  add_all(digest, pools_grow_in_place, max_recordings, max_graph_bytes, max_recording_time.count(),
          at_limit, checked, before_first_launch != nullptr);
  return digest;
}

Digest digest_of(const CompileOptions& options) {
  const auto& [inputs, buckets, axes, keys, max_waste, while_missing, outputs, enabled,
               require_graph, on_static_change, max_static_changes, max_recordings, at_limit,
               verify_first, max_switch_nodes, keeps_allocations] = options;
  Digest digest;
  add_all(digest, inputs, buckets, axes, keys, max_waste, while_missing, outputs, enabled,
          require_graph, on_static_change, max_static_changes, max_recordings, at_limit,
          verify_first, max_switch_nodes, keeps_allocations);
  return digest;
}

Ballot::Ballot(const ContextOptions& options, std::string_view of_extensions)
    : group_(options.group) {
  CGTREE_CHECK(group_ != nullptr);
  const std::string what = str_format("a context{}{}", in_words(options), of_extensions);
  digest_ = digest_of(options).add(of_extensions).value();
  (void)vote(Vote::kOptions, kNothing, what);
}

// Returns the smallest words of all ranks. Throws GroupError if ranks are at different votes;
// `what` describes the vote of this rank.
Ballot::Words Ballot::vote(Vote vote, Words words, const std::string& what) {
  const std::uint64_t digest = Digest().add(static_cast<std::uint64_t>(vote)).add(digest_).value();
  words[kDigest] = digest;
  words[kNotDigest] = ~digest;
  group_->minimum(words);
  if (words[kDigest] == digest && words[kNotDigest] == ~digest) return words;
  constexpr std::string_view kPrefixes[] = {"", "about to ", "done with: "};
  const std::string mine = str_format("{}{}", kPrefixes[static_cast<int>(vote)], what);
  const std::vector<std::uint64_t> texts = gather(*group_, to_words(mine));
  std::string message =
      "the ranks of a group must make the same calls, with the same options and sizes";
  for (int rank = 0; rank < group_->size(); ++rank) {
    const auto text = std::span(texts).subspan(rank * std::tuple_size_v<Text>);
    message += str_format("; rank {}: {}", rank, to_string(text));
  }
  throw GroupError(message);
}

void Ballot::begin(const CompileOptions& options, Digest digest, std::string what) {
  CGTREE_CHECK(!is_open() && !what.empty());
  digest_ = digest.add(digest_of(options).value()).value();
  (void)vote(Vote::kBegin, kNothing, what);
  what_ = std::move(what);
}

void Ballot::go_on(std::string what) {
  CGTREE_CHECK(!is_open() && !what.empty());
  digest_ = Digest().add(digest_).add(what).value();
  what_ = std::move(what);
}

AttemptResult Ballot::end(AttemptResult mine) {
  if (!is_open()) return mine;
  const std::string call = std::exchange(what_, "");
  Words words = kNothing;
  // The minimum is the worst result, with the first rank that has it.
  const auto rank = static_cast<std::uint64_t>(group_->rank());
  words[kKindAndRank] = static_cast<std::uint64_t>(mine.kind) << 48 |
                        static_cast<std::uint64_t>(mine.reason) << 32 | rank;
  words[kTime] = largest(static_cast<std::uint64_t>(mine.time.count()));
  words[kGraphBytes] = largest(mine.graph_bytes);
  words[kCapture] = largest(static_cast<std::uint64_t>(mine.capture));
  words = vote(Vote::kEnd, words, call);
  AttemptResult worst;
  worst.kind = static_cast<AttemptResult::Kind>(words[kKindAndRank] >> 48);
  worst.reason = static_cast<SkipReason>(words[kKindAndRank] >> 32 & UINT16_MAX);
  worst.time = std::chrono::microseconds(largest(words[kTime]));
  worst.graph_bytes = largest(words[kGraphBytes]);
  worst.capture = static_cast<AttemptResult::Capture>(largest(words[kCapture]));
  if (worst.kind == AttemptResult::Kind::kDone) return worst;
  const std::uint64_t worst_rank = words[kKindAndRank] & UINT32_MAX;
  Text text;
  text.fill(UINT64_MAX);
  if (worst_rank == rank) text = to_words(mine.what);
  group_->minimum(text);
  worst.what = worst_rank == rank ? std::move(mine.what)
                                  : str_format("rank {} of {} could not {}: {}", worst_rank,
                                               group_->size(), call, to_string(text));
  return worst;
}

}  // namespace cgtree
