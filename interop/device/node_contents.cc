// Turns names of kernels into what people read.
#include "interop/device/node_contents.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace cgtree {

std::string demangled(std::string_view name) {
  // Also types have mangled names: "f" is float.
  if (!name.starts_with("_Z")) return std::string(name);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status), std::free);
  return text != nullptr ? text.get() : std::string(name);
}

}  // namespace cgtree
