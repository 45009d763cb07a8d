// A program whose calls of CUDA are callbacks of fake_cupti.cc: usage: fake_program CASE...
#include <cupti.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

using FakeCall = void (*)(CUpti_CallbackId id, const char* name, const void* params, int result);
FakeCall fake_call = nullptr;

#define CALL(function, result, ...)                                            \
  do {                                                                         \
    const function##_params params = {__VA_ARGS__};                            \
    fake_call(CUPTI_DRIVER_TRACE_CBID_##function, #function, &params, result); \
  } while (false)

// As CUDA does at its start.
void start_cuda() {
  const char* const path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr) return;
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const auto initialize = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  if (initialize() != 1) std::abort();
  void* const cupti = dlopen(std::getenv("CGTREE_CHECK_CUPTI"), RTLD_NOW | RTLD_LOCAL);
  if (cupti != nullptr) fake_call = reinterpret_cast<FakeCall>(dlsym(cupti, "fake_cupti_call"));
}

template <typename Handle>
Handle handle(std::uintptr_t value) {
  return reinterpret_cast<Handle>(value);
}

}  // namespace

// Outside of a namespace without a name, so that a stack names it.
void capture(bool has_fault) {
  if (fake_call == nullptr) return;
  const auto stream = handle<CUstream>(0x500);
  auto graph = handle<CUgraph>(0x100);
  auto exec = handle<CUgraphExec>(0x300);
  CALL(cuStreamBeginCapture_v2, 0, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  cuMemcpyBatchAsync_params copy = {};
  copy.hStream = stream;
  fake_call(CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync, "cuMemcpyBatchAsync", &copy,
            has_fault ? 900 : 0);
  CALL(cuStreamEndCapture, 0, stream, &graph);
  CALL(cuGraphInstantiateWithFlags, 0, &exec, graph, 0);
  CALL(cuGraphLaunch, 0, exec, stream);
}

int main(int argc, char** argv) {
  start_cuda();
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "refused") capture(/*has_fault=*/true);
    if (word == "clean") capture(/*has_fault=*/false);
    if (word == "fork") {
      const pid_t child = fork();
      if (child == 0) std::exit(0);
      waitpid(child, nullptr, 0);
    }
    if (word == "abort") std::abort();
    if (word == "leave") _exit(0);
    if (word == "pause") {  // until a line comes
      std::puts("ready");
      std::fflush(stdout);
      static_cast<void>(std::getchar());
    }
    if (word == "three") return 3;
  }
  return 0;
}
