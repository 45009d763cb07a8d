// Programs with graphs that have one planted fault each, and the same programs without it.
//
// usage: planted CASE --fault|--clean      planted --list      planted --bench
//
// Kernels touch memory that is gone only if a flag says so, which it never does: the address is a
// parameter all the same, and each program ends well.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kBytes = 4096;

#define CHECK(call)                                                                           \
  do {                                                                                        \
    const cudaError_t error = (call);                                                         \
    if (error != cudaSuccess) {                                                               \
      std::fprintf(stderr, "planted:%d: %s: %s\n", __LINE__, #call, cudaGetErrorName(error)); \
      std::exit(1);                                                                           \
    }                                                                                         \
  } while (false)

__global__ void touch(float* data, const int* flag) {
  if (*flag != 0) data[threadIdx.x] += 1;
}

// The stream and the flag of each program.
struct Base {
  Base() {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&flag, sizeof(int)));
    CHECK(cudaMemset(flag, 0, sizeof(int)));
    CHECK(cudaDeviceSynchronize());
  }

  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    CHECK(cudaStreamBeginCapture(stream, mode));
  }
  cudaGraphExec_t end(unsigned long long flags = 0) {
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaGraphInstantiate(&exec, graph, flags));
    CHECK(cudaGraphDestroy(graph));
    return exec;
  }
  void launch_kernel(float* data, int threads = 32) {
    touch<<<1, threads, 0, stream>>>(data, flag);
    CHECK(cudaGetLastError());
  }
  cudaGraphExec_t capture(float* data, int threads = 32) {
    begin();
    launch_kernel(data, threads);
    return end();
  }
  void replay(cudaGraphExec_t exec) {
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
  // The driver may refuse a launch whose host memory is gone.
  void try_to_replay(cudaGraphExec_t exec) {
    if (cudaGraphLaunch(exec, stream) == cudaSuccess)
      static_cast<void>(cudaStreamSynchronize(stream));
  }

  cudaStream_t stream = nullptr;
  int* flag = nullptr;
  cudaGraphExec_t made = nullptr;
};

float* allocate() {
  float* data = nullptr;
  CHECK(cudaMalloc(&data, kBytes));
  return data;
}

// The same of memory that is allocated after the first graph.
void freed_later(bool has_fault) {
  Base base;
  base.replay(base.capture(allocate()));
  float* data = nullptr;
  CHECK(cudaMallocAsync(&data, kBytes, base.stream));
  CHECK(cudaStreamSynchronize(base.stream));
  const cudaGraphExec_t exec = base.capture(data);
  base.replay(exec);
  CHECK(cudaFreeAsync(data, base.stream));
  if (has_fault) base.replay(exec);
  CHECK(cudaGraphExecDestroy(exec));
}

// docs/first_hour/check.md begins
void freed(bool has_fault) {
  Base base;
  float* const data = allocate();
  const cudaGraphExec_t exec = base.capture(data);
  base.replay(exec);
  if (!has_fault) base.replay(exec);
  CHECK(cudaFree(data));
  if (has_fault) base.replay(exec);
  CHECK(cudaGraphExecDestroy(exec));
}
// docs/first_hour/check.md ends

void freed_in_order(bool has_fault) {
  Base base;
  float* data = nullptr;
  float* neighbour = nullptr;
  CHECK(cudaMallocAsync(&data, kBytes, base.stream));
  CHECK(cudaMallocAsync(&neighbour, kBytes, base.stream));
  CHECK(cudaStreamSynchronize(base.stream));
  const cudaGraphExec_t exec = base.capture(data);
  base.replay(exec);
  CHECK(cudaFreeAsync(neighbour, base.stream));
  base.replay(exec);
  CHECK(cudaFreeAsync(data, base.stream));
  if (has_fault) base.replay(exec);
  CHECK(cudaGraphExecDestroy(exec));
}

void freed_pinned(bool has_fault) {
  Base base;
  float* const data = allocate();
  void* host = nullptr;
  CHECK(cudaMallocHost(&host, kBytes));
  base.begin();
  CHECK(cudaMemcpyAsync(data, host, 64, cudaMemcpyHostToDevice, base.stream));
  const cudaGraphExec_t exec = base.end();
  base.replay(exec);
  void* other = nullptr;  // pages of the pool stay
  CHECK(cudaMallocHost(&other, kBytes));
  if (!has_fault) CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaFreeHost(host));
  if (has_fault) base.try_to_replay(exec);
}

void reused(bool has_fault) {
  Base base;
  float* const data = allocate();
  cudaGraphExec_t exec = base.capture(data);
  base.replay(exec);
  CHECK(cudaFree(data));
  float* again = nullptr;
  for (int i = 0; i < 256 && again != data; ++i)
    again = allocate();
  if (again != data) std::puts("the address did not come again");
  if (!has_fault) {
    CHECK(cudaGraphExecDestroy(exec));
    exec = base.capture(again);
  }
  base.replay(exec);
}

template <typename Function>
Function driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
  return reinterpret_cast<Function>(found);
}

#define DRIVER(function, ...)                                                             \
  do {                                                                                    \
    const CUresult result = driver_function<decltype(&function)>(#function)(__VA_ARGS__); \
    if (result != CUDA_SUCCESS) {                                                         \
      std::fprintf(stderr, "planted:%d: %s: %d\n", __LINE__, #function, result);          \
      std::exit(1);                                                                       \
    }                                                                                     \
  } while (false)

void unmapped(bool has_fault) {
  Base base;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  constexpr std::size_t kPage = std::size_t{2} << 20;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle memory = 0;
  DRIVER(cuMemAddressReserve, &address, kPage, 0, 0, 0);
  DRIVER(cuMemCreate, &memory, kPage, &properties, 0);
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  DRIVER(cuMemMap, address, kPage, 0, memory, 0);
  DRIVER(cuMemSetAccess, address, kPage, &access, 1);
  const cudaGraphExec_t exec = base.capture(reinterpret_cast<float*>(address));
  base.replay(exec);
  DRIVER(cuMemUnmap, address, kPage);
  if (!has_fault) {
    DRIVER(cuMemMap, address, kPage, 0, memory, 0);
    DRIVER(cuMemSetAccess, address, kPage, &access, 1);
  }
  base.replay(exec);
}

// rmm#2518: a call that captures refuse, whose error is not looked at. The capture goes on.
void refused(bool has_fault) {
  Base base;
  float* const from = allocate();
  float* const to = allocate();
  base.begin(cudaStreamCaptureModeRelaxed);
  base.launch_kernel(from);
  if (has_fault) {
    const void* const sources[] = {from};
    void* const destinations[] = {to};
    const std::size_t sizes[] = {64};
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
    const cudaError_t error =
        cudaMemcpyBatchAsync(destinations, sources, sizes, 1, &attributes, &first, 1, base.stream);
    std::printf("cudaMemcpyBatchAsync: %s\n", cudaGetErrorName(error));
    static_cast<void>(cudaGetLastError());
  } else {
    CHECK(cudaMemcpyAsync(to, from, 64, cudaMemcpyDeviceToDevice, base.stream));
  }
  base.replay(base.end());
}

// rwkv_lightning#24: a kernel that was given no stream.
void legacy(bool has_fault) {
  Base base;
  float* const data = allocate();
  base.begin(cudaStreamCaptureModeRelaxed);
  base.launch_kernel(data);
  touch<<<1, 32, 0, has_fault ? nullptr : base.stream>>>(data, base.flag);
  CHECK(cudaGetLastError());
  base.replay(base.end());
}

void pageable(bool has_fault) {
  Base base;
  float* const data = allocate();
  void* host = nullptr;
  if (has_fault) {
    host = std::malloc(kBytes);
  } else {
    CHECK(cudaMallocHost(&host, kBytes));
  }
  std::memset(host, 0, kBytes);
  base.begin();
  CHECK(cudaMemcpyAsync(data, host, kBytes, cudaMemcpyHostToDevice, base.stream));
  base.replay(base.end());
}

void allocating(bool has_fault) {
  Base base;
  base.begin();
  float* data = nullptr;
  CHECK(cudaMallocAsync(&data, kBytes, base.stream));
  base.launch_kernel(data);
  if (!has_fault) CHECK(cudaFreeAsync(data, base.stream));
  const cudaGraphExec_t exec = base.end();
  base.replay(exec);
  const cudaError_t error = cudaGraphLaunch(exec, base.stream);
  std::printf("second launch: %s\n", cudaGetErrorName(error));
}

// llama.cpp#28652: two graphs that alternate under one key, so that each is captured at each call.
void recaptured(bool has_fault) {
  Base base;
  float* const data = allocate();
  cudaGraphExec_t cached[2] = {};
  int key_of_cached[2] = {-1, -1};
  for (int call = 0; call < 40; ++call) {
    const int graph = call % 2;
    const int key = has_fault ? 0 : graph;
    if (key_of_cached[key] != graph) {
      if (cached[key] != nullptr) CHECK(cudaGraphExecDestroy(cached[key]));
      cached[key] = base.capture(data, graph == 0 ? 32 : 64);
      key_of_cached[key] = graph;
    }
    base.replay(cached[key]);
  }
}

void leaked(bool has_fault) {
  Base base;
  for (int i = 0; i < 64; ++i) {
    // Parameters differ, so that nothing is captured again.
    const cudaGraphExec_t exec = base.capture(allocate(), 32 + i);
    base.replay(exec);
    if (!has_fault) CHECK(cudaGraphExecDestroy(exec));
  }
}

void unlaunched(bool has_fault) {
  Base base;
  float* const data = allocate();
  for (int i = 0; i < 4; ++i) {
    const cudaGraphExec_t exec = base.capture(data, 32 + i);
    if (!has_fault || i < 2) base.replay(exec);
  }
}

// pytorch#193402: the workspace of a stream grows while another graph is captured.
void workspace(bool has_fault) {
  Base base;
  float* small = allocate();
  const cudaGraphExec_t first = base.capture(small);
  base.replay(first);
  float* large = nullptr;
  CHECK(cudaMalloc(&large, 16 * kBytes));
  if (has_fault) CHECK(cudaFree(small));
  const cudaGraphExec_t second = base.capture(large);
  base.replay(second);
  base.replay(first);
}

// An executable that is updated to other memory no longer needs the first.
void updated(bool has_fault) {
  Base base;
  float* const before = allocate();
  float* const after = allocate();
  const cudaGraphExec_t exec = base.capture(before);
  base.replay(exec);
  base.begin();
  base.launch_kernel(after);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(base.stream, &graph));
  cudaGraphExecUpdateResultInfo info = {};
  CHECK(cudaGraphExecUpdate(exec, graph, &info));
  base.replay(exec);
  CHECK(cudaFree(has_fault ? after : before));
  base.replay(exec);
}

// A graph with an allocation node, whose memory a second graph uses and the program frees: each
// launch of the first allocates it again, at the same address. The fault is a free of other memory.
void node_memory(bool has_fault) {
  Base base;
  float* const plain = allocate();
  float* made = nullptr;
  base.begin();
  CHECK(cudaMallocAsync(&made, kBytes, base.stream));
  base.launch_kernel(made);
  const cudaGraphExec_t first = base.end();
  base.replay(first);
  base.begin();
  base.launch_kernel(made);
  base.launch_kernel(plain);
  CHECK(cudaMemcpyAsync(plain, made, 64, cudaMemcpyDeviceToDevice, base.stream));
  const cudaGraphExec_t second = base.end();
  base.replay(second);
  if (has_fault) CHECK(cudaFree(plain));
  for (int i = 0; i < 3; ++i) {
    CHECK(cudaFreeAsync(made, base.stream));
    base.replay(first);
    if (!has_fault || i == 2) base.replay(second);
  }
}

// Memory of a pool from before the first graph, whose neighbour before it is freed.
void freed_neighbour(bool has_fault) {
  Base base;
  float* neighbour = nullptr;
  float* data = nullptr;
  CHECK(cudaMallocAsync(&neighbour, kBytes, base.stream));
  CHECK(cudaMallocAsync(&data, kBytes, base.stream));
  CHECK(cudaStreamSynchronize(base.stream));
  const cudaGraphExec_t exec = base.capture(has_fault ? neighbour : data);
  base.replay(exec);
  CHECK(cudaFreeAsync(neighbour, base.stream));
  base.replay(exec);
}

// A node inside of a child graph that the program gives another buffer.
void child(bool has_fault) {
  Base base;
  float* const before = allocate();
  float* const after = allocate();
  const auto capture = [&](float* data) {
    base.begin();
    base.launch_kernel(data);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(base.stream, &graph));
    return graph;
  };
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddChildGraphNode(&node, graph, nullptr, 0, capture(before)));
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  base.replay(exec);
  if (!has_fault) CHECK(cudaGraphExecChildGraphNodeSetParams(exec, node, capture(after)));
  CHECK(cudaFree(before));
  base.replay(exec);
}

#if CUDART_VERSION >= 13000
// A graph with a body, both captured by a program that asks for no graph at the end.
void conditional(bool has_fault) {
  Base base;
  float* const data = allocate();
  const auto capture_into = [&](cudaGraph_t graph, float* to) {
    CHECK(cudaStreamBeginCaptureToGraph(base.stream, graph, nullptr, nullptr, 0,
                                        cudaStreamCaptureModeThreadLocal));
    base.launch_kernel(to);
    CHECK(cudaStreamEndCapture(base.stream, nullptr));
  };
  cudaGraph_t graph = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.type = cudaGraphCondTypeIf;
  params.conditional.size = 1;
  CHECK(cudaGraphConditionalHandleCreate(&params.conditional.handle, graph, 1,
                                         cudaGraphCondAssignDefault));
  capture_into(graph, data);
  cudaGraphNode_t node = nullptr;
  CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  capture_into(params.conditional.phGraph_out[0], allocate());
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  base.replay(exec);
  if (!has_fault) base.replay(exec);
  CHECK(cudaFree(data));
  if (has_fault) base.replay(exec);
}
#endif

// A patch behind an update, by the node of the graph that was instantiated.
void patched(bool has_fault) {
  Base base;
  float* buffers[] = {allocate(), allocate(), allocate()};
  const auto add_kernel = [&](cudaGraph_t graph, float** data) {
    void* parameters[] = {data, &base.flag};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void*>(touch);
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = parameters;
    cudaGraphNode_t node = nullptr;
    CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    return node;
  };
  cudaGraph_t graphs[2] = {};
  for (cudaGraph_t& graph : graphs)
    CHECK(cudaGraphCreate(&graph, 0));
  const cudaGraphNode_t node = add_kernel(graphs[0], &buffers[0]);
  add_kernel(graphs[1], &buffers[1]);
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graphs[0], 0));
  cudaGraphExecUpdateResultInfo info = {};
  CHECK(cudaGraphExecUpdate(exec, graphs[1], &info));
  base.replay(exec);
  if (!has_fault) {
    void* parameters[] = {&buffers[2], &base.flag};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void*>(touch);
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = parameters;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
  }
  CHECK(cudaFree(buffers[1]));
  base.replay(exec);
}

// A launch that asks for too much, on a stream that does not capture. The fault is one on a stream
// that another thread has joined to the capture.
void failing(bool has_fault) {
  Base base;
  float* const data = allocate();
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  base.begin(cudaStreamCaptureModeRelaxed);
  base.launch_kernel(data);
  if (has_fault) {
    CHECK(cudaEventRecord(event, base.stream));
    CHECK(cudaStreamWaitEvent(other, event));
  }
  const auto fail = [&] {
    if (!has_fault) {
      touch<<<1, 4096, 0, other>>>(data, base.flag);
      std::printf("a launch of 4096 threads: %s\n", cudaGetErrorName(cudaGetLastError()));
      return;
    }
    const void* const sources[] = {data};
    void* const destinations[] = {data + 128};
    const std::size_t sizes[] = {64};
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
    const cudaError_t error =
        cudaMemcpyBatchAsync(destinations, sources, sizes, 1, &attributes, &first, 1, other);
    std::printf("cudaMemcpyBatchAsync: %s\n", cudaGetErrorName(error));
    static_cast<void>(cudaGetLastError());
  };
  std::thread(fail).join();
  if (!has_fault) fail();
  if (has_fault) {
    CHECK(cudaEventRecord(event, other));
    CHECK(cudaStreamWaitEvent(base.stream, event));
  }
  base.replay(base.end());
}

// A mapping that comes back in two halves. The fault is that they go again.
void remapped(bool has_fault) {
  Base base;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  constexpr std::size_t kPage = std::size_t{2} << 20;
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle whole = 0;
  CUmemGenericAllocationHandle halves[2] = {};
  DRIVER(cuMemAddressReserve, &address, 2 * kPage, 0, 0, 0);
  DRIVER(cuMemCreate, &whole, 2 * kPage, &properties, 0);
  DRIVER(cuMemMap, address, 2 * kPage, 0, whole, 0);
  DRIVER(cuMemSetAccess, address, 2 * kPage, &access, 1);
  const cudaGraphExec_t exec = base.capture(reinterpret_cast<float*>(address + kPage));
  base.replay(exec);
  DRIVER(cuMemUnmap, address, 2 * kPage);
  for (int i = 0; i < 2; ++i) {
    DRIVER(cuMemCreate, &halves[i], kPage, &properties, 0);
    DRIVER(cuMemMap, address + i * kPage, kPage, 0, halves[i], 0);
    DRIVER(cuMemSetAccess, address + i * kPage, kPage, &access, 1);
  }
  base.replay(exec);
  if (has_fault) DRIVER(cuMemUnmap, address, 2 * kPage);
  base.replay(exec);
}

// Host memory of the program that was registered, from the middle of a page.
void registered(bool has_fault) {
  Base base;
  float* const data = allocate();
  char* const pages = static_cast<char*>(std::aligned_alloc(4096, 16 * kBytes));
  char* const host = pages + 256;
  std::memset(pages, 0, 16 * kBytes);
  CHECK(cudaHostRegister(host, 8 * kBytes, cudaHostRegisterDefault));
  base.begin();
  CHECK(cudaMemcpyAsync(data, host + 64, 64, cudaMemcpyHostToDevice, base.stream));
  const cudaGraphExec_t exec = base.end();
  base.replay(exec);
  if (!has_fault) CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaHostUnregister(host));
  if (has_fault) base.try_to_replay(exec);
}

// Managed and pitched memory, whose functions the check does not watch.
void managed(bool has_fault) {
  Base base;
  float* data[2] = {};
  std::size_t pitch = 0;
  CHECK(cudaMallocManaged(&data[0], kBytes));
  CHECK(cudaMallocPitch(&data[1], &pitch, 100, 64));
  for (float* const each : data) {
    const cudaGraphExec_t exec = base.capture(each);
    base.replay(exec);
    if (!has_fault) CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFree(each));
    if (has_fault) base.replay(exec);
  }
}

// All threads begin their first captures at once, each on its own stream of the thread.
void threads(bool has_fault) {
  Base base;
  float* const data = allocate();
  std::atomic<int> waiting{16};
  std::vector<std::thread> all;
  for (int i = 0; i < 16; ++i) {
    all.emplace_back([&, i] {
      --waiting;
      while (waiting > 0)
        std::this_thread::yield();
      CHECK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
      touch<<<1, 32 + i, 0, cudaStreamPerThread>>>(data, base.flag);
      CHECK(cudaGetLastError());
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(cudaStreamPerThread, &graph));
      cudaGraphExec_t exec = nullptr;
      CHECK(cudaGraphInstantiate(&exec, graph, 0));
      CHECK(cudaGraphLaunch(exec, cudaStreamPerThread));
      CHECK(cudaStreamSynchronize(cudaStreamPerThread));
      if (!has_fault || i > 0) CHECK(cudaGraphExecDestroy(exec));
      if (has_fault && i == 0) base.made = exec;
    });
  }
  for (std::thread& thread : all)
    thread.join();
  CHECK(cudaFree(data));
  if (has_fault) base.replay(base.made);
}

// The device is reset: graphs and memory are other ones, at the same addresses perhaps.
void reset(bool has_fault) {
  for (int i = 0; i < 4; ++i) {
    Base base;
    float* data = nullptr;
    float* other = nullptr;
    CHECK(i % 2 == 0 ? cudaMalloc(&data, 16 * kBytes) : cudaMallocManaged(&data, 16 * kBytes));
    const cudaGraphExec_t exec = base.capture(data, 32 + i);
    CHECK(cudaMalloc(&other, kBytes));
    base.replay(exec);
    CHECK(cudaFree(other));
    if (has_fault && i == 3) CHECK(cudaFree(data));
    base.replay(exec);
    CHECK(cudaDeviceReset());
  }
}

struct Case {
  const char* name;
  void (*run)(bool has_fault);
};
constexpr Case kCases[] = {
    {"freed", freed},
    {"freed_later", freed_later},
    {"freed_in_order", freed_in_order},
    {"freed_pinned", freed_pinned},
    {"reused", reused},
    {"unmapped", unmapped},
    {"refused", refused},
    {"legacy", legacy},
    {"pageable", pageable},
    {"allocating", allocating},
    {"recaptured", recaptured},
    {"leaked", leaked},
    {"unlaunched", unlaunched},
    {"workspace", workspace},
    {"updated", updated},
    {"node_memory", node_memory},
    {"freed_neighbour", freed_neighbour},
    {"child", child},
#if CUDART_VERSION >= 13000
    {"conditional", conditional},
#endif
    {"patched", patched},
    {"failing", failing},
    {"remapped", remapped},
    {"registered", registered},
    {"managed", managed},
    {"threads", threads},
    {"reset", reset},
};

// Returns the median time of a call in nanoseconds, over rounds of some calls.
template <typename Call>
double time_of(int rounds, int calls, const Call& call) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i)
      call();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    times.push_back(time.count() / calls);
    CHECK(cudaDeviceSynchronize());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// Prints the time of calls: those of a program without graphs first.
void bench() {
  Base base;
  float* const data = allocate();
  std::printf("{\"kernel_ns\": %.1f", time_of(200, 100, [&] { base.launch_kernel(data); }));
  std::printf(", \"malloc_and_free_ns\": %.1f",
              time_of(50, 20, [] { CHECK(cudaFree(allocate())); }));
  std::printf(", \"malloc_and_free_in_order_ns\": %.1f", time_of(50, 100, [&] {
                float* made = nullptr;
                CHECK(cudaMallocAsync(&made, kBytes, base.stream));
                CHECK(cudaFreeAsync(made, base.stream));
              }));
  const cudaGraphExec_t one = base.capture(data);
  std::printf(", \"launch_ns\": %.1f",
              time_of(400, 100, [&] { CHECK(cudaGraphLaunch(one, base.stream)); }));
  for (const int nodes : {1, 100, 1000}) {
    const auto fill = [&] {
      base.begin();
      for (int i = 0; i < nodes; ++i)
        base.launch_kernel(data);
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(base.stream, &graph));
      return graph;
    };
    std::printf(", \"capture_%d_ns\": %.1f", nodes,
                time_of(20, 1, [&] { CHECK(cudaGraphDestroy(fill())); }));
    const cudaGraph_t graph = fill();
    std::printf(", \"instantiate_%d_ns\": %.1f", nodes, time_of(20, 1, [&] {
                  cudaGraphExec_t exec = nullptr;
                  CHECK(cudaGraphInstantiate(&exec, graph, 0));
                  CHECK(cudaGraphExecDestroy(exec));
                }));
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::printf(", \"launch_%d_ns\": %.1f", nodes,
                time_of(50, 20, [&] { CHECK(cudaGraphLaunch(exec, base.stream)); }));
  }
  std::puts("}");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  const std::string_view kind = argc > 2 ? argv[2] : "";
  if (word == "--list") {
    for (const Case& known : kCases)
      std::puts(known.name);
    return 0;
  }
  if (word == "--bench") return bench(), 0;
  for (const Case& known : kCases) {
    if (word != known.name || (kind != "--fault" && kind != "--clean")) continue;
    known.run(kind == "--fault");
    return 0;
  }
  std::fprintf(stderr, "usage: planted CASE --fault|--clean, or --list, or --bench\n");
  return 2;
}
