// Puts a context together, serves its monitors, and drops recordings that can no longer be used.
#include "cgtree/tree/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/step.h"
#include "cgtree/tree/words.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace {

// In a group, addresses in the pools must be a function of the requests alone, and not of segments
// that other contexts left in the device's cache.
ContextOptions complete(Device device, ContextOptions options) {
  const bool can_map = device_api(device).supports(device.id, DeviceAttribute::kSupportsMapping);
  if (options.group != nullptr && options.outputs_lie_apart) {
    throw InvalidArgument(
        "ContextOptions::outputs_lie_apart and ::group are both given: ranks with another lack of "
        "memory would come apart; leave one out");
  }
  if (options.group != nullptr && can_map && options.segments == nullptr) {
    options.pools_grow_in_place = true;
  }
  return options;
}

}  // namespace

Engine::Engine(Device device, ContextOptions given)
    : options(complete(device, std::move(given))),
      memory(new ContextMemory(device, options)),
      has_graphs(memory->stream().api().graphs() != nullptr),
      limits{options.max_recordings, options.at_limit, options.max_graph_bytes,
             options.max_recording_time},
      gate(memory->streams(), *memory,
           [this] {
             memory->let_go();
             for (const Range& range : memory->declared()->take_released())
               (void)drop_all(nullptr, range, "memory that it refers to is not declared any more");
             drop_stale();
             return Gate::Leftovers(tree.drop_removed().release(), [](void* functions) {
               delete static_cast<FunctionState*>(functions);
             });
           }),
      recorder(*memory, options),
      evictor(tree, *memory, extensions, limits),
      votes(options, tree, *memory, evictor) {
  for (const ExtensionFactory& make : options.extensions) {
    if (make == nullptr) throw InvalidArgument("a factory in ContextOptions::extensions is null");
    extensions.add(make(*this));
  }
  add_extensions(*this);
  votes.join(options, extensions.shared_options());
  memory->set_reclaim([this](std::size_t needed) { return give_back(needed); });
  memory->set_on_kept_end([this] { gate.note_upkeep(); });
  memory->set_leave_behind(
      [this](std::shared_ptr<const void> code) { gate.leave_behind(std::move(code)); });
}

Engine::~Engine() {
  memory->set_reclaim(nullptr);
  (void)memory->release_captured(std::nullopt);
}

std::shared_ptr<Engine> Engine::make(Device device, ContextOptions options) {
  const std::shared_ptr<Engine> made(new Engine(device, std::move(options)));
  made->gate.set_context(made);
  return made;
}

FunctionState& Engine::add_function(std::string name, StepFunction step, CompileOptions options) {
  const Entry entry(gate);
  extensions.check(options);
  FunctionState& function = tree.add_function(std::move(name), std::move(step), std::move(options));
  memory->set_function_name(function.id, function.name);
  return function;
}

void Engine::remove_function(FunctionState& function) noexcept {
  memory->retire_function_name(function.id);
  Tree::request_removal(function);
  gate.request_upkeep();
}

std::size_t Engine::invalidate(const FunctionState* function, Range range) {
  if (range.end() < range.address) {
    throw InvalidArgument(str_format(
        "invalidate() of {} bytes at {:#x}, which end behind the last address: give the address of "
        "the first byte, and how many there are",
        range.bytes, range.address));
  }
  const Entry entry(gate);
  return drop_all(function, range, "memory that it refers to was invalidated");
}

std::size_t Engine::trim(bool to_device) {
  const Entry entry(gate);
  const std::size_t given = evictor.trim();
  if (to_device) memory->give_back_cached();
  return given;
}

Explanation Engine::explain(const Decision& decision, const FunctionState& function) const {
  return cgtree::explain(decision, decision_input(function), present, extensions);
}

Explanation Engine::explain(FunctionState& function, InputList inputs) {
  Explanation why;
  if (StepScope::active()) {
    why.outcome = Outcome::kRunEagerly;
    why.skip_reason = SkipReason::kNestedCall;
  } else {
    const Inspection inspection(gate);
    Call call(function, *memory, inputs);
    call.check();
    if (function.axes != nullptr) function.axes->read(inputs, call.axes());
    Decision decision{.reason = SkipReason::kForeignCapture};
    if (!gate.foreign_capture()) {
      catch_up();
      decision = decide(decision_input(function), call);
      decision.nearest = nullptr;  // here the nearest of all recordings is worth a search
    }
    why = cgtree::explain(decision, decision_input(function), call, extensions);
    if (!why.skip_reason) why.notes = notes_on(decision, call);
  }
  if (why.outcome == Outcome::kRunEagerly && function.options.require_graph) {
    why.outcome = Outcome::kThrow;
  }
  return why;
}

FunctionStats Engine::stats_of(const FunctionState& function) const {
  FunctionStats stats = tree.stats_of(function);
  stats.last_failure = tree.last_failure(function);
  return stats;
}

ContextStats Engine::stats() const {
  ContextStats stats = tree.stats();
  stats.generations = memory->generation();
  stats.restores = memory->restores();
  stats.live_outputs = memory->live_outputs();
  stats.pool_live_bytes = memory->live_bytes();
  stats.pool_reserved_bytes = memory->reserved_bytes();
  return stats;
}

void Engine::validate() {
  const Entry entry(gate);
  memory->validate();
  tree.learn_conflicts(*memory);
  tree.validate(*memory);
}

void Engine::tell_failure(FunctionState& function, std::string_view what, LogLevel level) noexcept {
  tree.set_last_failure(function, what);
  extensions.after(
      {.kind = CallEvent::kFailure, .function = &function, .what = what, .level = level});
}

void Engine::drop(Node& node, std::string_view what) noexcept {
  extensions.after({.kind = CallEvent::kDrop, .node = &node, .what = what});
  tree.drop(node);
}

// Of one function, recordings that become stale together count once.
void Engine::drop_stale() noexcept {
  for (std::size_t i = tree.nodes().size(); i-- > 0;) {
    Node& node = *tree.nodes()[i];
    if (!node.recording.kept.any_stale()) continue;
    const auto is_another = [&](const auto& other) {
      return other.get() != &node && other->function == node.function &&
             other->recording.kept.any_stale();
    };
    if (std::ranges::none_of(tree.nodes(), is_another)) evictor.note_whether_paid(node);
    drop(node, "mark_step() has ended an output that it uses and that is no input");
  }
}

std::size_t Engine::drop_all(const FunctionState* function, Range range,
                             std::string_view what) noexcept {
  std::size_t dropped = 0;
  for (std::size_t i = tree.nodes().size(); i-- > 0;) {
    Node& node = *tree.nodes()[i];
    if (function != nullptr && node.function != function) continue;
    if (!refers_to(node.recording, range)) continue;
    drop(node, what);
    ++dropped;
  }
  return dropped;
}

// Called when memory is short, here or in another context of the device, on any thread: on the
// context's own thread while a step runs eagerly, on another only while no thread is inside.
std::size_t Engine::give_back(std::size_t needed) noexcept {
  // In a group, other ranks would not know of an eviction.
  const auto make_room = [&] {
    return votes.are_shared() ? evictor.try_to_trim() : evictor.make_room(needed);
  };
  if (memory->runs_eager_step_here()) return make_room();
  if (!gate.enter_for_upkeep()) return 0;
  if (!memory->any_output_live()) tree.go_to_root();
  const std::size_t given_back = make_room();
  gate.leave_upkeep();
  return given_back;
}

}  // namespace cgtree
