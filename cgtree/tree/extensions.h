// Extensions: the list of extensions of a context.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/record/examination.h"
#include "cgtree/tree/extension.h"
#include "cgtree/tree/replay_check.h"
#include "cgtree/tree/tree.h"

namespace cgtree {

// The extensions of a context, in their order.
class Extensions {
 public:
  using Held = std::vector<std::shared_ptr<const void>>;  // of open_replay(), open_range()

  // Throws InvalidArgument for null, and for a second extension of the same class.
  void add(std::unique_ptr<Extension> extension);
  void note_wants() noexcept {
    wants_ = {};
    for (const auto& extension : list_) {
      wants_.replays |= extension->wants().replays;
      wants_.skips |= extension->wants().skips;
    }
  }
  const Extension::Wants& wants() const noexcept { return wants_; }
  // Returns the extension of this type, or null.
  template <typename Type>
  Type* find() const noexcept {
    for (const auto& extension : list_)
      if (auto* const found = dynamic_cast<Type*>(extension.get())) return found;
    return nullptr;
  }

  // The next functions call those of each Extension in turn.
  std::string shared_options() const;
  void check(const CompileOptions& options) const;
  std::unique_ptr<Examination> examine(const Call& call,
                                       const std::vector<std::uint32_t>& output_allocations);
  bool is_turn(const Node& node) const noexcept;
  std::unique_ptr<ReplayCheck> before_replay(Node& node, const Call& call);
  void after(const CallEvent& event) noexcept;
  Held open_replay(Node& node, const InputList& inputs) noexcept;
  void begin_launch() noexcept;
  Held open_range(std::string_view what, const FunctionState& function, std::uint64_t recording,
                  const InputList* inputs = nullptr,
                  std::optional<SkipReason> reason = {}) const noexcept;
  void explain(Explanation& why, const FunctionState& function, const Call& call) const;

 private:
  std::vector<std::unique_ptr<Extension>> list_;
  Extension::Wants wants_;
};

}  // namespace cgtree
