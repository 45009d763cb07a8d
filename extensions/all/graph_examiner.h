// GraphExaminer: audits the graphs that are recorded, rebinds inputs, and lets recordings share
// executable graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "cgtree/tree/engine.h"
#include "extensions/rebind/shared_exec.h"

namespace cgtree {

class GraphExaminer final : public Extension {
 public:
  // `engine`: borrowed.
  explicit GraphExaminer(Engine& engine) noexcept
      : on_foreign_pointer_(engine.options.on_foreign_pointer),
        is_in_group_(engine.options.group != nullptr),
        engine_(engine) {}

  // Extension.
  void check(const CompileOptions& options) const override;
  std::unique_ptr<Examination> examine(
      const Call& call, const std::vector<std::uint32_t>& output_allocations) override;
  void after(const CallEvent& event) noexcept override;

  // Returns false if the nodes of the function were not to be patched before.
  bool never_patch(std::uint32_t function) { return never_patched_.insert(function).second; }

 private:
  const OnForeignPointer on_foreign_pointer_;
  const bool is_in_group_;
  Engine& engine_;
  std::set<std::uint32_t> never_patched_;  // functions
  SharedExecs shared_;
};

}  // namespace cgtree
