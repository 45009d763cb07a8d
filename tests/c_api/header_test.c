// The header compiles alone as C99, and its types are as wide as other languages are told.
#include "cgtree/c_api.h"

typedef char device_is_as_dlpack_has_it[sizeof(cgt_device) == 8 ? 1 : -1];
typedef char stream_is_two_words[sizeof(cgt_stream) == 16 ? 1 : -1];
typedef char status_is_32_bits[sizeof(cgt_status) == 4 ? 1 : -1];
typedef char cai_has_no_gaps[sizeof(cgt_cai) == 64 ? 1 : -1];
typedef char handles_are_64_bits[sizeof(cgt_tensor) == 8 ? 1 : -1];

int main(void) {
  return cgt_abi_version() == CGT_ABI_VERSION ? 0 : 1;
}
