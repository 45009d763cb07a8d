// Puts extensions in order, and passes calls and events on to each.
#include "cgtree/tree/extensions.h"

#include <algorithm>
#include <new>
#include <typeinfo>
#include <utility>

#include "base/error.h"

namespace cgtree {
namespace {

// Holds the result of open() for each extension. If memory for the list is short, it ends at once.
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

void Extensions::add(std::unique_ptr<Extension> extension) {
  if (extension == nullptr) {
    throw InvalidArgument(
        "a factory in ContextOptions::extensions has returned null: return an extension, or leave "
        "the factory out");
  }
  const Extension& added = *extension;
  for (const auto& one : list_) {
    const Extension& other = *one;
    if (typeid(other) != typeid(added)) continue;
    throw InvalidArgument(
        "ContextOptions::extensions has two of a kind: give one of them, with the options of both");
  }
  const auto place = std::ranges::upper_bound(list_, added.order(), {},
                                              [](const auto& other) { return other->order(); });
  list_.insert(place, std::move(extension));
  note_wants();
}

std::string Extensions::shared_options() const {
  std::string words;
  for (const auto& extension : list_)
    if (const std::string one = extension->shared_options(); !one.empty()) words += ", " + one;
  return words;
}

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
