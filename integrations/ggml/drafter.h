// A second, smaller model that drafts tokens, as llama.cpp's with --model-draft.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "integrations/ggml/engine.h"
#include "integrations/ggml/sequences.h"

namespace decode {

// Drafts for one sequence. Its graphs alternate: one for the tokens that its cache lacks, and one
// for each token that it drafts.
class Drafter {
 public:
  Drafter(const std::string& device, const ModelSize& size, std::uint64_t seed)
      : engine_(device, size, kMostMissing, seed),
        cached_(static_cast<std::size_t>(size.context), -1) {}

  // Returns `count` > 0 tokens that the model expects after the sequence. Adds to `times`.
  const std::vector<std::int32_t>& draft(const Sequence& sequence, int count, StepTimes* times) {
    const std::vector<std::int32_t>& tokens = sequence.tokens();
    auto held = static_cast<std::size_t>(sequence.begin());
    const auto last = static_cast<std::size_t>(sequence.length());
    while (held < last && cached_[held] == tokens[held])
      ++held;
    Batch batch{{tokens.begin() + static_cast<std::ptrdiff_t>(held),
                 tokens.begin() + static_cast<std::ptrdiff_t>(last) + 1},
                {static_cast<int>(held)}};
    drafted_.clear();
    for (; count > 0; --count) {
      StepTimes step;
      drafted_.push_back(engine_.compute(batch, &step).back());
      *times += step;
      std::copy(batch.tokens.begin(), batch.tokens.end(), cached_.begin() + batch.lengths.front());
      batch = {{drafted_.back()}, {batch.lengths.front() + static_cast<int>(batch.tokens.size())}};
    }
    return drafted_;
  }

 private:
  static constexpr int kMostMissing = 2;  // the last draft, if it was accepted, and the last token

  Engine engine_;
  std::vector<std::int32_t> cached_;  // by position
  std::vector<std::int32_t> drafted_;
};

}  // namespace decode
