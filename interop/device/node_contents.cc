// Compares the contents of nodes, and reads the names of kernels.
#include "interop/device/node_contents.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace cgtree {

bool are_of_one_form(const NodeContents& a, const NodeContents& b) noexcept {
  const auto is_same_use = [](const NodeMemory& one, const NodeMemory& other) {
    return one.bytes == other.bytes && one.is_written == other.is_written;
  };
  return a.type == b.type && a.name() == b.name() && a.function == b.function && a.dims == b.dims &&
         a.bytes.size() == b.bytes.size() && std::ranges::equal(a.parameters(), b.parameters()) &&
         std::ranges::equal(a.memory, b.memory, is_same_use);
}

bool is_collective(std::string_view kernel) noexcept {
  return kernel == "collective" || kernel.find("ncclDevKernel") != std::string_view::npos ||
         kernel.find("ncclKernel") != std::string_view::npos;
}

std::string demangled(std::string_view name) {
  // Types also have mangled names: "f" is float.
  if (!name.starts_with("_Z")) return std::string(name);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status), std::free);
  return text != nullptr ? text.get() : std::string(name);
}

}  // namespace cgtree
