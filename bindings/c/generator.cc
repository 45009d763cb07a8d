// Random generators in C, and the functions that fill tensors with their numbers.

#include <atomic>
#include <bit>
#include <memory>
#include <type_traits>

#include "base/error.h"
#include "base/format.h"
#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"
#include "interop/random/random.h"

namespace cgtree::capi {
namespace {

// cgt_philox_block() reads the same fields as PhiloxRange::block().
static_assert(std::is_trivially_copyable_v<PhiloxRange>);
static_assert(sizeof(cgt_philox_range) == sizeof(PhiloxRange));
static_assert(offsetof(PhiloxPosition, seed) == 0 && offsetof(PhiloxPosition, offset) == 8);

// Keeps a state for the thread's current step function, and returns its number.
std::uint64_t keep_recorded(std::shared_ptr<const void> recording) {
  static std::atomic<std::uint64_t> last = 0;
  if (recording == nullptr) return 0;
  if (marks().frame == nullptr) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        "a step function of C++ is being recorded: ask cgtree::Generator there");
  }
  const std::uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  marks().frame->states.emplace_back(number, std::move(recording));
  return number;
}

std::shared_ptr<const void> find_recorded(std::uint64_t recording) {
  if (recording == 0) return nullptr;
  for (const CallbackFrame* frame = marks().frame; frame != nullptr; frame = frame->outer) {
    for (const auto& [number, state] : frame->states) {
      if (number == recording) return state;
    }
  }
  throw HandleError(
      str_format("cgt_generator_state::recording is {:#x}, which names no state of a step "
                 "function that this thread is in: set such a state before the step function "
                 "returns, on its thread",
                 recording));
}

// Runs fill() on `stream`, or on the current stream.
template <typename Fill>
cgt_status fill_on(cgt_generator generator, cgt_tensor tensor, const cgt_stream* stream,
                   const Fill& fill) {
  return guarded([&] {
    const auto pin = GeneratorTable::pin(generator);
    const Tensor& to = tensor_of(tensor);
    if (stream == nullptr) return fill(to, *pin);
    const StreamScope scope(stream_of_c(*stream));
    fill(to, *pin);
  });
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_generator_create(uint64_t seed, cgt_generator* out) {
  return write_result(out, [&] { return GeneratorTable::make(Generator(seed)); });
}

cgt_status cgt_generator_destroy(cgt_generator generator) {
  return guarded([&] { GeneratorTable::destroy(generator); });
}

cgt_status cgt_generator_set_seed(cgt_generator generator, uint64_t seed) {
  return guarded([&] { GeneratorTable::pin(generator)->set_seed(seed); });
}

cgt_status cgt_generator_get_state(cgt_generator generator, cgt_generator_state* state) {
  return guarded([&] {
    constexpr std::string_view kWhat = "cgt_generator_state";
    expect_room(state, kWhat);
    const GeneratorState found = GeneratorTable::pin(generator)->state();
    write_struct(cgt_generator_state{0, found.seed, found.offset, keep_recorded(found.recording)},
                 state, kWhat);
  });
}

cgt_status cgt_generator_set_state(cgt_generator generator, const cgt_generator_state* state) {
  return guarded([&] {
    const cgt_generator_state read =
        read_struct(&required(state, "the state"), "cgt_generator_state");
    GeneratorTable::pin(generator)->set_state(
        {read.seed, read.offset, find_recorded(read.recording)});
  });
}

cgt_status cgt_generator_reserve(cgt_generator generator, uint64_t blocks, cgt_philox_range* out) {
  return write_result(out, [&] {
    return std::bit_cast<cgt_philox_range>(GeneratorTable::pin(generator)->reserve(blocks));
  });
}

cgt_status cgt_fill_uniform(cgt_generator generator, cgt_tensor tensor, const cgt_stream* stream) {
  return fill_on(generator, tensor, stream, fill_uniform);
}

cgt_status cgt_fill_normal(cgt_generator generator, cgt_tensor tensor, float mean, float deviation,
                           const cgt_stream* stream) {
  return fill_on(generator, tensor, stream, [&](const Tensor& to, const Generator& from) {
    fill_normal(to, from, mean, deviation);
  });
}

cgt_status cgt_fill_integers(cgt_generator generator, cgt_tensor tensor, int64_t low, int64_t high,
                             const cgt_stream* stream) {
  return fill_on(generator, tensor, stream, [&](const Tensor& to, const Generator& from) {
    fill_integers(to, low, high, from);
  });
}

}  // extern "C"
