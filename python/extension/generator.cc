// The Python type cgtree.Generator.
#include "python/extension/module.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"
#include "interop/random/random.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/stream_synchronization.h"
#include "python/extension/control_flow.h"
#include "python/extension/object.h"
#include "python/extension/python.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

PyTypeObject* g_type = nullptr;

// The name of the capsule in a state that was taken while a step function was recorded.
constexpr const char* kToken = "cgtree_generator_recording";

const Generator& generator_of(PyObject* self) {
  return value_of<Generator>(self);
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    const auto [seed] = read_arguments<1>(arguments, keywords, {"Generator", {"seed"}});
    return make_object<Generator>(type, seed == nullptr ? 0 : to_address(seed, "seed")).release();
  });
}

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

Reference state(PyObject* self) {
  const GeneratorState state = generator_of(self).state();
  const Reference token = make_token(state.recording);
  return checked(Py_BuildValue("(KKO)", static_cast<unsigned long long>(state.seed),
                               static_cast<unsigned long long>(state.offset), token.get()));
}

GeneratorState to_state(PyObject* object) {
  if (!PyTuple_Check(object) || PyTuple_Size(object) != 3) {
    throw InvalidArgument("set_state(): expected what state() gave: (seed, offset, recording)");
  }
  GeneratorState state{to_address(PyTuple_GetItem(object, 0), "seed"),
                       to_address(PyTuple_GetItem(object, 1), "offset"), nullptr};
  PyObject* const token = PyTuple_GetItem(object, 2);
  if (token == Py_None) return state;
  if (PyCapsule_IsValid(token, kToken) == 0) {
    throw InvalidArgument("set_state(): the recording is none that state() gave");
  }
  state.recording = *static_cast<Token*>(PyCapsule_GetPointer(token, kToken));
  return state;
}

void set_state(PyObject* self, PyObject* given) {
  generator_of(self).set_state(to_state(given));
}

std::uint64_t seed(PyObject* self) {
  return generator_of(self).seed();
}

void set_seed(PyObject* self, PyObject* given) {
  generator_of(self).set_seed(to_address(given, "seed"));
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
void fill_in_place(PyObject* tensor, Fill fill) {
  const Tensor place = expect_tensor(tensor, "a generator fills");
  if (is_read_only(place)) {
    throw InvalidArgument(fmt::format("cannot fill {}: it is read-only", describe(place)));
  }
  const GilRelease released;
  const StreamFor stream(place.device());
  fill(place);
}

// Makes a tensor as empty() does.
template <typename Fill>
Reference filled(PyObject* sizes, PyObject* place, DType dtype, Fill fill) {
  const Shape shape(to_integers(sizes, "a size"));
  const std::optional<Device> device = device_for_empty(to_optional_device(place));
  return make_tensor(without_gil([&] {
    Tensor tensor = empty(shape, dtype, device);
    const StreamFor stream(tensor.device());
    fill(tensor);
    return tensor;
  }));
}

Reference uniform(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [shape, device] =
      read_arguments<2>(arguments, keywords, {"uniform", {"shape", "device"}, 1, 1});
  return filled(shape, device, DType::kFloat32,
                [&](const Tensor& tensor) { fill_uniform(tensor, generator_of(self)); });
}

float to_float(PyObject* given, float otherwise) {
  return given == nullptr ? otherwise : static_cast<float>(to_double(given));
}

Reference normal(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [shape, mean, deviation, device] = read_arguments<4>(
      arguments, keywords, {"normal", {"shape", "mean", "deviation", "device"}, 1, 1});
  return filled(shape, device, DType::kFloat32,
                [&, m = to_float(mean, 0), d = to_float(deviation, 1)](const Tensor& tensor) {
                  fill_normal(tensor, generator_of(self), m, d);
                });
}

Reference integers(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [low, high, shape, device] = read_arguments<4>(
      arguments, keywords, {"integers", {"low", "high", "shape", "device"}, 3, 3});
  return filled(
      shape, device, DType::kInt64,
      [&, begin = to_int64(low, "low"), end = to_int64(high, "high")](const Tensor& tensor) {
        fill_integers(tensor, begin, end, generator_of(self));
      });
}

void into_uniform(PyObject* self, PyObject* tensor) {
  fill_in_place(tensor, [&](const Tensor& place) { fill_uniform(place, generator_of(self)); });
}

void into_normal(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [tensor, mean, deviation] = read_arguments<3>(
      arguments, keywords, {"fill_normal", {"tensor", "mean", "deviation"}, 1, 1});
  fill_in_place(tensor, [&, m = to_float(mean, 0), d = to_float(deviation, 1)](
                            const Tensor& place) { fill_normal(place, generator_of(self), m, d); });
}

void into_integers(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [tensor, low, high] =
      read_arguments<3>(arguments, keywords, {"fill_integers", {"tensor", "low", "high"}, 3});
  fill_in_place(
      tensor, [&, begin = to_int64(low, "low"), end = to_int64(high, "high")](const Tensor& place) {
        fill_integers(place, begin, end, generator_of(self));
      });
}

PyObject* repr(PyObject* self) {
  return guarded([&] {
    const GeneratorState state = generator_of(self).state();
    return from_text(fmt::format("cgtree.Generator(seed={}, offset={})", state.seed, state.offset))
        .release();
  });
}

PyMethodDef methods[] = {
    method<set_seed>("set_seed",
                     "set_seed(seed): begins the sequence of `seed`, 0 to 2**64 - 1; the next draw "
                     "or replay obeys. Raises InvalidArgument while a step function is recorded."),
    method<state>("state",
                  "state() -> (seed, offset, recording)\n\nWhere it is: `offset` blocks of four "
                  "32-bit words were drawn. `recording` is None, but while a step function is "
                  "recorded: then only set_state() in the same call takes it."),
    method<set_state>(
        "set_state",
        "set_state(state): goes on from where it was; the next draw or replay obeys. Raises "
        "InvalidArgument for a state of a recording outside of it, and for another inside."),
    method<uniform>("uniform",
                    "uniform(shape, *, device=None) -> Tensor\n\nfloat32 in [0, 1), made as "
                    "empty() makes it. Raises InvalidArgument, OutOfMemory."),
    method<normal>(
        "normal",
        "normal(shape, *, mean=0, deviation=1, device=None) -> Tensor: float32, as uniform()."),
    method<integers>("integers",
                     "integers(low, high, shape, *, device=None) -> Tensor: int64 in [low, high), "
                     "as uniform(). Raises InvalidArgument for low >= high too."),
    method<into_uniform>("fill_uniform",
                         "fill_uniform(tensor): uniform() into a contiguous float32 tensor there "
                         "is. Raises InvalidArgument; then nothing was drawn."),
    method<into_normal>(
        "fill_normal",
        "fill_normal(tensor, *, mean=0, deviation=1): normal() into a float32 tensor."),
    method<into_integers>("fill_integers",
                          "fill_integers(tensor, low, high): integers() into an int64 tensor."),
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {property<seed>("seed", "The seed of its sequence."),
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

constexpr const char* kDoc =
    "Generator(seed=0)\n\n"
    "A source of random numbers: a seed, and how much of its sequence has been used. It serves\n"
    "every device, and uniform numbers and integers are the same on each. In step functions each\n"
    "replay draws what an eager call would have drawn then; a call that raises gives back what it\n"
    "drew. Outside, work goes to the current stream, else to the device's legacy stream. Any\n"
    "thread may use it.\n\n"
    ">>> generator = cgtree.Generator(7)\n"
    ">>> generator\n"
    "cgtree.Generator(seed=7, offset=0)\n";

}  // namespace

std::vector<Generator> generators_of(PyObject* sequence) {
  std::vector<Generator> all;
  if (sequence == nullptr) return all;
  for_each_item(sequence, [&](PyObject* item) {
    if (Py_TYPE(item) != g_type) {
      PyErr_SetString(PyExc_TypeError, "generators: expected a sequence of cgtree.Generator");
      throw PythonError();
    }
    all.push_back(generator_of(item));
  });
  return all;
}

void add_generator_type(PyObject* module) {
  g_type =
      add_object_type<Generator>(module, {.name = "cgtree.Generator",
                                          .doc = kDoc,
                                          .methods = methods,
                                          .properties = properties,
                                          .make = make,
                                          .others = {{Py_tp_repr, reinterpret_cast<void*>(repr)}}});
}

}  // namespace cgtree::python
