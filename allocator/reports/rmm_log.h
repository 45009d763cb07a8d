// A log of a pool's allocations in the CSV format of RMM.
#pragma once

#include <cstdint>
#include <mutex>
#include <ostream>

#include "allocator/pool/pool_observer.h"

namespace cgtree {

// Columns: Thread,Time,Action,Pointer,Size,Stream. A thread is some number; times are local, as
// HH:MM:SS:microseconds. Several pools may share a log.
//
// Threads: any.
class RmmLog final : public PoolObserver {
 public:
  // Writes the header. `out` must outlive the log; `stream` is what the last column says.
  explicit RmmLog(std::ostream& out, std::uint64_t stream = 0);

  void allocated(const void* address, std::size_t bytes) noexcept override;
  void freed(const void* address, std::size_t bytes) noexcept override;
  void refused(std::size_t bytes) noexcept override;

  // Rows that could not be written.
  std::size_t lost_rows() const;

 private:
  void write(const char* action, const void* address, std::size_t bytes) noexcept;

  const std::uint64_t stream_;
  mutable std::mutex mutex_;  // guards all below
  std::ostream& out_;
  std::size_t lost_rows_ = 0;
};

}  // namespace cgtree
