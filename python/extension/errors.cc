// Maps each exception of base/error.h to its Python class.
#include "python/extension/errors.h"

#include "base/error.h"
#include "extensions/watch/spelling.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

PyObject* g_classes = nullptr;  // cgtree._errors

// By BoundaryFault.
constexpr const char* kBoundaryClasses[] = {"MissingField", "WrongType", "WrongValue",
                                            "NotSupported"};

// Raises the class with this name, with an attribute if `attribute` names one.
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

// Returns the notes of an exception, or null if it has none.
Reference notes_of(PyObject* error) {
  Reference notes = Reference::steal(PyObject_GetAttrString(error, "__notes__"));
  PyErr_Clear();
  return notes;
}

std::string utf8_of(PyObject* text) {
  const char* const utf8 =
      text != nullptr && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, nullptr) : nullptr;
  return utf8 == nullptr ? "" : utf8;
}

std::string text_of(PyObject* error) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(error));
  std::string whole = utf8_of(Reference::steal(PyObject_GetAttrString(type, "__name__")).get());
  const std::string text = utf8_of(Reference::steal(PyObject_Str(error)).get());
  if (!text.empty()) whole += ": " + text;
  const Reference notes = notes_of(error);
  const Py_ssize_t count = notes ? PySequence_Size(notes.get()) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const std::string note = utf8_of(Reference::steal(PySequence_GetItem(notes.get(), i)).get());
    if (!note.empty()) whole += " (" + note + ")";
  }
  PyErr_Clear();
  return whole;
}

}  // namespace

PythonError::PythonError() {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_SystemError, "an exception is missing");
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  object_ = keep_object(value);
  Py_DECREF(value);
  text_ = std::make_shared<const std::string>(text_of(value));
}

bool PythonError::is_a(const char* name) const {
  const Reference type = Reference::steal(PyObject_GetAttrString(g_classes, name));
  if (type) return PyErr_GivenExceptionMatches(object(), type.get()) != 0;
  PyErr_Clear();
  return false;
}

void PythonError::add_note(const std::string& note) const {
  const Reference text = from_text(note);
  const Reference notes = notes_of(object());
  if (notes && PySequence_Contains(notes.get(), text.get()) == 1) return;
  const Reference added =
      Reference::steal(PyObject_CallMethod(object(), "add_note", "O", text.get()));
  PyErr_Clear();  // a class whose exceptions take no attributes
}

void PythonError::restore() const {
  PyErr_Restore(Reference::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object()))).release(),
                Reference::borrow(object()).release(), PyException_GetTraceback(object()));
}

void load_errors() {
  g_classes = checked(PyImport_ImportModule("cgtree._errors")).release();
}

namespace {

void set_class_in_flight() {
  try {
    throw;
  } catch (const BoundaryError& error) {
    set(kBoundaryClasses[static_cast<int>(error.fault())], error.message());
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
