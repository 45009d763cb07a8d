// Reads snapshots of PyTorch's allocator and logs of RMM.
#include "check/blocks.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <sstream>
#include <string>

namespace cgtree::graph_check {
namespace {

constexpr Time kSecond = 1'000'000;
constexpr Time kDay = 24 * 3600 * kSecond;

// Returns when the day of `now` began, by the clock on the wall.
Time day_of(Time now) noexcept {
  const std::time_t seconds = now / kSecond;
  std::tm local = {};
  localtime_r(&seconds, &local);
  local.tm_hour = local.tm_min = local.tm_sec = 0;
  return std::mktime(&local) * kSecond;
}

// Reads "ACTION,ADDRESS,BYTES,REST" behind a time.
void add(Blocks& blocks, Time time, const char* line) {
  char action[16] = {};
  char rest[512] = {};
  unsigned long long address = 0, bytes = 0;
  if (std::sscanf(line, "%15[^,],%llx,%llu,%511[^\n]", action, &address, &bytes, rest) < 3) return;
  const std::string_view kind = action;
  if (kind == "kept") blocks.kept.push_back({address, bytes});
  if (kind == "allocate" || kind == "free")
    blocks.events.push_back({time, address, bytes, kind == "free", rest});
}

}  // namespace

Blocks read_torch_blocks(std::string_view text) {
  Blocks blocks;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    long long time = 0;
    int end = 0;
    if (std::sscanf(line.c_str(), "%lld,%n", &time, &end) == 1) add(blocks, time, &line[end]);
  }
  std::ranges::stable_sort(blocks.events, {}, &BlockEvent::time);
  return blocks;
}

Blocks read_rmm_log(std::string_view text, Time now) {
  Blocks blocks;
  const Time today = day_of(now);
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    long long hours = 0, minutes = 0, seconds = 0, fraction = 0;
    int end = 0;
    // Older logs have ':' in front of the fraction, newer ones '.'.
    if (std::sscanf(line.c_str(), "%*[^,],%lld:%lld:%lld%*[.:]%lld,%n", &hours, &minutes, &seconds,
                    &fraction, &end) != 4) {
      continue;
    }
    const Time time = today + ((hours * 60 + minutes) * 60 + seconds) * kSecond + fraction;
    add(blocks, time, &line[end]);
  }
  Time later = now;  // from the last row back, a jump ahead is a midnight
  for (auto event = blocks.events.rbegin(); event != blocks.events.rend(); ++event) {
    while (event->time > later + kSecond)  // rows of threads may change places
      event->time -= kDay;
    later = std::min(later, event->time);
    event->where.clear();  // a stream
  }
  std::ranges::stable_sort(blocks.events, {}, &BlockEvent::time);
  return blocks;
}

}  // namespace cgtree::graph_check
