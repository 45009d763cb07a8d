// Refusals: why the work that a thread captures is not kept.
//
// A call that was refused has added no node, and a caller that swallows its exception goes on
// without that node. So a refusal is noted, and the end of the capture asks for the first one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "interop/device/code.h"

namespace cgtree {

struct Refusal {
  Code code;         // kUnknown where a second try may succeed
  std::string what;  // for messages
};

// A Refusals collects what its thread notes while it lives. Of those that nest, the innermost
// collects.
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

  // Notes a refusal with the innermost Refusals of the calling thread; outside of all it does
  // nothing.
  static void note(Code code, std::string_view what) noexcept;

 private:
  std::optional<Refusal> first_;
  Refusals* next_;  // the one around it
};

}  // namespace cgtree
