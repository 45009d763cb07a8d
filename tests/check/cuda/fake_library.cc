// A library beside the driver: it has a function of the driver's name, which calls the next one.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>

extern "C" {

__attribute__((weak)) void while_loading();

__attribute__((constructor)) static void load() {
  if (&while_loading != nullptr) while_loading();
}

CUresult launch_beside(CUgraphExec exec, CUstream stream) {
  std::puts("beside");
  const auto next = reinterpret_cast<decltype(&cuGraphLaunch)>(dlsym(RTLD_NEXT, "cuGraphLaunch"));
  return next(exec, stream);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) __attribute__((alias("launch_beside")));

void* find_beside(const char* name) {
  static_cast<void>(cuInit(0));  // which links this library with the driver
  return dlsym(RTLD_DEFAULT, name);
}
}
