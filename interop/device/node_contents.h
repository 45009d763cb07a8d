// NodeContents: what a node of a captured graph will do, as far as it can be read.
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

// A KernelParameter is where a parameter lies in the bytes of all parameters.
struct KernelParameter {
  std::size_t offset;
  std::size_t bytes;

  bool operator==(const KernelParameter&) const = default;
};

// A NodeMemory is a range that a copy or memset uses, or that an allocation node gives. Of a free
// node it is the address, with 0 bytes.
struct NodeMemory {
  std::uintptr_t address;
  std::size_t bytes;
  bool is_written;
};

// A KernelLayout is what all nodes of a kernel have in common.
struct KernelLayout {
  std::string name;  // as the compiler spells it; see demangled()
  std::vector<KernelParameter> parameters;
};

struct NodeContents {
  NodeHandle node = NodeHandle::kNull;
  NodeType type = NodeType::kOther;
  // False if some of what follows could not be read; `why` says what was refused.
  bool is_decoded = false;
  std::string why;
  // Of a kernel.
  std::shared_ptr<const KernelLayout> kernel;  // shared by nodes; null if it could not be read
  const void* function = nullptr;              // tells kernels of one name apart
  LaunchDims dims;
  std::vector<std::byte> bytes;  // of the parameters, in their layout; of a memset, of its value
  // Of a copy, a memset, an allocation or a free.
  std::vector<NodeMemory> memory;

  // Both are empty of a node that is no kernel.
  std::string_view name() const noexcept {
    return kernel != nullptr ? std::string_view(kernel->name) : std::string_view();
  }
  std::span<const KernelParameter> parameters() const noexcept {
    return kernel != nullptr ? std::span(kernel->parameters) : std::span<const KernelParameter>();
  }
};

// The numbers by which profilers know a node of a graph, and its clone in the executable graph; 0:
// not known.
struct ProfileIds {
  std::uint64_t node = 0;
  std::uint64_t clone = 0;
};

// Returns whether two nodes differ in nothing but the bytes that they have, and in where the memory
// lies that they use.
bool are_of_one_form(const NodeContents& a, const NodeContents& b) noexcept;

// Whether a kernel exchanges data with other ranks, by its name: one of NCCL's, or of the host
// device's.
bool is_collective(std::string_view kernel) noexcept;

// Returns a mangled name as C++ spells it, and any other as it is.
std::string demangled(std::string_view name);

// A NodePatch is what of a node can be changed in an executable graph: the bytes of a kernel's
// parameters and its dimensions, or the addresses of NodeContents::memory, eight bytes each.
// Move-only.
struct NodePatch {
  NodePatch() = default;
  NodePatch(NodePatch&&) = default;
  NodePatch& operator=(NodePatch&&) = default;

  NodeHandle node = NodeHandle::kNull;
  std::vector<std::byte> bytes;  // to be written in place
  LaunchDims dims;               // of a kernel; constant
  std::shared_ptr<void> native;  // the device's; may point into `bytes`
};

}  // namespace cgtree
