// Contexts of the core alone. Options of functions that need an extension are refused by name.
#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "cgtree/tree/engine.h"

namespace cgtree {
namespace {

void refuse(bool is_asked_for, const std::string& option) {
  if (!is_asked_for) return;
  throw InvalidArgument(option + " in a build of the core alone: link //:cgtree");
}

class NoExtensions final : public Extension {
 public:
  // `is_alone`: the context has no other extension, which could serve sessions.
  explicit NoExtensions(bool is_alone) noexcept : is_alone_(is_alone) {}

  // Extension.
  void check(const CompileOptions& options) const override {
    for (const InputOptions& input : options.inputs) {
      const bool is_rebound = input.rebind != Rebind::kNever;
      refuse(is_rebound && !input.is_static, "InputOptions::rebind");
      refuse(is_rebound && is_alone_, "BindingOptions::is_per_session");
    }
    const auto is_rebound = [](const auto& one) { return one.rebind != Rebind::kNever; };
    refuse(std::ranges::any_of(options.outputs, is_rebound), "OutputOptions::rebind");
    refuse(options.verify_first > 0, "CompileOptions::verify_first");
    refuse(options.max_switch_nodes > 0, "CompileOptions::max_switch_nodes");
  }

 private:
  const bool is_alone_;
};

}  // namespace

void add_extensions(Engine& engine) {
  engine.extensions.add(std::make_unique<NoExtensions>(engine.options.extensions.empty()));
}

}  // namespace cgtree
