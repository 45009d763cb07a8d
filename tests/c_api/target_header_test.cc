// The header of targets compiles alone, as C++20 too.
#include <cstdint>

#include "cgtree/c_api_target.h"

int main() {
  std::int32_t type = 0;
  return cgt_target_device_type("cuda", &type) == CGT_OK && type == CGT_DEVICE_CUDA ? 0 : 1;
}
