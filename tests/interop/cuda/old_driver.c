// A CUDA driver for 11.4 with only those functions that the runtime uses to read its version.
#include <stddef.h>
#include <string.h>

int cuInit(unsigned flags) {
  (void)flags;
  return 0;
}

int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}

static int not_there(void) {
  return 801;  // CUDA_ERROR_NOT_SUPPORTED
}

int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags,
                        void* status) {
  (void)version;
  (void)flags;
  (void)status;
  *function = (void*)&not_there;
  if (strcmp(name, "cuInit") == 0) *function = (void*)&cuInit;
  if (strcmp(name, "cuDriverGetVersion") == 0) *function = (void*)&cuDriverGetVersion;
  if (strcmp(name, "cuGetProcAddress") == 0) *function = (void*)&cuGetProcAddress_v2;
  return 0;
}

int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
