// Conditions: a conditional node of a graph runs other graphs, its bodies, depending on a value in
// the device's memory (GraphAPI::add_conditional()).
//
// A condition is that value. A kernel sets it with set_condition(), before the node or, for a loop,
// in its body. An example, in a capture on `stream`:
//
//   graphs.create_condition(graph, &condition);
//   ... a kernel on `stream` that calls set_condition(condition, *flag) ...
//   graphs.add_conditional(graph, dependencies, condition, ConditionalKind::kIf, 1,
//                          &node, &bodies);
//   graphs.set_capture_dependencies(stream, {node});
//   graphs.begin_capture_to(other, bodies[0], mode);
//   ... work on `other` that runs if *flag is not 0 ...
//   graphs.end_capture(other, &body);
//
// The functions are CUDA's, one to one, as in GraphAPI. CUDA's rules, on every device: bodies have
// kernels, copies, memsets and conditional nodes, and no host functions, events or allocations; a
// graph with conditional nodes is instantiated once at a time. If a capture to a body fails, the
// body's graph is lost; ending the capture around it, or destroying its graph, then ends the
// process (driver 580).
#pragma once

#include <atomic>
#include <cstdint>

#include "interop/device/kernel_function.h"

namespace cgtree {

// A handle of a condition. On the host device it is the address of the value.
enum class ConditionHandle : std::uint64_t { kNull = 0 };

// kIf runs its first body if the value is not 0, otherwise its second, if it has one. kWhile runs
// its body until the value is 0, which is tested before each round. kSwitch runs the body whose
// number is the value; none if there is no such body. Source: cudaGraphConditionalNodeType.
enum class ConditionalKind { kIf = 0, kWhile = 1, kSwitch = 2 };

// Called by the one thread of a kernel that sets the condition. If the toolkit is too old for
// conditional nodes, no device has conditions.
CGTREE_HOST_DEVICE inline void set_condition(ConditionHandle condition, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
#if CUDART_VERSION >= 12080
  cudaGraphSetConditional(static_cast<cudaGraphConditionalHandle>(condition), value);
#endif
#else
  reinterpret_cast<std::atomic<std::uint32_t>*>(static_cast<std::uintptr_t>(condition))
      ->store(value);
#endif
}

}  // namespace cgtree
