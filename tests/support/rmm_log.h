// RmmLog and read_rmm_log(): logs of allocations in the CSV format of RMM.
//
// The columns are Thread,Time,Action,Pointer,Size,Stream. The writer fills Thread with a number per
// thread and Time with the local time as HH:MM:SS:microseconds; the reader ignores both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "allocator/pool/pool_observer.h"

namespace cgtree {

// An RmmLog writes a row for each allocation and each free of the pools that it observes. Several
// pools may share a log.
//
// Thread safety: all functions may be called from any thread.
class RmmLog final : public PoolObserver {
 public:
  // Writes the header. `stream` is what the last column says. `out` must outlive the log.
  explicit RmmLog(std::ostream& out, std::uint64_t stream = 0);

  void allocated(const void* address, std::size_t bytes) noexcept override;
  void freed(const void* address, std::size_t bytes) noexcept override;
  void refused(std::size_t bytes) noexcept override;

  // Returns how many rows could not be written.
  std::size_t lost_rows() const;

 private:
  void write(const char* action, const void* address, std::size_t bytes) noexcept;

  const std::uint64_t stream_;
  mutable std::mutex mutex_;  // guards all below
  std::ostream& out_;
  std::size_t lost_rows_ = 0;
};

// A TraceStep is one allocation or one free of a log.
struct TraceStep {
  std::uint32_t slot;  // the block: allocated in one step, freed in at most one later step
  std::size_t bytes;   // the bytes asked for; 0 if this step frees
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
