// GraphFindings: what is known of the graphs of a recording beside what the recorder has put there.
#pragma once

#include "allocator/pool/block.h"

namespace cgtree {

// A GraphFindings is kept with its recording. An Audit is what there is.
class GraphFindings {
 public:
  virtual ~GraphFindings() = default;

  // Returns whether a graph has an address in the range.
  virtual bool refers_to(Range range) const noexcept = 0;
};

}  // namespace cgtree
