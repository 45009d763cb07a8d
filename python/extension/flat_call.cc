// The Python type cgtree._cgtree.FlatCall: calls of one graph of PyTorch's with a flat list of
// inputs, made and answered without running Python as long as they replay.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "cgtree/context.h"
#include "cgtree/record/step.h"
#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_exchange.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/lent_memory.h"
#include "python/extension/borrowed.h"
#include "python/extension/compiled.h"
#include "python/extension/dlpack.h"
#include "python/extension/module.h"
#include "python/extension/python.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

struct Expected {
  Reference value;                   // null for a tensor
  std::vector<std::int64_t> layout;  // rank, then size and stride of each axis
  bool is_static = false;            // the library says that it stays where it is
};

enum class From : long { kMade, kGiven, kValue, kView };

// A Result says where one result of a replay comes from.
struct Result {
  From from = From::kValue;
  Py_ssize_t index = 0;  // of the output, or of the input
  Reference value;
  Reference shape, strides;   // of a view of an input
  std::int64_t elements = 0;  // from the first element of the input to that of the view
};

// An AddressReader asks PyTorch where a tensor lies by a C function of its stable interface, which
// takes a tenth of the time of the exchange API. The function takes the place of the at::Tensor,
// which lies `offset` bytes after the beginning of the Python object.
struct AddressReader {
  using Function = std::int32_t (*)(void* tensor, void** address);
  Function function = nullptr;
  std::ptrdiff_t offset = 0;

  // Returns 0 if it cannot tell.
  std::uintptr_t address(PyObject* object) const noexcept {
    if (function == nullptr) return 0;
    void* found = nullptr;
    const bool is_known = function(reinterpret_cast<std::byte*>(object) + offset, &found) == 0;
    return is_known ? reinterpret_cast<std::uintptr_t>(found) : 0;
  }
};

struct FlatCall {
  Reference compiled;
  Reference type;        // torch.Tensor
  Reference parameter;   // torch.nn.Parameter
  Reference as_strided;  // of the library
  Reference before;      // called before a call, or None
  Reference finish;      // finish(outputs, inputs) returns the results that `results` cannot tell
  std::vector<Expected> expected;
  std::vector<std::pair<std::size_t, std::size_t>> apart;  // tensors that must not share memory
  std::optional<std::vector<Result>> results;
  const dlpack::Exchange* exchange = nullptr;
  AddressReader reader;

  // Of the call in progress.
  bool is_in_use = false;
  std::vector<PyObject*> given;  // owned
  std::vector<BorrowedTensor> borrowed;
  std::vector<Tensor> managed;  // those that are outputs of this library
  std::vector<const Tensor*> addresses;
  // Of the last call: the address, 0 for outputs of this library, and which object it was. A static
  // tensor that is the same object at the same address has the layout that it had: PyTorch's guards
  // have compared it.
  std::vector<std::uintptr_t> places;
  std::vector<PyObject*> objects;  // compared, never used
  StreamRef stream;
};

struct FlatObject {
  PyObject ob_base;
  FlatCall flat;
};

FlatCall& flat_of(PyObject* self) {
  return reinterpret_cast<FlatObject*>(self)->flat;
}

// ---- Is this call one of these? ----

bool is_value(PyObject* given, PyObject* expected) {
  if (given == expected) return true;
  if (Py_TYPE(given) != Py_TYPE(expected)) return false;
  if (PyFloat_Check(given)) {  // 0.0 is not -0.0, and NaN equals itself
    const double a = PyFloat_AsDouble(given);
    const double b = PyFloat_AsDouble(expected);
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
  if (!PyLong_Check(given)) return false;
  const int is_equal = PyObject_RichCompareBool(given, expected, Py_EQ);
  check_status(is_equal);
  return is_equal != 0;
}

bool has_layout(const dlpack::TensorView& view, const std::vector<std::int64_t>& expected) {
  const std::int64_t* layout = expected.data();
  if (*layout++ != view.ndim) return false;
  for (std::int32_t axis = 0; axis < view.ndim; ++axis) {
    if (*layout++ != view.shape[axis] || *layout++ != view.strides[axis]) return false;
  }
  return true;
}

// Returns the output of this library in which the memory lies, or null.
StorageRef lent_storage(const dlpack::TensorView& view, const Tensor& tensor) {
  if (tensor.elements() == 0) return {};
  const auto first = reinterpret_cast<std::uintptr_t>(view.data) + view.byte_offset;
  const auto bytes = static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype());
  return find_lent(tensor.device(), first, bytes);
}

// Returns false for a tensor that has to take the long way, which says what is wrong with it.
bool take_tensor(FlatCall& flat, std::size_t i, std::size_t t, StreamRef stream,
                 dlpack::DeviceRef device) {
  PyObject* const object = flat.given[i];
  const Expected& expected = flat.expected[i];
  if (expected.is_static && flat.objects[t] == object && flat.places[t] != 0 &&
      flat.reader.address(object) == flat.places[t]) [[likely]] {
    return true;
  }
  const auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type != flat.type.get() && type != flat.parameter.get()) return false;
  dlpack::TensorView view;
  if (flat.exchange->view_of_object(object, &view) != 0) {
    PyErr_Clear();
    return false;
  }
  if (view.device.type != device.type || view.device.id != device.id) return false;
  if (!has_layout(view, expected.layout)) return false;
  const auto place = reinterpret_cast<std::uintptr_t>(view.data) + view.byte_offset;
  const bool is_in_place = expected.is_static && flat.places[t] == place;
  flat.places[t] = 0;
  try {
    flat.borrowed[t].take(object, view, stream);
  } catch (const BoundaryError&) {
    return false;
  }
  const Tensor& tensor = flat.borrowed[t].tensor();
  flat.addresses[t] = &tensor;
  flat.places[t] = place;
  flat.objects[t] = object;
  // What stays in place and is no output of this library is none the next time either.
  if (is_in_place) return true;
  if (StorageRef lent = lent_storage(view, tensor)) {
    const std::size_t offset = place - lent->address();
    flat.managed[t] = Tensor::known_to_fit(std::move(lent), offset, tensor.shape(), tensor.dtype());
    flat.addresses[t] = &flat.managed[t];
    flat.places[t] = 0;
  }
  return true;
}

bool take_inputs(FlatCall& flat, PyObject* inputs, StreamRef stream) {
  const auto count = static_cast<std::size_t>(PyList_Size(inputs));
  if (count != flat.expected.size()) return false;
  const dlpack::DeviceRef device = to_dlpack_device(stream.device());
  if (stream != flat.stream) std::ranges::fill(flat.places, 0);
  flat.stream = stream;
  for (std::size_t i = 0, t = 0; i < count; ++i) {
    PyObject* const object = PyList_GetItem(inputs, static_cast<Py_ssize_t>(i));
    flat.given.push_back(Reference::borrow(object).release());
    if (PyObject* const value = flat.expected[i].value.get()) {
      if (!is_value(object, value)) return false;
    } else if (!take_tensor(flat, i, t++, stream, device)) {
      return false;
    }
  }
  return true;
}

bool overlap(const Tensor& a, const Tensor& b) {
  const auto end = [](const Tensor& tensor) {
    return tensor.address() +
           static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype());
  };
  return a.elements() > 0 && b.elements() > 0 && a.address() < end(b) && b.address() < end(a);
}

void check_apart(const FlatCall& flat) {
  for (const auto& [a, b] : flat.apart) {
    if (!overlap(*flat.addresses[a], *flat.addresses[b])) [[likely]] {
      continue;
    }
    throw BoundaryError(
        BoundaryFault::kWrongValue,
        fmt::format(
            "tensor {} of the graph is written and shares memory with tensor {}, as it did not "
            "when "
            "PyTorch compiled the graph, whose guards assume that parameters and buffers are no "
            "arguments: set torch._dynamo.config.skip_no_tensor_aliasing_guards_on_parameters = "
            "False "
            "before the first call, or pass a copy",
            a, b));
  }
}

// ---- The call ----

// An InUse marks the state of a call as taken, and gives the tensors back in the end.
class InUse {
 public:
  explicit InUse(FlatCall& flat) noexcept : flat_(flat) { flat.is_in_use = true; }
  ~InUse() {
    std::size_t t = 0;
    for (std::size_t i = 0; i < flat_.given.size(); ++i) {
      if (flat_.expected[i].value) continue;
      if (flat_.managed[t].defined()) flat_.managed[t] = {};
      if (!flat_.borrowed[t].give_back(flat_.given[i])) flat_.places[t] = 0;
      ++t;
    }
    for (PyObject* const object : flat_.given)
      Py_DECREF(object);
    flat_.given.clear();
    flat_.is_in_use = false;
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  FlatCall& flat_;
};

Reference list_of(const std::vector<PyObject*>& objects) {
  Reference list = checked(PyList_New(static_cast<Py_ssize_t>(objects.size())));
  for (std::size_t i = 0; i < objects.size(); ++i) {
    PyObject* const object = Reference::borrow(objects[i]).release();
    check_status(PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), object));
  }
  return list;
}

Reference view_of(const FlatCall& flat, const Result& result) {
  PyObject* const base = flat.given[static_cast<std::size_t>(result.index)];
  static PyObject* const name = checked(PyUnicode_InternFromString("storage_offset")).release();
  const Reference method = checked(PyObject_GetAttr(base, name));
  const Reference begin = checked(PyObject_CallNoArgs(method.get()));
  const long long offset = PyLong_AsLongLong(begin.get());
  if (offset == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  const Reference first = checked(PyLong_FromLongLong(offset + result.elements));
  const Reference arguments =
      checked(PyTuple_Pack(4, base, result.shape.get(), result.strides.get(), first.get()));
  return call_python(flat.as_strided.get(), arguments.get());
}

Reference result_of(const FlatCall& flat, const Result& result, TensorList& outputs) {
  switch (result.from) {
    case From::kMade:
      return export_exchange(*flat.exchange,
                             outputs.tensors()[static_cast<std::size_t>(result.index)]);
    case From::kGiven:
      return Reference::borrow(flat.given[static_cast<std::size_t>(result.index)]);
    case From::kView:
      return view_of(flat, result);
    case From::kValue:
      break;
  }
  return Reference::borrow(result.value.get());
}

Reference results_of(const FlatCall& flat, TensorList& outputs, bool is_replay) {
  if (is_replay && flat.results) {
    const auto count = static_cast<Py_ssize_t>(flat.results->size());
    Reference all = checked(PyList_New(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      const Result& result = (*flat.results)[static_cast<std::size_t>(i)];
      check_status(PyList_SetItem(all.get(), i, result_of(flat, result, outputs).release()));
    }
    return all;
  }
  const std::span<Tensor> made = outputs.tensors();
  const Reference list = checked(PyList_New(static_cast<Py_ssize_t>(made.size())));
  for (std::size_t i = 0; i < made.size(); ++i) {
    check_status(PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i),
                                export_exchange(*flat.exchange, made[i]).release()));
  }
  const Reference given = list_of(flat.given);
  const Reference arguments = checked(PyTuple_Pack(2, list.get(), given.get()));
  return call_python(flat.finish.get(), arguments.get());
}

// Forward and backward passes run on threads of their own, and take turns in the context.
using Turn = std::unique_lock<Mutex<LockRank::kTurns>>;
Turn wait_for_turn(const ContextState& state) {
  Turn turn(state.turn, std::try_to_lock);
  if (!turn) without_gil([&] { turn.lock(); });
  return turn;
}

// Calls, while other threads run Python.
void call_core(const FlatCall& flat, const Bound& bound, StreamRef caller, TensorList& outputs) {
  const GilRelease released;
  std::optional<StreamScope> scope;
  if (caller) scope.emplace(caller);
  bound.core->call(InputList(flat.addresses, 0), outputs);
  if (!caller) bound.context->synchronize();  // the host device still reads the inputs
}

Reference make_call(FlatCall& flat, PyObject* inputs) {
  Reference no = Reference::borrow(Py_NotImplemented);
  if (StepScope::innermost() != nullptr || current_allocator() != nullptr) return no;
  const Turn turn = wait_for_turn(*state_of(flat.compiled.get()));
  if (flat.is_in_use) return no;
  const Bound bound = bound_of(flat.compiled.get());
  const InUse in_use(flat);
  const StreamRef caller =
      current_stream_of(*flat.exchange, to_dlpack_device(bound.context->device()));
  if (caller && caller.is_capturing()) return no;
  const StreamRef stream = caller ? caller : bound.context->stream();
  if (!take_inputs(flat, inputs, stream)) return no;
  check_apart(flat);
  // As its callee the call may release what the caller no longer needs, once it is done.
  check_status(PyList_SetSlice(inputs, 0, PY_SSIZE_T_MAX, nullptr));
  if (flat.before.get() != Py_None) (void)checked(PyObject_CallNoArgs(flat.before.get()));
  const std::size_t runs = runs_of(flat.compiled.get());
  TensorList outputs;
  try {
    call_core(flat, bound, caller, outputs);
    throw_raised_in_launch();
  } catch (...) {  // the list is the caller's as before
    check_status(PyList_SetSlice(inputs, 0, 0, list_of(flat.given).get()));
    throw;
  }
  return results_of(flat, outputs, runs_of(flat.compiled.get()) == runs);
}

PyObject* call(PyObject* self, PyObject* inputs) {
  return guarded([&] {
    if (!PyList_Check(inputs)) throw InvalidArgument("FlatCall: expected a list of inputs");
    const Reference kept = Reference::borrow(self);
    return make_call(flat_of(self), inputs).release();
  });
}

// ---- The object ----

Expected expected_of(PyObject* item) {
  Expected expected;
  PyObject* layout = nullptr;
  PyObject* value = nullptr;
  int is_static = 0;
  if (PyArg_ParseTuple(item, "OOp", &layout, &value, &is_static) == 0) throw PythonError();
  expected.is_static = is_static != 0;
  if (layout == Py_None) {
    expected.value = Reference::borrow(value);
  } else {
    expected.layout = to_integers(layout, "layout");
  }
  return expected;
}

std::vector<Result> results_from(PyObject* items) {
  std::vector<Result> results;
  const Reference list = items_of(items);
  for (Py_ssize_t i = 0; i < PyTuple_Size(list.get()); ++i) {
    Result result;
    long from = 0;
    PyObject* what = nullptr;
    if (PyArg_ParseTuple(PyTuple_GetItem(list.get(), i), "lO", &from, &what) == 0)
      throw PythonError();
    result.from = static_cast<From>(from);
    PyObject* shape = nullptr;
    PyObject* strides = nullptr;
    long long elements = 0;
    switch (result.from) {
      case From::kMade:
      case From::kGiven:
        result.index = PyLong_AsSsize_t(what);
        if (result.index == -1 && PyErr_Occurred() != nullptr) throw PythonError();
        break;
      case From::kView:
        if (PyArg_ParseTuple(what, "nOOL", &result.index, &shape, &strides, &elements) == 0)
          throw PythonError();
        result.shape = Reference::borrow(shape);
        result.strides = Reference::borrow(strides);
        result.elements = elements;
        break;
      case From::kValue:
        result.value = Reference::borrow(what);
        break;
    }
    results.push_back(std::move(result));
  }
  return results;
}

PyObject* set_results(PyObject* self, PyObject* items) {
  return guarded([&]() -> PyObject* {
    FlatCall& flat = flat_of(self);
    flat.results.reset();
    if (items != Py_None) flat.results = results_from(items);
    Py_RETURN_NONE;
  });
}

PyObject* set_before(PyObject* self, PyObject* before) {
  return guarded([&]() -> PyObject* {
    flat_of(self).before = Reference::borrow(before);
    Py_RETURN_NONE;
  });
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
  return guarded([&] {
    PyObject* compiled = nullptr;
    PyObject* tensors = nullptr;
    PyObject* parameters = nullptr;
    PyObject* as_strided = nullptr;
    PyObject* expected = nullptr;
    PyObject* apart = nullptr;
    PyObject* finish = nullptr;
    unsigned long long reader = 0;
    Py_ssize_t offset = 0;
    if (PyArg_ParseTuple(arguments, "OO!O!OO!O!O|(Kn)", &compiled, &PyType_Type, &tensors,
                         &PyType_Type, &parameters, &as_strided, &PyTuple_Type, &expected,
                         &PyTuple_Type, &apart, &finish, &reader, &offset) == 0) {
      throw PythonError();
    }
    expect_compiled(compiled);
    const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    Reference self = checked(allocate(type, 0));
    FlatCall& flat = *new (&flat_of(self.get())) FlatCall();
    flat.exchange = exchange_of(reinterpret_cast<PyTypeObject*>(tensors));
    if (flat.exchange == nullptr || flat.exchange->view_of_object == nullptr) {
      throw BoundaryError(BoundaryFault::kNotSupported,
                          "FlatCall(): the type has no exchange API of DLPack that tells where "
                          "tensors lie: PyTorch 2.10 has it");
    }
    flat.reader = {reinterpret_cast<AddressReader::Function>(reader), offset};
    flat.compiled = Reference::borrow(compiled);
    flat.type = Reference::borrow(tensors);
    flat.parameter = Reference::borrow(parameters);
    flat.as_strided = Reference::borrow(as_strided);
    flat.finish = Reference::borrow(finish);
    flat.before = Reference::borrow(Py_None);
    std::size_t count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(expected); ++i) {
      flat.expected.push_back(expected_of(PyTuple_GetItem(expected, i)));
      count += flat.expected.back().value ? 0 : 1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(apart); ++i) {
      Py_ssize_t a = 0;
      Py_ssize_t b = 0;
      if (PyArg_ParseTuple(PyTuple_GetItem(apart, i), "nn", &a, &b) == 0) throw PythonError();
      const auto limit = static_cast<Py_ssize_t>(count);
      if (a < 0 || b < 0 || a >= limit || b >= limit) {
        throw InvalidArgument(fmt::format("FlatCall(): there are no tensors {} and {}", a, b));
      }
      flat.apart.emplace_back(static_cast<std::size_t>(a), static_cast<std::size_t>(b));
    }
    flat.given.reserve(flat.expected.size());
    flat.borrowed.resize(count);
    flat.managed.resize(count);
    flat.addresses.resize(count);
    flat.places.resize(count);
    flat.objects.resize(count);
    return self.release();
  });
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  const FlatCall& flat = flat_of(self);
  for (const Reference* part :
       {&flat.compiled, &flat.type, &flat.parameter, &flat.as_strided, &flat.before, &flat.finish})
    Py_VISIT(part->get());
  for (const Expected& expected : flat.expected)
    Py_VISIT(expected.value.get());
  if (!flat.results) return 0;
  for (const Result& result : *flat.results)
    Py_VISIT(result.value.get());
  return 0;
}

int clear(PyObject* self) {
  const FlatCall last = std::exchange(flat_of(self), {});
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  std::destroy_at(&flat_of(self));
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_Del(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyMethodDef methods[] = {
    {"call", call, METH_O,
     "call(inputs): makes the call, clears the list and returns the list of results. Returns "
     "NotImplemented if the inputs are others than expected; then, and if it raises, the list is "
     "as "
     "before."},
    {"set_results", set_results, METH_O,
     "set_results(results): for each result of a replay where it comes from: (0, output), (1, "
     "input), (2, value) or (3, (input, shape, strides, elements)), a view of an input that begins "
     "so many elements after it. None: finish() makes them."},
    {"set_before", set_before, METH_O, "set_before(function): called before each call, or None."},
    {nullptr, nullptr, 0, nullptr}};

constexpr const char* kDoc =
    "FlatCall(compiled, tensor type, parameter type, as_strided, expected, apart, finish, "
    "reader=(0, 0)):\ncalls of a CompiledFunction with a flat list of inputs. `expected`: for each "
    "input (layout, "
    "value,\n"
    "is_static): of a tensor the rank, and size and stride of each axis; of others None, and what\n"
    "it is. `apart`: pairs of tensors that must not share memory, else WrongValue. "
    "`finish(outputs, inputs)`: makes the results after the step function ran. `reader`:\n"
    "the address of aoti_torch_get_data_ptr(), and where an object has its tensor.";

}  // namespace

void add_flat_call_type(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(clear)},
                         {Py_tp_doc, const_cast<char*>(kDoc)},
                         {Py_tp_methods, methods},
                         {0, nullptr}};
  PyType_Spec spec = {"cgtree._cgtree.FlatCall", sizeof(FlatObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
  (void)add_type(module, "FlatCall", spec);
}

}  // namespace cgtree::python
