// Makes and destroys objects of a device for tests.
#include "tests/support/device_bench.h"

#include <algorithm>

#include "interop/device/graph_api.h"

namespace cgtree::testing {
namespace {

// The test may have destroyed an object already, and has checked that itself.
void ignore(Code) {
}

}  // namespace

DeviceBench::~DeviceBench() {
  CaptureMode mode = CaptureMode::kGlobal;
  ignore(graphs.exchange_capture_mode(&mode));
  GraphHandle graph = GraphHandle::kNull;
  if (ok(graphs.end_capture(StreamHandle::kPerThread, &graph))) ignore(graphs.destroy_graph(graph));
  for (const StreamHandle stream : streams_)
    ignore(api.destroy_stream(stream));
  ignore(api.synchronize_device(0));
  for (const ExecHandle exec : execs_)
    ignore(graphs.destroy_exec(exec));
  for (const GraphHandle made : graphs_)
    ignore(graphs.destroy_graph(made));
  for (const EventHandle event : events_)
    ignore(graphs.destroy_event(event));
  for (void* const data : data_)
    ignore(api.free_data_space(0, data));
  for (void* const data : pinned_)
    ignore(api.free_pinned(data));
  ignore(graphs.take_last_error());
}

StreamHandle DeviceBench::stream(StreamKind kind) {
  StreamHandle stream = StreamHandle::kNull;
  check(api.create_stream(0, kind, &stream), "create a stream");
  return streams_.emplace_back(stream);
}

EventHandle DeviceBench::event() {
  EventHandle event = EventHandle::kNull;
  check(graphs.create_event(&event), "create an event");
  return events_.emplace_back(event);
}

float* DeviceBench::floats(std::int64_t count, float value) {
  void* data = nullptr;
  check(api.alloc_data_space(0, static_cast<std::size_t>(count) * sizeof(float), &data),
        "allocate");
  data_.push_back(data);
  check(fill(StreamHandle::kPerThread, static_cast<float*>(data), value, count), "fill");
  check(api.synchronize_stream(StreamHandle::kPerThread), "synchronize");
  return static_cast<float*>(data);
}

float* DeviceBench::pinned_floats(std::int64_t count, float value) {
  void* data = nullptr;
  check(api.alloc_pinned(static_cast<std::size_t>(count) * sizeof(float), &data), "allocate");
  pinned_.push_back(data);
  std::fill_n(static_cast<float*>(data), count, value);
  return static_cast<float*>(data);
}

GraphHandle DeviceBench::end(StreamHandle stream) {
  GraphHandle graph = GraphHandle::kNull;
  check(graphs.end_capture(stream, &graph), "end the capture");
  return graphs_.emplace_back(graph);
}

ExecHandle DeviceBench::instantiate(GraphHandle graph) {
  ExecHandle exec = ExecHandle::kNull;
  check(graphs.instantiate(graph, &exec), "instantiate");
  return execs_.emplace_back(exec);
}

void DeviceBench::forget(GraphHandle graph) {
  std::erase(graphs_, graph);
}
void DeviceBench::forget(ExecHandle exec) {
  std::erase(execs_, exec);
}
void DeviceBench::forget(StreamHandle stream) {
  std::erase(streams_, stream);
}

Code DeviceBench::fill(StreamHandle stream, float* x, float value, std::int64_t count) {
  return graphs.launch_kernel(stream, fill_kernel(), dims_for(count),
                              arguments_of(x, value, count));
}

Code DeviceBench::add_one(StreamHandle stream, float* x, std::int64_t count) {
  return graphs.launch_kernel(stream, add_one_kernel(), dims_for(count), arguments_of(x, count));
}

void DeviceBench::order(StreamHandle from, StreamHandle to) {
  const EventHandle edge = event();
  check(graphs.record_event(edge, from), "record");
  check(graphs.wait_event(to, edge), "wait");
}

CaptureInfo DeviceBench::info(StreamHandle stream) {
  CaptureInfo info;
  check(graphs.capture_info(stream, &info), "ask for the capture");
  return info;
}

std::size_t DeviceBench::node_count(GraphHandle graph) {
  std::vector<NodeHandle> nodes;
  check(graphs.graph_nodes(graph, &nodes), "list nodes");
  return nodes.size();
}

float DeviceBench::read(const float* x) {
  float value = 0;
  check(api.synchronize_device(0), "synchronize the device");
  check(api.copy(StreamHandle::kPerThread, &value, x, sizeof(value)), "copy");
  check(api.synchronize_stream(StreamHandle::kPerThread), "synchronize");
  return value;
}

}  // namespace cgtree::testing
