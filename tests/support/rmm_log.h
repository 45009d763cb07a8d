// read_rmm_log(): logs of allocations in the CSV format of RMM.
//
// The columns are Thread,Time,Action,Pointer,Size,Stream; the first two are ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cgtree {

// One allocation or one free of a log.
struct TraceStep {
  std::uint32_t slot;  // the block: allocated in one step, freed in at most one later step
  std::size_t bytes;   // the requested bytes; 0 if this step frees
};

struct Trace {
  std::vector<TraceStep> steps;
  std::size_t slots = 0;     // the number of blocks
  std::size_t failures = 0;  // rows of allocations that failed; they are not steps
  std::size_t peak_live_bytes = 0;
};

// Reads a log, compressed with gzip or plain. Throws InvalidArgument, with the line, for a header
// or a row that does not have the format, a pointer that is allocated twice, and a free of a
// pointer that is not live or was allocated with another size.
Trace read_rmm_log(const std::string& path);

}  // namespace cgtree
