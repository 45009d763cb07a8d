// Moves generators at once, or counts the distance by which replays will move them.
#include "cgtree/record/draws.h"

#include <algorithm>

#include "base/error.h"
#include "base/room.h"

namespace cgtree {

// Called before the generator moves, because a note must not fail after it.
void EagerDraws::reserve_note() {
  make_room(moves_);
}

void EagerDraws::note(const PhiloxSequenceRef& sequence, const PhiloxPosition& from,
                      const PhiloxPosition& to) {
  const auto found = std::find_if(moves_.begin(), moves_.end(),
                                  [&](const Move& move) { return move.sequence == sequence; });
  if (found == moves_.end()) {
    moves_.push_back({sequence, from, to});
    return;
  }
  if (found->after != from) found->before = from;  // another thread moved it in between
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

RecordedDraws::Use& RecordedDraws::use_of(const PhiloxSequenceRef& sequence) {
  const auto found = std::find_if(uses_.begin(), uses_.end(),
                                  [&](const Use& use) { return use.draw.sequence == sequence; });
  if (found != uses_.end()) return *found;
  return uses_.emplace_back(Use{{sequence, {}, 0}, sequence->position(), nullptr});
}

PhiloxRange RecordedDraws::reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) {
  if (blocks == 0) return PhiloxRange();
  RecordedDraw& draw = use_of(sequence).draw;
  if (draw.origin.data() == nullptr) draw.origin = Table(memory_, sizeof(PhiloxPosition));
  const PhiloxRange range(static_cast<const PhiloxPosition*>(draw.origin.data()), draw.blocks);
  draw.blocks += blocks;
  return range;
}

void RecordedDraws::set_seed(const PhiloxSequenceRef&, std::uint64_t) {
  throw InvalidArgument(
      "a generator was reseeded inside a step function while it was recorded: replays would not "
      "reseed it; call set_seed() before the step function, or compile it with enabled = false");
}

GeneratorState RecordedDraws::state(const PhiloxSequenceRef& sequence) {
  Use& use = use_of(sequence);
  if (use.token == nullptr) use.token = std::make_shared<const char>();
  return {use.seen.seed, use.seen.offset + use.draw.blocks, use.token};
}

void RecordedDraws::set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) {
  Use& use = use_of(sequence);
  if (state.recording == nullptr || state.recording != use.token) {
    throw InvalidArgument(
        "a generator was given a state from outside of the step function that is being recorded, "
        "or of another generator: replays would not set it; call set_state() before the step "
        "function, or compile it with enabled = false");
  }
  use.draw.blocks = state.offset - use.seen.offset;
}

std::vector<RecordedDraw> RecordedDraws::take() {
  std::vector<RecordedDraw> draws;
  for (Use& use : uses_) {
    if (use.draw.origin.data() != nullptr) draws.push_back(std::move(use.draw));
  }
  uses_.clear();
  return draws;
}

}  // namespace cgtree
