// Progress: one line that says how far serving is, on a terminal only.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace cgtree::serve {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // Writes to `file` if it is a terminal, else nothing. `total`: how many of `unit` are to come.
  Progress(std::FILE* file, std::string label, std::int64_t total, std::string unit = "step");
  ~Progress();  // wipes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Redraws at most ten times a second. `now`: the caller's, to spare a look at the clock.
  void update(std::int64_t done, std::int64_t tokens, Clock::time_point now) {
    if (file_ != nullptr && now >= next_draw_) draw(done, tokens, now);
  }

 private:
  void draw(std::int64_t done, std::int64_t tokens, Clock::time_point now);

  std::FILE* file_;  // null: quiet
  std::string label_;
  std::int64_t total_;
  std::string unit_;
  Clock::time_point start_;
  Clock::time_point next_draw_;
};

}  // namespace cgtree::serve
