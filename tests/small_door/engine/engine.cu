// An engine in C++14 that decodes with cgtree_steps.h: prints the outcomes of its calls, or the
// reasons of failures.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cgtree_steps.h>

namespace {

constexpr int kCount = 1024;

__global__ void axpy(float a, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) y[i] += a * x[i];
}

void expect(bool is_right, const char* what) {
  if (is_right) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

float* device_memory(float value) {
  float* data = nullptr;
  expect(cudaMalloc(&data, kCount * sizeof(float)) == cudaSuccess, "no memory of a GPU");
  const std::vector<float> values(kCount, value);
  expect(cudaMemcpy(data, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice) ==
             cudaSuccess,
         "no copy");
  return data;
}

}  // namespace

int main() {
  const cgs_binding bindings[] = {{"x", CGS_COPIED, 0}, {"y", CGS_WRITTEN, 0}};
  cgs_steps* steps = nullptr;
  expect(cgs_open(&steps, "decode", 0, bindings, 2, nullptr) == CGS_DONE, cgs_why(nullptr));
  cudaStream_t stream = nullptr;
  expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "no stream");
  float* const y = device_memory(0);
  float* const xs[] = {device_memory(1), device_memory(2)};
  int runs = 0;
  for (int i = 0; i < 10; ++i) {
    const cgs_range memory[] = {{xs[i % 2], kCount * sizeof(float)}, {y, kCount * sizeof(float)}};
    const int size = kCount;
    int run = cgs_begin(steps, &size, sizeof size, memory, 2, stream);
    for (; run == CGS_RUN; run = cgs_end(steps), ++runs)
      axpy<<<(kCount + 255) / 256, 256, 0, stream>>>(
          3, static_cast<const float*>(cgs_address(steps, 0)), y);
    expect(run == CGS_DONE, cgs_why(steps));
  }
  std::vector<float> values(kCount);
  expect(cudaStreamSynchronize(stream) == cudaSuccess, "the stream has failed");
  expect(
      cudaMemcpy(values.data(), y, kCount * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess,
      "no copy");
  for (float value : values)
    expect(value == 45, "a wrong sum");
  cgs_stats stats = {};
  stats.struct_size = sizeof stats;
  expect(cgs_get_stats(steps, &stats) == CGS_DONE, "no statistics");
  std::printf("%d runs, %d replays: %s\n", runs, static_cast<int>(stats.replays), cgs_why(steps));
  cgs_close(steps);
  return 0;
}
