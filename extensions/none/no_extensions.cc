// Leaves the core of a context alone. Options of functions that ask for an extension are refused by
// name.
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
  // Extension.
  void check(const CompileOptions& options) const override {
    const auto is_rebound = [](const auto& one) { return one.rebind != Rebind::kNever; };
    refuse(std::ranges::any_of(options.inputs, is_rebound), "InputOptions::rebind");
    refuse(std::ranges::any_of(options.outputs, is_rebound), "OutputOptions::rebind");
    refuse(options.verify_first > 0, "CompileOptions::verify_first");
    refuse(options.max_switch_nodes > 0, "CompileOptions::max_switch_nodes");
  }
};

}  // namespace

void add_extensions(Engine& engine) {
  engine.extensions.add(std::make_unique<NoExtensions>());
}

}  // namespace cgtree
