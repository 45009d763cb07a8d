// GraphExaminer: audits recorded graphs, rebinds inputs, and lets recordings share executables.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cgtree/tree/engine.h"
#include "extensions/audit/audit_options.h"
#include "extensions/rebind/shared_exec.h"

namespace cgtree {

class GraphExaminer final : public Extension {
 public:
  // `engine`: borrowed.
  GraphExaminer(const AuditOptions& options, Engine& engine) noexcept
      : on_foreign_pointer_(options.on_foreign_pointer),
        is_in_group_(engine.options.group != nullptr),
        engine_(engine) {}

  // Extension.
  int order() const noexcept override { return -200; }
  std::string shared_options() const override;
  void check(const CompileOptions& options) const override;
  std::unique_ptr<Examination> examine(
      const Call& call, const std::vector<std::uint32_t>& output_allocations) override;
  void after(const CallEvent& event) noexcept override;

  // Returns whether an earlier recording serves the call of the step from now on.
  bool serve_by_earlier(CapturedStep& step);
  // Returns false if patching the nodes of the function was excluded before.
  bool never_patch(std::uint32_t function) { return never_patched_.insert(function).second; }

 private:
  // Returns the reason why addresses in graphs of the function must not be patched, or "".
  std::string why_never(std::uint32_t function) const;

  const OnForeignPointer on_foreign_pointer_;
  const bool is_in_group_;
  Engine& engine_;
  std::set<std::uint32_t> never_patched_;  // functions
  SharedExecs shared_;
};

}  // namespace cgtree
