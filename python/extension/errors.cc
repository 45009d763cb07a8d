// Maps each exception of base/error.h to its Python class.
#include "python/extension/errors.h"

#include "base/error.h"
#include "python/extension/python.h"

namespace cgtree::python {
namespace {

// The classes of cgtree._errors, which live as long as the process.
struct Classes {
  PyObject* error;
  PyObject* invalid_argument;
  PyObject* out_of_memory;
  PyObject* stale_tensor;
  PyObject* concurrent_use;
  PyObject* device_error;
  PyObject* capture_error;
  PyObject* missing_field;
  PyObject* wrong_type;
  PyObject* wrong_value;
  PyObject* not_supported;
  PyObject* group_error;
  PyObject* verify_error;
};
Classes g_classes = {};

PyObject* class_of(BoundaryFault fault) noexcept {
  switch (fault) {
    case BoundaryFault::kMissing:
      return g_classes.missing_field;
    case BoundaryFault::kWrongType:
      return g_classes.wrong_type;
    case BoundaryFault::kWrongValue:
      return g_classes.wrong_value;
    case BoundaryFault::kNotSupported:
      break;
  }
  return g_classes.not_supported;
}

void set(PyObject* type, std::string_view message) noexcept {
  const Reference text = Reference::steal(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  if (text) PyErr_SetObject(type, text.get());
}

void set_with(PyObject* type, const Error& error, const char* name, PyObject* value) noexcept {
  const std::string_view message = error.message();
  const Reference held = Reference::steal(value);
  const Reference instance = Reference::steal(
      PyObject_CallFunction(type, "s#", message.data(), static_cast<Py_ssize_t>(message.size())));
  if (!instance || !held) return;
  if (PyObject_SetAttrString(instance.get(), name, held.get()) == 0) {
    PyErr_SetObject(type, instance.get());
  }
}

PyObject* dict_of(const MemoryReport& report) {
  const Reference pools = Reference::steal(PyList_New(0));
  for (const PoolUse& pool : report.pools) {
    const Reference entry = Reference::steal(Py_BuildValue(
        "{s:s,s:n,s:n,s:n}", "name", pool.name.c_str(), "reserved",
        static_cast<Py_ssize_t>(pool.reserved), "live", static_cast<Py_ssize_t>(pool.live),
        "largest_free_block", static_cast<Py_ssize_t>(pool.largest_free_block)));
    if (!pools || !entry || PyList_Append(pools.get(), entry.get()) != 0) return nullptr;
  }
  return Py_BuildValue("{s:n,s:n,s:O,s:N}", "requested", static_cast<Py_ssize_t>(report.requested),
                       "largest_free_block", static_cast<Py_ssize_t>(report.largest_free_block),
                       "pools", pools.get(), "capture_open",
                       PyBool_FromLong(report.capture_open ? 1 : 0));
}

PyObject* dict_of(const Divergence& divergence) {
  constexpr const char* kOf[] = {"output", "input", "draws", "step"};
  const Reference position = Reference::steal(PyList_New(0));
  const Reference suspects = Reference::steal(PyList_New(0));
  if (!position || !suspects) return nullptr;
  for (const std::int64_t index : divergence.position) {
    const Reference entry = Reference::steal(PyLong_FromLongLong(index));
    if (!entry || PyList_Append(position.get(), entry.get()) != 0) return nullptr;
  }
  for (const std::string& suspect : divergence.suspects) {
    const Reference entry = Reference::steal(PyUnicode_FromString(suspect.c_str()));
    if (!entry || PyList_Append(suspects.get(), entry.get()) != 0) return nullptr;
  }
  return Py_BuildValue(
      "{s:s,s:s,s:s,s:I,s:I,s:s,s:O,s:s,s:s,s:K,s:K,s:d,s:d,s:O}", "of",
      kOf[static_cast<int>(divergence.of)], "function", divergence.function.c_str(), "key",
      divergence.key.c_str(), "node", static_cast<unsigned>(divergence.node), "index",
      static_cast<unsigned>(divergence.index), "what", divergence.what.c_str(), "position",
      position.get(), "replayed", divergence.replayed.c_str(), "eager", divergence.eager.c_str(),
      "differing", static_cast<unsigned long long>(divergence.differing), "elements",
      static_cast<unsigned long long>(divergence.elements), "largest", divergence.largest,
      "tolerance", divergence.tolerance, "suspects", suspects.get());
}

std::string text_of(PyObject* type, PyObject* value) {
  const Reference name = Reference::steal(PyObject_GetAttrString(type, "__name__"));
  const Reference text = Reference::steal(value == nullptr ? nullptr : PyObject_Str(value));
  const char* const name_utf8 = name ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
  const char* const text_utf8 = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  std::string whole = name_utf8 == nullptr ? "an exception" : name_utf8;
  if (text_utf8 != nullptr && *text_utf8 != '\0') whole = whole + ": " + text_utf8;
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

void PythonError::restore() const {
  Py_XINCREF(state_->type);
  Py_XINCREF(state_->value);
  Py_XINCREF(state_->traceback);
  PyErr_Restore(state_->type, state_->value, state_->traceback);
}

void load_errors() {
  const Reference module = checked(PyImport_ImportModule("cgtree._errors"));
  const auto find = [&](const char* name) {
    return checked(PyObject_GetAttrString(module.get(), name)).release();
  };
  g_classes = {find("Error"),        find("InvalidArgument"), find("OutOfMemory"),
               find("StaleTensor"),  find("ConcurrentUse"),   find("DeviceError"),
               find("CaptureError"), find("MissingField"),    find("WrongType"),
               find("WrongValue"),   find("NotSupported"),    find("GroupError"),
               find("VerifyError")};
}

void set_error_in_flight() noexcept {
  try {
    throw;
  } catch (const PythonError& error) {
    error.restore();
  } catch (const BoundaryError& error) {
    set(class_of(error.fault()), error.message());
  } catch (const InvalidArgument& error) {
    set(g_classes.invalid_argument, error.message());
  } catch (const OutOfMemory& error) {
    if (error.report() == nullptr) return set(g_classes.out_of_memory, error.message());
    set_with(g_classes.out_of_memory, error, "report", dict_of(*error.report()));
  } catch (const StaleTensor& error) {
    set(g_classes.stale_tensor, error.message());
  } catch (const ConcurrentUse& error) {
    set(g_classes.concurrent_use, error.message());
  } catch (const CaptureError& error) {
    set_with(g_classes.capture_error, error, "code", PyLong_FromLong(error.code()));
  } catch (const DeviceError& error) {
    set_with(g_classes.device_error, error, "code", PyLong_FromLong(error.code()));
  } catch (const GroupError& error) {
    set(g_classes.group_error, error.message());
  } catch (const VerifyError& error) {
    set_with(g_classes.verify_error, error, "divergence", dict_of(error.divergence()));
  } catch (const Error& error) {
    set(g_classes.error, error.message());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    set(g_classes.error, error.what());
  } catch (...) {
    set(g_classes.error, "an exception of unknown type");
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
