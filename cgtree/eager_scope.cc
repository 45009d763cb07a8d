// Opens a step that is not a function's.
#include "cgtree/eager_scope.h"

#include "base/error.h"
#include "base/log.h"
#include "cgtree/tree/busy.h"
#include "cgtree/tree/caller_order.h"
#include "cgtree/record/step_scope.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {

struct EagerScope::Open {
  explicit Open(TreeManager& manager)
      : busy(manager),
        order(manager.memory().stream(), current_stream_or_none()),
        step(manager.memory(), manager.memory().stream(), StepAllocations::Kind::kEager) {}
  ~Open() {
    step.finish();
    try {
      order.finish();
    } catch (const std::exception& error) {
      log_event(LogLevel::kError, "eager_end what=\"{}\"", error.what());
    }
  }

  TreeManager::Busy busy;
  CallerOrder order;
  StepScope step;
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
