// Refusals: the reasons that the work which a thread captures is not kept.
//
// A refused call has added no node, and a caller that ignores its exception continues without that
// node. A refusal is therefore noted, and the end of the capture asks for the first one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "interop/device/code.h"

namespace cgtree {

struct Refusal {
  Code code;         // kUnknown if a second attempt may succeed
  std::string what;  // for messages
};

// A Refusals collects the refusals that its thread notes during its lifetime. If several are
// nested, the innermost collects.
//
// Thread safety: used by the thread that made it.
class Refusals {
 public:
  Refusals() noexcept;
  ~Refusals();
  Refusals(const Refusals&) = delete;
  Refusals& operator=(const Refusals&) = delete;

  // Returns the first refusal, or null.
  const Refusal* first() const noexcept { return first_ ? &*first_ : nullptr; }

  // Notes a refusal with the innermost Refusals of the calling thread, if there is one.
  static void note(Code code, std::string_view what) noexcept;

 private:
  std::optional<Refusal> first_;
  Refusals* next_;  // the one around it
};

}  // namespace cgtree
