// Slots, blocks, admission and the virtual clock; and requests made from a seed.
#include "examples/serve/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "examples/serve/numbers.h"

namespace cgtree::serve {

std::vector<Request> seeded_requests(std::uint64_t seed, std::size_t count) {
  std::uint64_t state = mix(seed);
  const auto draw = [&state](std::uint64_t bound) {
    state = mix(state);
    return static_cast<std::int64_t>(state % bound);
  };
  std::vector<Request> requests;
  requests.reserve(count);
  std::int64_t arrival_ms = 0;
  for (std::size_t i = 0; i < count; ++i) {
    requests.push_back({arrival_ms * 1'000'000, 1 + draw(256), 16 + draw(128)});
    // Three short gaps to one long one: mean 3/4 * 19.5 + 1/4 * 299.5 ms.
    arrival_ms += draw(4) != 0 ? draw(40) : draw(600);
  }
  return requests;
}

std::int64_t longest(std::span<const Prompt> prompts) {
  std::int64_t length = 0;
  for (const Prompt& prompt : prompts)
    length = std::max(length, prompt.length);
  return length;
}

Scheduler::Scheduler(std::span<const Request> requests, const SchedulerOptions& options)
    : requests_(requests),
      options_(options),
      slots_(static_cast<std::size_t>(options.max_batch)),
      tokens_(requests.size()) {
  CGTREE_CHECK(options.max_prompt <= options.context);
  CGTREE_CHECK(options.blocks * kBlockSize >= options.context);
  prompts_.reserve(slots_.size());
  rows_.reserve(slots_.size());
  for (std::int64_t block = options.blocks; block > 0; --block)
    free_blocks_.push_back(static_cast<std::int32_t>(block - 1));
}

bool Scheduler::begin_step() {
  const bool is_idle =
      std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.request < 0; });
  if (is_idle) {
    if (arrived_ == requests_.size()) return false;
    now_ns_ = std::max(now_ns_, requests_[arrived_].arrival_ns);
  }
  prompts_.clear();
  rows_.clear();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.request >= 0) {
      const std::int64_t made = std::ssize(tokens_[static_cast<std::size_t>(slot.request)]);
      rows_.push_back({slot.request, static_cast<std::int32_t>(i), slot.position, slot.token,
                       static_cast<std::int32_t>(generated_tokens(slot.request) - made)});
    } else if (is_admissible(static_cast<std::int32_t>(arrived_))) {
      admit(i, static_cast<std::int32_t>(arrived_++));
    }
  }
  return true;
}

void Scheduler::end_step(std::span<const std::int32_t> first, std::span<const std::int32_t> next,
                         std::int64_t depth) {
  const auto each = static_cast<std::size_t>(depth);
  CGTREE_CHECK(first.size() >= prompts_.size() && next.size() >= rows_.size() * each);
  for (std::size_t i = 0; i < prompts_.size(); ++i)
    take(slots_[static_cast<std::size_t>(prompts_[i].slot)], first[i]);
  std::int64_t most = 1;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::span<const std::int32_t> own = next.subspan(i * each, each);
    const std::int64_t count = std::ranges::find(own, -1) - own.begin();
    CGTREE_CHECK(count >= 1 && count <= rows_[i].left);
    for (const std::int32_t token : own.first(static_cast<std::size_t>(count)))
      take(slots_[static_cast<std::size_t>(rows_[i].slot)], token);
    most = std::max(most, count);
  }
  now_ns_ += most * options_.step_ns;
}

bool Scheduler::is_admissible(std::int32_t request) const {
  const auto index = static_cast<std::size_t>(request);
  return index < requests_.size() && requests_[index].arrival_ns <= now_ns_ &&
         blocks_needed(request) <= free_blocks();
}

void Scheduler::admit(std::size_t slot, std::int32_t request) {
  const std::int64_t length = prompt_length(request);
  prompts_.push_back({request, static_cast<std::int32_t>(slot), length});
  const auto end = free_blocks_.end() - blocks_needed(request);
  slots_[slot] = {request, static_cast<std::int32_t>(length - 1), 0, {end, free_blocks_.end()}};
  free_blocks_.erase(end, free_blocks_.end());
  // Appending a token later does not allocate.
  const auto index = static_cast<std::size_t>(request);
  tokens_[index].reserve(static_cast<std::size_t>(generated_tokens(request)));
}

void Scheduler::take(Slot& slot, std::int32_t next) {
  const auto index = static_cast<std::size_t>(slot.request);
  tokens_[index].push_back(next);
  ++generated_;
  ++slot.position;
  slot.token = next;
  if (std::ssize(tokens_[index]) < generated_tokens(slot.request)) return;
  free_blocks_.insert(free_blocks_.end(), slot.blocks.begin(), slot.blocks.end());
  slot = Slot();
}

// The last token is not fed, so that it needs no place in the cache.
std::int64_t Scheduler::blocks_needed(std::int32_t request) const {
  const std::int64_t tokens = prompt_length(request) + generated_tokens(request) - 1;
  return (tokens + kBlockSize - 1) / kBlockSize;
}

std::int64_t Scheduler::generated_tokens(std::int32_t request) const {
  const std::int64_t asked = requests_[static_cast<std::size_t>(request)].generated_tokens;
  return std::min(asked, options_.context - prompt_length(request) + 1);
}

std::int64_t Scheduler::prompt_length(std::int32_t request) const {
  const Request& r = requests_[static_cast<std::size_t>(request)];
  // A request without context is fed one token, because a step needs an input.
  return std::clamp<std::int64_t>(r.context_tokens, 1, options_.max_prompt);
}

std::int32_t Scheduler::prompt_token(std::int32_t request, std::int64_t position) const {
  const std::uint64_t place =
      static_cast<std::uint64_t>(request) << 32 | static_cast<std::uint32_t>(position);
  return static_cast<std::int32_t>(mix(mix(options_.seed) ^ place) %
                                   static_cast<std::uint64_t>(options_.vocabulary));
}

}  // namespace cgtree::serve
