// Reads facts for extensions.
#include "cgtree/tree/extension.h"

#include "cgtree/record/examination.h"
#include "cgtree/tree/replay_check.h"
#include "cgtree/tree/tree.h"

namespace cgtree {

// ---- Facts ----

std::string_view name(const FunctionState& function) noexcept {
  return function.name;
}

std::string_view function_name(const Node& node) noexcept {
  return node.function->name;
}

std::uint32_t number(const Node& node) noexcept {
  return node.id;
}

std::string in_words(const KeyState& key) {
  return key.signature.to_string();
}

std::string key_in_words(const Node& node) {
  return in_words(*node.key);
}

std::size_t copied_bytes(const Node& node) noexcept {
  std::size_t bytes = 0;
  for (const InputRecord& input : node.recording.inputs) {
    const bool is_once =
        input.treatment == Treatment::kCopied || input.treatment == Treatment::kBuffer;
    const std::size_t times = is_once ? 1 : input.treatment == Treatment::kCopiedBack ? 2 : 0;
    bytes += times * static_cast<std::size_t>(input.shape.elements()) * size_of(input.dtype);
  }
  for (const Shape& output : node.recording.copies_of_outputs)
    bytes += static_cast<std::size_t>(output.elements());
  return bytes;
}

std::uint64_t replays(const Node& node) noexcept {
  return node.recording.costs.replays;
}

std::string_view CallEvent::function_name() const noexcept {
  if (node != nullptr) return cgtree::function_name(*node);
  return function != nullptr ? name(*function) : "";
}

// ---- Extension ----

std::string Extension::shared_options() const {
  return {};
}

std::unique_ptr<Examination> Extension::examine(const Call&, const std::vector<std::uint32_t>&) {
  return nullptr;
}

std::unique_ptr<ReplayCheck> Extension::before_replay(Node&, const Call&) {
  return nullptr;
}

}  // namespace cgtree
