// Probes a step before it is captured, and rebinds and audits it afterwards.
#include "cgtree/check/graph_pass.h"

#include <optional>
#include <utility>

#include "cgtree/check/probe.h"
#include "cgtree/check/rebind.h"
#include "cgtree/check/recording_audit.h"

namespace cgtree {
namespace {

// The audit begins first, while the recording still says where each copy is that is rebound.
class GraphExamination final : public Examination {
 public:
  GraphExamination(std::optional<Probe> probe, OnForeignPointer on_foreign_pointer) noexcept
      : probe_(std::move(probe)), audit_(on_foreign_pointer) {}

  // Examination.
  void examine(CapturedStep& step) override {
    audit_.begin(step);
    rebind(step, probe_ ? &*probe_ : nullptr);
  }
  std::size_t prepare() override { return audit_.prepare(); }
  bool may_refuse() const noexcept override { return audit_.may_refuse(); }
  void read(NodeContents contents) override { audit_.read(std::move(contents)); }
  void finish() override { audit_.finish(); }
  void give_up() noexcept override { audit_.give_up(); }

 private:
  const std::optional<Probe> probe_;
  RecordingAudit audit_;
};

bool may_rebind(const Call& call) {
  for (std::size_t i = 0; i < call.inputs().size(); ++i)
    if (call.rebind(i) != Rebind::kNever) return true;
  return false;
}

}  // namespace

std::unique_ptr<Examination> GraphPass::begin(
    const Call& call, Recorder& recorder, const std::vector<std::uint32_t>& output_allocations) {
  std::optional<Probe> probe;
  if (may_rebind(call) && !call.function().is_callers_work) {
    if (is_in_group_) {
      probe = {.failure = "what addresses are aligned to may differ between the ranks of a group"};
    } else if (never_rebound_.contains(call.function().id)) {
      probe = {.failure = "the device has refused to change an address in a node of the function"};
    } else {
      probe = make_probe(call, memory_, recorder, output_allocations);
    }
  }
  return std::make_unique<GraphExamination>(std::move(probe), on_foreign_pointer_);
}

}  // namespace cgtree
