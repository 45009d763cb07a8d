// Nodes that only CUDA makes, read and patched by the cuda device: structs by value, launches of
// the driver with a buffer of parameters, of clusters and of cooperative grids, copies with pitch,
// allocations, variables of modules.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "interop/device/device_api.h"
#include "interop/device/node_contents.h"
#include "tests/support/devices.h"

namespace cgtree::testing {

struct Descriptor {
  char tag;
  float* data;
  std::int32_t sizes[3];
  const float* table;
};

__device__ float g_table[16];

template <typename T>
__global__ void apply(char first, Descriptor descriptor, T* out, std::int16_t last) {
  out[threadIdx.x] = descriptor.data[threadIdx.x] + first + last;
}
__global__ void no_parameters() {
}
extern "C" __global__ void plain(const __grid_constant__ Descriptor descriptor, float* out) {
  *out = descriptor.sizes[0];
}

// Writes the number of blocks in the first block's cluster; 0 on devices without clusters.
__global__ void count_cluster(int* blocks) {
#if __CUDA_ARCH__ >= 900
  *blocks = static_cast<int>(cooperative_groups::this_cluster().num_blocks());
#else
  *blocks = 0;
#endif
}
__global__ void tell_if_cooperative(int* is_cooperative) {
  *is_cooperative = cooperative_groups::this_grid().is_valid() ? 1 : 0;
}

namespace {

std::uintptr_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

template <typename T>
T at(const NodeContents& contents, std::size_t offset) {
  T value{};
  EXPECT_LE(offset + sizeof(T), contents.bytes.size());
  std::memcpy(&value, contents.bytes.data() + offset, sizeof(T));
  return value;
}

class CudaNodesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceUnderTest device = devices_under_test().back();
    CGTREE_SKIP_IF_MISSING(device);
    api_ = device.api;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&x_, 1 << 20), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&y_, 1 << 20), cudaSuccess);
  }
  void TearDown() override {
    if (stream_ == nullptr) return;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    (void)cudaFree(x_);
    (void)cudaFree(y_);
    (void)cudaStreamDestroy(stream_);
  }
  // Captures the launches of `work`, and reads all nodes, in their order.
  template <typename Work>
  std::vector<NodeContents> read(Work work) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    work();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    GraphAPI& graphs = *api_->graphs();
    std::vector<NodeContents> all;
    EXPECT_EQ(graphs.read_nodes(static_cast<GraphHandle>(number(graph)), &all), Code::kSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return all;
  }

  // Captures the launch of a kernel that writes an int to x_, patches it to write to y_, and
  // returns the int written there.
  template <typename Launch>
  int written_after_a_patch(Launch launch) {
    EXPECT_EQ(cudaMemset(x_, 0xff, sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaMemset(y_, 0xff, sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(launch(), cudaSuccess);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    GraphAPI& graphs = *api_->graphs();
    const auto handle = static_cast<GraphHandle>(number(graph));
    std::vector<NodeHandle> nodes;
    EXPECT_EQ(graphs.graph_nodes(handle, &nodes), Code::kSuccess);
    ExecHandle exec = ExecHandle::kNull;
    EXPECT_EQ(graphs.instantiate(handle, &exec), Code::kSuccess);
    NodePatch patch;
    EXPECT_EQ(graphs.prepare_patch(nodes.at(0), &patch), Code::kSuccess);
    EXPECT_EQ(std::memcmp(patch.bytes.data(), &x_, sizeof(x_)), 0);
    std::memcpy(patch.bytes.data(), &y_, sizeof(y_));
    EXPECT_EQ(graphs.set_node(exec, patch), Code::kSuccess);
    EXPECT_EQ(graphs.launch(exec, static_cast<StreamHandle>(number(stream_))), Code::kSuccess);
    int not_written = 0;
    int written = 0;
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&not_written, x_, sizeof(int), cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&written, y_, sizeof(int), cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(not_written, -1);
    EXPECT_EQ(graphs.destroy_exec(exec), Code::kSuccess);
    EXPECT_EQ(graphs.destroy_graph(handle), Code::kSuccess);
    return written;
  }

  DeviceAPI* api_ = nullptr;
  cudaStream_t stream_ = nullptr;
  float* x_ = nullptr;
  float* y_ = nullptr;
};

TEST_F(CudaNodesTest, ReadsEachParameterWhereTheKernelHasIt) {
  const Descriptor descriptor = {'d', x_ + 3, {7, 8, 9}, y_ + 5};
  const auto nodes = read([&] { apply<float><<<1, 32, 0, stream_>>>('f', descriptor, y_, 11); });

  ASSERT_EQ(nodes.size(), 1u);
  const NodeContents& kernel = nodes[0];
  EXPECT_TRUE(kernel.is_decoded) << kernel.why;
  EXPECT_NE(demangled(kernel.name()).find("cgtree::testing::apply<float>"), std::string::npos)
      << kernel.name();
  ASSERT_EQ(kernel.parameters().size(), 4u);
  EXPECT_EQ(kernel.parameters()[1].offset, 8u);
  EXPECT_EQ(kernel.parameters()[1].bytes, sizeof(Descriptor));
  EXPECT_EQ(at<char>(kernel, 0), 'f');
  EXPECT_EQ(at<float*>(kernel, 8 + offsetof(Descriptor, data)), x_ + 3);
  EXPECT_EQ(at<const float*>(kernel, 8 + offsetof(Descriptor, table)), y_ + 5);
  EXPECT_EQ(at<float*>(kernel, kernel.parameters()[2].offset), y_);
  EXPECT_EQ(at<std::int16_t>(kernel, kernel.parameters()[3].offset), 11);
}

TEST_F(CudaNodesTest, AKernelWithoutParametersIsDecoded) {
  const auto nodes = read([&] { no_parameters<<<1, 1, 0, stream_>>>(); });

  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_TRUE(nodes[0].is_decoded) << nodes[0].why;
  EXPECT_TRUE(nodes[0].parameters().empty());
  EXPECT_NE(nodes[0].name().find("no_parameters"), std::string::npos);
}

// As driver code that has kernel parameters as bytes, with a function and with a kernel.
TEST_F(CudaNodesTest, ReadsWhatTheDriverIsGivenInABuffer) {
  cudaFunction_t function = nullptr;
  ASSERT_EQ(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(plain)), cudaSuccess);
  cudaKernel_t kernel = nullptr;
  ASSERT_EQ(cudaGetKernel(&kernel, reinterpret_cast<const void*>(plain)), cudaSuccess);
  void* const address = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuLaunchKernel");
  ASSERT_NE(address, nullptr);
  const auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(address);
  struct {
    Descriptor descriptor;
    float* out;
  } buffer = {{'d', x_, {1, 2, 3}, x_ + 1}, y_ + 9};
  std::size_t bytes = sizeof(buffer);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  void* parameters[] = {&buffer.descriptor, &buffer.out};
  // The driver does not know the kernel handles of runtimes before 12.8.
  const bool is_known = CUDART_VERSION >= 12080;
  for (const CUfunction what :
       {function, is_known ? reinterpret_cast<CUfunction>(kernel) : function}) {
    for (const bool as_buffer : {true, false}) {
      SCOPED_TRACE(what == function ? "function" : "kernel");
      const auto nodes = read([&] {
        EXPECT_EQ(launch(what, 1, 1, 1, 1, 1, 1, 0, stream_, as_buffer ? nullptr : parameters,
                         as_buffer ? extra : nullptr),
                  CUDA_SUCCESS);
      });
      ASSERT_EQ(nodes.size(), 1u);
      EXPECT_TRUE(nodes[0].is_decoded) << nodes[0].why;
      EXPECT_EQ(nodes[0].name(), "plain");
      ASSERT_EQ(nodes[0].parameters().size(), 2u);
      EXPECT_EQ(at<float*>(nodes[0], offsetof(Descriptor, data)), x_);
      EXPECT_EQ(at<const float*>(nodes[0], offsetof(Descriptor, table)), x_ + 1);
      EXPECT_EQ(at<float*>(nodes[0], nodes[0].parameters()[1].offset), y_ + 9);
    }
  }
}

void expect_memory(const NodeMemory& memory, const void* address, std::size_t bytes,
                   bool is_written) {
  EXPECT_EQ(memory.address, number(address));
  EXPECT_EQ(memory.bytes, bytes);
  EXPECT_EQ(memory.is_written, is_written);
}

TEST_F(CudaNodesTest, CopiesWithPitchSpanFromTheirFirstToTheirLastByte) {
  const auto nodes = read([&] {
    EXPECT_EQ(cudaMemcpy2DAsync(y_ + 2, 256, x_, 512, 40, 5, cudaMemcpyDeviceToDevice, stream_),
              cudaSuccess);
  });
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_TRUE(nodes[0].is_decoded) << nodes[0].why;
  ASSERT_EQ(nodes[0].memory.size(), 2u);
  expect_memory(nodes[0].memory[0], x_, 4 * 512 + 40, false);
  expect_memory(nodes[0].memory[1], y_ + 2, 4 * 256 + 40, true);
}

TEST_F(CudaNodesTest, CopiesOfThreeDimensionsSpanTheirLayers) {
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(x_, 128, 128, 8);
  copy.dstPtr = make_cudaPitchedPtr(y_, 64, 64, 4);
  copy.srcPos = make_cudaPos(16, 2, 1);
  copy.extent = make_cudaExtent(32, 4, 3);
  copy.kind = cudaMemcpyDeviceToDevice;
  const auto nodes = read([&] { EXPECT_EQ(cudaMemcpy3DAsync(&copy, stream_), cudaSuccess); });
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_TRUE(nodes[0].is_decoded) << nodes[0].why;
  ASSERT_EQ(nodes[0].memory.size(), 2u);
  const std::size_t layer = 128 * 8;
  expect_memory(nodes[0].memory[0], reinterpret_cast<char*>(x_) + 16 + 2 * 128 + layer,
                2 * layer + 3 * 128 + 32, false);
  expect_memory(nodes[0].memory[1], y_, 2 * 64 * 4 + 3 * 64 + 32, true);
}

TEST_F(CudaNodesTest, CopiesFromAndToTheHostNameTheHostsMemory) {
  std::vector<float> host(64);
  const auto nodes = read([&] {
    EXPECT_EQ(cudaMemcpyAsync(x_, host.data(), 256, cudaMemcpyHostToDevice, stream_), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(host.data(), x_, 128, cudaMemcpyDefault, stream_), cudaSuccess);
  });
  ASSERT_EQ(nodes.size(), 2u);
  ASSERT_EQ(nodes[0].memory.size(), 2u);
  expect_memory(nodes[0].memory[0], host.data(), 256, false);
  expect_memory(nodes[0].memory[1], x_, 256, true);
  ASSERT_EQ(nodes[1].memory.size(), 2u);
  expect_memory(nodes[1].memory[1], host.data(), 128, true);
}

TEST_F(CudaNodesTest, ReadsMemsetsOfElementsAndRows) {
  const auto nodes = read([&] {
    EXPECT_EQ(cudaMemsetAsync(x_, 1, 100, stream_), cudaSuccess);
    EXPECT_EQ(cudaMemset2DAsync(y_, 512, 1, 48, 3, stream_), cudaSuccess);
  });
  ASSERT_EQ(nodes.size(), 2u);
  expect_memory(nodes[0].memory.at(0), x_, 100, true);
  expect_memory(nodes[1].memory.at(0), y_, 2 * 512 + 48, true);
}

TEST_F(CudaNodesTest, AnAllocationSaysWhatItGives) {
  void* made = nullptr;
  const auto nodes = read([&] {
    EXPECT_EQ(cudaMallocAsync(&made, 4096, stream_), cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(made, stream_), cudaSuccess);
  });
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].type, NodeType::kAllocation);
  ASSERT_EQ(nodes[0].memory.size(), 1u);
  EXPECT_EQ(nodes[0].memory[0].address, number(made));
  EXPECT_GE(nodes[0].memory[0].bytes, 4096u);
  EXPECT_EQ(nodes[1].type, NodeType::kFree);
  EXPECT_TRUE(nodes[1].is_decoded);
  ASSERT_EQ(nodes[1].memory.size(), 1u);
  EXPECT_EQ(nodes[1].memory[0].address, number(made));
}

TEST_F(CudaNodesTest, APatchedKernelKeepsItsCluster) {
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {4, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.blockDim = dim3(32);
  config.stream = stream_;
  config.attrs = &cluster;
  config.numAttrs = major >= 9 ? 1 : 0;

  EXPECT_EQ(written_after_a_patch([&] {
              return cudaLaunchKernelEx(&config, count_cluster, reinterpret_cast<int*>(x_));
            }),
            major >= 9 ? 4 : 0);
}

TEST_F(CudaNodesTest, APatchedKernelStaysCooperative) {
  EXPECT_EQ(written_after_a_patch([&] {
              void* parameters[] = {&x_};
              return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(tell_if_cooperative),
                                                 dim3(8), dim3(32), parameters, 0, stream_);
            }),
            1);
}

TEST_F(CudaNodesTest, TellsTheAllocationOfAnAddress) {
  DeviceAllocation found;
  ASSERT_EQ(api_->allocation_of(x_ + 100, &found), Code::kSuccess);
  EXPECT_EQ(found.attributes.kind, PointerKind::kDevice);
  EXPECT_EQ(found.address, number(x_));
  EXPECT_GE(found.bytes, std::size_t{1} << 20);
  EXPECT_LE(found.address + found.bytes, number(x_) + (std::size_t{2} << 20));

  std::vector<float> host(4096);
  ASSERT_EQ(api_->allocation_of(host.data(), &found), Code::kSuccess);
  EXPECT_EQ(found.attributes.kind, PointerKind::kUnknown);
  EXPECT_EQ(found.bytes, 0u);

  ASSERT_EQ(cudaHostRegister(host.data(), host.size() * sizeof(float), cudaHostRegisterDefault),
            cudaSuccess);
  ASSERT_EQ(api_->allocation_of(host.data() + 7, &found), Code::kSuccess);
  EXPECT_EQ(found.attributes.kind, PointerKind::kPinned);
  EXPECT_LE(found.address, number(host.data()));
  EXPECT_GE(found.address + found.bytes, number(host.data() + host.size()));
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaSuccess);

  for (const std::uintptr_t none :
       {std::uintptr_t{0x10000}, std::uintptr_t{0x0000'0400'0000'0400}}) {
    ASSERT_EQ(api_->allocation_of(reinterpret_cast<const void*>(none), &found), Code::kSuccess);
    EXPECT_EQ(found.attributes.kind, PointerKind::kUnknown) << none;
  }
}

TEST_F(CudaNodesTest, TellsVariablesOfModulesFromOtherMemory) {
  void* table = nullptr;
  ASSERT_EQ(cudaGetSymbolAddress(&table, g_table), cudaSuccess);
  DeviceAllocation found;
  ASSERT_EQ(api_->allocation_of(table, &found), Code::kSuccess);
  EXPECT_EQ(found.attributes.kind, PointerKind::kDevice);
  EXPECT_GE(found.bytes, sizeof(g_table));
  EXPECT_TRUE(found.is_static);

  void* managed = nullptr;
  void* pooled = nullptr;
  ASSERT_EQ(cudaMallocManaged(&managed, 4096), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&pooled, 4096, stream_), cudaSuccess);
  for (const void* const other : {static_cast<void*>(x_), managed, pooled}) {
    ASSERT_EQ(api_->allocation_of(other, &found), Code::kSuccess);
    EXPECT_FALSE(found.is_static);
    EXPECT_NE(found.attributes.kind, PointerKind::kUnknown);
  }
  EXPECT_EQ(cudaFreeAsync(pooled, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
}

}  // namespace
}  // namespace cgtree::testing
