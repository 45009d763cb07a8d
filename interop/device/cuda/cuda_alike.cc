// Compares graphs by properties that no parameter of a node changes: kernels, attributes, edges
// with their data.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "interop/device/cuda/cuda_device.h"
#include "interop/device/cuda/driver.h"
#include "interop/device/cuda/runtime.h"
#include "interop/device/cuda/versions.h"
#include "interop/device/graph_api.h"

namespace cgtree::cuda {
namespace {

// The attributes that a launch gives a kernel node, and that set_node() does not change, except the
// preferred dimensions of a cluster, which cannot be read. Numbers, because headers before 13.0
// lack the last ones; a driver refuses attributes that it does not know, for both nodes alike.
constexpr std::array kAttributes = {
    1,   // the access policy window
    2,   // cooperative
    4,   // cluster dimensions
    5,   // cluster scheduling
    8,   // priority
    9,   // the domain of memory synchronisation, and its map
    10,  //
    13,  // device-updatable
    14,  // the preferred carve-out of shared memory
    16,  // scheduling around NVLink
};

struct Attribute {
  Code code = Code::kSuccess;
  cudaLaunchAttributeValue value = {};
};

Attribute attribute_of(CUgraphNode node, int id) {
  Attribute found;
  std::memset(&found.value, 0, sizeof(found.value));
  found.code = to_code(
      cudaGraphKernelNodeGetAttribute(node, static_cast<cudaLaunchAttributeID>(id), &found.value));
  return found;
}

bool have_equal_attributes(CUgraphNode a, CUgraphNode b) {
  return std::ranges::all_of(kAttributes, [&](int id) {
    const Attribute first = attribute_of(a, id);
    const Attribute second = attribute_of(b, id);
    return first.code == second.code &&
           std::memcmp(&first.value, &second.value, sizeof(first.value)) == 0;
  });
}

// Source: preferred dimensions came with compute capability 10.0, for launches with clusters.
bool may_prefer_other_clusters(CUgraphNode node) {
  int device = 0;
  int major = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
    return true;
  }
  if (major < 10) return false;
  const Attribute clusters = attribute_of(node, 4);
  return !ok(clusters.code) || clusters.value.clusterDim.x != 0;
}

bool are_alike_kernels(const NodeDriver& driver, CUgraphNode a, CUgraphNode b) {
  CUDA_KERNEL_NODE_PARAMS first = {};
  CUDA_KERNEL_NODE_PARAMS second = {};
  if (driver.kernel_node_params(a, &first) != CUDA_SUCCESS ||
      driver.kernel_node_params(b, &second) != CUDA_SUCCESS) {
    return false;
  }
  return first.func == second.func && first.kern == second.kern && first.ctx == second.ctx &&
         have_equal_attributes(a, b) && !may_prefer_other_clusters(a);
}

// Source: CUDA patches copies and memsets of one dimension only.
bool are_alike_copies(const NodeDriver& driver, CUgraphNode a, CUgraphNode b) {
  CUDA_MEMCPY3D first = {};
  CUDA_MEMCPY3D second = {};
  return driver.memcpy_node_params(a, &first) == CUDA_SUCCESS &&
         driver.memcpy_node_params(b, &second) == CUDA_SUCCESS && first.Height <= 1 &&
         first.Depth <= 1 && second.Height <= 1 && second.Depth <= 1 &&
         first.WidthInBytes == second.WidthInBytes && first.srcMemoryType == second.srcMemoryType &&
         first.dstMemoryType == second.dstMemoryType;
}

bool are_alike_memsets(const NodeDriver& driver, CUgraphNode a, CUgraphNode b) {
  CUDA_MEMSET_NODE_PARAMS first = {};
  CUDA_MEMSET_NODE_PARAMS second = {};
  return driver.memset_node_params(a, &first) == CUDA_SUCCESS &&
         driver.memset_node_params(b, &second) == CUDA_SUCCESS && first.height <= 1 &&
         second.height <= 1 && first.width == second.width &&
         first.elementSize == second.elementSize && first.value == second.value;
}

bool are_alike_host_functions(cudaGraphNode_t a, cudaGraphNode_t b) {
  cudaHostNodeParams first = {};
  cudaHostNodeParams second = {};
  if (cudaGraphHostNodeGetParams(a, &first) != cudaSuccess ||
      cudaGraphHostNodeGetParams(b, &second) != cudaSuccess) {
    return false;
  }
  return first.fn == second.fn && first.userData == second.userData;
}

// An edge by the numbers of its nodes.
struct Edge {
  std::size_t from, to;
#if CUDART_VERSION >= 12030
  cudaGraphEdgeData data;
#endif
};

bool are_equal(const Edge& a, const Edge& b) {
#if CUDART_VERSION >= 12030
  if (std::memcmp(&a.data, &b.data, sizeof(a.data)) != 0) return false;
#endif
  return a.from == b.from && a.to == b.to;
}

// Returns false on failure. Edges are sorted by number: the driver's order may differ.
bool read_edges(cudaGraph_t graph, std::span<const NodeHandle> nodes, std::vector<Edge>& edges) {
  std::size_t count = 0;
  if (graph_edges(graph, nullptr, nullptr, &count) != cudaSuccess) return false;
  std::vector<cudaGraphNode_t> from(count);
  std::vector<cudaGraphNode_t> to(count);
#if CUDART_VERSION >= 12030
  std::vector<cudaGraphEdgeData> data(count);
  if (count > 0 &&
      graph_edges_with_data(graph, from.data(), to.data(), data.data(), &count) != cudaSuccess) {
    return false;
  }
#else
  if (count > 0 && graph_edges(graph, from.data(), to.data(), &count) != cudaSuccess) return false;
#endif
  std::vector<std::pair<NodeHandle, std::size_t>> numbers;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    numbers.emplace_back(nodes[i], i);
  std::ranges::sort(numbers);
  const auto number = [&](cudaGraphNode_t node) {
    return std::ranges::lower_bound(numbers, to_handle<NodeHandle>(node), {},
                                    &std::pair<NodeHandle, std::size_t>::first)
        ->second;
  };
  edges.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    edges[i].from = number(from[i]);
    edges[i].to = number(to[i]);
#if CUDART_VERSION >= 12030
    edges[i].data = data[i];
#endif
  }
  std::ranges::sort(edges, {}, [](const Edge& edge) { return std::pair(edge.from, edge.to); });
  return true;
}

bool are_alike_nodes(const NodeDriver& driver, NodeType type, CUgraphNode a, CUgraphNode b) {
  switch (type) {
    case NodeType::kEmpty:
      return true;
    case NodeType::kKernel:
      return are_alike_kernels(driver, a, b);
    case NodeType::kMemcpy:
      return are_alike_copies(driver, a, b);
    case NodeType::kMemset:
      return are_alike_memsets(driver, a, b);
    case NodeType::kHost:
      return are_alike_host_functions(a, b);
    default:
      return false;
  }
}

bool are_alike_graphs(const NodeDriver& driver, CudaGraphs& api, GraphHandle a, GraphHandle b) {
  std::vector<NodeHandle> nodes;
  std::vector<NodeHandle> others;
  if (!ok(api.graph_nodes(a, &nodes)) || !ok(api.graph_nodes(b, &others)) ||
      nodes.size() != others.size()) {
    return false;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    NodeType type = NodeType::kOther;
    NodeType other = NodeType::kOther;
    if (!ok(api.node_type(nodes[i], &type)) || !ok(api.node_type(others[i], &other)) ||
        type != other || !are_alike_nodes(driver, type, native(nodes[i]), native(others[i]))) {
      return false;
    }
  }
  std::vector<Edge> edges;
  std::vector<Edge> other_edges;
  return read_edges(native(a), nodes, edges) && read_edges(native(b), others, other_edges) &&
         std::ranges::equal(edges, other_edges, are_equal);
}

}  // namespace

// A driver refuses to read an attribute that it does not know.
bool CudaGraphs::are_alike(GraphHandle a, GraphHandle b) {
  const NodeDriver* const driver = node_driver();
  if (driver == nullptr) return false;
  const bool has_error = cudaPeekAtLastError() != cudaSuccess;
  const bool are_alike = are_alike_graphs(*driver, *this, a, b);
  if (!has_error) (void)cudaGetLastError();
  return are_alike;
}

}  // namespace cgtree::cuda
