// FoundRecording: a stay inside a context, and the recording that a call would replay.
#pragma once

#include <string>
#include <string_view>

#include "cgtree/function_handle.h"
#include "cgtree/tree/engine.h"
#include "cgtree/values/input_list.h"

namespace cgtree {

// It is inside the context as long as it lives.
struct FoundRecording {
  // All are borrowed. `what`: the name of the caller, in messages. Throws as inspect().
  FoundRecording(const FunctionHandle& handle, const InputList& inputs, std::string_view what);

  Call& call() noexcept { return engine.present; }

  Engine& engine;
  FunctionState& function;
  Entry entry;
  Node* node = nullptr;  // null: no recording would be replayed
  std::string why_not;   // the reason, or ""
};

}  // namespace cgtree
