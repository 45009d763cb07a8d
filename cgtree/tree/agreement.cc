// Votes on what the ranks of a group are about to do, and on how it went.
#include "cgtree/tree/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"

namespace cgtree {
namespace {

// The words of a vote.
enum Word { kDigest, kNotDigest, kKindAndRank, kTime, kGraphBytes, kBreaksRules };
constexpr std::array<std::uint64_t, 6> kNothing = {UINT64_MAX, UINT64_MAX, UINT64_MAX,
                                                   UINT64_MAX, UINT64_MAX, UINT64_MAX};

// What a rank can say about itself in a message: 15 words of 8 characters, and an end.
using Text = std::array<std::uint64_t, 16>;

Text to_words(std::string_view text) {
  Text words{};
  std::memcpy(words.data(), text.data(), std::min(text.size(), sizeof words - 1));
  return words;
}

std::string to_string(std::span<const std::uint64_t> words) {
  return std::string(reinterpret_cast<const char*>(words.data()));
}

// The smallest of all ranks' values of this word is the largest value.
constexpr std::uint64_t largest(std::uint64_t value) {
  return ~value;
}

}  // namespace

Digest digest_of(const ContextOptions& options) {
  return Digest()
      .add(options.max_recordings)
      .add(options.max_graph_bytes)
      .add(static_cast<std::uint64_t>(options.max_recording_time.count()))
      .add(static_cast<std::uint64_t>(options.at_limit))
      .add(options.checked)
      .add(static_cast<std::uint64_t>(options.on_foreign_pointer))
      .add(options.verify_every)
      .add(options.before_first_launch != nullptr);
}

Digest digest_of(const CompileOptions& options) {
  Digest digest;
  const auto add_axes = [&](const std::vector<AxisOptions>& axes) {
    for (const AxisOptions& axis : axes) {
      digest.add(axis.name).add(static_cast<std::uint64_t>(axis.policy)).add(axis.multiple_of);
      digest.add(axis.largest)
          .add(axis.max_sizes)
          .add(static_cast<std::uint64_t>(axis.at_max_sizes));
      digest.add(static_cast<std::uint64_t>(axis.above_largest));
      for (const std::int64_t size : axis.sizes)
        digest.add(static_cast<std::uint64_t>(size));
    }
  };
  for (const InputOptions& input : options.inputs) {
    digest.add(input.is_static).add(input.alignment).add(input.is_mutated);
    digest.add(static_cast<std::uint64_t>(input.rebind));
    for (const DynamicAxis& axis : input.dynamic)
      digest.add(static_cast<std::uint64_t>(axis.axis)).add(axis.name);
  }
  for (const Buckets& buckets : options.buckets) {
    digest.add(buckets.axis);
    for (const std::int64_t size : buckets.sizes)
      digest.add(static_cast<std::uint64_t>(size));
  }
  add_axes(options.axes);
  add_axes(options.keys);
  return digest.add(static_cast<std::uint64_t>(options.while_missing))
      .add(options.enabled)
      .add(options.require_graph)
      .add(static_cast<std::uint64_t>(options.on_static_change))
      .add(options.max_static_changes)
      .add(static_cast<std::uint64_t>(options.on_mutated_input))
      .add(options.min_graph_nodes)
      .add(options.max_recordings)
      .add(static_cast<std::uint64_t>(options.at_limit))
      .add(options.is_pinned);
}

Agreement::Agreement(const ContextOptions& options) : group_(options.group) {
  if (group_ == nullptr) return;
  const std::string what = fmt::format(
      "a context with at most {} recordings, {} bytes of graphs, {} us of recording, at_limit {}, "
      "verify_every {}",
      options.max_recordings, options.max_graph_bytes, options.max_recording_time.count(),
      static_cast<int>(options.at_limit), options.verify_every);
  digest_ = digest_of(options).value();
  (void)vote(Vote::kOptions, kNothing, what);
}

// Returns the smallest words of all ranks, which are at the same vote. Throws GroupError if
// they are not; `what` says what this one is at.
Agreement::Words Agreement::vote(Vote vote, Words words, const std::string& what) {
  const std::uint64_t digest = Digest().add(static_cast<std::uint64_t>(vote)).add(digest_).value();
  words[kDigest] = digest;
  words[kNotDigest] = ~digest;
  group_->minimum(words);
  if (words[kDigest] == digest && words[kNotDigest] == ~digest) return words;
  constexpr std::string_view kPrefixes[] = {"", "about to ", "done with: "};
  const std::string mine = fmt::format("{}{}", kPrefixes[static_cast<int>(vote)], what);
  const std::vector<std::uint64_t> texts = gather(*group_, to_words(mine));
  std::string message =
      "the ranks of a group must make the same calls, with the same options and sizes";
  for (int rank = 0; rank < group_->size(); ++rank) {
    const auto text = std::span(texts).subspan(rank * std::tuple_size_v<Text>);
    message += fmt::format("; rank {}: {}", rank, to_string(text));
  }
  throw GroupError(message);
}

void Agreement::begin(const Digest& digest, std::string what) {
  CGTREE_CHECK(is_needed() && !is_open() && !what.empty());
  digest_ = digest.value();
  (void)vote(Vote::kBegin, kNothing, what);
  what_ = std::move(what);
}

AttemptResult Agreement::end(AttemptResult mine) {
  if (!is_open()) return mine;
  const std::string call = std::exchange(what_, "");
  Words words = kNothing;
  // The smallest is the worst result, and the first rank that has it.
  const auto rank = static_cast<std::uint64_t>(group_->rank());
  words[kKindAndRank] = static_cast<std::uint64_t>(mine.kind) << 32 | rank;
  words[kTime] = largest(static_cast<std::uint64_t>(mine.time.count()));
  words[kGraphBytes] = largest(mine.graph_bytes);
  words[kBreaksRules] = largest(mine.breaks_rules);
  words = vote(Vote::kEnd, words, call);
  AttemptResult worst;
  worst.kind = static_cast<AttemptResult::Kind>(words[kKindAndRank] >> 32);
  worst.time = std::chrono::microseconds(largest(words[kTime]));
  worst.graph_bytes = largest(words[kGraphBytes]);
  worst.breaks_rules = largest(words[kBreaksRules]) != 0;
  if (worst.kind == AttemptResult::Kind::kDone) return worst;
  const std::uint64_t worst_rank = words[kKindAndRank] & UINT32_MAX;
  Text text;
  text.fill(UINT64_MAX);
  if (worst_rank == rank) text = to_words(mine.what);
  group_->minimum(text);
  worst.what = worst_rank == rank ? std::move(mine.what)
                                  : fmt::format("rank {} of {} could not {}: {}", worst_rank,
                                                group_->size(), call, to_string(text));
  return worst;
}

}  // namespace cgtree
