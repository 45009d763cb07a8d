// Virtual memory: the same results on every device.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "interop/device/device_api.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class VirtualMemoryTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    check(api().mapping_granularity(0, &granule_), "ask for the granularity");
    check(api().reserve_addresses(0, 4 * granule_, &address_), "reserve");
  }
  void TearDown() override {
    if (address_ != nullptr) {
      EXPECT_EQ(api().free_addresses(address_, 4 * granule_), Code::kSuccess);
    }
  }

  DeviceAPI& api() { return *GetParam().api; }
  char* at(std::size_t granules) { return static_cast<char*>(address_) + granules * granule_; }
  PhysicalMemory create(std::size_t granules) {
    PhysicalMemory created = PhysicalMemory::kNull;
    check(api().create_memory(0, granules * granule_, &created), "create");
    return created;
  }

  std::size_t granule_ = 0;
  void* address_ = nullptr;
};

TEST_P(VirtualMemoryTest, MappedMemoryHoldsWhatIsWrittenAcrossMappings) {
  const PhysicalMemory first = create(1);
  const PhysicalMemory second = create(2);
  ASSERT_EQ(api().map_memory(0, at(0), granule_, first), Code::kSuccess);
  ASSERT_EQ(api().map_memory(0, at(1), 2 * granule_, second), Code::kSuccess);
  DeviceBench bench(GetParam());
  const std::size_t count = 3 * granule_ / sizeof(std::uint32_t);
  std::vector<std::uint32_t> written(count), read(count, 7);
  std::iota(written.begin(), written.end(), static_cast<std::uint32_t>(std::rand()));

  StreamHandle stream = StreamHandle::kLegacy;
  ASSERT_EQ(bench.api.copy(stream, address_, written.data(), 3 * granule_), Code::kSuccess);
  ASSERT_EQ(bench.api.copy(stream, read.data(), address_, 3 * granule_), Code::kSuccess);
  ASSERT_EQ(bench.api.synchronize_stream(stream), Code::kSuccess);

  EXPECT_EQ(read, written);
  EXPECT_EQ(api().unmap_memory(address_, 3 * granule_), Code::kSuccess);
  EXPECT_EQ(api().release_memory(first), Code::kSuccess);
  EXPECT_EQ(api().release_memory(second), Code::kSuccess);
}

TEST_P(VirtualMemoryTest, ContentsStayWhenMappedElsewhere) {
  const PhysicalMemory physical = create(1);
  DeviceBench bench(GetParam());
  const StreamHandle stream = StreamHandle::kLegacy;
  const std::uint32_t written = 0xc0ffee42;
  std::uint32_t read = 0;
  ASSERT_EQ(api().map_memory(0, at(0), granule_, physical), Code::kSuccess);
  ASSERT_EQ(bench.api.copy(stream, at(0), &written, sizeof written), Code::kSuccess);
  ASSERT_EQ(bench.api.synchronize_stream(stream), Code::kSuccess);
  ASSERT_EQ(api().unmap_memory(at(0), granule_), Code::kSuccess);

  ASSERT_EQ(api().map_memory(0, at(2), granule_, physical), Code::kSuccess);
  ASSERT_EQ(bench.api.copy(stream, &read, at(2), sizeof read), Code::kSuccess);
  ASSERT_EQ(bench.api.synchronize_stream(stream), Code::kSuccess);

  EXPECT_EQ(read, written);
  EXPECT_EQ(api().unmap_memory(at(2), granule_), Code::kSuccess);
  EXPECT_EQ(api().release_memory(physical), Code::kSuccess);
}

TEST_P(VirtualMemoryTest, AReleasedMappingLivesUntilItIsUnmapped) {
  const PhysicalMemory physical = create(1);
  ASSERT_EQ(api().map_memory(0, at(0), granule_, physical), Code::kSuccess);
  ASSERT_EQ(api().release_memory(physical), Code::kSuccess);
  DeviceBench bench(GetParam());

  EXPECT_EQ(bench.graphs.memset(StreamHandle::kLegacy, at(0), 0x5a, granule_), Code::kSuccess);
  EXPECT_EQ(bench.api.synchronize_stream(StreamHandle::kLegacy), Code::kSuccess);

  EXPECT_EQ(api().unmap_memory(at(0), granule_), Code::kSuccess);
}

TEST_P(VirtualMemoryTest, RefusesToMapTwiceAtOneAddress) {
  const PhysicalMemory physical = create(1);
  const PhysicalMemory other = create(1);
  ASSERT_EQ(api().map_memory(0, at(1), granule_, physical), Code::kSuccess);

  EXPECT_NE(api().map_memory(0, at(1), granule_, other), Code::kSuccess);

  EXPECT_EQ(api().unmap_memory(at(1), granule_), Code::kSuccess);
  EXPECT_EQ(api().release_memory(physical), Code::kSuccess);
  EXPECT_EQ(api().release_memory(other), Code::kSuccess);
}

TEST_P(VirtualMemoryTest, UnmappingWhereNothingIsMappedIsNoError) {
  EXPECT_EQ(api().unmap_memory(at(0), granule_), Code::kSuccess);
}

TEST_P(VirtualMemoryTest, RefusesToUnmapAPartOfAMapping) {
  const PhysicalMemory physical = create(2);
  ASSERT_EQ(api().map_memory(0, at(0), 2 * granule_, physical), Code::kSuccess);

  EXPECT_EQ(api().unmap_memory(at(0), granule_), Code::kInvalidValue);

  EXPECT_EQ(api().unmap_memory(at(0), 2 * granule_), Code::kSuccess);
  EXPECT_EQ(api().release_memory(physical), Code::kSuccess);
}

TEST_P(VirtualMemoryTest, RefusesSizesThatAreNoMultipleOfTheGranularity) {
  PhysicalMemory physical = PhysicalMemory::kNull;

  EXPECT_EQ(api().create_memory(0, granule_ + 512, &physical), Code::kInvalidValue);
  EXPECT_EQ(physical, PhysicalMemory::kNull);
}

TEST_P(VirtualMemoryTest, AnswersOutOfMemoryWithANumber) {
  PhysicalMemory physical = PhysicalMemory::kNull;

  EXPECT_EQ(api().create_memory(0, std::size_t{1} << 50, &physical), Code::kMemoryAllocation);
  EXPECT_EQ(physical, PhysicalMemory::kNull);
}

// A pool relies on this when it grows during a capture.
TEST_P(VirtualMemoryTest, MapsAndUnmapsWhileThisThreadCapturesInAnyMode) {
  DeviceBench bench(GetParam());
  for (const CaptureMode mode :
       {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    SCOPED_TRACE(static_cast<int>(mode));
    const StreamHandle stream = bench.stream(StreamKind::kNonBlocking);
    ASSERT_EQ(bench.graphs.begin_capture(stream, mode), Code::kSuccess);

    const PhysicalMemory physical = create(1);
    EXPECT_EQ(api().map_memory(0, at(0), granule_, physical), Code::kSuccess);
    EXPECT_EQ(api().unmap_memory(at(0), granule_), Code::kSuccess);
    EXPECT_EQ(api().release_memory(physical), Code::kSuccess);

    GraphHandle graph = GraphHandle::kNull;
    ASSERT_EQ(bench.graphs.end_capture(stream, &graph), Code::kSuccess);
    EXPECT_EQ(bench.graphs.destroy_graph(graph), Code::kSuccess);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, VirtualMemoryTest, ::testing::ValuesIn(devices_under_test()),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace cgtree::testing
