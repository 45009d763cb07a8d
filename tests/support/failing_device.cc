// Forwards to the host device, counts, and fails where told to.
#include "tests/support/failing_device.h"

#include "interop/host/host_device.h"
#include "interop/registry.h"

namespace cgtree::testing {
namespace {

constexpr auto kType = static_cast<DeviceType>(static_cast<int>(DeviceType::kFirstUserType) + 15);

class Faults {
 public:
  // A verb that fails does nothing.
  template <typename Forward>
  Code run(const char* verb, Forward forward) {
    return strikes(verb) ? fault.code : forward();
  }
  template <typename Forward>
  Code make(const char* verb, Forward forward) {
    const Code code = run(verb, forward);
    if (ok(code)) ++outstanding;
    return code;
  }
  template <typename Forward>
  Code give_back(const char* verb, Forward forward) {
    const Code code = forward();
    if (ok(code)) --outstanding;
    return strikes(verb) ? fault.code : code;
  }
  bool strikes(const char* verb) {
    if (!armed || (!fault.verb.empty() && fault.verb != verb)) return false;
    if (verbs++ != fault.at) return false;
    failed = verb;
    last_error = fault.code;
    return true;
  }

  Fault fault;
  bool armed = false;
  long verbs = 0;
  long outstanding = 0;
  std::string failed;
  Code last_error = Code::kSuccess;
};

class FailingGraphs final : public GraphAPI {
 public:
  explicit FailingGraphs(Faults& faults) : faults_(faults), host_(*host_device_api().graphs()) {}

  Code create_event(EventHandle* event) override {
    return faults_.make("create_event", [&] { return host_.create_event(event); });
  }
  Code destroy_event(EventHandle event) override {
    return faults_.give_back("destroy_event", [&] { return host_.destroy_event(event); });
  }
  Code record_event(EventHandle event, StreamHandle stream) override {
    return faults_.run("record_event", [&] { return host_.record_event(event, stream); });
  }
  Code query_event(EventHandle event) override {
    return faults_.run("query_event", [&] { return host_.query_event(event); });
  }
  Code synchronize_event(EventHandle event) override {
    return faults_.run("synchronize_event", [&] { return host_.synchronize_event(event); });
  }
  Code wait_event(StreamHandle stream, EventHandle event) override {
    return faults_.run("wait_event", [&] { return host_.wait_event(stream, event); });
  }
  Code launch_kernel(StreamHandle stream, const KernelFunction& kernel, const LaunchDims& dims,
                     KernelArguments arguments) override {
    return faults_.run("launch_kernel",
                       [&] { return host_.launch_kernel(stream, kernel, dims, arguments); });
  }
  Code memset(StreamHandle stream, void* destination, std::uint8_t value,
              std::size_t bytes) override {
    return faults_.run("memset", [&] { return host_.memset(stream, destination, value, bytes); });
  }
  Code launch_host_function(StreamHandle stream, void (*function)(void*), void* data) override {
    return faults_.run("launch_host_function",
                       [&] { return host_.launch_host_function(stream, function, data); });
  }
  Code begin_capture(StreamHandle stream, CaptureMode mode) override {
    return faults_.run("begin_capture", [&] { return host_.begin_capture(stream, mode); });
  }
  Code end_capture(StreamHandle stream, GraphHandle* graph) override {
    GraphHandle made = GraphHandle::kNull;
    const Code code = host_.end_capture(stream, &made);
    if (faults_.strikes("end_capture")) {
      if (ok(code)) static_cast<void>(host_.destroy_graph(made));
      return faults_.fault.code;
    }
    if (!ok(code)) return code;
    ++faults_.outstanding;
    *graph = made;
    return code;
  }
  Code capture_info(StreamHandle stream, CaptureInfo* info) override {
    return faults_.run("capture_info", [&] { return host_.capture_info(stream, info); });
  }
  Code exchange_capture_mode(CaptureMode* mode) override {
    return host_.exchange_capture_mode(mode);
  }
  Code destroy_graph(GraphHandle graph) override {
    return faults_.give_back("destroy_graph", [&] { return host_.destroy_graph(graph); });
  }
  Code graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes) override {
    return faults_.run("graph_nodes", [&] { return host_.graph_nodes(graph, nodes); });
  }
  Code node_type(NodeHandle node, NodeType* type) override {
    return faults_.run("node_type", [&] { return host_.node_type(node, type); });
  }
  Code node_dependencies(NodeHandle node, std::vector<NodeHandle>* dependencies) override {
    return faults_.run("node_dependencies",
                       [&] { return host_.node_dependencies(node, dependencies); });
  }
  Code instantiate(GraphHandle graph, ExecHandle* exec) override {
    return faults_.make("instantiate", [&] { return host_.instantiate(graph, exec); });
  }
  Code destroy_exec(ExecHandle exec) override {
    return faults_.give_back("destroy_exec", [&] { return host_.destroy_exec(exec); });
  }
  Code launch(ExecHandle exec, StreamHandle stream) override {
    return faults_.run("launch", [&] { return host_.launch(exec, stream); });
  }
  Code add_root_kernel(GraphHandle graph, const KernelFunction& kernel, const LaunchDims& dims,
                       KernelArguments arguments, NodeHandle* node) override {
    return faults_.run("add_root_kernel",
                       [&] { return host_.add_root_kernel(graph, kernel, dims, arguments, node); });
  }
  Code add_leaf_kernel(GraphHandle graph, const KernelFunction& kernel, const LaunchDims& dims,
                       KernelArguments arguments, NodeHandle* node) override {
    return faults_.run("add_leaf_kernel",
                       [&] { return host_.add_leaf_kernel(graph, kernel, dims, arguments, node); });
  }
  Code set_kernel_node(ExecHandle exec, NodeHandle node, const KernelFunction& kernel,
                       const LaunchDims& dims, KernelArguments arguments) override {
    return faults_.run("set_kernel_node",
                       [&] { return host_.set_kernel_node(exec, node, kernel, dims, arguments); });
  }

  Code peek_last_error() noexcept override {
    return ok(faults_.last_error) ? host_.peek_last_error() : faults_.last_error;
  }
  Code take_last_error() noexcept override {
    const Code code = peek_last_error();
    static_cast<void>(host_.take_last_error());
    faults_.last_error = Code::kSuccess;
    return code;
  }

 private:
  Faults& faults_;
  GraphAPI& host_;
};

class FailingApi final : public DeviceAPI {
 public:
  std::string_view name() const noexcept override { return "failing"; }
  AttributeValue attribute(int id, DeviceAttribute attribute) noexcept override {
    return host_.attribute(id, attribute);
  }
  Code alloc_data_space(int id, std::size_t bytes, void** data) override {
    return faults.make("alloc_data_space", [&] { return host_.alloc_data_space(id, bytes, data); });
  }
  Code free_data_space(int id, void* data) override {
    return faults.give_back("free_data_space", [&] { return host_.free_data_space(id, data); });
  }
  Code alloc_pinned(std::size_t bytes, void** data) override {
    return faults.make("alloc_pinned", [&] { return host_.alloc_pinned(bytes, data); });
  }
  Code free_pinned(void* data) override {
    return faults.give_back("free_pinned", [&] { return host_.free_pinned(data); });
  }
  Code copy(StreamHandle stream, void* destination, const void* source,
            std::size_t bytes) override {
    return faults.run("copy", [&] { return host_.copy(stream, destination, source, bytes); });
  }
  Code create_stream(int id, StreamKind kind, StreamHandle* stream) override {
    return faults.make("create_stream", [&] { return host_.create_stream(id, kind, stream); });
  }
  Code destroy_stream(StreamHandle stream) override {
    return faults.give_back("destroy_stream", [&] { return host_.destroy_stream(stream); });
  }
  Code synchronize_stream(StreamHandle stream) override {
    return faults.run("synchronize_stream", [&] { return host_.synchronize_stream(stream); });
  }
  Code query_stream(StreamHandle stream) override {
    return faults.run("query_stream", [&] { return host_.query_stream(stream); });
  }
  Code synchronize_device(int id) override {
    return faults.run("synchronize_device", [&] { return host_.synchronize_device(id); });
  }
  GraphAPI* graphs() noexcept override { return &graphs_; }

  Faults faults;

 private:
  DeviceAPI& host_ = host_device_api();
  FailingGraphs graphs_{faults};
};

FailingApi& api() {
  static auto* const api = new FailingApi;
  return *api;
}

}  // namespace

FailingDevice& FailingDevice::instance() {
  static auto* const device = new FailingDevice;
  return *device;
}

FailingDevice::FailingDevice() {
  register_device_api(kType, api());
}

Device FailingDevice::device() const noexcept {
  return {kType, 0};
}

void FailingDevice::arm(const Fault& fault) {
  api().faults.fault = fault;
  api().faults.verbs = 0;
  api().faults.failed.clear();
  api().faults.last_error = Code::kSuccess;
  api().faults.armed = true;
}

void FailingDevice::disarm() noexcept {
  api().faults.armed = false;
}

long FailingDevice::verbs() const noexcept {
  return api().faults.verbs;
}

const std::string& FailingDevice::failed_verb() const noexcept {
  return api().faults.failed;
}

long FailingDevice::outstanding() const noexcept {
  return api().faults.outstanding;
}

}  // namespace cgtree::testing
