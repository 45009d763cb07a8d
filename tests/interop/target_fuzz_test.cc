// Fuzzes the reader of targets. An exception ends the program, which is a finding.
#include <cstddef>
#include <cstdint>

#include "tests/interop/target_fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cgtree::read_and_write_again({reinterpret_cast<const char*>(data), size});
  return 0;
}
