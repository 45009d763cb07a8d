// Turns a captured step function into a recording, or leaves no trace.
#include "cgtree/record/open_recording.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/graph_bytes.h"
#include "cgtree/record/graph_memory.h"
#include "cgtree/record/outputs.h"
#include "interop/device/graph_api.h"

namespace cgtree {
namespace {

std::string what_of(const std::exception_ptr& thrown) {
  if (!thrown) return {};
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

// Counts the nodes that the step function launched. Returns a failure if a graph that allocates
// memory could be launched only once: each allocation must be freed before the next launch, by the
// graph itself or, with CompileOptions::keeps_allocations, by that launch.
std::optional<CaptureFailure> count_nodes(GraphAPI& graphs, Recording& recording,
                                          bool keeps_allocations) {
  std::optional<CaptureFailure> failure;
  recording.for_each_graph_and_body([&](GraphHandle graph) {
    std::vector<NodeHandle> nodes;
    check(graphs.graph_nodes(graph, &nodes), "list the nodes of a recording");
    std::size_t allocations = 0;
    std::size_t frees = 0;
    for (const NodeHandle node : nodes) {
      NodeType type = NodeType::kOther;
      check(graphs.node_type(node, &type), "look at a node of a recording");
      allocations += type == NodeType::kAllocation;
      frees += type == NodeType::kFree;
      recording.costs.kernels += type == NodeType::kKernel;
    }
    recording.costs.step_nodes += nodes.size();
    recording.costs.allocations += allocations;
    const bool leaves_some = allocations > frees;
    if (allocations == frees || failure || (leaves_some && keeps_allocations)) return;
    failure = CaptureFailure{
        Code::kStreamCaptureUnsupported,
        str_format("its graph has {} allocations and {} frees of stream-ordered memory, and could "
                   "be launched only once: inside a step function allocate with empty() or "
                   "Workspace, or free there what was allocated there{}",
                   allocations, frees,
                   leaves_some ? "; or set CompileOptions::keeps_allocations, with which each "
                                 "launch frees the memory of the launch before"
                               : "")};
  });
  return failure;
}

}  // namespace

std::string why_kept(const std::string& function, std::size_t kept) {
  if (kept == 0) return str_format("'{}' keeps a tensor on another rank of the group", function);
  return str_format(
      "'{}' keeps {} of the tensors it allocated while it was recorded: every replay would write "
      "there; return them, or allocate them before",
      function, kept);
}

OpenRecording::UnrecordedWork::UnrecordedWork(StreamRef stream) {
  try {
    capture_.emplace(stream, CaptureMode::kThreadLocal);
  } catch (const CaptureError&) {  // the legacy stream cannot be captured: 900
    (void)stream.graphs().take_last_error();
  }
}

bool OpenRecording::UnrecordedWork::any() {
  Graph graph;
  return capture_ && (!ok(capture_->end(&graph)) || graph.node_count() > 0);
}

// The workspaces of the step function cannot be detected: their addresses are kernel arguments.
OpenRecording::OpenRecording(ContextMemory& memory, const Call& call, const CaptureOn& on,
                             const std::vector<std::uint32_t>& output_allocations)
    : memory_(memory),
      call_(call),
      on_(on),
      scope_(memory, on.stream, StepAllocations::Kind::kRecord,
             on.copies_outputs ? nullptr : &output_allocations),
      lengths_(call, memory, /*records=*/true, /*is_padded=*/true),
      guards_{memory},
      key_(Key::of_text(call.inputs().key())) {
  result_.recording.device = memory.device();
  scope_.allocations().kept = memory.workspaces();
  prepared_ = prepare_inputs(call, memory);
  if (on.stand_ins != nullptr) stand_in_for_inputs();
  for (std::size_t i = 0; i < prepared_.step_inputs.size(); ++i) {
    const StorageRef& seen = prepared_.step_inputs[i].storage();
    if (seen != call.inputs()[i].storage()) held_copies_.insert(held_copies_.end(), 2, seen);
  }
  hold_ = memory.defer_frees();
  if (on.checked) unrecorded_.emplace(memory.stream());
  capture_.emplace(on.stream, on.mode);
  refusals_.emplace();
  breaks_.emplace(static_cast<BreakHandler*>(this));
}

// The copies are allocated nevertheless, so that all other memory has its later address.
void OpenRecording::stand_in_for_inputs() {
  unused_copies_ = prepared_.step_inputs;
  for (std::size_t i = 0; i < prepared_.step_inputs.size(); ++i) {
    if (on_.stand_ins->inputs[i].defined()) prepared_.step_inputs[i] = on_.stand_ins->inputs[i];
  }
  scope_.allocations().stand_ins = on_.stand_ins->allocations;
}

// The last work of the step is still captured.
void OpenRecording::complete(std::vector<Tensor>& outputs, std::exception_ptr& thrown) {
  held_copies_.clear();
  if (thrown) return;
  try {
    copy_padded_inputs(call_, memory_, outputs, prepared_.step_inputs);
    make_row_major(call_, outputs);
  } catch (...) {
    thrown = std::current_exception();
  }
}

std::string OpenRecording::finish_trial(std::vector<Tensor> outputs, std::exception_ptr thrown,
                                        const Look& look) {
  complete(outputs, thrown);
  const auto failure = end_capture(thrown);
  unrecorded_.reset();
  hold_.reset();
  if (failure) return failure->what;
  look(result_.recording, outputs);
  return "";
}

// Ends the capture of the present graph. Returns kStreamCaptureInvalidated if another thread has
// invalidated the capture: a call of this thread that invalidates it fails with another number, and
// only later calls fail with this one.
Code OpenRecording::end_graph() {
  const Code pending = memory_.stream().graphs().peek_last_error();
  const Code code = capture_->end(&result_.recording.last_graph());
  capture_.reset();
  if (code != Code::kStreamCaptureInvalidated) return code;
  const Refusal* const first = refusals_ ? refusals_->first() : nullptr;
  const bool is_told = first != nullptr && first->what.find(name(code)) == std::string::npos;
  if (is_told) return Code::kStreamCaptureUnsupported;
  return ok(pending) ? code : pending;
}

std::optional<CaptureFailure> OpenRecording::abandon() {
  std::optional<CaptureFailure> failure = end_capture(nullptr);
  if (!failure && scope_.allocations().has_run_out) {
    failure = CaptureFailure{Code::kMemoryAllocation, "memory has run out while it was recorded",
                             nullptr, SkipReason::kPoolLimit};
  }
  return failure;
}

void OpenRecording::eager_break(EagerBreak work) {
  Code code = broken_ ? *broken_ : end_graph();
  if (ok(code)) {
    broken_ = Code::kUnknown;  // until the next capture has begun
    result_.recording.further.push_back(
        {memory_.end_outside(std::make_shared<const EagerBreak>(std::move(work))), {}, {}});
    try {
      capture_.emplace(on_.stream, on_.mode);
      broken_.reset();
      return;
    } catch (const CaptureError& error) {
      code = static_cast<Code>(error.code());
    }
  }
  broken_ = code;
  throw CaptureError(
      static_cast<int>(code),
      str_format("eager_break() of '{}': the capture in front of it failed: {} ({}); join side "
                 "streams before a break",
                 call_.function().name, explain(code), name(code)));
}

std::optional<CaptureFailure> OpenRecording::end_capture(const std::exception_ptr& thrown) {
  Recording& recording = result_.recording;
  breaks_.reset();
  const Code code = broken_ ? *broken_ : end_graph();
  const Refusal* const refusal = refusals_->first();
  if (!ok(code) && !(thrown && code == Code::kStreamCaptureUnjoined)) {  // joins were still to come
    std::string what = what_of(thrown);
    if (what.empty() && refusal != nullptr) what = refusal->what;
    if (what.empty()) what = str_format("{} ({})", explain(code), name(code));
    if (code != Code::kStreamCaptureInvalidated) return CaptureFailure{code, std::move(what)};
    // Libraries that break a capture report their own text, without the number.
    const bool is_of_library = thrown && what.find(name(code)) == std::string::npos &&
                               what.find("previous error during capture") == std::string::npos;
    if (is_of_library) return CaptureFailure{Code::kStreamCaptureUnsupported, std::move(what)};
    return CaptureFailure{code,
                          "another thread has waited for the device or the legacy stream "
                          "meanwhile, or made another call that invalidates captures (or the step "
                          "itself has, without a look at the error)",
                          nullptr, SkipReason::kCaptureDisturbed};
  }
  if (thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const InvalidArgument&) {  // a wrong use of this library, which the caller must see
      if (refusal == nullptr) throw;
    } catch (const CaptureError& error) {  // refused before it could break the capture
      return CaptureFailure{static_cast<Code>(error.code()), error.what(), nullptr};
    } catch (...) {
      if (refusal == nullptr || refusal->code == Code::kUnknown)
        return CaptureFailure{Code::kUnknown, what_of(thrown), thrown};
    }
  }
  // The work of the refused call is missing.
  if (refusal != nullptr) return CaptureFailure{refusal->code, refusal->what, nullptr};
  if (unrecorded_ && unrecorded_->any()) {
    return CaptureFailure{Code::kStreamCaptureImplicit,
                          "it launched work on the context's stream: inside a step function, "
                          "launch on current_stream()",
                          nullptr};
  }
  recording.bodies = std::move(scope_.allocations().bodies);
  auto failure =
      count_nodes(memory_.stream().graphs(), recording, call_.function().options.keeps_allocations);
  if (failure || recording.costs.allocations == 0) return failure;
  return keep_allocations();
}

// The recording keeps and writes the memory: calls of other contexts that use it are ordered.
std::optional<CaptureFailure> OpenRecording::keep_allocations() {
  Recording& recording = result_.recording;
  StepAllocations& step = scope_.allocations();
  std::vector<StorageRef> left;
  const Code code = find_left_allocations(recording, memory_, &left);
  const bool is_known = ok(code) || code == Code::kStreamCaptureUnsupported;
  if (!ok(code) && (is_known || call_.function().options.keeps_allocations)) {
    return CaptureFailure{
        code, is_known ? "its graph frees memory that it does not allocate: free it outside"
                       : str_format("the device does not tell its allocations: {}", name(code))};
  }
  for (StorageRef& storage : left) {
    recording.costs.allocated_bytes += storage->bytes();
    step.plain_uses.push_back({{storage->address(), storage->bytes()}, /*is_written=*/true});
    step.kept.push_back(std::move(storage));
  }
  return std::nullopt;
}

// Each replay would write memory that the step allocated outside of the pools, even while it is
// held. Older memory there is the caller's: an eager call writes it, too.
std::optional<CaptureFailure> OpenRecording::find_output_elsewhere() {
  const std::vector<StorageRef>& elsewhere = scope_.allocations().elsewhere;
  const std::vector<OutputOptions>& options = call_.function().options.outputs;
  for (std::size_t i = 0; i < result_.outputs.size(); ++i) {
    const Tensor& output = result_.outputs[i];
    if (!output.defined() || std::ranges::find(elsewhere, output.storage()) == elsewhere.end()) {
      continue;
    }
    return CaptureFailure{
        Code::kStreamCaptureUnsupported,
        str_format("{} is {}, which the step function made outside of the context's pools: each "
                   "replay would write there, also while an earlier result is held; copy it there "
                   "after the call",
                   text_of_output(i, i < options.size() ? options[i].name : ""), describe(output)),
        nullptr};
  }
  return std::nullopt;
}

// A later call may write memory to which the step function keeps a handle, wherever the results
// lie. Returns why outputs cannot be copied in that case, or "".
std::string OpenRecording::find_uncopied_output() {
  if (!on_.copies_outputs) return "";
  const std::vector<OutputOptions>& options = call_.function().options.outputs;
  for (std::size_t i = 0; i < result_.outputs.size(); ++i) {
    const Tensor& output = result_.outputs[i];
    if (!output.defined() || call_.inputs().has_buffer(i)) continue;
    if (!memory_.in_step(*output.storage()) || handles_of_step(*output.storage()) == 0) continue;
    return str_format(
        "{} cannot be copied, because the step function keeps it, and earlier ones are held where "
        "recordings write: let go of it in the function, or of outputs before the next call",
        text_of_output(i, i < options.size() ? options[i].name : ""));
  }
  return "";
}

// Replays do not ask other contexts for readers of memory other than inputs.
std::optional<CaptureFailure> OpenRecording::find_foreign_write() {
  for (const StorageRef& storage : scope_.allocations().kept) {
    const bool is_foreign = storage->domain() != nullptr && storage->domain() != &memory_;
    if (!is_foreign || call_.checks_address_of(storage)) continue;
    if (std::ranges::find(scope_.allocations().written, storage.get()) ==
        scope_.allocations().written.end()) {
      continue;
    }
    return CaptureFailure{
        Code::kStreamCaptureUnsupported,
        str_format("a function that '{}' calls writes {} bytes at {:#x}, an output of another "
                   "context that was not passed in: pass it as an input that is mutated",
                   call_.function().name, storage->bytes(), storage->address()),
        nullptr};
  }
  return std::nullopt;
}

// Records the inputs and outputs; from here on the caller's tensors replace their copies.
void OpenRecording::understand() {
  const Call& call = call_;
  PreparedInputs& prepared = prepared_;
  const InputList& inputs = call.inputs();
  std::vector<Tensor>& outputs = result_.outputs;
  Recording& recording = result_.recording;
  check_output_axes(call.function(), outputs, call.axes().padded);
  recording.outputs = understand_outputs(call, memory_, outputs, prepared.step_inputs);
  const std::vector<Tensor> whole = outputs;
  buffer_sources_.resize(inputs.buffers(), 0);
  slice_outputs(call, outputs);
  check_buffers(call, outputs);
  copy_to_buffers(whole, inputs, prepared.tail);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    OutputRecord& record = recording.outputs[i];
    if (inputs.has_buffer(i)) {
      const bool is_own = memory_.number_in_step(*whole[i].storage()).has_value();
      if (is_own && is_replaceable(whole, i, inputs.buffer(i))) {
        buffer_sources_[i] = whole[i].address();
      }
      record = record_of_buffer(inputs, i);
    }
    if (record.kind == OutputRecord::Kind::kInput) outputs[i] = input_output(record, inputs);
  }
  if (on_.copies_outputs && result_.why_once.empty()) copy_outputs(whole);
  prepared.step_inputs.clear();
  recording.inputs = std::move(prepared.records);
  recording.apart = apart_of(call.pairs_apart(), recording.inputs);
  recording.buffers = inputs.buffers();
  recording.key = inputs.key();
  recording.guards = std::move(guards_.asked);
}

// From here on the step's own memory for outputs is free, like scratch memory.
void OpenRecording::copy_outputs(std::span<const Tensor> whole) {
  Recording& recording = result_.recording;
  std::vector<Tensor>& outputs = result_.outputs;
  cgtree::copy_outputs(call_, memory_, whole, recording, prepared_.tail);
  if (!recording.copies_outputs()) return;
  copies_.emplace(memory_, call_.inputs(), recording.copies_of_outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const OutputRecord& record = recording.outputs[i];
    const OutputRecord& own =
        record.kind == OutputRecord::Kind::kSame ? recording.outputs[record.index] : record;
    if (own.kind != OutputRecord::Kind::kCopied) continue;
    outputs[i] = Tensor(copies_->tensors()[own.index].storage(), record.byte_offset,
                        outputs[i].shape(), record.dtype);
  }
}

void OpenRecording::examine() {
  is_callers_turn_ = true;  // AuditOptions::on_foreign_pointer may make it throw
  on_.examination->finish();
  is_callers_turn_ = false;
}

// As examine(), when nothing may fail any more.
void OpenRecording::examine_launched() noexcept {
  try {
    examine();
  } catch (const std::exception&) {
    on_.examination->give_up();
  }
}

// The tail comes first: in a graph without nodes it is the only node, and the root precedes it.
// Returns false if an earlier recording serves the call.
bool OpenRecording::finish_graph() {
  const InputList inputs = bound();
  Recording& recording = result_.recording;
  std::size_t added = 0;
  for (GatherNode& tail : make_gather_nodes(memory_, std::move(prepared_.tail))) {
    tail.add_as_tail(recording.last_graph(), inputs);
    recording.tails.push_back(std::move(tail));
    ++added;
  }
  recording.roots = make_gather_nodes(memory_, std::move(prepared_.root));
  for (GatherNode& root : recording.roots)
    root.add_as_root(recording.graph, inputs);
  added += recording.roots.size();
  recording.costs.kernels += added;
  recording.costs.nodes = recording.costs.step_nodes + added;
  recording.costs.graph_bytes =
      graph_bytes_of_chain(recording.costs.nodes) + recording.costs.allocated_bytes;
  if (on_.is_rehearsal) return true;
  if (on_.examination != nullptr && !recording.runs_once) {
    const Examination::Exec exec = on_.examination->share();
    if (exec != Examination::Exec::kOwn) return exec == Examination::Exec::kShared;
  }
  GraphAPI& api = memory_.stream().graphs();
  const bool frees_on_launch = recording.costs.allocated_bytes > 0;
  recording.for_each_graph(
      [&](const Graph& graph, GraphExec& exec) { exec = GraphExec(api, graph, frees_on_launch); });
  return true;
}

// Returns the number of handles that the step keeps to a tensor that it made, as far as this is
// known before its outputs are classified.
std::size_t OpenRecording::handles_of_step(const Storage& storage) const {
  std::size_t handles = storage.references();
  for (const auto* const list : {&result_.outputs, &prepared_.step_inputs}) {
    for (const Tensor& tensor : *list)
      handles -= tensor.storage().get() == &storage;
  }
  return handles;
}

bool OpenRecording::keeps_any() {
  return std::ranges::any_of(scope_.allocations().alive,
                             [&](const Storage* storage) { return handles_of_step(*storage) > 0; });
}

// Returns the number of tensors that the step made and keeps.
std::size_t OpenRecording::count_kept() {
  std::size_t owned = 0;
  for_each_new_storage(memory_, result_.outputs, [&](Storage&, std::uint32_t i) {
    owned += result_.recording.outputs[i].kind == OutputRecord::Kind::kSlot;
  });
  const StepAllocations& allocations = scope_.allocations();
  std::size_t kept = allocations.alive.size() - owned;
  for (const StorageRef& storage : allocations.elsewhere) {
    const bool is_used = std::ranges::find(allocations.kept, storage) != allocations.kept.end();
    kept += is_used && storage->references() > 2;  // two handles are in these lists
  }
  return kept;
}

namespace {

// Runs caller code inside an open step but outside its recording: its allocations, uses and draws
// are not attributed to the step.
class PausedStep final : public StorageAllocator {
 public:
  PausedStep(ContextMemory& memory, StepAllocations& step, EagerDraws& draws) noexcept
      : memory_(memory), step_(step), stream_(memory.stream()), draws_(draws) {
    step_.is_paused = true;
  }
  ~PausedStep() { step_.is_paused = false; }
  PausedStep(const PausedStep&) = delete;
  PausedStep& operator=(const PausedStep&) = delete;

  // Implements StorageAllocator.
  StorageRef allocate(std::size_t bytes) override { return memory_.allocate_value(bytes); }
  Device device() const noexcept override { return memory_.device(); }

 private:
  ContextMemory& memory_;
  StepAllocations& step_;
  const AllocatorScope allocator_{*this};
  const StreamScope stream_;
  const DrawHandlerScope draws_;
  const LengthsScope no_lengths_{nullptr};
};

}  // namespace

// Work of the caller's code precedes the launch, and may use memory that others read.
void OpenRecording::call_before_launch(EagerDraws& draws) {
  if (!on_.before_launch) return;
  memory_.streams().wait_for_due();
  const PausedStep paused(memory_, scope_.allocations(), draws);
  is_callers_turn_ = true;
  on_.before_launch(result_.recording);
  is_callers_turn_ = false;
}

CaptureResult OpenRecording::finish(std::vector<Tensor> outputs, std::exception_ptr thrown) {
  complete(outputs, thrown);
  const Function& function = call_.function();
  Recording& recording = result_.recording;
  result_.outputs = std::move(outputs);
  auto failure = end_capture(thrown);
  unrecorded_.reset();
  hold_.reset();
  if (failure) return *std::move(failure);
  lengths_.check_not_returned(result_.outputs);
  if (auto elsewhere = find_output_elsewhere()) return *std::move(elsewhere);
  if (auto foreign = find_foreign_write()) return *std::move(foreign);
  result_.why_once = find_uncopied_output();
  if (!result_.why_once.empty() && function.options.require_graph)
    return CaptureFailure{Code::kUnknown, result_.why_once};
  check_outputs(function.name, result_.outputs);  // the recording keeps them
  std::string earlier = find_earlier_output(call_, memory_, result_.outputs, prepared_.step_inputs);
  if (!earlier.empty()) {
    // Only a launch fills memory that the step keeps.
    if (on_.is_rehearsal || function.options.require_graph || !keeps_any())
      return CaptureFailure{Code::kStreamCaptureUnsupported, std::move(earlier)};
    result_.why_once = std::move(earlier);
  }
  understand();
  prepared_.root.draws = scope_.take_draws();
  for (const GatherNode::Value& length : lengths_.values())
    prepared_.root.values.push_back(length);
  recording.lengths = lengths_.take();
  Examination* const examination = on_.examination;
  CapturedStep step{call_,           memory_,        recording,      result_.outputs,
                    buffer_sources_, prepared_.root, prepared_.tail, scope_.allocations()};
  if (examination != nullptr) examination->examine(step);
  const std::size_t made_and_kept = count_kept();
  if (made_and_kept > 0 && result_.why_once.empty())
    result_.why_once = why_kept(function.name, made_and_kept);
  recording.runs_once = !result_.why_once.empty();
  if (recording.runs_once && (on_.is_rehearsal || function.options.require_graph)) {
    throw InvalidArgument(result_.why_once);
  }
  if (!finish_graph()) return ServedByEarlier();
  find_runs(recording);
  memory_.reserve_slots(result_.outputs);
  recording.footprint = Footprint(std::move(scope_.allocations().ranges));
  std::vector<StorageRef>& kept = scope_.allocations().kept;
  std::erase_if(kept, [&](const auto& storage) { return call_.checks_address_of(storage); });
  for (const Storage* const written : scope_.allocations().written) {
    const auto is_it = [&](const StorageRef& one) { return one.get() == written; };
    if (std::ranges::any_of(kept, is_it)) recording.written.push_back(written);
  }
  recording.plain_uses = std::move(scope_.allocations().plain_uses);
  for (const StorageRef& storage : kept) {
    const bool is_noted = !storage->producer() && storage->device().type == memory_.device().type &&
                          storage->address() != 0;  // the bindings of Steps are inputs
    if (is_noted) recording.plain_uses.push_back({{storage->address(), storage->bytes()}});
  }
  for (const StorageRef& storage : kept)
    (void)storage->data();  // throws if another context has ended it
  const bool is_examined = examination != nullptr && !recording.runs_once;
  const std::size_t most_kept = is_examined ? examination->prepare() : 0;
  recording.kept = KeptStorages(std::move(kept), memory_, most_kept);
  const bool is_examined_first = is_examined && (on_.is_rehearsal || on_.before_launch != nullptr ||
                                                 examination->may_refuse());
  if (is_examined_first) examine();
  TakenDraws draws;
  if (!on_.is_rehearsal) {
    (void)bind(recording, bound());
    draws.moved_to(recording);
    EagerDraws drawn_before;
    try {
      call_before_launch(drawn_before);
      (void)memory_.plain().begin(recording.plain_uses, memory_.stream());
      wait_for_readers(recording, memory_.streams());
      memory_.streams().wait_for_due();
      check(launch(recording, memory_.streams()),
            str_format("launch the graph of '{}'", function.name));
      *recording.frees_left = true;
    } catch (...) {
      drawn_before.give_back();
      throw;
    }
  }
  // Runs while the device works.
  if (is_examined && !is_examined_first) examine_launched();
  for_each_new_storage(memory_, result_.outputs, [&](Storage& storage, std::uint32_t i) {
    recording.outputs[i].slot = &memory_.settle(storage, function.id, i);
  });
  if (recording.runs_once) memory_.settle_rest(function.id);
  scope_.finish();
  draws.keep();
  return std::move(result_);
}

}  // namespace cgtree
