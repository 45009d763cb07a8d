// Passes calls and events on to each extension.
#include "cgtree/tree/extension.h"

#include <algorithm>
#include <new>

namespace cgtree {
namespace {

// Adds what open(extension) returns. Without memory for the list it ends at once.
template <typename List, typename Open>
Extensions::Held hold_all(const List& list, Open&& open) noexcept {
  Extensions::Held held;
  for (const auto& extension : list) {
    std::shared_ptr<const void> one = open(*extension);
    if (one == nullptr) continue;
    try {
      held.push_back(std::move(one));
    } catch (const std::bad_alloc&) {
    }
  }
  return held;
}

}  // namespace

void Extensions::check(const CompileOptions& options) const {
  for (const auto& extension : list_)
    extension->check(options);
}

std::unique_ptr<Examination> Extensions::examine(
    const Call& call, const std::vector<std::uint32_t>& output_allocations) {
  for (const auto& extension : list_)
    if (auto found = extension->examine(call, output_allocations)) return found;
  return nullptr;
}

bool Extensions::is_turn(const Node& node) const noexcept {
  return std::ranges::any_of(list_, [&](const auto& one) { return one->is_turn(node); });
}

std::unique_ptr<ReplayCheck> Extensions::before_replay(Node& node, const Call& call) {
  for (const auto& extension : list_)
    if (auto found = extension->before_replay(node, call)) return found;
  return nullptr;
}

void Extensions::after(const CallEvent& event) noexcept {
  for (const auto& extension : list_)
    extension->after(event);
}

Extensions::Held Extensions::open_replay(Node& node, const InputList& inputs) noexcept {
  return hold_all(list_, [&](Extension& one) { return one.open_replay(node, inputs); });
}

void Extensions::begin_launch() noexcept {
  for (const auto& extension : list_)
    extension->begin_launch();
}

Extensions::Held Extensions::open_range(std::string_view what, const FunctionState& function,
                                        std::uint64_t recording, const InputList* inputs,
                                        std::optional<SkipReason> reason) const noexcept {
  return hold_all(list_, [&](const Extension& one) {
    return one.open_range(what, function, recording, inputs, reason);
  });
}

void Extensions::explain(Explanation& why, const FunctionState& function, const Call& call) const {
  for (const auto& extension : list_)
    extension->explain(why, function, call);
}

}  // namespace cgtree
