// function_options(): how a function of C's is to be compiled.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cgtree/c_api.h"
#include "cgtree/options.h"

namespace cgtree::capi {

struct FunctionOptions {
  CompileOptions compile;
  std::vector<std::string> axes;  // their names, in the order in which they were given
};

// Of a function with so many outputs. NULL: the defaults. Throws InvalidArgument.
FunctionOptions function_options(const cgt_function_options* given, std::size_t outputs);

}  // namespace cgtree::capi
