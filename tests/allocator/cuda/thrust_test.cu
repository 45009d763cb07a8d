// Thrust's scratch memory comes from a pool, on the pool's stream.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <thrust/execution_policy.h>
#include <thrust/sort.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "allocator/segments/device_sources.h"
#include "caching/cuda/memory_resource.h"
#include "tests/support/devices.h"

namespace cgtree {
namespace {

// The allocator interface of thrust::cuda::par().
class ThrustAllocator {
 public:
  using value_type = char;

  explicit ThrustAllocator(cuda::mr::resource_ref<cuda::mr::device_accessible> resource)
      : resource_(resource) {}
  char* allocate(std::ptrdiff_t bytes) {
    return static_cast<char*>(resource_.allocate(static_cast<std::size_t>(bytes), 256));
  }
  void deallocate(char* memory, std::size_t bytes) { resource_.deallocate(memory, bytes, 256); }

 private:
  cuda::mr::resource_ref<cuda::mr::device_accessible> resource_;
};

class ThrustTest : public ::testing::Test {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(testing::devices_under_test().back()); }
};

std::vector<std::uint32_t> random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> numbers(count);
  for (std::uint32_t& number : numbers)
    number = static_cast<std::uint32_t>(random());
  return numbers;
}

TEST_F(ThrustTest, SortsWithScratchMemoryOfAPool) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  std::vector<std::uint32_t> numbers = random_numbers(1 << 20, seed);
  const std::size_t bytes = numbers.size() * sizeof(numbers[0]);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    DeviceSegmentSource source(Device::cuda());
    Pool pool(source, {.name = "thrust"});
    MemoryResource resource(pool, stream);
    void* const device = resource.allocate_async(bytes, stream);
    auto* const first = static_cast<std::uint32_t*>(device);
    ASSERT_EQ(cudaMemcpyAsync(device, numbers.data(), bytes, cudaMemcpyDefault, stream),
              cudaSuccess);
    ThrustAllocator allocator(resource);

    thrust::sort(thrust::cuda::par(allocator).on(stream), first, first + numbers.size());

    std::vector<std::uint32_t> sorted(numbers.size());
    ASSERT_EQ(cudaMemcpyAsync(sorted.data(), device, bytes, cudaMemcpyDefault, stream),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    std::sort(numbers.begin(), numbers.end());
    EXPECT_EQ(sorted, numbers);
    EXPECT_GT(pool.statistics().allocation.allocated, 1u);  // Thrust has allocated, too
    resource.deallocate_async(device, bytes, stream);
    EXPECT_EQ(pool.statistics().allocation.current, 0u);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace cgtree
