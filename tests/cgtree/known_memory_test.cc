// The memory to which an address is attributed, and the questions to the device about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "extensions/audit/audit.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kNone = KnownMemory::kNone;

MemoryOwner owner_of(const KnownMemory& known, std::uintptr_t address) {
  const std::size_t found = known.find(address);
  return found == kNone ? MemoryOwner::kForeign : known[found].owner;
}

TEST(KnownMemoryTest, TheFirstOwnerOfAllThatContainAnAddressHasIt) {
  KnownMemory known;
  known.add_declared({0x10000, 0x9000}, "arena");
  known.add(MemoryOwner::kScratch, 0, {0x12000, 0x1000});
  known.add(MemoryOwner::kInput, 3, {0x12100, 0x100});
  known.sort();

  EXPECT_EQ(owner_of(known, 0x11fff), MemoryOwner::kDeclared);
  EXPECT_EQ(owner_of(known, 0x12000), MemoryOwner::kScratch);
  EXPECT_EQ(owner_of(known, 0x12100), MemoryOwner::kInput);
  EXPECT_EQ(owner_of(known, 0x121ff), MemoryOwner::kInput);
  EXPECT_EQ(owner_of(known, 0x12300), MemoryOwner::kScratch);
  EXPECT_EQ(owner_of(known, 0x18fff), MemoryOwner::kDeclared);
  EXPECT_EQ(owner_of(known, 0x19001), MemoryOwner::kForeign);
  EXPECT_EQ(known[known.find(0x11000)].text, "arena");
}

// Code passes ranges as [begin, end).
TEST(KnownMemoryTest, AnEndBelongsToWhatItEndsUnlessSomethingBeginsThere) {
  KnownMemory known;
  known.add(MemoryOwner::kInput, 0, {0x20000, 0x100});
  known.add(MemoryOwner::kLiveOutput, 0, {0x20100, 0x100});
  known.add(MemoryOwner::kInput, 1, {0x30000, 0x100});
  known.add_declared({0x30100, 0x100}, "table");
  known.sort();

  EXPECT_EQ(owner_of(known, 0x20100), MemoryOwner::kLiveOutput);
  EXPECT_EQ(owner_of(known, 0x20200), MemoryOwner::kLiveOutput);
  EXPECT_EQ(owner_of(known, 0x30100), MemoryOwner::kDeclared);
}

// A weight in the closure may directly follow an input: allocators put tensors side by side.
TEST(KnownMemoryTest, AnAlignedEndAmongUnknownNeighboursMayBeTheBeginningOfSomethingElse) {
  KnownMemory known;
  known.add(MemoryOwner::kInput, 0, {0x20000, 0x100}, KnownMemory::Neighbours::kUnknown);
  known.add(MemoryOwner::kInput, 1, {0x30000, 0xfc}, KnownMemory::Neighbours::kUnknown);
  known.add(MemoryOwner::kInput, 2, {0x40000, 0x100}, KnownMemory::Neighbours::kKnown);
  known.add_declared({0x50000, 0x100}, "table");
  known.sort();

  EXPECT_EQ(owner_of(known, 0x20100), MemoryOwner::kForeign);
  EXPECT_EQ(owner_of(known, 0x300fc), MemoryOwner::kInput);
  EXPECT_EQ(owner_of(known, 0x40100), MemoryOwner::kInput);
  EXPECT_EQ(owner_of(known, 0x50100), MemoryOwner::kForeign);
}

TEST(KnownMemoryTest, AgreesWithASearchOfEachRange) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int world = 0; world < 50; ++world) {
    KnownMemory known;
    using Neighbours = KnownMemory::Neighbours;
    std::vector<std::pair<Range, MemoryOwner>> ranges;
    // Few distinct places, half of them multiples of 256.
    const auto place = [&] { return random() % 2 == 0 ? random() % 64 * 8 : random() % 3 * 256; };
    const auto neighbours = random() % 2 == 0 ? Neighbours::kKnown : Neighbours::kUnknown;
    for (unsigned i = random() % 12; i > 0; --i) {
      const std::size_t begin = place();
      const std::size_t end = std::max<std::size_t>(begin, place());
      const Range range{0x10000 + begin, end - begin};
      const auto owner = static_cast<MemoryOwner>(random() % 6);
      known.add(owner, 0, range, neighbours);
      ranges.emplace_back(range, owner);
    }
    known.sort();
    for (std::uintptr_t address = 0x10000 - 8; address < 0x10000 + 90 * 8; address += 4) {
      MemoryOwner inside = MemoryOwner::kForeign;
      MemoryOwner behind = MemoryOwner::kForeign;
      for (const auto& [range, owner] : ranges) {
        if (range.bytes == 0) continue;
        if (range.overlaps({address, 1})) inside = std::min(inside, owner);
        if (range.end() == address) behind = std::min(behind, owner);
      }
      if (neighbours == Neighbours::kUnknown && address % 256 == 0) behind = MemoryOwner::kForeign;
      EXPECT_EQ(owner_of(known, address), inside != MemoryOwner::kForeign ? inside : behind)
          << address;
    }
  }
}

// Counts queries, and knows one allocation.
class OneAllocation : public DeviceAPI {
 public:
  static constexpr std::uintptr_t kAddress = 0x7f0000000000;
  static constexpr std::size_t kBytes = 4096;

  Code allocation_of(const void* pointer, DeviceAllocation* allocation) override {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    asked_.insert(address);
    *allocation = {};
    if (address - kAddress < kBytes) {
      *allocation = {{PointerKind::kDevice, 0}, kAddress, kBytes, is_static_};
    }
    return code_;
  }

  std::string_view name() const noexcept override { return "one"; }
  AttributeValue attribute(int, DeviceAttribute) noexcept override { return {}; }
  Code alloc_data_space(int, std::size_t, void**) override { return Code::kNotSupported; }
  Code free_data_space(int, void*) override { return Code::kNotSupported; }
  Code alloc_pinned(std::size_t, void**) override { return Code::kNotSupported; }
  Code free_pinned(void*) override { return Code::kNotSupported; }
  Code copy(StreamHandle, void*, const void*, std::size_t) override { return Code::kNotSupported; }
  Code create_stream(int, StreamKind, StreamHandle*) override { return Code::kNotSupported; }
  Code destroy_stream(StreamHandle) override { return Code::kNotSupported; }
  Code synchronize_stream(StreamHandle) override { return Code::kNotSupported; }
  Code query_stream(StreamHandle) override { return Code::kNotSupported; }
  Code synchronize_device(int) override { return Code::kNotSupported; }

  std::multiset<std::uintptr_t> asked_;
  Code code_ = Code::kSuccess;
  bool is_static_ = false;
};

void set_parameters(NodeContents& kernel, const std::vector<KernelParameter>& parameters) {
  kernel.kernel = std::make_shared<KernelLayout>(KernelLayout{"_Z1kIfEvv", parameters});
}

NodeContents kernel_with(const std::vector<std::uintptr_t>& words) {
  NodeContents kernel{.type = NodeType::kKernel, .is_decoded = true};
  kernel.bytes.resize(words.size() * 8);
  std::memcpy(kernel.bytes.data(), words.data(), kernel.bytes.size());
  std::vector<KernelParameter> parameters;
  for (std::size_t i = 0; i < words.size(); ++i)
    parameters.push_back({i * 8, 8});
  set_parameters(kernel, parameters);
  return kernel;
}

TEST(AuditorTest, AsksOnceForEachAllocationAndForEachNumberThatIsNone) {
  OneAllocation device;
  const KnownMemory known;
  Auditor auditor(device, known);
  const std::uintptr_t number = 0x0000'0400'0000'0400;  // two sizes of 1024, as ints
  for (int node = 0; node < 300; ++node) {
    auditor.read(kernel_with({OneAllocation::kAddress + static_cast<std::uintptr_t>(node) * 8,
                              number, 7, ~std::uintptr_t{0}, 0x3f80'0000'3f80'0000}));
  }
  const Audit audit = auditor.finish();

  EXPECT_EQ(device.asked_.size(), 2u);
  EXPECT_EQ(audit.uses.size(), 300u);
  ASSERT_EQ(audit.memory.size(), 1u);
  EXPECT_EQ(audit.memory[0].range, (Range{OneAllocation::kAddress, OneAllocation::kBytes}));
  ASSERT_EQ(audit.foreign.size(), 1u);
  EXPECT_EQ(audit.foreign[0].nodes, 300u);
}

TEST(AuditorTest, ScansWholeWordsOfStructsButNotTheGapsBetweenParameters) {
  OneAllocation device;
  const KnownMemory known;
  Auditor auditor(device, known);
  const std::uintptr_t in = OneAllocation::kAddress;
  NodeContents kernel = kernel_with({in, in + 8, in + 16, in + 24});
  set_parameters(kernel, {{0, 4}, {8, 16}, {28, 4}});  // the second one is a struct
  auditor.read(std::move(kernel));
  const Audit audit = auditor.finish();

  std::vector<std::uint32_t> offsets;
  for (const MemoryUse& use : audit.uses)
    offsets.push_back(use.offset);
  EXPECT_THAT(offsets, ElementsAre(8, 16));
  EXPECT_EQ(audit.foreign.at(1).place, "parameter 1 (byte 8)");
}

// Byte 8 of parameter 1 and parameter 9 are different places, and so are parameters 8 and 9.
TEST(AuditorTest, ForeignPointersOfOneKernelAreToldApartByParameterAndByte) {
  OneAllocation device;
  const KnownMemory known;
  Auditor auditor(device, known);
  NodeContents kernel = kernel_with(std::vector<std::uintptr_t>(11, OneAllocation::kAddress));
  std::vector<KernelParameter> parameters = {{0, 8}, {8, 16}};  // the second one is a struct
  for (std::size_t i = 3; i < 11; ++i)
    parameters.push_back({8 * i, 8});
  set_parameters(kernel, parameters);
  auditor.read(kernel);
  auditor.read(kernel);
  const Audit audit = auditor.finish();

  std::vector<std::string> places;
  for (const ForeignPointer& pointer : audit.foreign) {
    places.push_back(pointer.place);
    EXPECT_EQ(pointer.nodes, 2u) << pointer.place;
  }
  EXPECT_THAT(places, ElementsAre("parameter 0", "parameter 1", "parameter 1 (byte 8)",
                                  "parameter 2", "parameter 3", "parameter 4", "parameter 5",
                                  "parameter 6", "parameter 7", "parameter 8", "parameter 9"));
}

TEST(AuditorTest, ADeviceThatCannotTellHidesForeignWordsButNotKnownOnes) {
  OneAllocation device;
  device.code_ = Code::kNotSupported;
  KnownMemory known;
  known.add(MemoryOwner::kOutput, 1, {0x50000, 64});
  known.sort();
  Auditor auditor(device, known);
  auditor.read(kernel_with({0x50020, OneAllocation::kAddress}));
  const Audit audit = auditor.finish();

  ASSERT_EQ(audit.uses.size(), 1u);
  EXPECT_EQ(audit.memory[audit.uses[0].memory].owner, MemoryOwner::kOutput);
  EXPECT_TRUE(audit.foreign.empty());
}

TEST(AuditorTest, CountsWhatItCannotSee) {
  OneAllocation device;
  const KnownMemory known;
  Auditor auditor(device, known);
  NodeContents refused{.type = NodeType::kKernel, .why = "the driver is older than CUDA 12.4"};
  auditor.read(refused);
  auditor.read(refused);
  auditor.read({.type = NodeType::kHost, .why = "what a host function uses cannot be seen"});
  NodeContents tensor_map = kernel_with(std::vector<std::uintptr_t>(16, 0));
  set_parameters(tensor_map, {{0, 128}});
  auditor.read(std::move(tensor_map));
  const Audit audit = auditor.finish();

  ASSERT_EQ(audit.unseen.size(), 3u);
  EXPECT_EQ(audit.unseen[0].nodes, 2u);
  EXPECT_THAT(suspects(audit),
              ElementsAre(HasSubstr("a kernel: the driver is older than CUDA 12.4 (2 nodes)"),
                          HasSubstr("a host function"), HasSubstr("tensor map")));
}

// Copies refer to memory by ranges, so their words are certainly addresses.
TEST(AuditorTest, HostMemoryBehindACopyIsForeignThoughNoDeviceKnowsIt) {
  OneAllocation device;
  KnownMemory known;
  known.add(MemoryOwner::kInput, 0, {0x60000, 64});
  known.sort();
  Auditor auditor(device, known);
  auditor.read({.type = NodeType::kMemcpy,
                .is_decoded = true,
                .memory = {{0x5000'0000, 64, false}, {0x60000, 64, true}}});
  const Audit audit = auditor.finish();

  ASSERT_EQ(audit.foreign.size(), 1u);
  EXPECT_EQ(audit.foreign[0].kernel, "a copy");
  EXPECT_EQ(audit.foreign[0].place, "the source");
  EXPECT_THAT(to_string(audit.foreign[0], audit), HasSubstr("pageable"));
  EXPECT_TRUE(audit.refers_to({0x5000'0020, 1}));
  EXPECT_TRUE(audit.refers_to({0x60020, 1}));
  EXPECT_FALSE(audit.refers_to({0x60040, 64}));
}

// Source: tensor maps that the driver makes hold the address as a word.
TEST(AuditorTest, ATensorMapWhoseAddressIsSeenIsNotCountedAsUnseen) {
  OneAllocation device;
  const KnownMemory known;
  Auditor auditor(device, known);
  std::vector<std::uintptr_t> words(16, 3);
  words[1] = OneAllocation::kAddress;
  NodeContents tensor_map = kernel_with(words);
  set_parameters(tensor_map, {{0, 128}});
  auditor.read(std::move(tensor_map));
  const Audit audit = auditor.finish();

  EXPECT_TRUE(audit.unseen.empty());
  EXPECT_EQ(audit.uses.size(), 1u);
}

TEST(AuditorTest, AVariableOfAModuleIsNotForeign) {
  OneAllocation device;
  device.is_static_ = true;
  const KnownMemory known;
  Auditor auditor(device, known);
  auditor.read(kernel_with({OneAllocation::kAddress}));
  const Audit audit = auditor.finish();

  EXPECT_TRUE(audit.foreign.empty());
  EXPECT_EQ(audit.memory.at(0).owner, MemoryOwner::kModule);
}

TEST(AuditorTest, MemoryAllocatedByTheGraphIsNotForeign) {
  OneAllocation device;
  const KnownMemory known;
  Auditor auditor(device, known);
  auditor.read(kernel_with({OneAllocation::kAddress + 8}));  // listed before the allocation
  auditor.read({.type = NodeType::kAllocation,
                .is_decoded = true,
                .memory = {{OneAllocation::kAddress, 64, false}}});
  const Audit audit = auditor.finish();

  EXPECT_TRUE(audit.foreign.empty());
  EXPECT_EQ(audit.memory.at(0).owner, MemoryOwner::kScratch);
}

}  // namespace
}  // namespace cgtree::testing
