// Fuzzes the reader of logs of allocations: an accepted log could have been made by a program, and
// a refused one raises InvalidArgument with the line.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "tests/support/rmm_log.h"

namespace {

using namespace cgtree;

void expect_possible(const Trace& trace) {
  std::vector<std::size_t> live(trace.slots, 0);
  std::size_t sum = 0, peak = 0, made = 0;
  for (const TraceStep& step : trace.steps) {
    CGTREE_CHECK(step.slot < trace.slots);
    std::size_t& bytes = live[step.slot];
    CGTREE_CHECK((bytes == 0) == (step.bytes != 0));
    if (step.bytes != 0) CGTREE_CHECK(step.slot == made++ && step.bytes <= SIZE_MAX - sum);
    sum = sum - bytes + step.bytes;
    bytes = step.bytes;
    peak = std::max(peak, sum);
  }
  CGTREE_CHECK(made == trace.slots && peak == trace.peak_live_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string path = (std::filesystem::temp_directory_path() /
                                   ("cgtree_rmm_log_fuzz_" + std::to_string(::getpid())))
                                      .string();
  {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  try {
    expect_possible(read_rmm_log(path));
  } catch (const InvalidArgument& error) {
    CGTREE_CHECK(!error.message().empty());
  }
  return 0;
}
