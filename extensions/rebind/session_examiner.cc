// Lets recordings serve all sessions in a context without an audit.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "extensions/rebind/sessions.h"

namespace cgtree {
namespace {

class SessionExaminer final : public Extension {
 public:
  // `engine`: borrowed.
  explicit SessionExaminer(Engine& engine) noexcept : engine_(engine) {}

  // Extension.
  int order() const noexcept override { return -150; }  // after an audit, which does the same
  std::unique_ptr<Examination> examine(const Call& call,
                                       const std::vector<std::uint32_t>&) override {
    if (!has_sessions(call.function())) return nullptr;
    return std::make_unique<SessionExamination>(*this);
  }
  void after(const CallEvent& event) noexcept override try {
    if (event.kind == CallEvent::kPatchRefused) never_patched_.insert(event.function->id);
  } catch (const std::bad_alloc&) {  // the next refusal is noted
  }

 private:
  class SessionExamination final : public Examination {
   public:
    explicit SessionExamination(SessionExaminer& examiner) noexcept : examiner_(examiner) {}

    // Examination.
    void examine(CapturedStep& step) override { step_ = &step; }
    Exec share() override { return examiner_.serve(*step_) ? Exec::kEarlier : Exec::kOwn; }
    std::size_t prepare() override { return 0; }
    bool may_refuse() const noexcept override { return false; }
    void finish() override {}
    void give_up() noexcept override {}
    bool never_patch() override { return false; }

   private:
    SessionExaminer& examiner_;
    CapturedStep* step_ = nullptr;  // from examine() on
  };

  bool serve(CapturedStep& step) const {
    const bool is_refused = never_patched_.contains(step.call.function().id);
    return serve_by_earlier(engine_, step, is_refused ? kPatchWasRefused : "");
  }

  Engine& engine_;
  std::set<std::uint32_t> never_patched_;  // functions
};

}  // namespace

ExtensionFactory serve_sessions() {
  return [](Engine& engine) { return std::make_unique<SessionExaminer>(engine); };
}

}  // namespace cgtree
