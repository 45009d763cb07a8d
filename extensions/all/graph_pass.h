// GraphPass: the pass of a context that has all of the library: it audits what is recorded, rebinds
// inputs, and lets recordings share executable graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "cgtree/record/recording_pass.h"
#include "extensions/rebind/shared_exec.h"

namespace cgtree {

class GraphPass final : public RecordingPass {
 public:
  // `memory`: borrowed.
  GraphPass(const ContextOptions& options, ContextMemory& memory) noexcept
      : on_foreign_pointer_(options.on_foreign_pointer),
        is_in_group_(options.group != nullptr),
        memory_(memory) {}

  // RecordingPass.
  void check(const CompileOptions& options) const override;
  std::unique_ptr<Examination> begin(const Call& call, Recorder& recorder,
                                     const std::vector<std::uint32_t>& output_allocations) override;
  bool never_patch(const Function& function) override {
    return never_patched_.insert(function.id).second;
  }

 private:
  const OnForeignPointer on_foreign_pointer_;
  const bool is_in_group_;
  ContextMemory& memory_;
  std::set<std::uint32_t> never_patched_;  // functions
  SharedExecs shared_;
};

}  // namespace cgtree
