// Fuzzes a pool against its model. An exception ends the program, which is a finding.
#include <cstddef>
#include <cstdint>

#include "tests/allocator/pool_fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cgtree::take_steps_of({data, size});
  return 0;
}
