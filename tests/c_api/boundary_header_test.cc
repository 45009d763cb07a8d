// The second header compiles alone, as C++20 too.
#include "cgtree/c_api_boundary.h"

static_assert(sizeof(cgt_cai) == 64 && alignof(cgt_cai) == 8);

int main() {
  return cgt_abi_version() == CGT_ABI_VERSION ? 0 : 1;
}
