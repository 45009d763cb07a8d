// Redraws one line of a terminal.
#include "examples/serve/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace cgtree::serve {
namespace {

constexpr const char* kWipe = "\r\x1b[K";

}  // namespace

Progress::Progress(std::FILE* file, std::string label, std::int64_t total, std::string unit)
    : file_(isatty(fileno(file)) != 0 ? file : nullptr),
      label_(std::move(label)),
      total_(std::max<std::int64_t>(total, 1)),
      unit_(std::move(unit)),
      start_(Clock::now()),
      next_draw_(start_) {
}

Progress::~Progress() {
  if (file_ == nullptr) return;
  std::fputs(kWipe, file_);
  std::fflush(file_);
}

void Progress::draw(std::int64_t done, std::int64_t tokens, Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  fmt::print(file_, "{}{:<6} {:>3}%  {} {} of {}  {:.0f} tokens/s", kWipe, label_,
             100 * done / total_, unit_, done, total_, rate);
  std::fflush(file_);
  next_draw_ = now + std::chrono::milliseconds(100);
}

}  // namespace cgtree::serve
