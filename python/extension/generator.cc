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
  GeneratorState state{seed, offset, {}};
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

// A Place is where numbers go: the tensor `out`, or else one of this shape, made as empty() does.
struct Place {
  const std::optional<Dims>& dims;
  const std::optional<Tensor>& out;
  std::optional<Device> device;
};

// Returns the tensor of the place, which fill(tensor) fills.
template <typename Fill>
Tensor drawn(const Place& place, DType dtype, const Fill& fill) {
  if (place.dims.has_value() == place.out.has_value())
    throw InvalidArgument("numbers need either a shape or `out`, a tensor");
  if (place.out && is_read_only(*place.out)) {
    throw InvalidArgument(fmt::format("cannot fill {}: it is read-only", describe(*place.out)));
  }
  const std::optional<Device> device =
      place.out ? place.out->device() : device_for_empty(place.device);
  return without_gil([&] {
    Tensor tensor = place.out ? *place.out : empty(Shape(*place.dims), dtype, device);
    const StreamFor stream(tensor.device());
    fill(tensor);
    return tensor;
  });
}

Tensor uniform(const Generator& generator, const std::optional<Dims>& dims,
               const std::optional<Tensor>& out, std::optional<Device> device) {
  return drawn({dims, out, device}, DType::kFloat32,
               [&](const Tensor& tensor) { fill_uniform(tensor, generator); });
}

Tensor normal(const Generator& generator, const std::optional<Dims>& dims, double mean,
              std::optional<double> deviation, const std::optional<Tensor>& out,
              std::optional<Device> device) {
  return drawn({dims, out, device}, DType::kFloat32, [&](const Tensor& tensor) {
    fill_normal(tensor, generator, static_cast<float>(mean),
                static_cast<float>(deviation.value_or(1)));
  });
}

Tensor integers(const Generator& generator, std::int64_t low, std::int64_t high,
                const std::optional<Dims>& dims, const std::optional<Tensor>& out,
                std::optional<Device> device) {
  return drawn({dims, out, device}, DType::kInt64,
               [&](const Tensor& tensor) { fill_integers(tensor, low, high, generator); });
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
       .methods = {bind<[](const Generator& generator, Word seed) { generator.set_seed(seed); }>(
                       "set_seed"),
                   bind<&state>("state"), bind<&set_state>("set_state"), bind<&uniform>("uniform"),
                   bind<&normal>("normal"), bind<&integers>("integers")},
       .properties = {property<&Generator::seed>("seed")},
       .maker = constructor<[](Word seed) { return Generator(seed); }>(),
       .slots = {slot<&repr>(Py_tp_repr)}});
}

}  // namespace cgtree::python
