// Fuzzes the parser of the CUDA Array Interface with JSON: what it accepts it must write as it
// reads it, and what it refuses it must refuse with a BoundaryError.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/error.h"
#include "interop/exchange/cuda_array_interface.h"
#include "tests/support/cuda_array_interface_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cgtree;
  const auto json = nlohmann::json::parse(data, data + size, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return 0;
  try {
    const CudaArrayInterface array = parse_cuda_array_interface(entries_of_json(json));
    CGTREE_CHECK(parse_cuda_array_interface(to_entries(array)) == array);
    CGTREE_CHECK(elements_of(array) >= 0);
    CGTREE_CHECK((elements_of(array) == 0) == (array.data == 0));
    CGTREE_CHECK(!describe(array).empty());
  } catch (const BoundaryError& error) {
    CGTREE_CHECK(!error.message().empty());
  }
  return 0;
}
