// The Python type cgtree._cgtree.FlatCall: calls of one graph of PyTorch with a flat list of
// inputs, which run no Python as long as they replay.
#include "python/extension/flat_call.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/mutex.h"
#include "cgtree/context.h"
#include "cgtree/record/step.h"
#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_exchange.h"
#include "interop/exchange/lent_memory.h"
#include "interop/tensor/empty.h"
#include "python/extension/borrowed.h"
#include "python/extension/compiled.h"
#include "python/extension/dlpack.h"
#include "python/extension/import.h"
#include "python/extension/module.h"
#include "python/extension/place.h"
#include "python/extension/settings.h"

namespace cgtree::python {
namespace {

struct Expected {
  Reference value;                   // null for a tensor and for a number
  std::optional<DType> number;       // an integer that the recording takes by value: its type
  std::vector<std::int64_t> layout;  // rank, then size and stride of each axis
  dlpack::DataType type{};
  bool is_static = false;  // the library says that its address is stable
};

enum class From : long { kMade, kGiven, kValue, kView, kSame };

// A Result is the source of one result of a replay.
struct Result {
  From from = From::kValue;
  Py_ssize_t index = 0;  // of the output, the input, or the earlier result
  Reference value;
  Reference shape, strides;   // of a view of an input
  std::int64_t elements = 0;  // from the first element of the input to that of the view
};

// Two tensors that must not share memory. `distance`: bytes from the first to the second at which
// they are known to share no element, though each lies between the first and the last byte of the
// other.
struct Apart {
  std::size_t a = 0, b = 0;
  std::ptrdiff_t distance = 0;
};

struct FlatCall {
  Reference compiled;
  Reference type;        // torch.Tensor
  Reference parameter;   // torch.nn.Parameter
  Reference as_strided;  // of the library
  Reference before;      // called before a call, or None
  Reference finish;      // finish(outputs, inputs) returns the results that `results` does not
                         // describe
  Reference recover;     // recover(error, inputs) returns the results of a call that failed
  Reference settings;    // a Settings, or null
  std::vector<std::uint64_t> values;  // of the settings
  Reference state;  // returns an object that must equal `known`; null: there is no such state
  Reference known;
  std::vector<Expected> expected;
  std::vector<Apart> apart;
  std::optional<std::vector<Result>> results;
  const dlpack::Exchange* exchange = nullptr;
  PlaceReader reader;

  // State of the call in progress.
  bool is_in_use = false;
  std::span<PyObject* const> given;
  std::vector<PyObject*> of_list;  // `given`, if the inputs came in a list
  std::vector<std::size_t> taken;  // the inputs taken again in this call
  // By tensor.
  std::vector<BorrowedTensor> borrowed;
  std::vector<Tensor> tensors;  // contiguous, so that a replay compares the unchanged ones at once
  // The borrowed tensors that an output of this library replaces now.
  std::vector<Tensor> aside;

  // Of the last call. A static tensor is checked by its object, its address and its words:
  // PyTorch's guards leave out most tensors of modules.
  std::vector<Place> places;           // by input, of static tensors that are not outputs of this
                                       // library
  std::vector<std::uintptr_t> at;      // by tensor: its address, 0 for outputs of this library
  std::vector<std::size_t> tensor_of;  // by input: the number of its tensor
  StreamRef stream;

  template <typename Visit>
  void visit(const Visit& visit) const {
    for (const Reference* part : {&compiled, &type, &parameter, &as_strided, &before, &finish,
                                  &recover, &settings, &state, &known})
      visit(part->get());
    for (const Expected& one : expected)
      visit(one.value.get());
    if (!results) return;
    for (const Result& result : *results)
      visit(result.value.get());
  }
};

// ---- Comparison of a call with the expected one ----

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

bool is_expected(const dlpack::TensorView& view, const Expected& expected) {
  if (std::memcmp(&view.dtype, &expected.type, sizeof expected.type) != 0) return false;
  const std::int64_t* layout = expected.layout.data();
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
  const auto bytes = extent_bytes(tensor);
  return find_lent(tensor.device(), first, bytes);
}

// Returns false for a tensor that must take the slow path, which throws the error.
bool take_tensor(FlatCall& flat, std::size_t i, StreamRef stream, dlpack::DeviceRef device) {
  PyObject* const object = flat.given[i];
  const Expected& expected = flat.expected[i];
  const std::size_t t = flat.tensor_of[i];
  const auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type != flat.type.get() && type != flat.parameter.get()) return false;
  dlpack::TensorView view;
  if (flat.exchange->view_of_object(object, &view) != 0) {
    PyErr_Clear();
    return false;
  }
  if (view.device.type != device.type || view.device.id != device.id) return false;
  if (!is_expected(view, expected)) return false;
  if (flat.reader.is_usable() && !flat.reader.is_resolved(object)) return false;
  const auto place = reinterpret_cast<std::uintptr_t>(view.data) + view.byte_offset;
  const bool is_in_place = expected.is_static && flat.at[t] == place;
  flat.at[t] = 0;
  flat.places[i] = {};
  try {
    if (!flat.reader.is_usable()) expect_resolved_values(object);
    flat.borrowed[t].take(view, stream, flat.tensors[t]);
  } catch (const BoundaryError&) {
    return false;
  }
  flat.taken.push_back(i);
  Tensor& tensor = flat.tensors[t];
  // A tensor with a stable address that is not an output of this library will not be one later.
  if (!is_in_place) {
    if (StorageRef lent = lent_storage(view, tensor)) {
      const std::size_t offset = place - lent->address();
      flat.aside[t] = std::exchange(
          tensor, Tensor::known_to_fit(std::move(lent), offset, tensor.shape(), tensor.dtype()));
      return true;
    }
  }
  flat.at[t] = place;
  if (expected.is_static && flat.reader.is_usable() && tensor.elements() > 0) {
    flat.places[i] = flat.reader.read(object);
  }
  return true;
}

// Returns false for any object but an integer of this type.
bool take_number(FlatCall& flat, std::size_t i) {
  if (!PyLong_CheckExact(flat.given[i])) return false;
  const DType dtype = *flat.expected[i].number;
  const std::optional<std::int64_t> value = find_int64(flat.given[i]);
  if (!value || !is_in_range(*value, dtype)) return false;
  flat.tensors[flat.tensor_of[i]] = by_value(&*value, size_of(dtype), Shape(), dtype);
  return true;
}

bool take_input(FlatCall& flat, std::size_t i, StreamRef stream, dlpack::DeviceRef device) {
  const Expected& expected = flat.expected[i];
  if (expected.value) return is_value(flat.given[i], expected.value.get());
  return expected.number ? take_number(flat, i) : take_tensor(flat, i, stream, device);
}

bool is_in_place(const FlatCall& flat, std::size_t i) noexcept {
  PyObject* const object = flat.given[i];
  const Place& place = flat.places[i];
  if (place.object != object) return false;
  const auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  return (type == flat.parameter.get() || type == flat.type.get()) &&
         flat.reader.is_at(object, place);
}

// Returns whether the settings, and the Python state, that kernels depend on are unchanged.
bool is_same_state(const FlatCall& flat) {
  if (flat.settings && !value_of<Settings>(flat.settings.get()).are(flat.values)) return false;
  if (!flat.state) [[likely]]
    return true;
  const Reference now = checked(PyObject_CallNoArgs(flat.state.get()));
  const int is_equal = PyObject_RichCompareBool(now.get(), flat.known.get(), Py_EQ);
  check_status(is_equal);
  return is_equal != 0;
}

bool take_inputs(FlatCall& flat, StreamRef stream) {
  if (flat.given.size() != flat.expected.size()) return false;
  const dlpack::DeviceRef device = to_dlpack_device(stream.device());
  if (stream != flat.stream) {
    std::ranges::fill(flat.at, 0);
    std::ranges::fill(flat.places, Place());
  }
  flat.stream = stream;
  constexpr std::size_t kAhead = 8;  // inputs
  for (std::size_t i = 0; i < flat.given.size(); ++i) {
    if (i + kAhead < flat.places.size()) flat.reader.prefetch(flat.places[i + kAhead]);
    if (is_in_place(flat, i)) [[likely]] {
      continue;
    }
    if (!take_input(flat, i, stream, device)) return false;
  }
  return true;
}

// Compares ranges, not elements: a written tensor whose elements lie between those of another
// tensor overlaps it.
bool overlap(const Tensor& a, const Tensor& b) {
  const auto end = [](const Tensor& tensor) { return tensor.address() + extent_bytes(tensor); };
  return a.elements() > 0 && b.elements() > 0 && a.address() < end(b) && b.address() < end(a);
}

void check_apart(const FlatCall& flat) {
  for (const auto& [a, b, distance] : flat.apart) {
    const Tensor& first = flat.tensors[a];
    const Tensor& second = flat.tensors[b];
    if (!overlap(first, second)) [[likely]] {
      continue;
    }
    if (distance != 0 &&
        static_cast<std::ptrdiff_t>(second.address() - first.address()) == distance)
      continue;
    throw BoundaryError(BoundaryFault::kWrongValue,
                        str_format("tensor {} may share memory with tensor {}", a, b));
  }
}

// ---- The call ----

// An InUse marks the state of a call as taken, and gives the tensors back at its end.
class InUse {
 public:
  InUse(FlatCall& flat, std::span<PyObject* const> given) noexcept : flat_(flat) {
    flat.is_in_use = true;
    flat.given = given;
    flat.taken.clear();
  }
  ~InUse() {
    if (may_be_held_) {
      for (std::size_t i = 0; i < flat_.expected.size(); ++i) {
        if (!flat_.expected[i].value) give_back(i);
      }
    } else {
      for (const std::size_t i : flat_.taken)
        give_back(i);
    }
    if (owns_) {
      for (PyObject* const object : flat_.given)
        Py_DECREF(object);
    }
    flat_.given = {};
    flat_.is_in_use = false;
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

  // The inputs must live until the end of the call, even if their list changes.
  void own() noexcept {
    for (PyObject* const object : flat_.given)
      Py_INCREF(object);
    owns_ = true;
  }
  // The call may leave objects that hold any input; a replay only those that hold inputs taken
  // again.
  void note_call() noexcept { may_be_held_ = true; }
  void note_replay() noexcept { may_be_held_ = false; }

 private:
  void give_back(std::size_t i) {
    const std::size_t t = flat_.tensor_of[i];
    if (flat_.aside[t].defined()) flat_.tensors[t] = std::exchange(flat_.aside[t], {});
    if (flat_.borrowed[t].give_back(flat_.given[i], flat_.tensors[t])) return;
    flat_.at[t] = 0;
    flat_.places[i] = {};
  }

  FlatCall& flat_;
  bool owns_ = false;
  bool may_be_held_ = false;
};

Reference list_of(std::span<PyObject* const> objects) {
  return new_list(objects.size(), [&](std::size_t i) { return Reference::borrow(objects[i]); });
}

Reference view_of(const FlatCall& flat, const Result& result) {
  PyObject* const base = flat.given[static_cast<std::size_t>(result.index)];
  static PyObject* const name = checked(PyUnicode_InternFromString("storage_offset")).release();
  const Reference method = checked(PyObject_GetAttr(base, name));
  const Reference begin = checked(PyObject_CallNoArgs(method.get()));
  const long long offset = PyLong_AsLongLong(begin.get());
  if (offset == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  return call_with(flat.as_strided.get(), base, result.shape.get(), result.strides.get(),
                   offset + result.elements);
}

// `before`: the list of the earlier results.
Reference result_of(const FlatCall& flat, const Result& result, TensorList& outputs,
                    const Reference& before) {
  switch (result.from) {
    case From::kMade:
      return export_exchange(*flat.exchange,
                             outputs.tensors()[static_cast<std::size_t>(result.index)]);
    case From::kGiven:
      return Reference::borrow(flat.given[static_cast<std::size_t>(result.index)]);
    case From::kView:
      return view_of(flat, result);
    case From::kSame: {
      PyObject* const same = PyList_GetItem(before.get(), result.index);
      if (same == nullptr) throw PythonError();
      return Reference::borrow(same);
    }
    case From::kValue:
      break;
  }
  return Reference::borrow(result.value.get());
}

Reference results_of(const FlatCall& flat, TensorList& outputs, bool is_replay) {
  if (is_replay && flat.results) {
    Reference all = checked(PyList_New(static_cast<Py_ssize_t>(flat.results->size())));
    Py_ssize_t i = 0;
    for (const Result& result : *flat.results)
      check_status(PyList_SetItem(all.get(), i++, result_of(flat, result, outputs, all).release()));
    return all;
  }
  const std::span<Tensor> made = outputs.tensors();
  const Reference list = new_list(
      made.size(), [&](std::size_t i) { return export_exchange(*flat.exchange, made[i]); });
  return call_with(flat.finish.get(), list.get(), list_of(flat.given));
}

// Forward and backward passes run on different threads, and take turns in the context.
using Turn = std::unique_lock<Mutex<LockRank::kTurns>>;
Turn wait_for_turn(const ContextState& state) {
  Turn turn(state.turn, std::try_to_lock);
  if (!turn) without_gil([&] { turn.lock(); });
  return turn;
}

// Calls the core, while other threads run Python.
void call_core(const FlatCall& flat, const Bound& bound, StreamRef caller, TensorList& outputs) {
  const GilRelease released;
  std::optional<StreamScope> scope;
  if (caller) scope.emplace(caller);
  bound.core->call(InputList(flat.tensors), outputs);
  if (!caller) bound.context->synchronize();  // the host device still reads the inputs
}

// Lets `recover` answer a call that failed. Requires: an exception is being handled.
Reference recover(const FlatCall& flat, PyObject* given) {
  set_error_in_flight();
  const PythonError error;
  return call_with(flat.recover.get(), error.object(), given);
}

std::span<PyObject* const> read_list(FlatCall& flat, PyObject* list) {
  flat.of_list.clear();
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i)
    flat.of_list.push_back(PyList_GetItem(list, i));
  return flat.of_list;
}

// Makes a call with `given`, which the caller holds until the call is over, or with the items of
// `list`.
Reference make_call(FlatCall& flat, std::span<PyObject* const> given, PyObject* list) {
  Reference no = Reference::borrow(Py_NotImplemented);
  if (StepScope::innermost() != nullptr || current_allocator() != nullptr) return no;
  if (!is_same_state(flat)) return no;
  Compiled& compiled = value_of<Compiled>(flat.compiled.get());
  const Turn turn = wait_for_turn(*compiled.context);
  if (flat.is_in_use) return no;
  const Bound bound = python::bound(compiled);
  if (list != nullptr) given = read_list(flat, list);
  InUse in_use(flat, given);
  const StreamRef caller =
      current_stream_of(*flat.exchange, to_dlpack_device(bound.context->device()));
  if (caller && caller.is_capturing()) return no;
  const StreamRef stream = caller ? caller : bound.context->stream();
  if (!take_inputs(flat, stream)) return no;
  check_apart(flat);
  if (list != nullptr) {
    // As its callee, the call may release inputs that the caller no longer needs, once it is done.
    in_use.own();
    check_status(PyList_SetSlice(list, 0, PY_SSIZE_T_MAX, nullptr));
  }
  if (flat.before.get() != Py_None) (void)checked(PyObject_CallNoArgs(flat.before.get()));
  const std::size_t runs = compiled.step->runs;
  TensorList outputs;
  in_use.note_call();
  try {
    call_core(flat, bound, caller, outputs);
    throw_raised_in_launch();
  } catch (...) {  // the caller's list is as before
    if (list != nullptr) check_status(PyList_SetSlice(list, 0, 0, list_of(given).get()));
    throw;
  }
  const bool is_replay = compiled.step->runs == runs;
  if (is_replay) in_use.note_replay();
  return results_of(flat, outputs, is_replay);
}

PyObject* call(PyObject* self, PyObject* inputs) {
  return guarded([&] { return call_flat(self, {}, inputs).release(); });
}

// ---- The object ----

// `is_static`: None for a value that is compared, the type of a number, or a bool for a tensor.
Expected expected_of(const dlpack::Exchange& exchange, PyObject* value, PyObject* is_static) {
  Expected expected;
  if (is_static == Py_None) {
    expected.value = Reference::borrow(value);
    return expected;
  }
  if (!PyBool_Check(is_static)) {
    expected.number = to_dtype(is_static);
    if (!has_integers(*expected.number))
      throw InvalidArgument("FlatCall(): a number by value has a type of integers");
    return expected;
  }
  dlpack::TensorView view;
  if (exchange.view_of_object(value, &view) != 0) throw PythonError();
  expected.is_static = to_bool(is_static);
  expected.type = view.dtype;
  expected.layout.push_back(view.ndim);
  for (std::int32_t axis = 0; axis < view.ndim; ++axis)
    expected.layout.insert(expected.layout.end(), {view.shape[axis], view.strides[axis]});
  return expected;
}

Result result_from(std::int64_t from, PyObject* given) {
  Result result = {.from = static_cast<From>(from)};
  if (result.from == From::kValue) {
    result.value = Reference::borrow(given);
  } else if (result.from == From::kView) {
    using View = std::tuple<std::int64_t, PyObject*, PyObject*, std::int64_t>;
    const auto [input, shape, strides, elements] = Caster<View>::from(given, "a view");
    result.index = input;
    result.shape = Reference::borrow(shape);
    result.strides = Reference::borrow(strides);
    result.elements = elements;
  } else {
    result.index = to_int64(given, "a result");
  }
  return result;
}

void set_results(FlatCall& flat,
                 const std::optional<std::vector<std::tuple<std::int64_t, PyObject*>>>& items) {
  flat.results.reset();
  if (!items) return;
  flat.results.emplace();
  for (const auto& [from, given] : *items)
    flat.results->push_back(result_from(from, given));
}

void set_state(FlatCall& flat, PyObject* state, PyObject* known) {
  flat.state = Reference::borrow(state);
  flat.known = Reference::borrow(known);
}

PyTypeObject* expect_type(PyObject* object, const char* what) {
  if (!PyType_Check(object)) {
    PyErr_Format(PyExc_TypeError, "%s: expected a type, not %R", what, object);
    throw PythonError();
  }
  return reinterpret_cast<PyTypeObject*>(object);
}

using Offset = std::int64_t;

FlatCall make(PyObject* compiled, PyObject* type, PyObject* parameter, PyObject* as_strided,
              const std::vector<std::tuple<PyObject*, PyObject*>>& expected,
              const std::vector<std::tuple<std::size_t, std::size_t, std::int64_t>>& apart,
              PyObject* finish, PyObject* recover,
              const std::optional<std::tuple<Offset, Offset, Offset, Offset, Offset, Word>>& reader,
              PyObject* settings) {
  if (expect_object<Compiled>(compiled, "compiled").context == nullptr)
    throw InvalidArgument("FlatCall(): this function was compiled for no context");
  FlatCall flat;
  flat.exchange = exchange_of(expect_type(type, "type"));
  (void)expect_type(parameter, "parameter_type");
  if (flat.exchange == nullptr || flat.exchange->view_of_object == nullptr) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        "FlatCall(): the type has no exchange API of DLPack that tells where "
                        "tensors lie: PyTorch 2.10 has it");
  }
  if (reader) flat.reader = std::apply([](auto... each) { return PlaceReader{each...}; }, *reader);
  if (settings != nullptr) {
    flat.values = expect_object<Settings>(settings, "settings").read();
    flat.settings = Reference::borrow(settings);
  }
  flat.compiled = Reference::borrow(compiled);
  flat.type = Reference::borrow(type);
  flat.parameter = Reference::borrow(parameter);
  flat.as_strided = Reference::borrow(as_strided);
  flat.finish = Reference::borrow(finish);
  flat.recover = Reference::borrow(recover);
  flat.before = Reference::borrow(Py_None);
  std::size_t count = 0;
  for (const auto& [value, is_static] : expected) {
    flat.expected.push_back(expected_of(*flat.exchange, value, is_static));
    flat.tensor_of.push_back(count);
    count += flat.expected.back().value ? 0 : 1;
  }
  for (const auto& [a, b, distance] : apart) {
    if (std::max(a, b) >= count)
      throw InvalidArgument(str_format("FlatCall(): there are no tensors {} and {}", a, b));
    flat.apart.push_back({a, b, distance});
  }
  flat.of_list.reserve(flat.expected.size());
  flat.taken.reserve(flat.expected.size());
  flat.places.resize(flat.expected.size());
  flat.borrowed.resize(count);
  flat.tensors.resize(count);
  flat.aside.resize(count);
  flat.at.resize(count);
  return flat;
}

}  // namespace

Reference call_flat(PyObject* flat, Rest inputs, PyObject* list) {
  if (list != nullptr && !PyList_Check(list))
    throw InvalidArgument("FlatCall: expected a list of inputs");
  const Reference kept = Reference::borrow(flat);
  try {
    return make_call(value_of<FlatCall>(flat), inputs, list);
  } catch (...) {
    const Reference given = list == nullptr ? list_of(inputs) : Reference::borrow(list);
    return recover(value_of<FlatCall>(flat), given.get());
  }
}

void expect_flat(PyObject* object) {
  (void)expect_object<FlatCall>(object, "calls");
}

void add_flat_call_type(PyObject* module) {
  add_type<FlatCall>(module, {.name = "cgtree._cgtree.FlatCall",
                              .methods = {{"call", reinterpret_cast<void*>(call), METH_O},
                                          bind<&set_results>("set_results"),
                                          bind<[](FlatCall& flat, PyObject* before) {
                                            flat.before = Reference::borrow(before);
                                          }>("set_before"),
                                          bind<&set_state>("set_state")},
                              .maker = constructor<&make>()});
}

}  // namespace cgtree::python
