// Graphs as a whole, and changes to executable ones, over the CUDA runtime.
#include "interop/device/cuda/cuda_graphs.h"
#include "interop/device/cuda/runtime.h"

namespace cgtree::cuda {

Code CudaGraphs::create_graph(GraphHandle* graph) {
  cudaGraph_t created = nullptr;
  const Code code = to_code(cudaGraphCreate(&created, 0));
  if (ok(code)) *graph = to_handle<GraphHandle>(created);
  return code;
}

Code CudaGraphs::clone_graph(GraphHandle graph, GraphHandle* clone) {
  cudaGraph_t made = nullptr;
  const Code code = to_code(cudaGraphClone(&made, native(graph)));
  if (ok(code)) *clone = to_handle<GraphHandle>(made);
  return code;
}

Code CudaGraphs::find_in_clone(NodeHandle original, GraphHandle clone, NodeHandle* node) {
  cudaGraphNode_t found = nullptr;
  const Code code = to_code(cudaGraphNodeFindInClone(&found, native(original), native(clone)));
  if (ok(code)) *node = to_handle<NodeHandle>(found);
  return code;
}

Code CudaGraphs::graph_edges(GraphHandle graph, std::vector<GraphEdge>* edges) {
  std::size_t count = 0;
  Code code = to_code(cudaGraphGetEdges(native(graph), nullptr, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count);
  std::vector<cudaGraphNode_t> to(count);
  std::vector<cudaGraphEdgeData> data(count);
  if (ok(code) && count > 0) {
    code = to_code(cudaGraphGetEdges(native(graph), from.data(), to.data(), data.data(), &count));
  }
  if (!ok(code)) return code;
  edges->clear();
  for (std::size_t i = 0; i < count; ++i)
    edges->push_back({to_handle<NodeHandle>(from[i]), to_handle<NodeHandle>(to[i])});
  return code;
}

Code CudaGraphs::add_child_graph(GraphHandle graph, std::span<const NodeHandle> dependencies,
                                 GraphHandle child, NodeHandle* node) {
  std::vector<cudaGraphNode_t> before;
  for (const NodeHandle dependency : dependencies)
    before.push_back(native(dependency));
  cudaGraphNode_t added = nullptr;
  const Code code = to_code(cudaGraphAddChildGraphNode(&added, native(graph), before.data(),
                                                       before.size(), native(child)));
  if (ok(code)) *node = to_handle<NodeHandle>(added);
  return code;
}

Code CudaGraphs::write_dot(GraphHandle graph, const char* path) {
  return to_code(cudaGraphDebugDotPrint(native(graph), path, cudaGraphDebugDotFlagsVerbose));
}

Code CudaGraphs::update_exec(ExecHandle exec, GraphHandle graph, ExecUpdate* update) {
  cudaGraphExecUpdateResultInfo info = {};
  const Code code = to_code(cudaGraphExecUpdate(native(exec), native(graph), &info));
  *update = {static_cast<UpdateResult>(info.result), to_handle<NodeHandle>(info.errorNode)};
  return code;
}

Code CudaGraphs::set_node_enabled(ExecHandle exec, NodeHandle node, bool is_enabled) {
  return to_code(cudaGraphNodeSetEnabled(native(exec), native(node), is_enabled ? 1 : 0));
}

Code CudaGraphs::node_enabled(ExecHandle exec, NodeHandle node, bool* is_enabled) {
  unsigned answer = 0;
  const Code code = to_code(cudaGraphNodeGetEnabled(native(exec), native(node), &answer));
  if (ok(code)) *is_enabled = answer != 0;
  return code;
}

}  // namespace cgtree::cuda
