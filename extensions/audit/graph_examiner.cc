// Probes a step before it is captured, and rebinds and audits it afterwards.
#include "extensions/audit/graph_examiner.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/format.h"
#include "extensions/audit/graph_estimate.h"
#include "extensions/audit/recording_audit.h"
#include "extensions/flow/flow_log.h"
#include "extensions/rebind/probe.h"
#include "extensions/rebind/rebind.h"
#include "extensions/rebind/sessions.h"
#include "extensions/scopes/scope_log.h"
#include "interop/device/device_api.h"
#include "interop/device/profiler.h"

namespace cgtree {
namespace {

// The audit begins first, while the recording still has the copies of inputs that are rebound.
class GraphExamination final : public Examination {
 public:
  // `examiner`: borrowed. `shared`: null for a recording with an unshared executable graph.
  // `stream`: the stream on which the step will be captured.
  GraphExamination(GraphExaminer& examiner, std::uint32_t function, std::optional<Probe> probe,
                   OnForeignPointer on_foreign_pointer, SharedExecs* shared, StreamRef stream)
      : examiner_(examiner),
        function_(function),
        probe_(std::move(probe)),
        audit_(on_foreign_pointer),
        shared_(shared),
        scopes_(stream) {}

  // Examination.
  void examine(CapturedStep& step) override {
    step_ = &step;
    flow_.close();
    scopes_.finish(step.recording);
    audit_.begin(step, flow_.hands_out_rows());
    rebind(step, probe_ ? &*probe_ : nullptr);
  }
  Exec share() override {
    Recording& recording = step_->recording;
    if (has_sessions(step_->call.function()))
      return examiner_.serve_by_earlier(*step_) ? Exec::kEarlier : Exec::kOwn;
    const bool is_rebound = std::ranges::any_of(recording.rebinds, &RebindChoice::is_rebound);
    const bool leaves_memory = recording.costs.allocated_bytes > 0;
    if (shared_ == nullptr || is_rebound || leaves_memory || !recording.further.empty())
      return Exec::kOwn;
    const Function& function = step_->call.function();
    shared_->share(function.id, step_->memory.stream().api(), recording,
                   function.options.max_switch_nodes);
    return Exec::kShared;
  }
  std::size_t prepare() override { return audit_.prepare(); }
  bool may_refuse() const noexcept override { return audit_.may_refuse(); }
  void finish() override {
    const auto begin = std::chrono::steady_clock::now();
    read();
    audit_.finish(scopes_.take());
    if (!step_->recording.bodies.empty() && step_->recording.findings != nullptr) {
      audit_of(step_->recording).why_unmarked =
          "its graph has conditional nodes, so that there cannot be a second executable graph of "
          "it";
    }
    step_->recording.costs.audit_us = std::chrono::duration_cast<std::chrono::microseconds>(
                                          std::chrono::steady_clock::now() - begin)
                                          .count();
  }
  void give_up() noexcept override { audit_.give_up(); }
  bool never_patch() override { return examiner_.never_patch(function_); }

 private:
  void read() {
    Recording& recording = step_->recording;
    std::size_t bytes = 0;
    bool is_read = true;
    // A profile does not show which recording a shared executable graph served.
    const bool has_ids = scopes_.any() && recording.share == nullptr &&
                         step_->memory.stream().api().name() == "cuda";
    recording.for_each_graph([&](const Graph& graph, const GraphExec& exec) {
      const auto ids = [&](NodeHandle node) {
        return has_ids ? profile_ids(node, exec.handle()) : ProfileIds();
      };
      is_read = read(graph.handle(), /*is_body=*/false, ids, &bytes) && is_read;
    });
    const bool is_joint = recording.share != nullptr && recording.costs.graph_bytes == 0;
    if (is_read && !is_joint) recording.costs.graph_bytes = bytes + recording.costs.allocated_bytes;
  }

  // Reads a graph, and after each conditional node its bodies. Returns whether all could be read.
  template <typename Ids>
  bool read(GraphHandle graph, bool is_body, const Ids& ids, std::size_t* bytes) {
    GraphAPI& api = step_->memory.stream().graphs();
    std::vector<NodeContents> nodes;
    std::vector<GraphEdge> edges;
    Code code = api.read_nodes(graph, &nodes);
    if (ok(code)) code = api.graph_edges(graph, &edges);
    bool is_read = ok(code);
    if (is_read) {
      *bytes += estimate_graph_bytes(nodes, edges);
    } else {
      nodes = {{.why = str_format("its graph cannot be read: {}", name(code))}};
    }
    for (NodeContents& node : nodes) {
      const NodeHandle handle = node.node;
      if (scopes_.any()) scopes_.add(node, is_body ? ProfileIds() : ids(handle));
      const auto bodies = node.type == NodeType::kOther ? step_->recording.bodies_of(handle)
                                                        : std::span<const GraphHandle>();
      if (!bodies.empty()) {  // its condition has no memory, and its work is that of its bodies
        node.is_decoded = true;
        node.why.clear();
      }
      if (!is_root_or_tail(step_->recording, handle)) audit_.read(std::move(node));
      for (const GraphHandle body : bodies)
        is_read = read(body, /*is_body=*/true, ids, bytes) && is_read;
    }
    return is_read;
  }

  GraphExaminer& examiner_;
  const std::uint32_t function_;
  const std::optional<Probe> probe_;
  RecordingAudit audit_;
  SharedExecs* const shared_;
  ScopeLog scopes_;
  FlowLog flow_{[this](StreamRef stream) { scopes_.look_at_body(stream); }};
  CapturedStep* step_ = nullptr;  // from examine() on
};

bool may_rebind(const Call& call) {
  for (std::size_t i = 0; i < call.inputs().size(); ++i)
    if (call.rebind(i) != Rebind::kNever) return true;
  return false;
}

}  // namespace

ExtensionFactory audit(AuditOptions options) {
  return [options](Engine& engine) { return std::make_unique<GraphExaminer>(options, engine); };
}

std::string GraphExaminer::shared_options() const {
  return str_format("on_foreign_pointer {}", static_cast<int>(on_foreign_pointer_));
}

void GraphExaminer::check(const CompileOptions& options) const {
  if (is_in_group_ && options.max_switch_nodes > 0) {
    throw InvalidArgument(
        "CompileOptions::max_switch_nodes in a group: ranks may find different recordings alike; "
        "leave it 0");
  }
}

std::string GraphExaminer::why_never(std::uint32_t function) const {
  if (is_in_group_) return "what addresses are aligned to may differ between the ranks of a group";
  return never_patched_.contains(function) ? kPatchWasRefused : "";
}

bool GraphExaminer::serve_by_earlier(CapturedStep& step) {
  return cgtree::serve_by_earlier(engine_, step, why_never(step.call.function().id));
}

void GraphExaminer::after(const CallEvent& event) noexcept try {
  if (event.kind == CallEvent::kPatchRefused) never_patch(event.function->id);
} catch (const std::bad_alloc&) {  // the next refusal is noted
}

std::unique_ptr<Examination> GraphExaminer::examine(
    const Call& call, const std::vector<std::uint32_t>& output_allocations) {
  std::optional<Probe> probe;
  if (may_rebind(call) && !call.function().is_callers_work) {
    probe = {.failure = why_never(call.function().id)};
    if (probe->failure.empty())
      probe = make_probe(call, *engine_.memory, engine_.recorder, output_allocations);
  }
  const Function& function = call.function();
  const bool shares =
      function.options.max_switch_nodes > 0 && !never_patched_.contains(function.id);
  const CaptureOn on = engine_.recorder.capture_on(function, CaptureMode::kThreadLocal);
  return std::make_unique<GraphExamination>(*this, function.id, std::move(probe),
                                            on_foreign_pointer_, shares ? &shared_ : nullptr,
                                            on.stream);
}

}  // namespace cgtree
