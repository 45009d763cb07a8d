// Leaves the core of a context alone: nothing is told of its calls, nothing examines or verifies
// its recordings, and no ranks agree. What asks for any of that is refused by name.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "cgtree/tree/surroundings.h"

namespace cgtree {
namespace {

void refuse(bool is_asked_for, const std::string& option) {
  if (!is_asked_for) return;
  throw InvalidArgument(option + " in a build of the core alone: link //:cgtree");
}

// Copies whatever may be copied.
class NoPass final : public RecordingPass {
 public:
  // RecordingPass.
  void check(const CompileOptions& options) const override {
    const auto is_rebound = [](const auto& one) { return one.rebind != Rebind::kNever; };
    refuse(std::ranges::any_of(options.inputs, is_rebound), "InputOptions::rebind");
    refuse(std::ranges::any_of(options.outputs, is_rebound), "OutputOptions::rebind");
    refuse(options.verify_first > 0, "CompileOptions::verify_first");
    refuse(options.max_switch_nodes > 0, "CompileOptions::max_switch_nodes");
  }
};

}  // namespace

std::unique_ptr<CallObserver> make_observer(const ContextOptions& options, const ContextMemory&) {
  refuse(!options.event_file.empty(), "ContextOptions::event_file");
  refuse(options.time_every_nth_replay > 0, "ContextOptions::time_every_nth_replay");
  return std::make_unique<CallObserver>();
}

std::unique_ptr<RecordingPass> make_pass(const ContextOptions& options, ContextMemory&) {
  refuse(options.on_foreign_pointer != OnForeignPointer::kRecord,
         "ContextOptions::on_foreign_pointer");
  return std::make_unique<NoPass>();
}

std::unique_ptr<Verifier> make_verifier(const ContextOptions& options, Tree&, ContextMemory&,
                                        CallObserver&, Attempts&) {
  refuse(options.verify_every > 0, "ContextOptions::verify_every (or CGTREE_VERIFY)");
  refuse(options.verify_first > 0, "ContextOptions::verify_first");
  return nullptr;
}

std::unique_ptr<Ballot> make_ballot(const ContextOptions& options) {
  refuse(options.group != nullptr, "ContextOptions::group");
  return nullptr;
}

}  // namespace cgtree
