// Lets calls and monitors into a context.
#include "cgtree/tree/tree_manager.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "cgtree/record/breaks.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/step.h"
#include "cgtree/tree/open_call.h"
#include "cgtree/tree/outcomes.h"
#include "cgtree/tree/replay.h"

namespace cgtree {
std::shared_ptr<TreeManager> TreeManager::make(Device device, ContextOptions options) {
  const std::shared_ptr<TreeManager> made(new TreeManager(device, std::move(options)));
  made->door().set_context(made);
  return made;
}

FunctionState& TreeManager::add_function(std::string name, StepFunction step,
                                         CompileOptions options) {
  const Visit visit(door());
  workings_.pass->check(options);
  FunctionState& function =
      workings_.tree.add_function(std::move(name), std::move(step), std::move(options));
  workings_.memory->set_function_name(function.id, function.name);
  return function;
}

void TreeManager::remove_function(FunctionState& function) noexcept {
  workings_.memory->retire_function_name(function.id);
  Tree::request_removal(function);
  door().request_upkeep();
}

void TreeManager::call(FunctionState& function, const InputList& inputs, TensorList& outputs) {
  if (StepScope::active()) [[unlikely]] {
    return run_nested(function, inputs, outputs);
  }
  Visit visit(door());
  try {
    if (cgtree::replay_predicted(workings_, visit, function, inputs, outputs)) [[likely]] {
      return visit.finish();
    }
  } catch (...) {
    count_failure(workings_, function);
    throw;
  }
  run(visit, function, inputs, outputs);
}

// Not inlined: replays need not have room for it on the stack.
void TreeManager::run(Visit& visit, FunctionState& function, const InputList& inputs,
                      TensorList& outputs) {
  OpenCall call(workings_, visit, function, inputs, outputs);
  while (call.must_run())
    call.run();
}

bool TreeManager::replay_predicted(FunctionState& function, const InputList& inputs) {
  Visit visit(door());
  try {
    TensorList none;
    if (!cgtree::replay_predicted(workings_, visit, function, inputs, none)) return false;
    visit.finish();
    return true;
  } catch (...) {
    count_failure(workings_, function);
    throw;
  }
}

// The outer step's recording includes the work, and the outer step's pool the outputs. The
// context's own call may be in progress.
void TreeManager::run_nested(FunctionState& function, InputList inputs, TensorList& outputs) {
  if (StepScope::innermost() != workings_.memory.get()) {
    throw InvalidArgument(fmt::format(
        "'{}' belongs to one context, and is called inside a step function of another, whose "
        "stream and memory it would use: compile it in that context too, or call it before or "
        "after",
        function.name));
  }
  const std::shared_ptr<const void> owner = StepScope::current()->owner();
  const HeldInputs held(inputs);
  const Call call(function, *workings_.memory, held.list());
  call.check();
  order_nested(function, held.list());
  const BreakScope none(nullptr);
  hand_out(run_nested_step(call, *workings_.memory), outputs);
  if (StepScope::current()->allocations().is_verification) return;
  function.counters.nested_calls.fetch_add(1, std::memory_order_relaxed);
  function.last_outcome.set_skipped(SkipReason::kNestedCall);
}

// What a nested call writes in place, and its step has not made, may have readers. A recording
// waits for them at each launch; a stream that captures for the caller cannot, so the host does.
void TreeManager::order_nested(const FunctionState& function, const InputList& inputs) {
  StepAllocations& step = StepScope::current()->allocations();
  if (step.kind == StepAllocations::Kind::kRecord && !step.is_paused) {
    for_each_written(function, inputs,
                     [&](const Storage& storage) { step.written.push_back(&storage); });
    append_plain_uses(function, inputs, *workings_.memory, step.plain_uses);
    return;
  }
  PlainMemoryUser& plain = workings_.memory->plain();
  const StreamRef stream = current_stream();
  if (!stream.is_capturing()) {
    wait_for_readers(workings_, function, inputs, stream);
    if (order_behind_neighbours(workings_, function, inputs, stream)) door().note_shared_use(plain);
    return;
  }
  note_captured_uses(workings_, function, inputs);
  if (!workings_.memory->streams().has_readers()) return;
  const RelaxedCapture relaxed(stream.api().graphs());
  const Stream beside(workings_.memory->device());
  wait_for_readers(workings_, function, inputs, beside);
  if (order_behind_neighbours(workings_, function, inputs, beside)) plain.end(/*in_graph=*/true);
  beside.synchronize();
}

std::size_t TreeManager::release_captured(std::optional<std::uint64_t> capture) {
  const Visit visit(door());
  return workings_.memory->release_captured(capture);
}

void TreeManager::mark_step() {
  const Visit visit(door());
  if (workings_.memory->mark_step()) workings_.drop_stale();
  workings_.tree.go_to_root();
}

void TreeManager::keep_across_steps(const Tensor& tensor) {
  const Visit visit(door());
  if (!tensor.defined()) throw InvalidArgument("keep() of a null tensor");
  workings_.memory->keep_across_steps(*tensor.storage());
}

std::size_t TreeManager::invalidate(const FunctionState* function, Range range) {
  if (range.end() < range.address) {
    throw InvalidArgument(fmt::format(
        "invalidate() of {} bytes at {:#x}, which end behind the last address: give the address of "
        "the first byte, and how many there are",
        range.bytes, range.address));
  }
  const Visit visit(door());
  return workings_.drop_all(function, range, "memory that it refers to was invalidated");
}

void TreeManager::declare(std::string name, Range range) {
  if (workings_.memory->declared()->declare(std::move(name), range)) door().request_upkeep();
}

void TreeManager::undeclare(const std::string& name) {
  workings_.memory->declared()->undeclare(name);
  door().request_upkeep();
}

std::size_t TreeManager::trim(bool to_device) {
  const Visit visit(door());
  const std::size_t given = workings_.evictor.trim();
  if (to_device) workings_.memory->give_back_cached();
  return given;
}

std::size_t TreeManager::release_memory() {
  Visit visit(door());
  const StreamRef stream = workings_.memory->stream();
  // In a step of another context the thread's stream is that of the step.
  const bool is_in_step = StepScope::active();
  if (is_in_step ? stream.is_capturing() : static_cast<bool>(visit.ask_foreign_capture())) {
    throw_code(Code::kStreamCaptureUnsupported,
               "release_memory() while the stream of the context is captured");
  }
  if (!is_in_step) visit.begin();
  {
    const RelaxedCapture relaxed(stream.api().graphs());
    workings_.memory->stream().synchronize();
  }
  const std::size_t before = workings_.memory->reserved_bytes();
  while (!workings_.tree.nodes().empty()) {
    Node& node = *workings_.tree.nodes().back();
    ++node.key->released;
    workings_.events->after({.kind = CallEvent::kDrop, .node = &node, .what = "release_memory()"});
    workings_.tree.drop(node);
  }
  workings_.memory->give_back_unused();
  return before - workings_.memory->reserved_bytes();
}

Explanation TreeManager::explain(FunctionState& function, InputList inputs) {
  Explanation why;
  if (StepScope::active()) {
    why.outcome = Outcome::kRunEagerly;
    why.skip_reason = SkipReason::kNestedCall;
  } else {
    const Inspection inspection(door());
    Call call(function, *workings_.memory, inputs);
    call.check();
    if (function.axes != nullptr) function.axes->read(inputs, call.axes());
    Decision decision{.reason = SkipReason::kForeignCapture};
    if (!door().foreign_capture()) {
      workings_.catch_up();
      decision = decide(workings_.situation(function), call);
      decision.nearest = nullptr;  // the nearest of all is worth a search here
    }
    const Situation all = workings_.situation(function);
    why = cgtree::explain(decision, all, call);
    workings_.events->put_into_words(why, all, call);
    if (!why.skip_reason) why.notes = workings_.events->notes_on(decision, call);
  }
  if (why.outcome == Outcome::kRunEagerly && function.options.require_graph) {
    why.outcome = Outcome::kThrow;
  }
  return why;
}

FunctionStats TreeManager::stats_of(const FunctionState& function) const {
  FunctionStats stats = workings_.tree.stats_of(function);
  stats.last_failure = workings_.events->last_failure(function);
  return stats;
}

std::vector<SizeCount> TreeManager::histogram(const FunctionState& function,
                                              std::string_view axis) const {
  if (function.axes == nullptr) {
    throw InvalidArgument(
        fmt::format("'{}' has no dynamic axes, and '{}' is asked for", function.name, axis));
  }
  return function.axes->histogram(function.axes->find(axis)).counts();
}

std::vector<SizesCount> TreeManager::histogram(const FunctionState& function) const {
  if (function.axes == nullptr) return {};
  return function.axes->joint_histogram();
}

ContextStats TreeManager::stats() const {
  ContextStats stats = workings_.tree.stats();
  stats.generations = workings_.memory->generation();
  stats.restores = workings_.memory->restores();
  stats.live_outputs = workings_.memory->live_outputs();
  stats.pool_live_bytes = workings_.memory->live_bytes();
  stats.pool_reserved_bytes = workings_.memory->reserved_bytes();
  return stats;
}

void TreeManager::write_dot(std::uint32_t id, const std::string& path) {
  const Inspection inspection(door());  // a replay patches what is written here
  const Node* const node = workings_.tree.find(id);
  if (node == nullptr) {
    throw InvalidArgument(fmt::format(
        "there is no node {}: snapshot_json() lists the {} there are, and some may have been "
        "evicted",
        id, workings_.tree.nodes().size()));
  }
  const Recording& recording = node->recording;
  check(recording.exec.api().write_dot(recording.graph.handle(), path.c_str()),
        fmt::format("write the graph of node {} to \"{}\"", id, path));
}

void TreeManager::validate() {
  const Visit visit(door());
  workings_.memory->validate();
  workings_.tree.learn_conflicts(*workings_.memory);
  workings_.tree.validate(*workings_.memory);
}

}  // namespace cgtree
