// What a program that finds cgtree installed is made of: a context, a tensor, an error with a name.
#include <stdio.h>

#include "cgtree/c_api.h"

int main(void) {
  const cgt_device device = {CGT_DEVICE_HOST, 0};
  const int64_t shape[] = {2, 3};
  cgt_context context;
  cgt_tensor tensor;
  if (cgt_abi_version() != CGT_ABI_VERSION) return 1;
  if (cgt_context_create(device, NULL, &context) != CGT_OK) return 2;
  if (cgt_tensor_empty(CGT_FLOAT32, 2, shape, &device, &tensor) != CGT_OK) return 3;
  if (cgt_context_mark_step((cgt_context)tensor) != CGT_INVALID_HANDLE) return 4;
  if (cgt_tensor_destroy(tensor) != CGT_OK || cgt_context_destroy(context) != CGT_OK) return 5;
  printf("%zu handles left\n", cgt_live_handles());
  return 0;
}
