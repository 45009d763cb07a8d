// ConditionalAPI: the optional capability of a GraphAPI to add nodes that run other graphs, their
// bodies, as often as a value in the device's memory says.
//
// A condition is that value. A kernel sets it with set_condition(), in front of the node or, for a
// loop, in its body. An example, in a capture on `stream`:
//
//   conditionals.create_condition(graph, &condition);
//   ... a kernel on `stream` that calls set_condition(condition, *flag) ...
//   conditionals.add_conditional(graph, dependencies, condition, ConditionalKind::kIf, 1, &node,
//                                &bodies);
//   conditionals.set_capture_dependencies(stream, {node});
//   conditionals.begin_capture_to(other, bodies[0], mode);
//   ... work on `other` that runs where *flag is not 0 ...
//   graphs.end_capture(other, &body);
//
// The functions are CUDA's, one to one, as in GraphAPI. CUDA's rules, on every device: bodies have
// kernels, copies, memsets and conditional nodes, and no host functions, events or allocations; a
// graph with conditional nodes is instantiated once at a time. A capture to a body that fails takes
// the body's graph with it; what ends the capture around it, or destroys its graph, then ends the
// process (driver 580).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "interop/device/code.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"

namespace cgtree {

// A handle of a condition. On the host device it is the address of the value.
enum class ConditionHandle : std::uint64_t { kNull = 0 };

// kIf runs its first body if the value is not 0, else its second, if it has one. kWhile runs its
// body until the value is 0, which is looked at in front of each round. kSwitch runs the body with
// the number of the value; none if there is no such body. Source: cudaGraphConditionalNodeType.
enum class ConditionalKind { kIf = 0, kWhile = 1, kSwitch = 2 };

// Called by the one thread of a kernel that sets the condition. Where the toolkit is too old for
// conditional nodes, no device has a condition.
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

// Thread safety: as GraphAPI.
class ConditionalAPI {
 public:
  // Makes a condition for one node of `graph`, which may still be captured. Its value is undefined
  // until a kernel has set it, in each launch.
  virtual Code create_condition(GraphHandle graph, ConditionHandle* condition) = 0;
  // Adds a node with `size` empty bodies: one or two for kIf, one for kWhile, any for kSwitch. They
  // belong to the node, and are not destroyed. Returns kInvalidValue for other sizes, and for a
  // condition of another graph, or one that a node has.
  virtual Code add_conditional(GraphHandle graph, std::span<const NodeHandle> dependencies,
                               ConditionHandle condition, ConditionalKind kind, std::size_t size,
                               NodeHandle* node, std::vector<GraphHandle>* bodies) = 0;
  // Begins a capture whose nodes are added to `graph`, a body; end_capture() returns the same
  // handle. Returns what begin_capture() does, and kIllegalState while `graph` is captured to.
  virtual Code begin_capture_to(StreamHandle stream, GraphHandle graph, CaptureMode mode) = 0;
  // What is captured next on `stream` depends on these nodes, and on no others. Returns
  // kIllegalState for a stream that does not capture.
  virtual Code set_capture_dependencies(StreamHandle stream,
                                        std::span<const NodeHandle> dependencies) = 0;

 protected:
  ~ConditionalAPI() = default;
};

// Returns null where the device has none: a driver or a toolkit before CUDA 12.8 (12.4 has neither
// kSwitch nor a second body of kIf).
inline ConditionalAPI* conditionals_of(DeviceAPI& api, int id) noexcept {
  const AttributeValue value = api.attribute(id, DeviceAttribute::kSupportsConditionalNodes);
  const auto* const has = std::get_if<std::int64_t>(&value);
  return has == nullptr || *has == 0 ? nullptr : dynamic_cast<ConditionalAPI*>(api.graphs());
}

}  // namespace cgtree
