// Work: one operation with copies of its arguments, which are made at the same time as CUDA's: at
// launch or at capture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "interop/device/code.h"
#include "interop/device/condition.h"
#include "interop/device/graph_api.h"
#include "interop/device/kernel_function.h"
#include "interop/device/node_contents.h"

namespace cgtree::host {

// FrozenArguments are copies of a kernel's arguments, each aligned for its type, and the table that
// a HostBody reads.
class FrozenArguments {
 public:
  FrozenArguments() = default;
  explicit FrozenArguments(KernelArguments arguments);
  FrozenArguments(const FrozenArguments& other);
  FrozenArguments& operator=(const FrozenArguments& other);
  FrozenArguments(FrozenArguments&&) noexcept = default;
  FrozenArguments& operator=(FrozenArguments&&) noexcept = default;

  // Does not allocate if the new arguments need no more room than the old ones.
  void assign(KernelArguments arguments);
  const void* const* table() const noexcept { return table_.data(); }

  // A word that may be a pointer, with the number of the argument that contains it.
  struct Word {
    std::size_t argument;
    const void* value;
  };
  std::vector<Word> words() const;

  // The positions in bytes() of the arguments of the constructor. assign() does not change them.
  const std::vector<KernelParameter>& parameters() const noexcept { return parameters_; }
  std::span<const std::byte> bytes() const noexcept { return std::as_bytes(std::span(bytes_)); }
  std::span<std::byte> bytes() noexcept { return std::as_writable_bytes(std::span(bytes_)); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  std::vector<Line> bytes_;
  std::vector<const void*> table_;  // into bytes_
  std::vector<KernelParameter> parameters_;
};

struct KernelWork {
  KernelFunction function;
  LaunchDims dims;
  FrozenArguments arguments;
};

// The source, also pageable memory, is read when the work runs, not when it is captured.
struct CopyWork {
  void* destination;
  const void* source;
  std::size_t bytes;
  std::shared_ptr<const std::vector<std::byte>> staged = nullptr;  // `source` points into it
};

struct MemsetWork {
  void* destination;
  std::uint8_t value;
  std::size_t bytes;
};

// `data` is a frozen pointer to live data.
struct HostWork {
  void (*function)(void*);
  void* data;
};

class OrderedMemory;  // memory.h

// An allocation by a node of a graph, filled with a pattern.
struct AllocationWork {
  std::shared_ptr<OrderedMemory> memory;
};

// A free in the order of a stream. Memory of a graph keeps its address for the next launch.
struct FreeWork {
  std::shared_ptr<OrderedMemory> memory;
};

struct HostCondition;  // graph.h
class Graph;

// A node that runs other graphs.
struct ConditionalWork {
  ConditionalKind kind;
  std::shared_ptr<HostCondition> condition;
  std::vector<std::shared_ptr<Graph>> bodies;
};

using Work = std::variant<KernelWork, CopyWork, MemsetWork, HostWork, ConditionalWork,
                          AllocationWork, FreeWork>;

NodeType type_of(const Work& work) noexcept;
// Returns "kernel axpy [1 1 1] x [64 1 1]", "copy of 64 bytes from ...", and so on.
std::string describe(const Work& work);
NodeContents contents_of(const Work& work);
// Returns whether set_node() can change the work: a kernel, copy or memset.
bool is_patchable(const Work& work) noexcept;
// Returns the bytes of a NodePatch of this work. Requires: is_patchable().
std::vector<std::byte> patchable_bytes(const Work& work);
void patch(Work& work, const NodePatch& patch);
// Returns whether the two differ only in data of a NodePatch.
bool are_alike(const Work& a, const Work& b);

// Returns kInvalidDeviceFunction for a kernel without a host body, kInvalidValue for an empty grid
// or block, or for more arguments than kMaxKernelArguments.
Code check_launch(const KernelFunction& kernel, const LaunchDims& dims, KernelArguments arguments);

// Returns whether a kernel of the work waits for others: see KernelFunction::waits.
bool may_wait(const Work& work) noexcept;

// Returns the number of the body that runs next, or the number of bodies if none does.
std::size_t next_body(const ConditionalWork& conditional) noexcept;
// Calls run(body) for each body that runs, in turn, until one fails.
template <typename Run>
Code run_bodies(const ConditionalWork& conditional, Run&& run) {
  for (std::size_t body = next_body(conditional); body < conditional.bodies.size();
       body = next_body(conditional)) {
    const Code code = run(conditional.bodies[body]);
    if (!ok(code) || conditional.kind != ConditionalKind::kWhile) return code;
  }
  return Code::kSuccess;
}

// Runs the work now. Returns kLaunchFailure if an exception leaves a body or a host function.
Code run(const Work& work) noexcept;
Code run_kernel(const KernelFunction& kernel, const LaunchDims& dims,
                const void* const* arguments) noexcept;

}  // namespace cgtree::host
