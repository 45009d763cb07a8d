// Finds kernels by name and checks their parameters.
#include "targets/module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

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
          fmt::format("kernel '{}' takes parameters of {{{}}} bytes, and was asked for with {{{}}}",
                      name, fmt::join(*function.parameter_bytes, ", "), fmt::join(bytes, ", ")));
    }
    return {function.name.c_str(), function.host, function.cuda};
  }
  throw InvalidArgument(fmt::format("module for '{}' has no kernel '{}'; there are {}",
                                    target().kind().name, name, fmt::join(names(), ", ")));
}

}  // namespace cgtree
