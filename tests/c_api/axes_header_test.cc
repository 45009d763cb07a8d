// The header of dynamic axes compiles alone, as C++20 too.
#include "cgtree/c_api_axes.h"

static_assert(sizeof(cgt_axis_options) == 80 && alignof(cgt_axis_options) == 8);
static_assert(sizeof(cgt_axis_use) == 8 && sizeof(cgt_precapture_options) == 64);

int main() {
  return cgt_abi_version() == CGT_ABI_VERSION ? 0 : 1;
}
