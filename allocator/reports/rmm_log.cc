// Writes one row for each allocation and free.
#include "allocator/reports/rmm_log.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <iterator>
#include <thread>

namespace cgtree {
namespace {

// "HH:MM:SS:microseconds".
template <typename Out>
void format_now(Out out) {
  using std::chrono::microseconds;
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto rest =
      std::chrono::duration_cast<microseconds>(now.time_since_epoch()) % std::chrono::seconds(1);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  fmt::format_to(out, "{:02}:{:02}:{:02}:{:06}", parts.tm_hour, parts.tm_min, parts.tm_sec,
                 rest.count());
}

}  // namespace

RmmLog::RmmLog(std::ostream& out, std::uint64_t stream) : stream_(stream), out_(out) {
  out_ << "Thread,Time,Action,Pointer,Size,Stream\n";
}

void RmmLog::allocated(const void* address, std::size_t bytes) noexcept {
  write("allocate", address, bytes);
}

void RmmLog::freed(const void* address, std::size_t bytes) noexcept {
  write("free", address, bytes);
}

void RmmLog::refused(std::size_t bytes) noexcept {
  write("allocate failure", nullptr, bytes);
}

std::size_t RmmLog::lost_rows() const {
  const std::lock_guard lock(mutex_);
  return lost_rows_;
}

void RmmLog::write(const char* action, const void* address, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    fmt::memory_buffer row;
    const auto out = std::back_inserter(row);
    fmt::format_to(out, "{},", std::hash<std::thread::id>()(std::this_thread::get_id()));
    format_now(out);
    fmt::format_to(out, ",{},{:#x},{},{}\n", action, reinterpret_cast<std::uintptr_t>(address),
                   bytes, stream_);
    out_.write(row.data(), static_cast<std::streamsize>(row.size()));
    if (!out_) ++lost_rows_;
  } catch (...) {  // no host memory, or a stream that throws: the pool goes on
    ++lost_rows_;
  }
}

}  // namespace cgtree
