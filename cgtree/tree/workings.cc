// Puts a context together, and drops what can be replayed no longer.
#include "cgtree/tree/workings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "cgtree/tree/surroundings.h"

namespace cgtree {
namespace {

// Returns n of CGTREE_VERIFY=n in the environment; 0 without it.
std::size_t verify_every_of_environment() {
  const char* const text = std::getenv("CGTREE_VERIFY");
  if (text == nullptr || *text == '\0') return 0;
  std::size_t every = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, every);
  if (error == std::errc() && rest == end) return every;
  throw InvalidArgument(fmt::format(
      "CGTREE_VERIFY is \"{}\" in the environment, and a whole number is expected: n to "
      "verify every n-th replay of each recording, 0 to verify none",
      text));
}

// In a group, addresses in the pools must be a function of the requests alone: not of what other
// contexts have left in the device's cache.
ContextOptions complete(Device device, ContextOptions options) {
  if (options.verify_every == 0) options.verify_every = verify_every_of_environment();
  const bool maps_memory = device_api(device).virtual_memory() != nullptr;
  if (options.group != nullptr && options.outputs_lie_apart) {
    throw InvalidArgument(
        "ContextOptions::outputs_lie_apart and ::group are both given: ranks with another lack of "
        "memory would come apart; leave one out");
  }
  if (options.group != nullptr && maps_memory && options.segments == nullptr) {
    options.pools_grow_in_place = true;
  }
  return options;
}

}  // namespace

Workings::Workings(Device device, ContextOptions given)
    : options(complete(device, std::move(given))),
      memory(new ContextMemory(device, options)),
      has_graphs(memory->stream().api().graphs() != nullptr),
      limits{options.max_recordings, options.at_limit, options.max_graph_bytes,
             options.max_recording_time},
      events(make_observer(options, *memory)),
      watches_replays(options.verify_every > 0 || events->watches_replays()),
      door(memory->streams(), *memory,
           [this] {
             memory->let_go();
             for (const Range& range : memory->declared()->take_released())
               (void)drop_all(nullptr, range, "memory that it refers to is not declared any more");
             drop_stale();
             return Door::Leftovers(tree.drop_removed().release(), [](void* functions) {
               delete static_cast<FunctionState*>(functions);
             });
           }),
      recorder(*memory, options),
      evictor(tree, *memory, *events, limits),
      attempts(options, make_ballot(options), tree, *memory, evictor),
      pass(make_pass(options, *memory)),
      verifier(make_verifier(options, tree, *memory, *events, attempts)) {
  memory->set_reclaim([this](std::size_t needed) { return give_back(needed); });
  memory->set_on_kept_end([this] { door.note_upkeep(); });
  memory->set_leave_behind(
      [this](std::shared_ptr<const void> code) { door.leave_behind(std::move(code)); });
}

Workings::~Workings() {
  memory->set_reclaim(nullptr);
  (void)memory->release_captured(std::nullopt);
}

// Of a function those that end at once count once.
void Workings::drop_stale() noexcept {
  for (std::size_t i = tree.nodes().size(); i-- > 0;) {
    Node& node = *tree.nodes()[i];
    if (!node.recording.kept.any_stale()) continue;
    events->after({.kind = CallEvent::kDrop,
                   .node = &node,
                   .what = "mark_step() has ended an output that it uses and that is no input"});
    const auto is_another = [&](const auto& other) {
      return other.get() != &node && other->function == node.function &&
             other->recording.kept.any_stale();
    };
    if (std::ranges::none_of(tree.nodes(), is_another)) evictor.note_whether_paid(node);
    tree.drop(node);
  }
}

std::size_t Workings::drop_all(const FunctionState* function, Range range,
                               std::string_view what) noexcept {
  std::size_t dropped = 0;
  for (std::size_t i = tree.nodes().size(); i-- > 0;) {
    Node& node = *tree.nodes()[i];
    if (function != nullptr && node.function != function) continue;
    if (!refers_to(node.recording, range)) continue;
    events->after({.kind = CallEvent::kDrop, .node = &node, .what = what});
    tree.drop(node);
    ++dropped;
  }
  return dropped;
}

// This is called when memory is short, here or in another context of the device, on any thread: on
// the context's own while a step runs eagerly, on another only while no thread is inside.
std::size_t Workings::give_back(std::size_t needed) noexcept {
  // In a group other ranks would not know of an eviction.
  const auto make_room = [&] {
    return attempts.are_shared() ? evictor.try_to_trim() : evictor.make_room(needed);
  };
  if (memory->runs_eager_step_here()) return make_room();
  if (!door.enter_for_upkeep()) return 0;
  if (!memory->any_output_live()) tree.go_to_root();
  const std::size_t given_back = make_room();
  door.leave_upkeep();
  return given_back;
}

}  // namespace cgtree
