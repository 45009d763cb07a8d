// The extension module cgtree._cgtree.
#include "python/extension/compiled.h"
#include "python/extension/context.h"
#include "python/extension/errors.h"
#include "python/extension/functions.h"
#include "python/extension/generator.h"
#include "python/extension/stream.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "cgtree._cgtree",
                          "What cgtree is made of.",
                          -1,
                          module_functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

// From then on no thread takes the lock any more.
void register_at_exit(PyObject* module) {
  const Reference atexit = checked(PyImport_ImportModule("atexit"));
  const Reference end = checked(PyObject_GetAttrString(module, "_interpreter_ends"));
  (void)checked(PyObject_CallMethod(atexit.get(), "register", "O", end.get()));
}

PyObject* make_module() {
  load_errors();
  Reference module = checked(PyModule_Create(&definition));
  add_tensor_type(module.get());
  add_stream_type(module.get());
  add_context_type(module.get());
  add_compiled_type(module.get());
  add_generator_type(module.get());
  register_at_exit(module.get());
  return module.release();
}

}  // namespace
}  // namespace cgtree::python

extern "C" PyMODINIT_FUNC PyInit__cgtree() {
  return cgtree::python::guarded([] { return cgtree::python::make_module(); });
}
