// The Python type cgtree.Generator.
#include "python/extension/module.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"
#include "interop/random/random.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/stream_synchronization.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

using Dims = std::vector<std::int64_t>;

// The name of the capsule in a state that was taken while a step function was recorded.
constexpr const char* kToken = "cgtree_generator_recording";

using Token = std::shared_ptr<const void>;

void drop_token(PyObject* capsule) {
  delete static_cast<Token*>(PyCapsule_GetPointer(capsule, kToken));
}

Reference make_token(Token recording) {
  if (recording == nullptr) return Reference::borrow(Py_None);
  auto token = std::make_unique<Token>(std::move(recording));
  Reference capsule = checked(PyCapsule_New(token.get(), kToken, drop_token));
  (void)token.release();
  return capsule;
}

Reference state(const Generator& generator) {
  GeneratorState state = generator.state();
  return pack(state.seed, state.offset, make_token(std::move(state.recording)));
}

void set_state(const Generator& generator, const std::tuple<Word, Word, PyObject*>& given) {
  const auto [seed, offset, token] = given;
  GeneratorState state{static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(offset), {}};
  if (token != Py_None) {
    if (PyCapsule_IsValid(token, kToken) == 0) {
      throw InvalidArgument("set_state(): the recording is none that state() gave");
    }
    state.recording = *static_cast<Token*>(PyCapsule_GetPointer(token, kToken));
  }
  generator.set_state(state);
}

// Without a current stream, work on `device` runs on its legacy stream.
class StreamFor {
 public:
  explicit StreamFor(Device device) {
    if (!current_stream_or_none()) scope_.emplace(StreamRef(device, StreamHandle::kLegacy));
  }

 private:
  std::optional<StreamScope> scope_;
};

template <typename Fill>
void fill_in_place(const Tensor& place, Fill fill) {
  if (is_read_only(place)) {
    throw InvalidArgument(fmt::format("cannot fill {}: it is read-only", describe(place)));
  }
  const GilRelease released;
  const StreamFor stream(place.device());
  fill(place);
}

// Makes a tensor as empty() does.
template <typename Fill>
Tensor filled(const Dims& dims, std::optional<Device> place, DType dtype, Fill fill) {
  const Shape shape(dims);
  const std::optional<Device> device = device_for_empty(place);
  return without_gil([&] {
    Tensor tensor = empty(shape, dtype, device);
    const StreamFor stream(tensor.device());
    fill(tensor);
    return tensor;
  });
}

auto uniform_of(const Generator& generator) {
  return [&](const Tensor& tensor) { fill_uniform(tensor, generator); };
}
auto normal_of(const Generator& generator, double mean, std::optional<double> deviation) {
  return [&generator, m = static_cast<float>(mean), d = static_cast<float>(deviation.value_or(1))](
             const Tensor& tensor) { fill_normal(tensor, generator, m, d); };
}
auto integers_of(const Generator& generator, std::int64_t low, std::int64_t high) {
  return [&generator, low, high](const Tensor& tensor) {
    fill_integers(tensor, low, high, generator);
  };
}

Tensor uniform(const Generator& generator, const Dims& dims, std::optional<Device> device) {
  return filled(dims, device, DType::kFloat32, uniform_of(generator));
}
Tensor normal(const Generator& generator, const Dims& dims, double mean,
              std::optional<double> deviation, std::optional<Device> device) {
  return filled(dims, device, DType::kFloat32, normal_of(generator, mean, deviation));
}
Tensor integers(const Generator& generator, std::int64_t low, std::int64_t high, const Dims& dims,
                std::optional<Device> device) {
  return filled(dims, device, DType::kInt64, integers_of(generator, low, high));
}

void into_uniform(const Generator& generator, const Tensor& tensor) {
  fill_in_place(tensor, uniform_of(generator));
}
void into_normal(const Generator& generator, const Tensor& tensor, double mean,
                 std::optional<double> deviation) {
  fill_in_place(tensor, normal_of(generator, mean, deviation));
}
void into_integers(const Generator& generator, const Tensor& tensor, std::int64_t low,
                   std::int64_t high) {
  fill_in_place(tensor, integers_of(generator, low, high));
}

std::string repr(const Generator& generator) {
  const GeneratorState state = generator.state();
  return fmt::format("cgtree.Generator(seed={}, offset={})", state.seed, state.offset);
}

}  // namespace

void add_generator_type(PyObject* module) {
  add_type<Generator>(
      module,
      {.name = "cgtree.Generator",
       .methods = {bind<[](const Generator& generator, Word seed) {
                     generator.set_seed(static_cast<std::uint64_t>(seed));
                   }>("set_seed"),
                   bind<&state>("state"), bind<&set_state>("set_state"), bind<&uniform>("uniform"),
                   bind<&normal>("normal"), bind<&integers>("integers"),
                   bind<&into_uniform>("fill_uniform"), bind<&into_normal>("fill_normal"),
                   bind<&into_integers>("fill_integers")},
       .properties = {property<&Generator::seed>("seed")},
       .maker =
           constructor<[](Word seed) { return Generator(static_cast<std::uint64_t>(seed)); }>(),
       .slots = {slot<&repr>(Py_tp_repr)}});
}

}  // namespace cgtree::python
