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
  int batch_hold = 32;  // mean number of steps for which a batch does not change
  int draft_hold = 2;   // mean number of steps for which the number of drafts does not change
  std::uint64_t seed = 1;
};

// A Schedule determines the number of sequences of each step, and the number of tokens drafted for
// each.
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

// A Sequence drafts the token that followed the last time. The drafts that the model confirms are
// accepted, and one more token.
class Sequence {
 public:
  Sequence(const ModelSize& size, std::uint64_t seed)
      : random_(seed),
        context_(size.context),
        tokens_(static_cast<std::size_t>(size.context) + 1),
        followed_by_(static_cast<std::size_t>(size.vocabulary)) {
    start();
  }

  int length() const { return length_; }  // tokens in the cache
  int begin() const { return begin_; }    // the position at which it began
  // The tokens by position, from begin() to length(), the position of the last one.
  const std::vector<std::int32_t>& tokens() const { return tokens_; }

  // Begins elsewhere if there is no room for `draft` more tokens.
  void make_room(int draft) {
    if (length_ + 1 + draft > context_) start();
  }
  // Returns the last token and `draft` tokens that may follow it: those that followed the last
  // time.
  const std::vector<std::int32_t>& propose(int draft) {
    make_room(draft);
    proposed_.assign(1, last());
    for (int i = 0; i < draft; ++i)
      proposed_.push_back(followed_by_[static_cast<std::size_t>(proposed_.back())]);
    return proposed_;
  }
  // The same with the drafts of a model. Requires: make_room().
  const std::vector<std::int32_t>& propose(const std::vector<std::int32_t>& drafted) {
    proposed_.assign(1, last());
    proposed_.insert(proposed_.end(), drafted.begin(), drafted.end());
    return proposed_;
  }

  // `next` has the model's token after each proposed token. Returns how many of them are new tokens
  // of the sequence.
  int accept(const std::int32_t* next) {
    std::size_t accepted = 0;
    do {
      followed_by_[static_cast<std::size_t>(last())] = next[accepted];
      tokens_[static_cast<std::size_t>(++length_)] = next[accepted++];
    } while (accepted < proposed_.size() && proposed_[accepted] == last());
    return static_cast<int>(accepted);
  }

 private:
  // Begins in the middle, with another sequence's remains in the cache.
  void start() {
    begin_ = length_ = static_cast<int>(random_() % static_cast<std::uint64_t>(context_ / 2));
    tokens_[static_cast<std::size_t>(length_)] =
        static_cast<std::int32_t>(random_() % followed_by_.size());
  }
  std::int32_t last() const { return tokens_[static_cast<std::size_t>(length_)]; }

  std::mt19937_64 random_;
  int context_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> followed_by_;
  std::vector<std::int32_t> proposed_;
  int begin_ = 0;
  int length_ = 0;
};

}  // namespace decode
