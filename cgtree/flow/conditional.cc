// Captures the bodies of conditional nodes.
#include "cgtree/flow/conditional.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/flow/flow_log.h"
#include "interop/device/graph.h"

namespace cgtree {
namespace {

constinit thread_local bool t_is_trial = false;

// Where work of a step is in its order while a body is captured; no stream where a branch or loop
// around the body is not.
struct Order {
  StepScope* step = nullptr;
  StreamRef stream;
};
constinit thread_local Order t_order;

class OrderInBody {
 public:
  // `around`: where the branch or loop is.
  OrderInBody(StreamRef around, StreamRef body) : before_(t_order) {
    StepScope* const step = StepScope::current();
    t_order = {step, around == ordered_stream(*step) ? body : StreamRef()};
  }
  ~OrderInBody() { t_order = before_; }
  OrderInBody(const OrderInBody&) = delete;
  OrderInBody& operator=(const OrderInBody&) = delete;

 private:
  const Order before_;
};

constexpr int kUnsupported = static_cast<int>(Code::kStreamCaptureUnsupported);

// The stream of a body. A step that is recorded forbids its thread what making a stream may do.
class BodyStream {
 public:
  explicit BodyStream(Device device) : api_(device_api(device).graphs()) {
    const RelaxedCapture relaxed(api_);
    stream_.emplace(device, StreamKind::kNonBlocking);
  }
  ~BodyStream() {
    const RelaxedCapture relaxed(api_);
    stream_.reset();
  }
  BodyStream(const BodyStream&) = delete;
  BodyStream& operator=(const BodyStream&) = delete;

  StreamRef ref() const noexcept { return *stream_; }

 private:
  GraphAPI* const api_;
  std::optional<Stream> stream_;
};

// Enqueues a body on `stream`, which captures. The step is not told of the streams that it forks:
// they have joined when the capture has ended.
template <typename End>
void enqueue(const Body& body, StreamRef stream, BodyMemory::Of of, const End& end) {
  const OrderInBody order(current_stream(), stream);
  const StreamFork fork(stream);
  const StreamScope current(stream);
  BodyMemory memory(body, of, &fork);
  {
    const BodyScope scope(body, /*round=*/std::nullopt);
    const std::vector<Tensor> returned = body.enqueue();
    end(returned);
  }
  memory.check_nothing_kept();
}

std::string text_of(NodeType type) {
  switch (type) {
    case NodeType::kHost:
      return "calls a host function";
    case NodeType::kAllocation:
    case NodeType::kFree:
      return "allocates or frees stream-ordered memory, in place of empty()";
    case NodeType::kOther:
      return "records or waits for an event outside of the capture, or the like";
    default:
      return "";
  }
}

[[noreturn]] void refuse(const Body& body, std::string_view what) {
  throw InvalidArgument(
      fmt::format("{} {}, which the body of a conditional node may not do: do it before or behind "
                  "the branch or loop",
                  body.name, what));
}

void check_nodes(const Body& body, GraphAPI& graphs, const Graph& graph) {
  std::vector<NodeHandle> nodes;
  check(graphs.graph_nodes(graph.handle(), &nodes), "list the nodes of a body");
  for (const NodeHandle node : nodes) {
    NodeType type = NodeType::kOther;
    check(graphs.node_type(node, &type), "look at a node of a body");
    if (const std::string what = text_of(type); !what.empty()) refuse(body, what);
  }
}

// Adds the nodes of a body to those of the step.
void count_nodes(GraphAPI& graphs, GraphHandle body) {
  StepAllocations& step = StepScope::current()->allocations();
  std::vector<NodeHandle> nodes;
  check(graphs.graph_nodes(body, &nodes), "list the nodes of a body");
  step.body_nodes += nodes.size();
  for (const NodeHandle node : nodes) {
    NodeType type = NodeType::kOther;
    check(graphs.node_type(node, &type), "look at a node of a body");
    step.body_kernels += type == NodeType::kKernel;
  }
}

// Returns why the body cannot be captured, or "". Relaxed: a capture in a thread's own mode would
// forbid other threads what this capture, which is not kept, does not mind.
template <typename Tried>
std::string try_to_capture(const Body& body, StreamRef stream, const Tried& tried, Graph* graph) {
  try {
    Capture capture(stream, CaptureMode::kRelaxed);
    try {
      enqueue(body, stream, BodyMemory::Of::kTrial,
              [&](std::span<const Tensor> returned) { tried(body, returned); });
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // a DeviceError, maybe, as a language around has it
      const Code code = capture.end(graph);
      if (ok(code) || code == Code::kStreamCaptureUnjoined) throw;  // a fork was to join later
      return error.what();
    }
    const Code code = capture.end(graph);
    return ok(code) ? "" : std::string(name(code));
  } catch (const DeviceError& error) {
    return error.what();
  }
}

template <typename Tried>
void try_body(const Body& body, StreamRef own, const Tried& tried) {
  const BodyStream stream(own.device());
  const bool was_trial = std::exchange(t_is_trial, true);
  Graph graph;
  std::string failure;
  try {
    failure = try_to_capture(body, stream.ref(), tried, &graph);
  } catch (...) {
    t_is_trial = was_trial;
    throw;
  }
  t_is_trial = was_trial;
  if (!failure.empty()) refuse(body, fmt::format("does what cannot be captured ({})", failure));
  check_nodes(body, own.graphs(), graph);
}

// What a stream captures around bodies.
class OpenGraph {
 public:
  explicit OpenGraph(StreamRef stream) : stream_(stream) {}

  CaptureInfo info() const {
    CaptureInfo found;
    check(stream_.graphs().capture_info(stream_.handle(), &found), "ask what a step captures");
    if (found.status == CaptureStatus::kActive) return found;
    throw CaptureError(static_cast<int>(Code::kStreamCaptureInvalidated),
                       "the capture of the step is broken by what it did before");
  }
  std::size_t nodes() const {
    std::vector<NodeHandle> found;
    check(stream_.graphs().graph_nodes(info().graph, &found), "list the nodes of a step");
    return found.size();
  }
  // Throws InvalidArgument unless it has so many nodes still.
  void expect(std::size_t nodes_before, const Body& body) const {
    if (nodes() == nodes_before) return;
    refuse(body,
           "launches work on a stream of the step outside of the body (in a body, "
           "current_stream() is another one; launch there, or on streams that wait for it)");
  }

 private:
  const StreamRef stream_;
};

// Unless it is kept, the capture of the step is broken: its graph lacks what should be there. A
// question about a stream that captures does it, in every mode.
class StepCapture {
 public:
  explicit StepCapture(StreamRef stream) : stream_(stream) {}
  ~StepCapture() {
    if (!is_kept_) static_cast<void>(stream_.api().query_stream(stream_.handle()));
  }
  StepCapture(const StepCapture&) = delete;
  StepCapture& operator=(const StepCapture&) = delete;

  void keep() noexcept { is_kept_ = true; }

 private:
  const StreamRef stream_;
  bool is_kept_ = false;
};

// The capture of a body, to be ended.
class BodyCapture {
 public:
  BodyCapture(ConditionalAPI& conditionals, StreamRef stream, GraphHandle body)
      : stream_(stream), body_(body) {
    check(conditionals.begin_capture_to(stream.handle(), body, CaptureMode::kRelaxed),
          "begin to capture a body");
  }
  ~BodyCapture() {
    if (is_open_) static_cast<void>(try_end());
  }
  BodyCapture(const BodyCapture&) = delete;
  BodyCapture& operator=(const BodyCapture&) = delete;

  void end(const Body& body) {
    const Code code = try_end();
    if (ok(code)) return;
    throw CaptureError(static_cast<int>(code),
                       fmt::format("{} could be captured once, and not again: a body is to enqueue "
                                   "the same work each time it is called",
                                   body.name));
  }

 private:
  Code try_end() noexcept {
    is_open_ = false;
    GraphHandle ended = body_;
    return stream_.graphs().end_capture(stream_.handle(), &ended);
  }

  const StreamRef stream_;
  const GraphHandle body_;
  bool is_open_ = true;
};

}  // namespace

StreamRef ordered_stream(const StepScope& step) noexcept {
  return t_order.step == &step ? t_order.stream : step.stream();
}

FlowMode flow_mode(std::string_view call, StreamRef stream) {
  if (t_is_trial) return FlowMode::kTrial;
  if (!stream.is_capturing()) return FlowMode::kEager;
  StepScope* const step = StepScope::current();
  const bool is_recorded = step != nullptr && !step->allocations().is_paused &&
                           step->allocations().kind == StepAllocations::Kind::kRecord;
  if (is_recorded) return FlowMode::kRecording;
  throw CaptureError(kUnsupported,
                     fmt::format("{} while the stream is captured by other code than a recording "
                                 "of this context: nothing could be read there; end the capture "
                                 "before the call",
                                 call));
}

void try_bodies(std::span<const Body> bodies, const TriedBody& tried) {
  const StreamRef own = current_stream();
  const OpenGraph around(own);
  const std::size_t nodes = around.nodes();
  for (const Body& body : bodies) {
    try_body(body, own, tried);
    around.expect(nodes, body);
  }
}

namespace {

// As add_conditional(), but an exception leaves the capture as it is. `has_tried`: set when all
// bodies have passed their trials.
void add_to(StreamRef own, std::string_view call, ConditionalKind kind,
            std::span<const Body> bodies, const TriedBody& tried, const SetCondition& set,
            const EndBody& end, bool& has_tried) {
  const OpenGraph step(own);
  check(own.graphs().peek_last_error(), "capture what is in front of a branch or loop");
  ConditionalAPI* const conditionals = conditionals_of(own.api(), own.device().id);
  if (conditionals == nullptr) {
    throw CaptureError(static_cast<int>(Code::kNotSupported),
                       fmt::format("{} in a recording needs conditional nodes, which {} does not "
                                   "have: CUDA has them from 12.8 on, driver and toolkit",
                                   call, to_string(own.device())));
  }
  try_bodies(bodies, tried);
  has_tried = true;
  ConditionHandle condition = ConditionHandle::kNull;
  check(conditionals->create_condition(step.info().graph, &condition), "make a condition");
  set(own, condition);
  const CaptureInfo before = step.info();
  NodeHandle node = NodeHandle::kNull;
  std::vector<GraphHandle> made;
  check(conditionals->add_conditional(before.graph, before.dependencies, condition, kind,
                                      bodies.size(), &node, &made),
        "add a conditional node");
  check(conditionals->set_capture_dependencies(own.handle(), std::span(&node, 1)),
        "go on behind a conditional node");
  FlowLog::note(node, made);
  const std::size_t nodes = step.nodes();
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    const BodyStream stream(own.device());
    BodyCapture capture(*conditionals, stream.ref(), made[i]);
    {
      const FlowLog::BodyOn on(stream.ref());
      enqueue(bodies[i], stream.ref(), BodyMemory::Of::kRecording,
              [&](std::span<const Tensor> returned) { end(stream.ref(), condition, returned); });
    }
    capture.end(bodies[i]);
    count_nodes(own.graphs(), made[i]);
    step.expect(nodes, bodies[i]);
  }
}

}  // namespace

// Where memory has run out the capture is in order, and the call is decided again; the log has it
// refused if the step function goes on. Nor is the capture to blame for what a body throws of its
// own, as elsewhere in a step; what is noted of it has the recording refused if the step goes on.
void add_conditional(std::string_view call, ConditionalKind kind, std::span<const Body> bodies,
                     const TriedBody& tried, const SetCondition& set, const EndBody& end) {
  const StreamRef own = current_stream();
  StepCapture step(own);
  bool has_tried = false;
  try {
    add_to(own, call, kind, bodies, tried, set, end, has_tried);
    step.keep();
  } catch (const OutOfMemory&) {
    if (FlowLog::note_failure()) step.keep();
    throw;
  } catch (const InvalidArgument&) {
    throw;
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception& error) {
    note_capture_failure(error.what());
    if (!has_tried) step.keep();
    throw;
  } catch (...) {
    note_capture_failure("an exception of unknown type");
    if (!has_tried) step.keep();
    throw;
  }
}

}  // namespace cgtree
