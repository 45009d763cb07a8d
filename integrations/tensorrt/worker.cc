// The three ways in which a worker enqueues a network: directly, as its own graph, on cgtree.
#include "integrations/tensorrt/worker.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "cgtree/context.h"
#include "cgtree/steps.h"
#include "cgtree/values/graph_scope.h"
#include "extensions/audit/audit_options.h"
#include "extensions/verify/verify.h"
#include "interop/device/code.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree_tensorrt {

using cgtree::check;

namespace {

[[noreturn]] void throw_not_enqueued(Shape shape) {
  throw cgtree::Error("the network was not enqueued for a batch of " + std::to_string(shape.batch) +
                      " with " + std::to_string(shape.length) +
                      " tokens each: the log of TensorRT says why");
}

void expect_enqueued(Execution& execution, Shape shape, cgtree::StreamRef stream) {
  if (!execution.enqueue(shape, stream)) throw_not_enqueued(shape);
}

}  // namespace

std::string_view to_string(Mode mode) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"bare", "graphs", "cgtree"};
  return kNames[static_cast<std::size_t>(mode)];
}

// Buffers on the device, and pinned ones for the copies of requests.
struct Worker::Memory {
  Memory(const Model& model, cgtree::Device on) : device(on) {
    const Shape shape = model.largest();
    const auto batch = static_cast<std::size_t>(shape.batch);
    token_bytes = batch * static_cast<std::size_t>(shape.length) * sizeof(std::int32_t);
    score_bytes = batch * static_cast<std::size_t>(model.classes()) * sizeof(float);
    scratch_bytes = std::max<std::size_t>(model.scratch_bytes(), 1);
    for (const std::size_t bytes : {token_bytes, score_bytes, scratch_bytes})
      on_device.emplace_back(cgtree::allocate_device_memory(device, bytes), Free{device, false});
    for (const std::size_t bytes : {token_bytes, score_bytes})
      pinned.emplace_back(cgtree::allocate_pinned_memory(device, bytes), Free{device, true});
  }

  Buffers buffers() const {
    return {static_cast<std::int32_t*>(on_device[0].get()), static_cast<float*>(on_device[1].get()),
            on_device[2].get()};
  }

  struct Free {
    cgtree::Device device;
    bool is_pinned;
    void operator()(void* data) const noexcept {
      if (is_pinned)
        cgtree::free_pinned_memory(device, data);
      else
        cgtree::free_device_memory(device, data);
    }
  };
  cgtree::Device device;
  std::size_t token_bytes = 0, score_bytes = 0, scratch_bytes = 0;
  std::vector<std::unique_ptr<void, Free>> on_device, pinned;
};

class Worker::Launcher {
 public:
  virtual ~Launcher() = default;
  // Enqueues the network, or launches a graph of it.
  virtual void launch(Shape shape) = 0;
  virtual Counts counts() const = 0;
};

// One execution for each profile, whose shape changes from request to request.
class Worker::Bare : public Launcher {
 public:
  Bare(Model& model, const Buffers& buffers, cgtree::StreamRef stream)
      : model_(model), buffers_(buffers), stream_(stream) {}

  void launch(Shape shape) override {
    std::unique_ptr<Execution>& execution = executions_[model_.profile_of(shape)];
    if (!execution) execution = model_.make_execution(model_.profile_of(shape), buffers_, stream_);
    expect_enqueued(*execution, shape, stream_);
  }

  Counts counts() const override { return {.executions = executions_.size()}; }

 private:
  Model& model_;
  const Buffers buffers_;
  const cgtree::StreamRef stream_;
  std::map<int, std::unique_ptr<Execution>> executions_;
};

// The way of TensorRT's samples: enqueue once, so that the execution knows the shape, capture the
// next time, and launch the graph from then on. Graphs are never dropped, and work that cannot be
// captured runs without a graph.
class Worker::Graphs : public Launcher {
 public:
  Graphs(Model& model, const Buffers& buffers, cgtree::StreamRef stream)
      : model_(model), buffers_(buffers), stream_(stream) {}
  ~Graphs() override {
    for (const auto& [shape, captured] : graphs_)
      if (captured.exec != cgtree::ExecHandle::kNull)
        static_cast<void>(stream_.graphs().destroy_exec(captured.exec));
  }

  void launch(Shape shape) override {
    auto found = graphs_.find(shape);
    if (found == graphs_.end()) found = graphs_.emplace(shape, capture(shape)).first;
    const Captured& captured = found->second;
    if (captured.exec == cgtree::ExecHandle::kNull)
      return expect_enqueued(*captured.execution, shape, stream_);
    check(stream_.graphs().launch(captured.exec, stream_.handle()), "launch a graph");
    ++replays_;
  }

  Counts counts() const override {
    return {.recordings = recordings_,
            .replays = replays_,
            .kept = recordings_,
            .executions = graphs_.size()};
  }

 private:
  struct Captured {
    std::unique_ptr<Execution> execution;
    cgtree::ExecHandle exec;  // null if the capture failed
  };

  Captured capture(Shape shape) {
    Captured captured{model_.make_execution(model_.profile_of(shape), buffers_, stream_),
                      cgtree::ExecHandle::kNull};
    expect_enqueued(*captured.execution, shape, stream_);
    stream_.synchronize();
    cgtree::GraphAPI& graphs = stream_.graphs();
    check(graphs.begin_capture(stream_.handle(), cgtree::CaptureMode::kThreadLocal),
          "begin a capture");
    const bool is_enqueued = captured.execution->enqueue(shape, stream_);
    cgtree::GraphHandle graph = cgtree::GraphHandle::kNull;
    if (!ok(graphs.end_capture(stream_.handle(), &graph))) {
      static_cast<void>(graphs.take_last_error());
      return captured;
    }
    const cgtree::Code code =
        is_enqueued ? graphs.instantiate(graph, &captured.exec) : cgtree::Code::kSuccess;
    static_cast<void>(graphs.destroy_graph(graph));
    check(code, "instantiate a graph");
    recordings_ += is_enqueued;
    return captured;
  }

  Model& model_;
  const Buffers buffers_;
  const cgtree::StreamRef stream_;
  std::map<Shape, Captured> graphs_;
  std::uint64_t recordings_ = 0;
  std::uint64_t replays_ = 0;
};

// An execution for each shape, because a replay reads the execution's data about the shape, and a
// context of cgtree for the worker. The warm-up of a shape is the first enqueue, which does the
// work that must not be captured.
class Worker::Cgtree : public Launcher {
 public:
  Cgtree(Model& model, const Memory& memory, cgtree::StreamRef stream, const WorkerOptions& options)
      : model_(model),
        buffers_(memory.buffers()),
        stream_(stream),
        context_(
            stream.device(),
            {.stream = stream,
             .max_recordings = options.max_recordings,
             .extensions = {cgtree::audit({.on_foreign_pointer = cgtree::OnForeignPointer::kWarn}),
                            cgtree::verify({.every = options.verify_every})}}),
        steps_(context_, "enqueue",
               {.bindings = {{.name = "tokens"},
                             {.name = "scores", .is_mutated = true},
                             {.name = "scratch", .is_mutated = true, .is_compared = false}},
                .max_recordings = options.max_recordings,
                .at_limit = cgtree::AtLimit::kEvict}),
        bindings_{{{buffers_.tokens, memory.token_bytes},
                   {buffers_.scores, memory.score_bytes},
                   {buffers_.scratch, memory.scratch_bytes}}} {}

  void launch(Shape shape) override {
    const int profile = model_.profile_of(shape);
    const cgtree::Key key{{"profile", profile}, {"batch", shape.batch}, {"length", shape.length}};
    for (cgtree::Step step = steps_.begin(key, bindings_, stream_); step.must_run(); step.end()) {
      if (execution(profile, shape).enqueue(shape, stream_)) continue;
      if (!step.is_captured()) throw_not_enqueued(shape);
      cgtree::refuse_capture("enqueueV3() returned false");
    }
  }

  Counts counts() const override {
    const cgtree::FunctionStats stats = steps_.stats();
    return {.recordings = stats.recordings,
            .replays = stats.replays,
            .evictions = stats.evictions,
            .kept = stats.kept_recordings,
            .executions = executions_.size()};
  }

 private:
  Execution& execution(int profile, Shape shape) {
    std::unique_ptr<Execution>& execution = executions_[shape];
    if (!execution) {
      execution = model_.make_execution(profile, buffers_, stream_);
      declare_memory();
    }
    return *execution;
  }

  // Declared memory that is freed drops the recordings that use it.
  void declare_memory() {
    const auto name = [](const void* address) {
      return "tensorrt " + std::to_string(reinterpret_cast<std::uintptr_t>(address));
    };
    std::map<const void*, std::size_t> memory = model_.memory();
    for (const auto& [address, bytes] : declared_) {
      const auto found = memory.find(address);
      if (found == memory.end() || found->second != bytes) context_.undeclare(name(address));
    }
    for (const auto& [address, bytes] : memory) {
      const auto found = declared_.find(address);
      if (found == declared_.end() || found->second != bytes)
        context_.declare(name(address), address, bytes);
    }
    declared_ = std::move(memory);
  }

  Model& model_;
  const Buffers buffers_;
  const cgtree::StreamRef stream_;
  std::map<Shape, std::unique_ptr<Execution>> executions_;
  std::map<const void*, std::size_t> declared_;
  cgtree::Context context_;
  cgtree::Steps steps_;
  const std::array<cgtree::Binding, 3> bindings_;
};

Worker::Worker(Model& model, cgtree::Device device, Mode mode, const WorkerOptions& options)
    : model_(model),
      stream_(device, cgtree::StreamKind::kNonBlocking),
      memory_(std::make_unique<Memory>(model, device)) {
  switch (mode) {
    case Mode::kBare:
      launcher_ = std::make_unique<Bare>(model, memory_->buffers(), stream_);
      break;
    case Mode::kGraphs:
      launcher_ = std::make_unique<Graphs>(model, memory_->buffers(), stream_);
      break;
    case Mode::kCgtree:
      launcher_ = std::make_unique<Cgtree>(model, *memory_, stream_, options);
      break;
  }
}

Worker::~Worker() {
  try {
    stream_.synchronize();
  } catch (const cgtree::Error&) {
    // serve() threw it, too.
  }
}

double Worker::serve(const Request& request, std::span<float> scores, bool is_poisoned) {
  const Shape shape = request.shape, largest = model_.largest();
  if (shape.batch > largest.batch || shape.length > largest.length)
    throw cgtree::InvalidArgument(
        "a request has " + std::to_string(shape.batch) + " x " + std::to_string(shape.length) +
        " tokens, and the model takes at most " + std::to_string(largest.batch) + " x " +
        std::to_string(largest.length));
  const std::size_t batch = static_cast<std::size_t>(shape.batch);
  if (request.tokens.size() != batch * static_cast<std::size_t>(shape.length) ||
      scores.size() != batch * static_cast<std::size_t>(model_.classes()))
    throw cgtree::InvalidArgument("a request of " + std::to_string(shape.batch) + " x " +
                                  std::to_string(shape.length) + " tokens has " +
                                  std::to_string(request.tokens.size()) + " of them and room for " +
                                  std::to_string(scores.size()) + " scores");
  const Buffers buffers = memory_->buffers();
  const cgtree::StreamRef stream = stream_;
  cgtree::DeviceAPI& api = stream.api();
  const std::size_t token_bytes = request.tokens.size() * sizeof(std::int32_t);
  std::memcpy(memory_->pinned[0].get(), request.tokens.data(), token_bytes);
  check(api.copy(stream.handle(), buffers.tokens, memory_->pinned[0].get(), token_bytes),
        "copy tokens");
  if (is_poisoned)
    check(stream.graphs().memset(stream.handle(), buffers.scores, 0xff, memory_->score_bytes),
          "poison scores");

  const auto begin = std::chrono::steady_clock::now();
  launcher_->launch(shape);
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - begin;

  check(api.copy(stream.handle(), memory_->pinned[1].get(), buffers.scores, scores.size_bytes()),
        "copy scores");
  stream.synchronize();
  std::memcpy(scores.data(), memory_->pinned[1].get(), scores.size_bytes());
  return elapsed.count();
}

Counts Worker::counts() const {
  return launcher_->counts();
}

}  // namespace cgtree_tensorrt
