// Finds kernels by name and checks their parameters.
#include "targets/module.h"

#include "base/error.h"
#include "base/format.h"

namespace cgtree {

std::vector<std::string> Module::names() const {
  std::vector<std::string> names;
  for (const ModuleFunction& function : contents_->functions)
    names.push_back(function.name);
  return names;
}

KernelFunction Module::find(std::string_view name, const std::vector<std::size_t>& bytes) const {
  for (const ModuleFunction& function : contents_->functions) {
    if (function.name != name) continue;
    if (function.parameter_bytes && *function.parameter_bytes != bytes) {
      throw InvalidArgument(
          str_format("kernel '{}' takes parameters of {{{}}} bytes, and was asked for with {{{}}}",
                     name, joined(*function.parameter_bytes, ", "), joined(bytes, ", ")));
    }
    return {function.name.c_str(), function.host, function.cuda};
  }
  throw InvalidArgument(str_format("module for '{}' has no kernel '{}'; there are {}",
                                   target().kind().name, name, joined(names(), ", ")));
}

}  // namespace cgtree
