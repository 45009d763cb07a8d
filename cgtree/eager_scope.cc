// Opens a step that is not a function's.
#include "cgtree/eager_scope.h"

#include <optional>

#include "base/error.h"
#include "cgtree/record/step.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {

struct EagerScope::Open {
  explicit Open(TreeManager& manager) : visit(manager.door()) {
    visit.begin();
    step.emplace(manager.memory(), manager.memory().stream(), StepAllocations::Kind::kEager);
  }
  ~Open() { step->finish(); }  // then the visit puts the caller's stream behind the context's

  Visit visit;
  std::optional<StepScope> step;
};

EagerScope::EagerScope(TreeManager& manager) {
  if (!StepScope::active()) {
    open_ = std::make_unique<Open>(manager);
    return;
  }
  if (!current_stream().is_capturing()) return;
  throw_code(Code::kStreamCaptureUnsupported, "Context::eager() inside a step function");
}

EagerScope::~EagerScope() = default;

}  // namespace cgtree
