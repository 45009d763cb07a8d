// A program that uses fake_driver.cc: usage: fake_program CASE...
#define __CUDA_API_VERSION_INTERNAL  // declares all versions of functions
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

// The ways in which programs get the driver's functions.
enum class Way { kLinked, kDlsym, kEntryPoint };

namespace {

template <typename Function>
Function* get(Way way, Function* linked, const char* symbol, const char* name) {
  if (way == Way::kLinked) return linked;
  void* address = nullptr;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (way == Way::kDlsym) address = dlsym(library, symbol);
  if (way == Way::kEntryPoint) {
    const auto entry_point =
        reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
    entry_point(name, &address, CUDA_VERSION, 0, nullptr);
  }
  return reinterpret_cast<Function*>(address);
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

// Called by the constructor of libbeside.so, while this thread has the linker's lock.
bool is_loading = false;
std::thread beside;
extern "C" void while_loading() {
  if (!is_loading) return;
  beside = std::thread([] { capture(Way::kLinked, /*has_fault=*/true); });
  usleep(300'000);
  cuGraphLaunch(nullptr, nullptr);
}

// Prints the results of lookups. A first one may fail in another way than later ones.
void look_up(const char* path) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  dlerror();
  void* const init = dlsym(driver, "cuInit");
  const bool is_error = dlerror() != nullptr;
  std::printf("error %d same %d\n", is_error, init == reinterpret_cast<void*>(&cuInit));
  std::printf("missing %d\n", dlsym(RTLD_DEFAULT, "cuMemcpy3DBatchAsync_v2") == nullptr);
  void* const own = dlsym(library, "cuGraphLaunch");
  std::printf("own %d\n", own == dlsym(library, "launch_beside"));
  std::printf("linked %d\n", cuGraphLaunch(nullptr, nullptr));
}

// Prints whether a library that is linked with the driver finds it.
void look_up_beside(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const auto find = reinterpret_cast<void* (*)(const char*)>(dlsym(library, "find_beside"));
  std::printf("found %d\n", find("cuInit") != nullptr);
}

// Prints the bytes of a file whose number was that of a file which the program did not open.
void close_others(Way way) {
  capture(way, /*has_fault=*/true);
  for (int i = 3; i < 64; ++i)
    close(i);
  int file = 0;
  while ((file = open("/tmp", O_TMPFILE | O_RDWR, 0600)) >= 0 && file < 16)
    continue;
  capture(way, /*has_fault=*/true);
  raise(SIGUSR1);
  usleep(200'000);
  off_t bytes = 0;
  for (int i = 3; i <= file; ++i)
    bytes += lseek(i, 0, SEEK_END);
  std::printf("bytes %d\n", static_cast<int>(bytes));
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
    if (word == "look_up") look_up(argv[++i]);
    if (word == "look_up_beside") look_up_beside(argv[++i]);
    if (word == "close_others") close_others(way);
    if (word == "load") {
      capture(way, /*has_fault=*/false);
      is_loading = true;
      dlopen(argv[++i], RTLD_NOW | RTLD_LOCAL);
      beside.join();
    }
    if (word == "cancelled") {
      std::thread([] {
        pthread_cancel(pthread_self());
        capture(Way::kLinked, /*has_fault=*/true);
        std::puts("captured");
      }).join();
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
