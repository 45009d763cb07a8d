// NodeContents: the contents of a node of a captured graph, as far as they can be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/device/graph_api.h"

namespace cgtree {

// A KernelParameter is the position of a parameter in the bytes of all parameters.
struct KernelParameter {
  std::size_t offset;
  std::size_t bytes;

  bool operator==(const KernelParameter&) const = default;
};

// A NodeMemory is a range that a copy or memset uses, or that an allocation node provides. For a
// free node it is the address, with 0 bytes.
struct NodeMemory {
  std::uintptr_t address;
  std::size_t bytes;
  bool is_written;
};

// A KernelLayout holds the common properties of all nodes of a kernel.
struct KernelLayout {
  std::string name;  // as the compiler writes it; see demangled()
  std::vector<KernelParameter> parameters;
};

struct NodeContents {
  NodeHandle node = NodeHandle::kNull;
  NodeType type = NodeType::kOther;
  // False if some of the following could not be read; `why` names the refused part.
  bool is_decoded = false;
  std::string why;
  // For a kernel.
  std::shared_ptr<const KernelLayout> kernel;  // shared by nodes; null if it could not be read
  const void* function = nullptr;              // distinguishes kernels of the same name
  LaunchDims dims;
  std::vector<std::byte> bytes;  // of the parameters, in their layout; of the value of a memset
  // For a copy, a memset, an allocation or a free.
  std::vector<NodeMemory> memory;

  // Both functions return empty results unless the node is a kernel.
  std::string_view name() const noexcept {
    return kernel != nullptr ? std::string_view(kernel->name) : std::string_view();
  }
  std::span<const KernelParameter> parameters() const noexcept {
    return kernel != nullptr ? std::span(kernel->parameters) : std::span<const KernelParameter>();
  }
};

// The numbers of a node and of its clone in the executable graph, for profilers; 0: unknown.
struct ProfileIds {
  std::uint64_t node = 0;
  std::uint64_t clone = 0;
};

// Returns whether two nodes differ only in their bytes and in the addresses of their memory.
bool are_of_one_form(const NodeContents& a, const NodeContents& b) noexcept;

// Returns whether a kernel, by its name, exchanges data with other ranks: NCCL's or the host
// device's.
bool is_collective(std::string_view kernel) noexcept;

// Returns a mangled name in C++ syntax, and any other name unchanged.
std::string demangled(std::string_view name);

// A NodePatch holds the parts of a node that can be changed in an executable graph: the bytes of a
// kernel's parameters and its dimensions, or the addresses of NodeContents::memory, eight bytes
// each. Move-only.
struct NodePatch {
  NodePatch() = default;
  NodePatch(NodePatch&&) = default;
  NodePatch& operator=(NodePatch&&) = default;

  NodeHandle node = NodeHandle::kNull;
  std::vector<std::byte> bytes;  // to be changed in place
  LaunchDims dims;               // of a kernel; constant
  std::shared_ptr<void> native;  // the device's own data; may point into `bytes`
};

}  // namespace cgtree
