// CapturedLog: collects the log during its lifetime, instead of standard error.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"

namespace cgtree::testing {

// At most one exists at a time.
class CapturedLog {
 public:
  explicit CapturedLog(LogLevel least = LogLevel::kWarn) {
    set_log_sink([this, least](LogLevel level, const std::string& line) {
      if (level < least) return;
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    });
  }
  ~CapturedLog() { set_log_sink(nullptr); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace cgtree::testing
