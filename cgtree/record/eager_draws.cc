// Moves generators at once, and notes from where to where.
#include "cgtree/record/eager_draws.h"

#include <algorithm>

namespace cgtree {

// Before the generator moves: noting must not fail after it.
void EagerDraws::reserve_note() {
  moves_.reserve(moves_.size() + 1);
}

void EagerDraws::note(const PhiloxSequenceRef& sequence, const PhiloxPosition& from,
                      const PhiloxPosition& to) {
  const auto found = std::find_if(moves_.begin(), moves_.end(),
                                  [&](const Move& move) { return move.sequence == sequence; });
  if (found == moves_.end()) {
    moves_.push_back({sequence, from, to});
    return;
  }
  if (found->after != from) found->before = from;  // somebody else moved it in between
  found->after = to;
}

PhiloxRange EagerDraws::reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) {
  expect_no_capture();
  reserve_note();
  const PhiloxPosition first = sequence->take(blocks);
  note(sequence, first, {first.seed, first.offset + blocks});
  return PhiloxRange(first);
}

void EagerDraws::set_seed(const PhiloxSequenceRef& sequence, std::uint64_t seed) {
  set_state(sequence, {seed, 0, nullptr});
}

GeneratorState EagerDraws::state(const PhiloxSequenceRef& sequence) {
  const PhiloxPosition position = sequence->position();
  return {position.seed, position.offset, nullptr};
}

void EagerDraws::set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) {
  const PhiloxPosition position = position_of(state);
  reserve_note();
  note(sequence, sequence->set(position), position);
}

void EagerDraws::give_back() noexcept {
  for (const Move& move : moves_)
    move.sequence->give_back(move.after, move.before);
  moves_.clear();
}

}  // namespace cgtree
