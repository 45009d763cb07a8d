// Eager breaks in C.
#include "cgtree/eager_break.h"

#include <memory>
#include <utility>

#include "base/log.h"
#include "cgtree/c_api/convert.h"
#include "cgtree/c_api/handles.h"

namespace cgtree::capi {
namespace {

// The function of a break with what it uses, which ends with the last copy of the EagerBreak.
class CBreak {
 public:
  CBreak(cgt_break_body body, void* user, void (*release)(void* user)) noexcept
      : body_(body), user_(user), release_(release) {}
  ~CBreak();
  CBreak(const CBreak&) = delete;
  CBreak& operator=(const CBreak&) = delete;

  // Throws what Callback::call() throws.
  void run(const StepValues& values) const {
    const Callback callback("the function of an eager break");
    callback.call([&] { return body_(user_, reinterpret_cast<const cgt_step_values*>(&values)); });
  }

 private:
  const cgt_break_body body_;
  void* const user_;
  void (*const release_)(void* user);
};

CBreak::~CBreak() {
  if (release_ == nullptr) return;
  try {
    release_(user_);
  } catch (...) {
    log_event(LogLevel::kError, "release_threw function=\"eager break\"");
  }
}

}  // namespace

extern "C" {

cgt_status cgt_eager_break(cgt_break_body body, void* user, void (*release)(void* user)) {
  return guarded([&] {
    const auto made = std::make_shared<const CBreak>(body, user, release);
    if (body == nullptr) throw InvalidArgument("the function of an eager break is NULL");
    eager_break([made](const StepValues& values) { made->run(values); });
  });
}

cgt_status cgt_step_value(const cgt_step_values* values, size_t i, const void** data,
                          size_t* bytes) {
  return guarded([&] {
    required(values, "the values of the step");
    required(data, "the place for the address");
    required(bytes, "the place for the size");
    const std::span<const std::byte> value = reinterpret_cast<const StepValues*>(values)->bytes(i);
    *data = value.data();
    *bytes = value.size();
  });
}

}  // extern "C"
}  // namespace cgtree::capi
