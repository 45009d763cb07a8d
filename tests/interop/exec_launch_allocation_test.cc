// Launches and patches of an executable graph do not allocate on the host device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "interop/device/code.h"
#include "simulator/host_device.h"
#include "tests/support/device_bench.h"

namespace {

thread_local std::size_t allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* counted(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  void* const memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, alignment);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace cgtree::testing {
namespace {

class ExecLaunchAllocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin");
    for (int i = 0; i < 100; ++i)
      check(bench.add_one(stream, x), "capture");
    const GraphHandle graph = bench.end(stream);
    exec = bench.instantiate(graph);
    check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");
    allocations = 0;
  }

  DeviceBench bench{{"host", Device::host(), &host_device_api(), ""}};
  StreamHandle stream = bench.stream();
  float* x = bench.floats(1);
  ExecHandle exec = ExecHandle::kNull;
  std::vector<NodeHandle> nodes;
};

TEST_F(ExecLaunchAllocationTest, LaunchingDoesNotAllocate) {
  const Code code = bench.graphs.launch(exec, stream);

  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(code, Code::kSuccess);
}

TEST_F(ExecLaunchAllocationTest, PatchingDoesNotAllocate) {
  const std::int64_t count = 1;
  const Code code = bench.graphs.set_kernel_node(exec, nodes[0], add_one_kernel(), dims_for(1),
                                                 arguments_of(x, count));

  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(code, Code::kSuccess);
}

}  // namespace
}  // namespace cgtree::testing
