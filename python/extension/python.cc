// Tells whether the interpreter is alive, and leaks objects once it is not.
#include "python/extension/python.h"

#include <atomic>

namespace cgtree::python {
namespace {

// It belongs to the process, as the interpreter does.
std::atomic<bool> g_is_ending{false};

}  // namespace

bool interpreter_is_alive() noexcept {
  return !g_is_ending.load(std::memory_order_acquire) && Py_IsInitialized() != 0;
}

void interpreter_ends() noexcept {
  g_is_ending.store(true, std::memory_order_release);
}

std::shared_ptr<void> keep_object(PyObject* object) {
  Py_INCREF(object);
  return std::shared_ptr<void>(object, [](void* kept) {
    if (!interpreter_is_alive()) return;
    const GilAcquire gil;
    Py_DECREF(static_cast<PyObject*>(kept));
  });
}

}  // namespace cgtree::python
