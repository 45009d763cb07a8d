// The Python type cgtree.Generator.
#include "python/extension/module.h"

#include <fmt/format.h>

#include <array>
#include <new>
#include <optional>

#include "base/error.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"
#include "interop/random/random.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/stream_synchronization.h"
#include "python/extension/errors.h"
#include "python/extension/python.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

struct GeneratorObject {
  PyObject ob_base;
  Generator generator;
};

PyTypeObject* g_type = nullptr;

// The name of the capsule in a state that was taken while a step function was recorded.
constexpr const char* kToken = "cgtree_generator_recording";

const Generator& generator_of(PyObject* self) {
  return reinterpret_cast<GeneratorObject*>(self)->generator;
}

void dealloc(PyObject* self) {
  std::destroy_at(&reinterpret_cast<GeneratorObject*>(self)->generator);
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

// Generator(seed=0)
PyObject* construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    static constexpr std::array kNames = {"seed"};
    expect_keywords(keywords, kNames, "Generator");
    PyObject* const given = argument(arguments, 0, keywords, "seed");
    Generator generator(given == nullptr ? 0 : to_address(given, "seed"));
    auto* const object = PyObject_New(GeneratorObject, type);
    if (object == nullptr) return nullptr;
    new (&object->generator) Generator(std::move(generator));
    return reinterpret_cast<PyObject*>(object);
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

PyObject* state(PyObject* self, PyObject*) {
  return guarded([&] {
    const GeneratorState state = generator_of(self).state();
    const Reference token = make_token(state.recording);
    return checked(Py_BuildValue("(KKO)", static_cast<unsigned long long>(state.seed),
                                 static_cast<unsigned long long>(state.offset), token.get()))
        .release();
  });
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

PyObject* set_state(PyObject* self, PyObject* given) {
  return guarded([&]() -> PyObject* {
    generator_of(self).set_state(to_state(given));
    Py_RETURN_NONE;
  });
}

PyObject* seed(PyObject* self, void*) {
  return guarded(
      [&] { return checked(PyLong_FromUnsignedLongLong(generator_of(self).seed())).release(); });
}

PyObject* set_seed(PyObject* self, PyObject* given) {
  return guarded([&]() -> PyObject* {
    generator_of(self).set_seed(to_address(given, "seed"));
    Py_RETURN_NONE;
  });
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
PyObject* filled(PyObject* tensor, Fill fill) {
  const Tensor& place = expect_tensor(tensor, "a generator fills");
  if (is_read_only(place)) {
    throw InvalidArgument(fmt::format("cannot fill {}: it is read-only", describe(place)));
  }
  {
    const Tensor kept = place;
    const GilRelease released;
    const StreamFor stream(kept.device());
    fill(kept);
  }
  Py_RETURN_NONE;
}

// Makes a tensor as empty() does.
template <typename Fill>
PyObject* made(PyObject* sizes, PyObject* place, DType dtype, Fill fill) {
  if (sizes == nullptr) throw InvalidArgument("a tensor of random numbers: no shape given");
  const Shape shape(to_integers(sizes, "a size"));
  const std::optional<Device> device = device_for_empty(to_optional_device(place));
  Tensor tensor;
  {
    const GilRelease released;
    tensor = empty(shape, dtype, device);
    const StreamFor stream(tensor.device());
    fill(tensor);
  }
  return make_tensor(std::move(tensor)).release();
}

// uniform(shape, *, device=None)
PyObject* uniform(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    static constexpr std::array kNames = {"shape", "device"};
    expect_keywords(keywords, kNames, "uniform");
    return made(argument(arguments, 0, keywords, "shape"), find_keyword(keywords, "device"),
                DType::kFloat32,
                [&](const Tensor& tensor) { fill_uniform(tensor, generator_of(self)); });
  });
}

struct Normal {
  float mean = 0;
  float deviation = 1;
};

Normal to_normal(PyObject* keywords) {
  Normal normal;
  if (PyObject* mean = find_keyword(keywords, "mean")) {
    normal.mean = static_cast<float>(to_double(mean));
  }
  if (PyObject* deviation = find_keyword(keywords, "deviation")) {
    normal.deviation = static_cast<float>(to_double(deviation));
  }
  return normal;
}

// normal(shape, *, mean=0, deviation=1, device=None)
PyObject* normal(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    static constexpr std::array kNames = {"shape", "mean", "deviation", "device"};
    expect_keywords(keywords, kNames, "normal");
    const Normal given = to_normal(keywords);
    return made(argument(arguments, 0, keywords, "shape"), find_keyword(keywords, "device"),
                DType::kFloat32, [&](const Tensor& tensor) {
                  fill_normal(tensor, generator_of(self), given.mean, given.deviation);
                });
  });
}

std::int64_t bound(PyObject* object, const char* name) {
  if (object != nullptr) return to_int64(object, name);
  throw InvalidArgument(fmt::format("random integers: no '{}' given", name));
}

// integers(low, high, shape, *, device=None)
PyObject* integers(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    static constexpr std::array kNames = {"low", "high", "shape", "device"};
    expect_keywords(keywords, kNames, "integers");
    const std::int64_t low = bound(argument(arguments, 0, keywords, "low"), "low");
    const std::int64_t high = bound(argument(arguments, 1, keywords, "high"), "high");
    return made(
        argument(arguments, 2, keywords, "shape"), find_keyword(keywords, "device"), DType::kInt64,
        [&](const Tensor& tensor) { fill_integers(tensor, low, high, generator_of(self)); });
  });
}

PyObject* into_uniform(PyObject* self, PyObject* tensor) {
  return guarded([&] {
    return filled(tensor, [&](const Tensor& place) { fill_uniform(place, generator_of(self)); });
  });
}

PyObject* place_of(PyObject* arguments, PyObject* keywords) {
  PyObject* const place = argument(arguments, 0, keywords, "tensor");
  return place == nullptr ? Py_None : place;
}

// fill_normal(tensor, *, mean=0, deviation=1)
PyObject* into_normal(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    static constexpr std::array kNames = {"tensor", "mean", "deviation"};
    expect_keywords(keywords, kNames, "fill_normal");
    const Normal given = to_normal(keywords);
    return filled(place_of(arguments, keywords), [&](const Tensor& place) {
      fill_normal(place, generator_of(self), given.mean, given.deviation);
    });
  });
}

// fill_integers(tensor, low, high)
PyObject* into_integers(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    static constexpr std::array kNames = {"tensor", "low", "high"};
    expect_keywords(keywords, kNames, "fill_integers");
    const std::int64_t low = bound(argument(arguments, 1, keywords, "low"), "low");
    const std::int64_t high = bound(argument(arguments, 2, keywords, "high"), "high");
    return filled(place_of(arguments, keywords), [&](const Tensor& place) {
      fill_integers(place, low, high, generator_of(self));
    });
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
    {"set_seed", set_seed, METH_O,
     "set_seed(seed): begins the sequence of `seed`, 0 to 2**64 - 1; the next draw or replay "
     "obeys. Raises InvalidArgument while a step function is recorded."},
    {"state", state, METH_NOARGS,
     "state() -> (seed, offset, recording)\n\nWhere it is: `offset` blocks of four 32-bit words "
     "were drawn. `recording` is None, but while a step function is recorded: then only "
     "set_state() "
     "in the same call takes it."},
    {"set_state", set_state, METH_O,
     "set_state(state): goes on from where it was; the next draw or replay obeys. Raises "
     "InvalidArgument for a state of a recording outside of it, and for another inside."},
    {"uniform", as_function(uniform), kKeywords,
     "uniform(shape, *, device=None) -> Tensor\n\nfloat32 in [0, 1), made as empty() makes it. "
     "Raises InvalidArgument, OutOfMemory."},
    {"normal", as_function(normal), kKeywords,
     "normal(shape, *, mean=0, deviation=1, device=None) -> Tensor: float32, as uniform()."},
    {"integers", as_function(integers), kKeywords,
     "integers(low, high, shape, *, device=None) -> Tensor: int64 in [low, high), as uniform(). "
     "Raises InvalidArgument for low >= high too."},
    {"fill_uniform", into_uniform, METH_O,
     "fill_uniform(tensor): uniform() into a contiguous float32 tensor there is. Raises "
     "InvalidArgument; then nothing was drawn."},
    {"fill_normal", as_function(into_normal), kKeywords,
     "fill_normal(tensor, *, mean=0, deviation=1): normal() into a float32 tensor."},
    {"fill_integers", as_function(into_integers), kKeywords,
     "fill_integers(tensor, low, high): integers() into an int64 tensor."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {{"seed", seed, nullptr, "The seed of its sequence.", nullptr},
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

void add_generator_type(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(construct)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_repr, reinterpret_cast<void*>(repr)},
                         {Py_tp_doc, const_cast<char*>(kDoc)},
                         {Py_tp_methods, methods},
                         {Py_tp_getset, properties},
                         {0, nullptr}};
  PyType_Spec spec = {"cgtree.Generator", sizeof(GeneratorObject), 0, Py_TPFLAGS_DEFAULT, slots};
  g_type = add_type(module, "Generator", spec);
}

}  // namespace cgtree::python
