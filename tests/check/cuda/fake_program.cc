// A program that uses fake_driver.cc: usage: fake_program CASE...
#define __CUDA_API_VERSION_INTERNAL  // declares all versions of functions
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

// The ways in which programs get the driver's functions.
enum class Way { kLinked, kDlsym, kEntryPoint };

namespace {

template <typename Function>
Function* get(Way way, Function* linked, const char* symbol, const char* name) {
  void* address = nullptr;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (way == Way::kDlsym) address = dlsym(library, symbol);
  if (way == Way::kEntryPoint) {
    const auto entry_point =
        reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
    entry_point(name, &address, CUDA_VERSION, 0, nullptr);
  }
  return way == Way::kLinked ? linked : reinterpret_cast<Function*>(address);
}

#define GET(symbol, name) get(way, &symbol, #symbol, name)

}  // namespace

// Outside of a namespace without a name, so that a stack names it.
void capture(Way way, bool has_fault) {
  CUstream const stream = reinterpret_cast<CUstream>(std::uintptr_t{0x500});
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  GET(cuInit, "cuInit")(0);
  GET(cuStreamBeginCapture_v2, "cuStreamBeginCapture")(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  GET(cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync")
  (nullptr, nullptr, nullptr, has_fault ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0, nullptr,
   nullptr, 0, stream);
  GET(cuStreamEndCapture, "cuStreamEndCapture")(stream, &graph);
  GET(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")(&exec, graph, 0);
  GET(cuGraphLaunch, "cuGraphLaunch")(exec, stream);
}

// Replaces that of the C library: fails if the first case is "no_threads".
bool has_no_threads = false;
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  if (has_no_threads) return EAGAIN;
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, run, argument);
}

int main(int argc, char** argv) {
  has_no_threads = argc > 1 && std::string_view(argv[1]) == "no_threads";
  Way way = Way::kLinked;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "by_dlsym") way = Way::kDlsym;
    if (word == "by_entry_point") way = Way::kEntryPoint;
    if (word == "refused") capture(way, /*has_fault=*/true);
    if (word == "clean") capture(way, /*has_fault=*/false);
    if (word == "fork") {
      const pid_t child = fork();
      if (child == 0) std::exit(0);
      waitpid(child, nullptr, 0);
    }
    if (word == "next") {  // looked up from this program, as the real dlsym() does
      void* const found = dlsym(RTLD_NEXT, "main");
      return found == nullptr ? 0 : 1;
    }
    if (word == "signalled_fork") {
      const pid_t child = fork();
      if (child == 0) {
        raise(SIGUSR1);
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      std::printf("signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    if (word == "exec") execl("/proc/self/exe", argv[0], "clean", nullptr);
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
