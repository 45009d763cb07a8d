// Maps each exception of base/error.h to its Python class.
#include "python/extension/errors.h"

#include "base/error.h"
#include "extensions/watch/spelling.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

PyObject* g_classes = nullptr;  // cgtree._errors

const char* class_of(BoundaryFault fault) noexcept {
  switch (fault) {
    case BoundaryFault::kMissing:
      return "MissingField";
    case BoundaryFault::kWrongType:
      return "WrongType";
    case BoundaryFault::kWrongValue:
      return "WrongValue";
    case BoundaryFault::kNotSupported:
      break;
  }
  return "NotSupported";
}

// Raises the class with this name, and with an attribute if there is a name for one.
void set(const char* name, std::string_view message, const char* attribute = nullptr,
         Reference value = {}) noexcept {
  const Reference type = Reference::steal(PyObject_GetAttrString(g_classes, name));
  const Reference text = Reference::steal(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  if (!type || !text) return;
  if (attribute == nullptr) return PyErr_SetObject(type.get(), text.get());
  const Reference error =
      Reference::steal(PyObject_CallFunctionObjArgs(type.get(), text.get(), nullptr));
  if (error && value && PyObject_SetAttrString(error.get(), attribute, value.get()) == 0)
    PyErr_SetObject(type.get(), error.get());
}

Reference dict_of(const MemoryReport& report) {
  const Reference pools = new_list(report.pools.size(), [&](std::size_t i) {
    const PoolUse& pool = report.pools[i];
    return new_dict("name", pool.name, "reserved", pool.reserved, "live", pool.live,
                    "largest_free_block", pool.largest_free_block);
  });
  return new_dict("requested", report.requested, "largest_free_block", report.largest_free_block,
                  "pools", pools.get(), "capture_open", report.capture_open);
}

Reference dict_of(const Divergence& divergence) {
  constexpr const char* kOf[] = {"output", "input", "draws", "step"};
  return new_dict("of", kOf[static_cast<int>(divergence.of)], "function", divergence.function,
                  "key", divergence.key, "node", divergence.node, "index", divergence.index, "what",
                  divergence.what, "position", divergence.position, "replayed", divergence.replayed,
                  "eager", divergence.eager, "differing", divergence.differing, "elements",
                  divergence.elements, "largest", divergence.largest, "tolerance",
                  divergence.tolerance, "suspects", divergence.suspects);
}

// Returns null if the exception has none.
Reference notes_of(PyObject* error) {
  Reference notes =
      Reference::steal(error == nullptr ? nullptr : PyObject_GetAttrString(error, "__notes__"));
  PyErr_Clear();
  return notes;
}

std::string text_of(PyObject* type, PyObject* value) {
  const Reference name = Reference::steal(PyObject_GetAttrString(type, "__name__"));
  const Reference text = Reference::steal(value == nullptr ? nullptr : PyObject_Str(value));
  const char* const name_utf8 = name ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
  const char* const text_utf8 = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  std::string whole = name_utf8 == nullptr ? "an exception" : name_utf8;
  if (text_utf8 != nullptr && *text_utf8 != '\0') whole = whole + ": " + text_utf8;
  const Reference notes = notes_of(value);
  const Py_ssize_t count = notes ? PySequence_Size(notes.get()) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Reference note = Reference::steal(PySequence_GetItem(notes.get(), i));
    const char* const said = note && PyUnicode_Check(note.get())
                                 ? PyUnicode_AsUTF8AndSize(note.get(), nullptr)
                                 : nullptr;
    if (said != nullptr) whole = whole + " (" + said + ")";
  }
  PyErr_Clear();
  return whole;
}

}  // namespace

struct PythonError::State {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  std::string text;

  ~State() {
    if (!interpreter_is_alive()) return;
    const GilAcquire gil;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  }
};

PythonError::PythonError() : state_(std::make_shared<State>()) {
  PyErr_Fetch(&state_->type, &state_->value, &state_->traceback);
  PyErr_NormalizeException(&state_->type, &state_->value, &state_->traceback);
  state_->text = text_of(state_->type, state_->value);
}

const char* PythonError::what() const noexcept {
  return state_->text.c_str();
}

bool PythonError::is_a(const char* name) const {
  const Reference type = Reference::steal(PyObject_GetAttrString(g_classes, name));
  if (type) return PyErr_GivenExceptionMatches(state_->type, type.get()) != 0;
  PyErr_Clear();
  return false;
}

void PythonError::add_note(const std::string& note) const {
  const Reference text = from_text(note);
  const Reference notes = notes_of(state_->value);
  if (notes && PySequence_Contains(notes.get(), text.get()) == 1) return;
  const Reference added =
      Reference::steal(PyObject_CallMethod(state_->value, "add_note", "O", text.get()));
  PyErr_Clear();  // of a class whose exceptions take none
}

PyObject* PythonError::object() const {
  if (state_->traceback != nullptr)
    check_status(PyException_SetTraceback(state_->value, state_->traceback));
  return state_->value;
}

void PythonError::restore() const {
  Py_XINCREF(state_->type);
  Py_XINCREF(state_->value);
  Py_XINCREF(state_->traceback);
  PyErr_Restore(state_->type, state_->value, state_->traceback);
}

void load_errors() {
  g_classes = checked(PyImport_ImportModule("cgtree._errors")).release();
}

namespace {

void set_class_in_flight() {
  try {
    throw;
  } catch (const BoundaryError& error) {
    set(class_of(error.fault()), error.message());
  } catch (const InvalidArgument& error) {
    set("InvalidArgument", spelled(error.message(), Spelling::kNames));
  } catch (const OutOfMemory& error) {
    if (error.report() == nullptr) return set("OutOfMemory", error.message());
    set("OutOfMemory", error.message(), "report", dict_of(*error.report()));
  } catch (const StaleTensor& error) {
    set("StaleTensor", error.message());
  } catch (const ConcurrentUse& error) {
    set("ConcurrentUse", error.message());
  } catch (const CaptureError& error) {
    set("CaptureError", spelled(error.message(), Spelling::kNames), "code",
        to_python(error.code()));
  } catch (const DeviceError& error) {
    set("DeviceError", error.message(), "code", to_python(error.code()));
  } catch (const GroupError& error) {
    set("GroupError", error.message());
  } catch (const VerifyError& error) {
    set("VerifyError", error.message(), "divergence", dict_of(error.divergence()));
  } catch (const Error& error) {
    set("Error", error.message());
  }
}

}  // namespace

void set_error_in_flight() noexcept {
  try {
    set_class_in_flight();
  } catch (const PythonError& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    set("Error", error.what());
  } catch (...) {
    set("Error", "an exception of unknown type");
  }
}

Reference checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return Reference::steal(object);
}

void check_status(int status) {
  if (status < 0) throw PythonError();
}

Reference call_python(PyObject* function, PyObject* arguments) {
  return checked(or_hang([&] { return PyObject_CallObject(function, arguments); }));
}

}  // namespace cgtree::python
