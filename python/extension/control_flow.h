// Arguments of branches and loops beside their bodies.
#pragma once

#include "extensions/flow/loop_stream.h"
#include "interop/random/generator.h"
#include "python/extension/object.h"

namespace cgtree::python {

template <>
struct Caster<Generator> {
  static const Generator& from(PyObject* object, const char* what) {
    return expect_object<Generator>(object, what);
  }
};

// What a cgtree.LoopStream holds.
struct RowsHolder {
  std::unique_ptr<LoopStream> rows;
  std::size_t row_bytes = 0;

  // Releases the memory without the lock, because that may wait for the device.
  void end() {
    if (!interpreter_is_alive()) return;
    const GilRelease released;
    rows.reset();
  }
};

}  // namespace cgtree::python
