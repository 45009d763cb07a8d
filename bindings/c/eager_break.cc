// Eager breaks, guards, and steps that refuse to be captured, in C.
#include "cgtree/values/eager_break.h"

#include <memory>

#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "cgtree/values/graph_scope.h"
#include "extensions/guards/guard.h"

namespace cgtree::capi {

extern "C" {

cgt_status cgt_eager_break(cgt_break_body body, void* user, void (*release)(void* user)) {
  return guarded([&] {
    const std::shared_ptr<void> kept = take_over(user, release);
    required(body, "the function of an eager break");
    eager_break([body, user, kept](const StepValues& values) {
      const Callback callback("the function of an eager break");
      callback.call([&] { return body(user, reinterpret_cast<const cgt_step_values*>(&values)); });
    });
  });
}

cgt_status cgt_refuse_capture(const char* why) {
  return guarded([&] { refuse_capture(why == nullptr ? "" : why); });
}

cgt_status cgt_decide(const char* name, cgt_guard ask, void* user, void (*release)(void* user),
                      int64_t* answer) {
  return guarded([&] {
    const std::shared_ptr<void> kept = take_over(user, release);
    required(name, "the name of a guard");
    required(ask, "the function of a guard");
    required(answer, "the place for the answer");
    *answer = decide(name, [ask, user, kept] { return ask(user); });
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
