// The sequences that decode.cc decodes, and the seeded schedule of its steps.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "integrations/ggml/llama.h"

namespace decode {

struct ScheduleOptions {
  std::vector<int> batches = {1, 2, 4, 8};
  int max_draft = 4;
  int batch_hold = 32;  // steps for which a batch stays as it is, on average
  int draft_hold = 2;   // steps for which the number of drafted tokens does
  std::uint64_t seed = 1;
};

// A Schedule says how many sequences each step decodes, and how many tokens are drafted for each.
class Schedule {
 public:
  explicit Schedule(const ScheduleOptions& options)
      : options_(options), random_(options.seed), batch_(options.batches.front()) {}

  void advance() {
    if (below(options_.batch_hold) == 0) {
      batch_ =
          options_
              .batches[static_cast<std::size_t>(below(static_cast<int>(options_.batches.size())))];
    }
    if (below(options_.draft_hold) == 0) draft_ = below(options_.max_draft + 1);
  }
  int batch() const { return batch_; }
  int draft() const { return draft_; }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint64_t>(limit)); }

  ScheduleOptions options_;
  std::mt19937_64 random_;
  int batch_;
  int draft_ = 0;
};

// A Sequence drafts the token that has followed the last time. The drafts that the model agrees
// with are accepted, and one token more.
class Sequence {
 public:
  Sequence(const ModelSize& size, std::uint64_t seed)
      : random_(seed),
        context_(size.context),
        followed_by_(static_cast<std::size_t>(size.vocabulary)) {
    start();
  }

  int length() const { return length_; }  // of what is in the cache

  // Returns the last token and `draft` that may follow it.
  const std::vector<std::int32_t>& propose(int draft) {
    if (length_ + 1 + draft > context_) start();
    proposed_.assign(1, last_);
    for (int i = 0; i < draft; ++i)
      proposed_.push_back(followed_by_[static_cast<std::size_t>(proposed_.back())]);
    return proposed_;
  }

  // `next` has the model's token after each that was proposed. Returns how many of them are new
  // tokens of the sequence.
  int accept(const std::int32_t* next) {
    std::size_t accepted = 0;
    do {
      followed_by_[static_cast<std::size_t>(last_)] = next[accepted];
      last_ = next[accepted++];
      ++length_;
    } while (accepted < proposed_.size() && proposed_[accepted] == last_);
    return static_cast<int>(accepted);
  }

 private:
  // Begins in the middle, with what another sequence has left in the cache.
  void start() {
    length_ = static_cast<int>(random_() % static_cast<std::uint64_t>(context_ / 2));
    last_ = static_cast<std::int32_t>(random_() % followed_by_.size());
  }

  std::mt19937_64 random_;
  int context_;
  std::vector<std::int32_t> followed_by_;
  std::vector<std::int32_t> proposed_;
  int length_ = 0;
  std::int32_t last_ = 0;
};

}  // namespace decode
