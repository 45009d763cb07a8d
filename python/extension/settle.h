// and_settle(): runs work on tensors of other libraries, and waits for it however it ends.
#pragma once

#include <exception>

#include "base/error.h"

namespace cgtree::python {

// run(), then inputs.settle(). What run() throws comes out; that settle() fails too then, does not.
template <typename Inputs, typename Run>
void and_settle(Inputs& inputs, const Run& run) {
  try {
    run();
  } catch (...) {
    try {
      inputs.settle();
    } catch (const Error&) {
    }
    throw;
  }
  inputs.settle();
}

}  // namespace cgtree::python
