// A log of allocations in the CSV format of RMM: Thread,Time,Action,Pointer,Size,Stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cgtree {

// One allocation or free of a log.
struct TraceStep {
  std::uint32_t slot;  // of the block: allocated in one step, freed in at most one later one
  std::size_t bytes;   // asked for; 0: this step frees
};

struct Trace {
  std::vector<TraceStep> steps;
  std::size_t slots = 0;     // blocks
  std::size_t failures = 0;  // rows of allocations that failed; they are no steps
  std::size_t peak_live_bytes = 0;
};

// Reads a log, gzip or plain. Throws InvalidArgument, with the line, for a header or a row that is
// not of the format, a pointer allocated twice, and a free of one that is not live or of another
// size.
Trace read_rmm_log(const std::string& path);

}  // namespace cgtree
