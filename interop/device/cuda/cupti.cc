// Looks CUPTI's functions up in its library.
#include "interop/device/cuda/cupti.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>

namespace cgtree::cuda {
namespace {

// Sources: cuptiGetGraphNodeId, cuptiGetGraphExecId (CUPTI 13.0, cupti_activity.h). They are the
// same from 12.0 on. A CUptiResult is an int, and 0 is success.
using GetNodeId = int (*)(CUgraphNode node, std::uint64_t* id);
using GetExecId = int (*)(CUgraphExec exec, std::uint32_t* id);

struct Cupti {
  GetNodeId node_id = nullptr;
  GetExecId exec_id = nullptr;
  std::string why;  // the reason that there are none, or ""
};

Cupti load() {
  // The loader prefers the library that a profiler of this process has loaded.
  void* library = nullptr;
  for (const char* const name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) return {.why = "libcupti.so cannot be loaded"};
  Cupti found{.node_id = reinterpret_cast<GetNodeId>(dlsym(library, "cuptiGetGraphNodeId")),
              .exec_id = reinterpret_cast<GetExecId>(dlsym(library, "cuptiGetGraphExecId")),
              .why = ""};
  if (found.node_id == nullptr) found.why = "libcupti.so has no cuptiGetGraphNodeId";
  return found;
}

// Never unloaded: a profiler may use it, too.
const Cupti& cupti() {
  static const Cupti loaded = load();
  return loaded;
}

}  // namespace

// The low half of a number identifies the node in its graph, the high half the graph; the clone of
// a node keeps its low half. Source: the keys by which PyTorch's graph annotations are joined with
// its traces; not measured here.
ProfileIds cupti_ids(NodeHandle node, ExecHandle exec) noexcept try {
  ProfileIds ids;
  const Cupti& functions = cupti();
  if (functions.node_id == nullptr ||
      functions.node_id(reinterpret_cast<CUgraphNode>(node), &ids.node) != 0) {
    return {};
  }
  std::uint32_t graph = 0;
  if (exec == ExecHandle::kNull || functions.exec_id == nullptr ||
      functions.exec_id(reinterpret_cast<CUgraphExec>(exec), &graph) != 0) {
    return ids;
  }
  ids.clone = std::uint64_t{graph} << 32 | (ids.node & UINT32_MAX);
  return ids;
} catch (...) {  // no memory
  return {};
}

std::string why_no_cupti() {
  return cupti().why;
}

}  // namespace cgtree::cuda
