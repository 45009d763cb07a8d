// Opens the capture, makes the calls, and destroys everything.
#include "tests/interop/capture_situation.h"

#include "interop/device/device_api.h"

namespace cgtree::testing {
namespace {

void nothing(void*) {
}

}  // namespace

Situation::Situation(const DeviceUnderTest& device, CaptureMode mode, StreamKind kind)
    : bench(device), origin(bench.stream(kind)) {
  check(bench.fill(blocking, other_x, 1), "launch");
  check(bench.graphs.record_event(outside, other), "record");
  check(bench.api.synchronize_device(0), "synchronize");
  check(bench.api.alloc_data_space(0, 64, &spare), "allocate");
  check(bench.api.alloc_pinned(64, &spare_pinned), "allocate");
  check(bench.graphs.begin_capture(other, CaptureMode::kThreadLocal), "begin");
  graph = bench.end(other);
  exec = bench.instantiate(graph);

  check(bench.graphs.begin_capture(origin, mode), "begin");
  check(bench.add_one(origin, x), "launch");
  check(bench.graphs.record_event(captured, origin), "record");
  check(bench.graphs.wait_event(fork, captured), "wait");
}

Situation::~Situation() {
  for (const StreamHandle stream : {origin, other})
    static_cast<void>(end(*this, stream));
  static_cast<void>(api.free_data_space(0, spare));
  static_cast<void>(api.free_pinned(spare_pinned));
}

Code alloc(Situation& s) {
  void* data = nullptr;
  const Code code = s.api.alloc_data_space(0, 64, &data);
  static_cast<void>(ok(code) ? s.api.free_data_space(0, data) : code);
  return code;
}

Code alloc_pinned(Situation& s) {
  void* data = nullptr;
  const Code code = s.api.alloc_pinned(64, &data);
  static_cast<void>(ok(code) ? s.api.free_pinned(data) : code);
  return code;
}

Code instantiate(Situation& s) {
  ExecHandle exec = ExecHandle::kNull;
  const Code code = s.graphs.instantiate(s.graph, &exec);
  static_cast<void>(ok(code) ? s.graphs.destroy_exec(exec) : code);
  return code;
}

Code destroy_exec(Situation& s) {
  s.bench.forget(s.exec);
  return s.graphs.destroy_exec(s.exec);
}

Code free_data(Situation& s) {
  const Code code = s.api.free_data_space(0, s.spare);
  s.spare = ok(code) ? nullptr : s.spare;
  return code;
}

Code free_pinned(Situation& s) {
  const Code code = s.api.free_pinned(s.spare_pinned);
  s.spare_pinned = ok(code) ? nullptr : s.spare_pinned;
  return code;
}

Code create_stream(Situation& s) {
  StreamHandle stream = StreamHandle::kNull;
  const Code code = s.api.create_stream(0, StreamKind::kBlocking, &stream);
  return ok(code) ? s.api.destroy_stream(stream) : code;
}

Code create_event(Situation& s) {
  EventHandle event = EventHandle::kNull;
  const Code code = s.graphs.create_event(&event);
  return ok(code) ? s.graphs.destroy_event(event) : code;
}

Code begin(Situation& s, StreamHandle stream, CaptureMode mode) {
  return s.graphs.begin_capture(stream, mode);
}

Code end(Situation& s, StreamHandle stream) {
  GraphHandle graph = GraphHandle::kNull;
  const Code code = s.graphs.end_capture(stream, &graph);
  return ok(code) ? s.graphs.destroy_graph(graph) : code;
}

Code info(Situation& s, StreamHandle stream) {
  CaptureInfo info;
  return s.graphs.capture_info(stream, &info);
}

Code launch_without_blocks(Situation& s) {
  const std::int64_t count = 1;
  return s.graphs.launch_kernel(s.origin, add_one_kernel(), {.grid = {0}},
                                arguments_of(s.x, count));
}

Code nodes_of_an_ended_graph(Situation& s) {
  std::vector<NodeHandle> nodes;
  return s.graphs.graph_nodes(s.graph, &nodes);
}

Code edges_of_an_ended_graph(Situation& s) {
  std::vector<GraphEdge> edges;
  return s.graphs.graph_edges(s.graph, &edges);
}

Code launch_host_function(Situation& s, StreamHandle stream) {
  return s.graphs.launch_host_function(stream, nothing, nullptr);
}

Code ask_for_free_memory(Situation& s) {
  const AttributeValue bytes = s.api.attribute(0, DeviceAttribute::kFreeMemory);
  return std::holds_alternative<std::int64_t>(bytes) ? Code::kSuccess : Code::kUnknown;
}

Code merge(Situation& s) {
  check(s.graphs.begin_capture(s.other, CaptureMode::kRelaxed), "begin");
  check(s.graphs.record_event(s.fresh, s.other), "record");
  return s.graphs.wait_event(s.origin, s.fresh);
}

}  // namespace cgtree::testing
