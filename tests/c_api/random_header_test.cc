// The header of random numbers compiles alone, as C++20 too.
#include "cgtree/c_api_random.h"

static_assert(sizeof(cgt_generator_state) == 32 && sizeof(cgt_philox_range) == 24);

int main() {
  return cgt_abi_version() == CGT_ABI_VERSION ? 0 : 1;
}
