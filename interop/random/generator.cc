// The functions of a generator, which the thread's handler serves if there is one.
#include "interop/random/generator.h"

#include "base/error.h"
#include "interop/device/stream.h"

namespace cgtree {
void expect_no_capture() {
  const StreamRef stream = current_stream_or_none();
  if (stream && stream.is_capturing()) {
    throw InvalidArgument(
        "the current stream is being captured, but not by a context: every launch of the graph "
        "would repeat the same random numbers; draw before the capture, or compile() the function");
  }
}

PhiloxPosition position_of(const GeneratorState& state) {
  if (state.recording != nullptr) {
    throw InvalidArgument(
        "this generator state was taken while a step function was recorded, so its numbers are not "
        "those of the replays: take the state outside of the step function");
  }
  return {state.seed, state.offset};
}

Generator::Generator(std::uint64_t seed)
    : sequence_(std::make_shared<PhiloxSequence>(PhiloxPosition{seed, 0})) {
}

void Generator::set_seed(std::uint64_t seed) const {
  if (DrawHandler* const draws = frame().draws) return draws->set_seed(sequence_, seed);
  (void)sequence_->set({seed, 0});
}

GeneratorState Generator::state() const {
  if (DrawHandler* const draws = frame().draws) return draws->state(sequence_);
  const PhiloxPosition position = sequence_->position();
  return {position.seed, position.offset, nullptr};
}

void Generator::set_state(const GeneratorState& state) const {
  if (DrawHandler* const draws = frame().draws) return draws->set_state(sequence_, state);
  (void)sequence_->set(position_of(state));
}

PhiloxRange Generator::reserve(std::uint64_t blocks) const {
  if (DrawHandler* const draws = frame().draws) return draws->reserve(sequence_, blocks);
  expect_no_capture();
  return PhiloxRange(sequence_->take(blocks));
}

}  // namespace cgtree
