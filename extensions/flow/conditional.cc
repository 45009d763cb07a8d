// Captures the bodies of conditional nodes.
#include "extensions/flow/conditional.h"

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/recorder.h"
#include "extensions/flow/body_run.h"
#include "extensions/flow/flow_log.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/device/refusal.h"

namespace cgtree {
// While an OrderInBody lives, a body is captured: the step's ordered stream is the body's stream,
// or none if an enclosing branch or loop is not in the step's order.
class OrderInBody {
 public:
  // `around`: the stream of the branch or loop.
  OrderInBody(StreamRef around, StreamRef body)
      : step_(StepScope::current()),
        stream_(around == ordered_stream(*step_) ? body : StreamRef()) {}

  const StepScope* step() const noexcept { return step_; }
  StreamRef stream() const noexcept { return stream_; }

 private:
  const StepScope* const step_;
  const StreamRef stream_;
  const FrameScope<&Frame::order> scope_{this};
};

namespace {

constexpr int kUnsupported = static_cast<int>(Code::kStreamCaptureUnsupported);

// Returns the stream of a body. Making or ending a stream may need calls that the capture of the
// step forbids its thread.
std::shared_ptr<const Stream> body_stream(Device device) {
  GraphAPI* const api = device_api(device).graphs();
  const RelaxedCapture relaxed(api);
  return {new Stream(device, StreamKind::kNonBlocking), [api](const Stream* stream) {
            const RelaxedCapture end(api);
            delete stream;
          }};
}

// Enqueues a body on `stream`, which captures, and notes the work of its code in `log`. The step is
// not told of streams that the body forks: they have joined when the capture ends. Calls end(its
// results) after its work.
template <typename End>
void enqueue(const Body& body, StreamRef stream, RunLog& log, const End& end) {
  const OrderInBody order(current_stream(), stream);
  const StreamFork fork(stream);
  const StreamScope current(stream);
  BodyMemory memory(body, &fork);
  {
    const BodyScope scope(body, /*round=*/std::nullopt);
    clear_stack();
    const std::vector<Tensor> returned = body.enqueue();
    log.end(returned);
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
      str_format("{} {}, which the body of a conditional node may not do: do it before or behind "
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

// Throws: the code of a body did something else in its second run; another try may succeed.
[[noreturn]] void refuse_second(const Body& body, std::string_view what) {
  const std::string text = str_format(
      "{} does not enqueue the same each time that its code runs: {}. A recording runs the code "
      "twice and keeps the second run, an eager call runs it once: do not change state of the host "
      "there that it uses, such as a counter or a handle, and set up before the branch or loop "
      "what is set up once",
      body.name, what);
  Refusals::note(Code::kUnknown, text);
  throw InvalidArgument(text);
}

// Returns the reason why the body cannot be captured, or "". The capture is relaxed: a capture in
// the thread's mode would forbid calls of other threads that do not disturb this capture, which is
// not kept.
std::string try_to_capture(const Body& body, StreamRef stream, RunLog& log, const TriedBody& tried,
                           Graph* graph) {
  try {
    Capture capture(stream, CaptureMode::kRelaxed);
    try {
      enqueue(body, stream, log, [&](std::span<const Tensor> returned) { tried(body, returned); });
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // perhaps a wrapped DeviceError
      const Code code = capture.end(graph);
      if (ok(code) || code == Code::kStreamCaptureUnjoined)
        throw;  // a fork that has not joined
                // yet
      return error.what();
    }
    const Code code = capture.end(graph);
    return ok(code) ? "" : std::string(name(code));
  } catch (const DeviceError& error) {
    return error.what();
  }
}

// As try_to_capture(). Refuses a body that swallows an exception, before the capture that is kept.
std::string collect(const Body& body, StreamRef stream, RunLog& log, const TriedBody& tried,
                    Graph* graph) {
  std::optional<Refusal> refused;
  std::string failure;
  {
    const Refusals refusals;
    failure = try_to_capture(body, stream, log, tried, graph);
    if (refusals.first() != nullptr) refused = *refusals.first();
  }
  if (!failure.empty() || !refused) return failure;
  Refusals::note(refused->code, refused->what);
  throw InvalidArgument(refused->what);
}

BodyRun try_body(const Body& body, StreamRef own, const TriedBody& tried) {
  const std::shared_ptr<const Stream> stream = body_stream(own.device());
  std::optional<FrameScope<&Frame::is_trial>> trial(std::in_place, true);
  BodyRun run{.name = body.name};
  RunLog log(run, *stream);
  Graph graph;
  const std::string failure = collect(body, *stream, log, tried, &graph);
  trial.reset();
  if (!failure.empty()) refuse(body, str_format("does what cannot be captured ({})", failure));
  check_nodes(body, own.graphs(), graph);
  log.read(graph.handle());
  return run;
}

// The next three are about the capture around bodies.
CaptureInfo capture_around(StreamRef stream) {
  CaptureInfo found;
  check(stream.graphs().capture_info(stream.handle(), &found), "ask what a step captures");
  if (found.status == CaptureStatus::kActive) return found;
  throw CaptureError(static_cast<int>(Code::kStreamCaptureInvalidated),
                     "the capture of the step is broken by what it did before");
}

std::size_t nodes_around(StreamRef stream) {
  std::vector<NodeHandle> found;
  check(stream.graphs().graph_nodes(capture_around(stream).graph, &found),
        "list the nodes of a step");
  return found.size();
}

// Throws InvalidArgument if the body added nodes to it.
void expect_nodes_around(StreamRef stream, std::size_t nodes_before, const Body& body) {
  if (nodes_around(stream) == nodes_before) return;
  refuse(body,
         "launches work on a stream of the step outside of the body (in a body, current_stream() "
         "is another one; launch there, or on streams that wait for it)");
}

// The capture of a body, which must be ended. A driver does not survive a capture that fails, so an
// exception leaves it complete: all enqueued work is joined.
class BodyCapture {
 public:
  BodyCapture(StreamRef stream, GraphHandle body) : stream_(stream), body_(body) {
    check(stream.graphs().begin_capture_to(stream.handle(), body, CaptureMode::kRelaxed),
          "begin to capture a body");
  }
  ~BodyCapture() {
    if (!is_open_) return;
    join();
    static_cast<void>(try_end());
  }
  BodyCapture(const BodyCapture&) = delete;
  BodyCapture& operator=(const BodyCapture&) = delete;

  void end(const Body& body) {
    const Code code = try_end();
    if (!ok(code)) refuse_second(body, str_format("it cannot be captured again ({})", name(code)));
  }

 private:
  void join() noexcept try {
    std::vector<NodeHandle> nodes;
    if (ok(stream_.graphs().graph_nodes(body_, &nodes)))
      static_cast<void>(stream_.graphs().set_capture_dependencies(stream_.handle(), nodes));
  } catch (const std::bad_alloc&) {  // then a fork that has not joined breaks it
  }
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
  const OrderInBody* const order = frame().order;
  return order != nullptr && order->step() == &step ? order->stream() : step.stream();
}

bool is_captured(std::string_view call, StreamRef stream) {
  if (frame().is_trial) return true;
  if (!stream.is_capturing()) return false;
  StepScope* const step = StepScope::current();
  const bool is_recorded = step != nullptr && !step->allocations().is_paused &&
                           step->allocations().kind == StepAllocations::Kind::kRecord;
  if (is_recorded && StepScope::innermost()->streams().home_partition() == 0) return true;
  if (is_recorded) {
    throw CaptureError(
        kUnsupported,
        str_format("{} in a context of a partition of the processors (a green context): its "
                   "bodies would be recorded for the whole device; leave it out of the step, or "
                   "use a context of the whole device",
                   call));
  }
  throw CaptureError(kUnsupported,
                     str_format("{} while the stream is captured by other code than a recording "
                                "of this context: nothing could be read there; end the capture "
                                "before the call",
                                call));
}

namespace {

std::vector<BodyRun> try_all(StreamRef own, std::span<const Body> bodies, const TriedBody& tried) {
  check(own.graphs().peek_last_error(), "capture what is in front of a branch or loop");
  const std::size_t nodes = nodes_around(own);
  std::vector<BodyRun> runs;
  for (const Body& body : bodies) {
    runs.push_back(try_body(body, own, tried));
    expect_nodes_around(own, nodes, body);
  }
  return runs;
}

// Captures a body to its node, as it was captured in its trial.
void capture_body(StreamRef own, GraphHandle graph, const Body& body, const BodyRun& tried,
                  const std::function<void(StreamRef, std::span<const Tensor>)>& end) {
  const std::shared_ptr<const Stream> stream = body_stream(own.device());
  BodyRun run{.name = body.name};
  RunLog log(run, *stream);
  BodyCapture capture(*stream, graph);
  {
    const FlowLog::BodyOn on(*stream);
    try {
      enqueue(body, *stream, log, [&](std::span<const Tensor> returned) {
        const std::string found = difference_of_results(tried, run);
        if (!found.empty()) refuse_second(body, found);
        end(*stream, returned);
      });
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      Refusals::note(Code::kUnknown,
                     str_format("{} throws when its code runs again, and did not at first: {}",
                                body.name, error.message()));
      throw;
    }
  }
  capture.end(body);
  log.read(graph);
  const std::string found = difference(tried, run);
  if (!found.empty()) refuse_second(body, found);
}

// Adds the node, and captures the bodies as in their trials.
void capture_all(ConditionalKind kind, StreamRef own, std::span<const Body> bodies,
                 std::span<const BodyRun> runs, const SetCondition& set, const EndBody& end) {
  GraphAPI& graphs = own.graphs();
  ConditionHandle condition = ConditionHandle::kNull;
  check(graphs.create_condition(capture_around(own).graph, &condition), "make a condition");
  set(own, condition);
  const CaptureInfo before = capture_around(own);
  NodeHandle node = NodeHandle::kNull;
  std::vector<GraphHandle> made;
  check(graphs.add_conditional(before.graph, before.dependencies, condition, kind, bodies.size(),
                               &node, &made),
        "add a conditional node");
  check(graphs.set_capture_dependencies(own.handle(), std::span(&node, 1)),
        "go on behind a conditional node");
  StepScope::current()->allocations().bodies.push_back({node, made});
  if (RunLog* const around = RunLog::current()) {
    for (const NodeHandle setter : before.dependencies)
      around->leave_out(setter);
    around->leave_out(node);
  }
  const std::size_t nodes = nodes_around(own);
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    capture_body(own, made[i], bodies[i], runs[i],
                 [&](StreamRef stream, std::span<const Tensor> returned) {
                   end(stream, condition, returned);
                 });
    expect_nodes_around(own, nodes, bodies[i]);
  }
}

}  // namespace

void add_conditional(std::string_view call, ConditionalKind kind, std::span<const Body> bodies,
                     const TriedBody& tried, const SetCondition& set, const EndBody& end) {
  const StreamRef own = current_stream();
  if (!own.api().supports(own.device().id, DeviceAttribute::kSupportsConditionalNodes)) {
    throw CaptureError(static_cast<int>(Code::kNotSupported),
                       str_format("{} in a recording needs conditional nodes, which {} does not "
                                  "have: CUDA has them from 12.8 on, driver and toolkit",
                                  call, to_string(own.device())));
  }
  RunLog* const around = RunLog::current();
  const std::size_t at = around == nullptr ? 0 : around->nodes();
  std::vector<BodyRun> runs = try_all(own, bodies, tried);
  if (!frame().is_trial) capture_all(kind, own, bodies, runs, set, end);
  if (around != nullptr) around->add(at, std::move(runs));
}

void expect_flag(std::string_view what, const Tensor& flag, StreamRef stream, bool may_be_bool) {
  const bool is_of_type = flag.defined() && (flag.dtype() == DType::kInt32 ||
                                             (may_be_bool && flag.dtype() == DType::kBool));
  if (is_of_type && flag.elements() == 1 && flag.device() == stream.device()) return;
  throw InvalidArgument(str_format("{} is {}, and must be one element of {} on {}", what,
                                   describe(flag), may_be_bool ? "int32 or bool" : "int32",
                                   to_string(stream.device())));
}

FlagInMemory flag_of(const Tensor& flag) {
  return {flag.data(), flag.dtype() == DType::kBool ? 1u : 0u};
}

std::int32_t read_flag(const Tensor& flag, StreamRef stream) {
  std::int32_t value = 0;
  flag.copy_to_host(&value, flag.bytes(), stream);
  return value;
}

// Failures other than wrong use and device errors may not recur.
void collect_refusals(const std::function<void()>& work) {
  try {
    work();
  } catch (const OutOfMemory& error) {
    Refusals::note(Code::kMemoryAllocation,
                   str_format("memory has run out in a branch or loop, which the recording would "
                              "lack: let the exception pass ({})",
                              error.message()));
    throw;
  } catch (const InvalidArgument& error) {
    Refusals::note(Code::kStreamCaptureUnsupported, error.message());
    throw;
  } catch (const DeviceError& error) {
    Refusals::note(Code::kStreamCaptureUnsupported, error.message());
    throw;
  } catch (const std::exception& error) {
    Refusals::note(Code::kUnknown, error.what());
    throw;
  } catch (...) {
    Refusals::note(Code::kUnknown, "an exception of unknown type");
    throw;
  }
}

}  // namespace cgtree
