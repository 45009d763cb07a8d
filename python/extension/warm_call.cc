// The Python type cgtree.WarmCall: calls of a PyTorch function that are like an earlier one, and
// are compared with it, made and answered without running Python.
#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/context.h"
#include "cgtree/record/step.h"
#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_exchange.h"
#include "interop/tensor/empty.h"
#include "python/extension/borrowed.h"
#include "python/extension/compiled.h"
#include "python/extension/dlpack.h"
#include "python/extension/module.h"
#include "python/extension/pattern.h"
#include "python/extension/python.h"
#include "python/extension/values.h"
#include "python/extension/watched.h"

namespace cgtree::python {
namespace {

// What a call returns of the outputs of a replay.
enum class Form : long { kFinish, kTensor, kTuple, kList };

struct WarmCall {
  Reference compiled;
  Reference type;  // of the outputs
  Reference watched;
  Reference before;  // called before the call, or None
  Reference finish;  // finish(outputs, leaves) returns what the function returns
  // Functions without arguments, and what each returned.
  std::vector<std::pair<Reference, Reference>> states;
  ArgumentPattern pattern;
  const dlpack::Exchange* exchange = nullptr;
  Form form = Form::kFinish;
  bool has_gradients = false;  // PyTorch computes them, so that no argument may require any
  // The sizes and strides of each argument, one after the other; null if any will do.
  std::optional<std::vector<std::int64_t>> layouts;

  // Of the call in progress.
  bool is_in_use = false;
  std::vector<PyObject*> leaves;  // owned, because a list of the caller's may change
  std::vector<BorrowedTensor> tensors;
  std::vector<const Tensor*> addresses;
};

struct WarmObject {
  PyObject ob_base;
  WarmCall warm;
};

WarmCall& warm_of(PyObject* self) {
  return reinterpret_cast<WarmObject*>(self)->warm;
}

// ---- Is this call like the earlier one? ----

bool is_same(PyObject* a, PyObject* b) {
  if (a == b) return true;
  const int is_equal = PyObject_RichCompareBool(a, b, Py_EQ);
  check_status(is_equal);
  return is_equal != 0;
}

bool states_hold(const WarmCall& warm) {
  for (const auto& [function, expected] : warm.states) {
    const Reference now = checked(PyObject_CallNoArgs(function.get()));
    if (!is_same(now.get(), expected.get())) return false;
  }
  return true;
}

bool is_like_the_earlier(WarmCall& warm, PyObject* arguments) {
  if (StepScope::innermost() != nullptr || current_allocator() != nullptr) return false;
  if (!warm.pattern.matches(arguments, warm.leaves)) return false;
  if (!states_hold(warm)) return false;
  for (PyObject* const leaf : warm.leaves) {
    if (warm.has_gradients && requires_grad(leaf)) return false;
  }
  return holds(warm.watched.get());
}

bool has_layout(const dlpack::TensorView& view, const std::int64_t*& layout) {
  if (*layout++ != view.ndim) return false;
  for (std::int32_t axis = 0; axis < view.ndim; ++axis) {
    if (*layout++ != view.shape[axis] || *layout++ != view.strides[axis]) return false;
  }
  return true;
}

// Returns false for a tensor that has to take the long way, which says what is wrong with it.
bool take_tensors(WarmCall& warm, StreamRef stream) {
  const dlpack::DeviceRef device = to_dlpack_device(stream.device());
  const std::int64_t* layout = warm.layouts ? warm.layouts->data() : nullptr;
  for (std::size_t i = 0; i < warm.leaves.size(); ++i) {
    dlpack::TensorView view;
    if (warm.exchange->view_of_object(warm.leaves[i], &view) != 0) {
      PyErr_Clear();
      return false;
    }
    if (view.device.type != device.type || view.device.id != device.id) return false;
    if (layout != nullptr && !has_layout(view, layout)) return false;
    try {
      warm.tensors[i].take(warm.leaves[i], view, stream);
    } catch (const BoundaryError&) {
      return false;
    }
    warm.addresses[i] = &warm.tensors[i].tensor();
  }
  return true;
}

// ---- The call ----

// An InUse marks the state of a call as taken, and gives the tensors back in the end.
class InUse {
 public:
  explicit InUse(WarmCall& warm) noexcept : warm_(warm) { warm.is_in_use = true; }
  ~InUse() {
    for (std::size_t i = 0; i < warm_.leaves.size(); ++i)
      warm_.tensors[i].give_back(warm_.leaves[i]);
    for (PyObject* const leaf : warm_.leaves)
      Py_DECREF(leaf);
    warm_.leaves.clear();
    warm_.is_in_use = false;
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  WarmCall& warm_;
};

Reference list_of(const std::vector<PyObject*>& objects) {
  Reference list = checked(PyList_New(static_cast<Py_ssize_t>(objects.size())));
  for (std::size_t i = 0; i < objects.size(); ++i) {
    PyObject* const object = Reference::borrow(objects[i]).release();
    check_status(PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), object));
  }
  return list;
}

Reference exported(const WarmCall& warm, TensorList& outputs, bool is_list) {
  const std::span<Tensor> made = outputs.tensors();
  const auto count = static_cast<Py_ssize_t>(made.size());
  Reference all = checked(is_list ? PyList_New(count) : PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const object =
        export_exchange(*warm.exchange, made[static_cast<std::size_t>(i)]).release();
    check_status(is_list ? PyList_SetItem(all.get(), i, object)
                         : PyTuple_SetItem(all.get(), i, object));
  }
  return all;
}

Reference result_of(const WarmCall& warm, TensorList& outputs, bool is_replay) {
  const Form form = is_replay ? warm.form : Form::kFinish;
  if (form == Form::kTensor && outputs.tensors().size() == 1) {
    return export_exchange(*warm.exchange, outputs.tensors()[0]);
  }
  Reference all = exported(warm, outputs, form == Form::kList);
  if (form == Form::kTuple || form == Form::kList) return all;
  const Reference leaves = list_of(warm.leaves);
  const Reference arguments = checked(PyTuple_Pack(2, all.get(), leaves.get()));
  return call_python(warm.finish.get(), arguments.get());
}

Reference make_call(WarmCall& warm, PyObject* arguments) {
  Reference no = Reference::borrow(Py_NotImplemented);
  if (warm.is_in_use) return no;
  const InUse in_use(warm);
  if (!is_like_the_earlier(warm, arguments)) return no;
  const Bound bound = bound_of(warm.compiled.get());
  const Device device = bound.context->device();
  const StreamRef caller = current_stream_of(*warm.exchange, to_dlpack_device(device));
  if (caller && caller.is_capturing()) return no;
  const StreamRef stream = caller ? caller : bound.context->stream();
  if (!take_tensors(warm, stream)) return no;
  if (warm.before.get() != Py_None) (void)checked(PyObject_CallNoArgs(warm.before.get()));
  const std::size_t runs = runs_of(warm.compiled.get());
  TensorList outputs;
  {
    const GilRelease released;
    std::optional<StreamScope> scope;
    if (caller) scope.emplace(caller);
    bound.core->call(InputList(warm.addresses, 0), outputs);
    if (!caller) stream.synchronize();  // the host device still reads the arguments
  }
  throw_raised_in_launch();
  return result_of(warm, outputs, runs_of(warm.compiled.get()) == runs);
}

PyObject* call(PyObject* self, PyObject* arguments) {
  return guarded([&] {
    const Reference kept = Reference::borrow(self);
    return make_call(warm_of(self), arguments).release();
  });
}

// ---- The object ----

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
  return guarded([&] {
    PyObject* compiled = nullptr;
    PyObject* tensors = nullptr;
    PyObject* shape = nullptr;
    PyObject* types = nullptr;
    PyObject* states = nullptr;
    PyObject* watched = nullptr;
    PyObject* before = nullptr;
    PyObject* finish = nullptr;
    PyObject* layouts = nullptr;
    long form = 0;
    int has_gradients = 0;
    if (PyArg_ParseTuple(arguments, "OO!OO!O!OOOlpO", &compiled, &PyType_Type, &tensors, &shape,
                         &PyTuple_Type, &types, &PyTuple_Type, &states, &watched, &before, &finish,
                         &form, &has_gradients, &layouts) == 0) {
      throw PythonError();
    }
    expect_compiled(compiled);
    expect_watched(watched);
    const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    Reference self = checked(allocate(type, 0));
    WarmCall& warm = *new (&warm_of(self.get())) WarmCall();
    warm.exchange = exchange_of(reinterpret_cast<PyTypeObject*>(tensors));
    const bool is_known = warm.exchange != nullptr && warm.exchange->view_of_object != nullptr &&
                          warm.pattern.read(shape, types);
    if (!is_known) throw InvalidArgument("WarmCall(): such calls take the long way");
    warm.compiled = Reference::borrow(compiled);
    warm.type = Reference::borrow(tensors);
    warm.watched = Reference::borrow(watched);
    warm.before = Reference::borrow(before);
    warm.finish = Reference::borrow(finish);
    warm.form = static_cast<Form>(form);
    warm.has_gradients = has_gradients != 0;
    if (layouts != Py_None) warm.layouts = to_integers(layouts, "layouts");
    for (Py_ssize_t i = 0; i < PyTuple_Size(states); ++i) {
      PyObject* function = nullptr;
      PyObject* value = nullptr;
      if (PyArg_ParseTuple(PyTuple_GetItem(states, i), "OO", &function, &value) == 0) {
        throw PythonError();
      }
      warm.states.emplace_back(Reference::borrow(function), Reference::borrow(value));
    }
    const auto count = static_cast<std::size_t>(PyTuple_Size(types));
    warm.leaves.reserve(count);
    warm.tensors.resize(count);
    warm.addresses.resize(count);
    return self.release();
  });
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  const WarmCall& warm = warm_of(self);
  for (const Reference* part :
       {&warm.compiled, &warm.type, &warm.watched, &warm.before, &warm.finish})
    Py_VISIT(part->get());
  for (const auto& [function, value] : warm.states) {
    Py_VISIT(function.get());
    Py_VISIT(value.get());
  }
  return warm.pattern.traverse(visit, arg);
}

int clear(PyObject* self) {
  const WarmCall last = std::exchange(warm_of(self), {});
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  std::destroy_at(&warm_of(self));
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_Del(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyMethodDef methods[] = {
    {"call", call, METH_O,
     "call((args, kwargs)): makes the call and returns what the function returns, or returns "
     "NotImplemented if it is not like the earlier one, and has done nothing. Raises what the call "
     "of the compiled function raises."},
    {nullptr, nullptr, 0, nullptr}};

constexpr const char* kDoc =
    "WarmCall(compiled, type, shape, types, states, watched, before, finish, form, has_gradients,\n"
    "layouts): an earlier call. `shape`: of (args, kwargs), as cgtree._torch_tree says, with "
    "tensors\n"
    "of these types; `states`: pairs of a function and what it returned; `watched`: a Watched;\n"
    "`before()`: called before the call, or None; `form`: 1, 2 or 3 if a tensor, a tuple or a "
    "list\n"
    "of the outputs is returned, 0 if finish(outputs, leaves) makes the result, as it does after\n"
    "the step function ran; `layouts`: of each argument the rank, and size and stride of each "
    "axis,\n"
    "or None. Raises InvalidArgument for arguments that only Python can flatten.";

}  // namespace

void add_warm_call_type(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(clear)},
                         {Py_tp_doc, const_cast<char*>(kDoc)},
                         {Py_tp_methods, methods},
                         {0, nullptr}};
  PyType_Spec spec = {"cgtree.WarmCall", sizeof(WarmObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
  (void)add_type(module, "WarmCall", spec);
}

}  // namespace cgtree::python
