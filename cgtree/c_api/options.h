// Options of contexts and functions, from the structs of C.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cgtree/c_api.h"
#include "cgtree/options.h"

namespace cgtree::capi {

// NULL gives the defaults. Throws InvalidArgument. The owner of the caller's is released also then.
ContextOptions context_options(const cgt_context_options* given);

struct FunctionOptions {
  CompileOptions compile;
  std::vector<std::string> axes;  // their names, in the order in which they were given
};

// Returns the options of a function with `outputs` outputs. NULL gives the defaults. Throws
// InvalidArgument.
FunctionOptions function_options(const cgt_function_options* given, std::size_t outputs);

}  // namespace cgtree::capi
