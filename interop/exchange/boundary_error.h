// BoundaryError: why a tensor of another library cannot come in, or one of ours cannot go out.
#pragma once

#include "base/error.h"

namespace cgtree {

// For languages that have an exception for each: KeyError, TypeError, ValueError, BufferError.
enum class BoundaryFault {
  kMissing,       // a field that must be there is not
  kWrongType,     // a field is of another kind than the protocol says
  kWrongValue,    // a field has a value that the protocol forbids, or that contradicts another
  kNotSupported,  // the protocol allows it, cgtree does not
};

class BoundaryError : public InvalidArgument {
 public:
  BoundaryError(BoundaryFault fault, std::string_view message,
                std::source_location where = std::source_location::current())
      : InvalidArgument(message, where), fault_(fault) {}

  BoundaryFault fault() const noexcept { return fault_; }

 private:
  BoundaryFault fault_;
};

}  // namespace cgtree
