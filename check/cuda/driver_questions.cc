// Reads graphs with the library's reader of nodes, and asks the driver about addresses.
#include "check/cuda/watch.h"

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "base/format.h"
#include "extensions/audit/node_bytes.h"
#include "interop/device/cuda/cuda_device.h"
#include "interop/device/cuda/runtime.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"

namespace cgtree::graph_check {
namespace {

// The runtime in this library is another one than the program's, whose last error stays as it is.
GraphAPI& graphs() {
  return *cuda_device_api().graphs();
}

// Adds the nodes of a graph and of its child graphs.
Code add_nodes(GraphHandle graph, GraphContents* contents) {
  std::vector<NodeContents> nodes;
  std::vector<GraphEdge> edges;
  Code code = graphs().read_nodes(graph, &nodes);
  if (ok(code)) code = graphs().graph_edges(graph, &edges);
  if (!ok(code)) return code;
  contents->bytes += estimate_graph_bytes(nodes, edges);
  for (NodeContents& node : nodes) {
    cudaGraph_t child = nullptr;
    const bool is_child =
        node.type == NodeType::kChildGraph &&
        cudaGraphChildGraphNodeGetGraph(cuda::native(node.node), &child) == cudaSuccess;
    if (is_child) {
      code = add_nodes(cuda::to_handle<GraphHandle>(child), contents);
      if (!ok(code)) return code;
      node.is_decoded = true;
    }
    contents->nodes.push_back(std::move(node));
  }
  return code;
}

std::string read(GraphHandle graph, GraphContents* contents) {
  const RelaxedCapture relaxed(&graphs());
  const Code code = add_nodes(graph, contents);
  if (ok(code)) return "";
  return str_format("graphs could not be read: {} ({}). {}", name(code), static_cast<int>(code),
                    explain(code));
}

// Makes the runtime start, which may make calls that a capture forbids.
void start() {
  const RelaxedCapture relaxed(&graphs());
  cudaGraph_t graph = nullptr;
  if (cudaGraphCreate(&graph, 0) != cudaSuccess) return;
  GraphContents contents;
  static_cast<void>(add_nodes(cuda::to_handle<GraphHandle>(graph), &contents));
  static_cast<void>(cudaGraphDestroy(graph));
}

// The legacy stream never does. A stream that cannot be asked may.
bool is_capturing(CUstream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t code = cudaStreamIsCapturing(stream, &status);
  if (code == cudaErrorStreamCaptureImplicit) return false;
  return code != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

BlockRange allocation_of(std::uintptr_t address) {
  DeviceAllocation found;
  const Code code = cuda_device_api().allocation_of(reinterpret_cast<const void*>(address), &found);
  const bool is_known = ok(code) && found.attributes.kind != PointerKind::kUnknown;
  return is_known ? BlockRange{found.address, found.bytes} : BlockRange{};
}

}  // namespace

Questions driver_questions() {
  return {start, read, is_capturing, allocation_of};
}

}  // namespace cgtree::graph_check
