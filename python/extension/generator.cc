// The Python type cgtree.Generator.
#include "python/extension/module.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"
#include "interop/random/random.h"
#include "interop/tensor/empty.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

using Dims = std::vector<std::int64_t>;

// A state has the recording of the step function in which it was taken.
using Token = std::shared_ptr<const void>;

Reference state(const Generator& generator) {
  GeneratorState state = generator.state();
  Token token = std::move(state.recording);
  return pack(state.seed, state.offset,
              token == nullptr ? Reference::borrow(Py_None) : new_object<Token>(std::move(token)));
}

void set_state(const Generator& generator, const std::tuple<Word, Word, PyObject*>& given) {
  const auto [seed, offset, token] = given;
  GeneratorState state{seed, offset, {}};
  if (token != Py_None) {
    if (!is_object<Token>(token)) {
      throw InvalidArgument("set_state(): the recording is none that state() gave");
    }
    state.recording = value_of<Token>(token);
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

// Returns `out`, or a new tensor of this shape, made as by empty(), after fill(tensor) filled it.
template <typename Fill>
Tensor drawn(const std::optional<Dims>& dims, const std::optional<Tensor>& out,
             std::optional<Device> given, DType dtype, const Fill& fill) {
  if (dims.has_value() == out.has_value())
    throw InvalidArgument("numbers need either a shape or `out`, a tensor");
  if (out && given) throw InvalidArgument("numbers go where `out` lies: leave `device` out");
  const std::optional<Device> device = out ? out->device() : device_for_empty(given);
  return without_gil([&] {
    Tensor tensor = out ? *out : empty(Shape(*dims), dtype, device);
    const StreamFor stream(tensor.device());
    fill(tensor);
    return tensor;
  });
}

Tensor uniform(const Generator& generator, const std::optional<Dims>& dims,
               const std::optional<Tensor>& out, std::optional<Device> device) {
  return drawn(dims, out, device, DType::kFloat32,
               [&](const Tensor& tensor) { fill_uniform(tensor, generator); });
}

Tensor normal(const Generator& generator, const std::optional<Dims>& dims, double mean,
              std::optional<double> deviation, const std::optional<Tensor>& out,
              std::optional<Device> device) {
  return drawn(dims, out, device, DType::kFloat32, [&](const Tensor& tensor) {
    fill_normal(tensor, generator, static_cast<float>(mean),
                static_cast<float>(deviation.value_or(1)));
  });
}

Tensor integers(const Generator& generator, std::int64_t low, std::int64_t high,
                const std::optional<Dims>& dims, const std::optional<Tensor>& out,
                std::optional<Device> device) {
  return drawn(dims, out, device, DType::kInt64,
               [&](const Tensor& tensor) { fill_integers(tensor, low, high, generator); });
}

std::string repr(const Generator& generator) {
  const GeneratorState state = generator.state();
  return str_format("cgtree.Generator(seed={}, offset={})", state.seed, state.offset);
}

}  // namespace

void add_generator_type(PyObject* module) {
  add_type<Token>(module, {.name = "cgtree._cgtree.GeneratorToken"});
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
