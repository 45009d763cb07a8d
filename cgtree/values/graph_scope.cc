// Refuses the capture of a step.
#include "cgtree/values/graph_scope.h"

#include "interop/device/code.h"
#include "interop/device/refusal.h"

namespace cgtree {

void refuse_capture(std::string_view why) {
  Refusals::note(Code::kStreamCaptureUnsupported,
                 why.empty() ? "the step has refused to be captured" : why);
}

}  // namespace cgtree
