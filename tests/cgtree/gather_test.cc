// gather against a plain loop: linear, strided and padded rows, both ways, on every device.
#include "cgtree/record/gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "interop/device/code.h"
#include "interop/tensor/copy.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

using Bytes = std::vector<std::byte>;
using Dims = std::vector<std::int64_t>;

// A buffer that is built on the host, written to the device and read back in one piece.
class Arena {
 public:
  Arena(const DeviceUnderTest& device, std::size_t bytes) : device_(device), bytes_(bytes) {
    check(device.api->alloc_data_space(device.device.id, bytes, &data_), "allocate");
  }
  ~Arena() { (void)device_.api->free_data_space(device_.device.id, data_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(data_); }
  std::size_t bytes() const { return bytes_; }
  void write(const Bytes& bytes, StreamHandle stream) {
    check(device_.api->copy(stream, data_, bytes.data(), bytes.size()), "write");
    check(device_.api->synchronize_stream(stream), "write");
  }
  Bytes read(StreamHandle stream) const {
    Bytes bytes(bytes_);
    check(device_.api->copy(stream, bytes.data(), data_, bytes_), "read");
    check(device_.api->synchronize_stream(stream), "read");
    return bytes;
  }

 private:
  const DeviceUnderTest& device_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

// One copy, with all facts that the oracle needs: offsets are bytes in the two arenas.
struct Case {
  enum class Kind { kStrided, kPadded } kind = Kind::kStrided;
  GatherDirection direction = GatherDirection::kIn;
  GatherFill fill = GatherFill::kAny;
  std::size_t element = 4;
  std::size_t fixed = 0;
  std::size_t moving = 0;
  Dims dims;           // of the fixed side
  Dims sizes;          // of the moving side; equal to dims for kStrided
  Dims fixed_strides;  // in elements
  Dims strides;
  Bytes value;

  GatherRow row(std::uintptr_t arena) const {
    return kind == Kind::kStrided
               ? strided_row(direction, arena + fixed, dims, fixed_strides, strides, element)
               : padded_row(direction, arena + fixed, dims, element, fill, value);
  }
  std::vector<std::uint64_t> words(const GatherRow& row, std::uintptr_t arena) const {
    std::vector<std::uint64_t> words(row.words());
    write_words(row, arena + moving, sizes, strides, words);
    return words;
  }
};

// Computes both arenas after the copy.
struct Oracle {
  Bytes& fixed;
  Bytes& moving;

  // Copies element by element, in the order of the axes.
  void run(const Case& c) {
    Dims index(c.dims.size(), 0);
    if (std::find(c.dims.begin(), c.dims.end(), 0) != c.dims.end()) return;
    do {
      copy_element(c, index);
    } while (next(index, c.dims));
  }

 private:
  static bool next(Dims& index, const Dims& dims) {
    for (std::size_t a = index.size(); a-- > 0;) {
      if (++index[a] < dims[a]) return true;
      index[a] = 0;
    }
    return false;
  }
  void copy_element(const Case& c, const Dims& index) {
    std::int64_t to = 0;
    std::int64_t from = 0;
    bool is_there = true;
    bool has_elements = true;
    for (std::size_t a = 0; a < index.size(); ++a) {
      to += index[a] * c.fixed_strides[a];
      is_there = is_there && index[a] < c.sizes[a];
      has_elements = has_elements && c.sizes[a] > 0;
      from += std::min(index[a], c.sizes[a] - 1) * c.strides[a];
    }
    std::byte* const at_fixed = fixed.data() + c.fixed + to * static_cast<std::int64_t>(c.element);
    std::byte* const at_moving =
        moving.data() + c.moving + from * static_cast<std::int64_t>(c.element);
    if (c.direction == GatherDirection::kOut) {
      if (is_there) std::memcpy(at_moving, at_fixed, c.element);
    } else if (is_there || (c.fill == GatherFill::kLast && has_elements)) {
      std::memcpy(at_fixed, at_moving, c.element);
    } else if (c.fill == GatherFill::kValue) {
      std::memcpy(at_fixed, c.value.data(), c.element);
    } else if (c.fill != GatherFill::kAny) {
      std::memset(at_fixed, 0, c.element);
    }
  }
};

std::int64_t extent(const Dims& dims, const Dims& strides) {
  std::int64_t extent = 1;
  for (std::size_t a = 0; a < dims.size(); ++a) {
    if (dims[a] == 0) return 0;
    extent += (dims[a] - 1) * strides[a];
  }
  return extent;
}

// Makes random cases within `room` bytes of either arena.
class Cases {
 public:
  Cases(unsigned seed, std::size_t room) : random_(seed), room_(room) {}

  Bytes noise(std::size_t bytes) {
    Bytes noise(bytes);
    for (std::byte& byte : noise)
      byte = static_cast<std::byte>(random_());
    return noise;
  }

  Case make() {
    for (;;) {
      Case c;
      c.kind = one_in(2) ? Case::Kind::kStrided : Case::Kind::kPadded;
      c.direction = one_in(2) ? GatherDirection::kIn : GatherDirection::kOut;
      c.element = one_in(4) ? up_to(1, 16) : std::size_t{1} << up_to(0, 4);
      const auto rank = up_to(0, one_in(4) ? 8 : 3);
      for (std::size_t a = 0; a < rank; ++a)
        c.dims.push_back(static_cast<std::int64_t>(one_in(30) ? 0 : up_to(1, rank > 3 ? 4 : 40)));
      if (one_in(8) && !c.dims.empty()) c.dims.back() = static_cast<std::int64_t>(up_to(1, 9000));
      if (c.kind == Case::Kind::kPadded) pad(c);
      if (c.kind == Case::Kind::kStrided) stride(c);
      if (place(c)) return c;
    }
  }

 private:
  std::size_t up_to(std::size_t least, std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(least, most)(random_);
  }
  bool one_in(std::size_t n) { return up_to(1, n) == 1; }

  Dims row_major(const Dims& dims) {
    Dims strides(dims.size());
    std::int64_t step = 1;
    for (std::size_t a = dims.size(); a-- > 0;) {
      strides[a] = step;
      step *= std::max<std::int64_t>(dims[a], 1);
    }
    return strides;
  }
  // Returns strides in a random order of axes, with gaps; no two elements overlap.
  Dims any_strides(const Dims& dims) {
    std::vector<std::size_t> order(dims.size());
    for (std::size_t a = 0; a < order.size(); ++a)
      order[a] = order.size() - 1 - a;
    if (one_in(2)) std::shuffle(order.begin(), order.end(), random_);
    Dims strides(dims.size());
    std::int64_t step = one_in(4) ? static_cast<std::int64_t>(up_to(2, 5)) : 1;
    for (const std::size_t a : order) {
      strides[a] = step;
      step *= std::max<std::int64_t>(dims[a], 1);
      if (one_in(3)) step += static_cast<std::int64_t>(up_to(1, 9));
    }
    return strides;
  }
  void pad(Case& c) {
    c.fill = static_cast<GatherFill>(up_to(0, 3));
    c.value = noise(c.element);
    if (c.fill != GatherFill::kValue) c.value.clear();
    c.fixed_strides = row_major(c.dims);
    for (const std::int64_t dim : c.dims)
      c.sizes.push_back(
          one_in(2) ? dim : static_cast<std::int64_t>(up_to(0, static_cast<std::size_t>(dim))));
    c.strides = one_in(2) ? row_major(c.sizes) : any_strides(c.sizes);
    if (c.direction == GatherDirection::kIn && !c.strides.empty() && one_in(5)) c.strides[0] = 0;
  }
  void stride(Case& c) {
    c.sizes = c.dims;
    c.strides = one_in(3) ? row_major(c.dims) : any_strides(c.dims);
    c.fixed_strides = one_in(2) ? c.strides : any_strides(c.dims);
    if (c.dims.empty() || !one_in(4)) return;
    const std::size_t axis = up_to(0, c.dims.size() - 1);
    const bool both = one_in(2);  // as for a broadcast input with a broadcast copy
    Dims& read = c.direction == GatherDirection::kIn ? c.strides : c.fixed_strides;
    Dims& written = c.direction == GatherDirection::kIn ? c.fixed_strides : c.strides;
    read[axis] = 0;
    if (both) written[axis] = 0;
  }
  bool place(Case& c) {
    const auto fixed = static_cast<std::size_t>(extent(c.dims, c.fixed_strides)) * c.element;
    const auto moving = static_cast<std::size_t>(extent(c.sizes, c.strides)) * c.element;
    if (fixed > room_ || moving > room_) return false;
    c.fixed = align(up_to(0, room_ - fixed));
    c.moving = align(up_to(0, room_ - moving));
    if (one_in(3)) c.moving = c.moving / 16 * 16 + c.fixed % 16;
    return c.moving + moving <= room_;
  }
  std::size_t align(std::size_t offset) { return offset & ~((std::size_t{1} << up_to(0, 5)) - 1); }

  std::mt19937 random_;
  std::size_t room_;
};

class GatherTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    bench_ = std::make_unique<DeviceBench>(GetParam());
    stream_ = bench_->stream();
  }

  StreamRef stream() const { return {*GetParam().api, GetParam().device, stream_}; }

  void launch_table(const GatherTable& table, std::vector<std::uint64_t> words) {
    if (table.chunks() == 0) return;
    const Bytes bytes = table.bytes();
    Arena uploaded(GetParam(), bytes.size());
    uploaded.write(bytes, stream_);
    const GatherKernel kernel = gather_kernel(std::max<std::uint32_t>(table.words(), 1));
    words.resize(kernel.capacity);
    const std::uintptr_t address = uploaded.address();
    const std::uint32_t chunks = table.chunks();
    const KernelArgument arguments[] = {{words.data(), words.size() * sizeof(words[0])},
                                        {&address, sizeof(address)},
                                        {&chunks, sizeof(chunks)}};
    check(bench_->graphs.launch_kernel(stream_, kernel.function,
                                       {.grid = {chunks}, .block = {kGatherThreads}}, arguments),
          "gather");
    check(bench_->api.synchronize_stream(stream_), "gather");
  }

  std::unique_ptr<DeviceBench> bench_;
  StreamHandle stream_ = StreamHandle::kNull;
};

// Each case of a launch writes to separate arenas; the bytes around its elements must not change.
TEST_P(GatherTest, DoesWhatAPlainLoopDoes) {
  constexpr std::size_t kRoom = 48 * 1024;
  constexpr int kInALaunch = 6;
  const int launches = GetParam().name == "host" ? 1700 : 120;
  const unsigned seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  Cases cases(seed, kRoom);
  std::vector<std::unique_ptr<Arena>> arenas;
  for (int i = 0; i < 2 * kInALaunch; ++i)
    arenas.push_back(std::make_unique<Arena>(GetParam(), kRoom));
  const Bytes noise = cases.noise(2 * kRoom);
  for (int launch = 0; launch < launches; ++launch) {
    GatherTable table;
    std::vector<std::uint64_t> words;
    std::vector<Bytes> expected;
    for (int i = 0; i < kInALaunch; ++i) {
      const Case c = cases.make();
      Arena& fixed = *arenas[2 * i];
      Arena& moving = *arenas[2 * i + 1];
      for (int side = 0; side < 2; ++side) {
        const auto from = noise.begin() + (launch * 7 + i * 31 + side * 1013) % 4096;
        expected.emplace_back(from, from + kRoom);
        arenas[2 * i + side]->write(expected.back(), stream_);
      }
      Oracle{expected[2 * i], expected[2 * i + 1]}.run(c);
      const GatherRow row = c.row(fixed.address());
      const std::vector<std::uint64_t> own = c.words(row, moving.address());
      if (i % 2 == 0 && launch % 4 == 0) {
        copy_row(stream(), row, own);
        continue;
      }
      EXPECT_EQ(table.add(row), words.size());
      words.insert(words.end(), own.begin(), own.end());
    }
    launch_table(table, words);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(arenas[i]->read(stream_), expected[i])
          << "seed " << seed << ", launch " << launch << ", arena " << i;
    }
  }
}

TEST_P(GatherTest, LargeCopiesArriveWhole) {
  const std::size_t bytes = 3 * kGatherChunkBytes + 21;
  Arena from(GetParam(), bytes + 64);
  Arena to(GetParam(), bytes + 64);
  Cases cases(7, 1);
  for (const auto& [source, destination] : std::map<std::size_t, std::size_t>{
           {0, 0}, {3, 3}, {16, 8}, {5, 1}, {6, 4}, {1, 2}, {32, 13}}) {
    const Bytes sent = cases.noise(bytes + 64);
    Bytes expected = cases.noise(bytes + 64);
    from.write(sent, stream_);
    to.write(expected, stream_);
    std::copy_n(sent.begin() + source, bytes, expected.begin() + destination);
    GatherTable table;
    table.add(linear_row(GatherDirection::kIn, to.address() + destination, bytes));
    EXPECT_EQ(table.chunks(), 4u);
    launch_table(table, {from.address() + source});
    EXPECT_EQ(to.read(stream_), expected) << source << " to " << destination;
  }
}

TEST_P(GatherTest, AChunkThatBeginsWithinAnElementIsFilledFromThere) {
  constexpr std::int64_t kElements = 3000;
  Case c{.kind = Case::Kind::kPadded, .fill = GatherFill::kValue, .element = 12};
  c.dims = {kElements};
  c.sizes = {2};
  c.fixed_strides = c.strides = {1};
  Cases cases(3, 1);
  c.value = cases.noise(c.element);
  static_assert(kGatherChunkBytes % 12 != 0 && kElements * 12 > kGatherChunkBytes);
  Bytes given = cases.noise(64);
  Bytes expected = cases.noise(kElements * c.element);
  Arena from(GetParam(), given.size());
  Arena to(GetParam(), expected.size());
  from.write(given, stream_);
  to.write(expected, stream_);
  Oracle{expected, given}.run(c);
  const GatherRow row = c.row(to.address());
  GatherTable table;
  table.add(row);

  launch_table(table, c.words(row, from.address()));

  EXPECT_EQ(to.read(stream_), expected);
}

TEST_P(GatherTest, ValuesRideAmongTheWords) {
  Arena to(GetParam(), 64);
  Bytes expected(64, std::byte{0xcd});
  to.write(expected, stream_);
  GatherTable table;
  EXPECT_EQ(table.add_values(to.address() + 8, 16), 0u);
  EXPECT_EQ(table.add_values(to.address() + 33, 1), 2u);
  EXPECT_EQ(table.add_values(to.address() + 50, 0), 3u);
  EXPECT_EQ(table.words(), 3u);
  launch_table(table, {0x0102030405060708, 0x1112131415161718, 0xabcdef});
  const std::uint64_t words[] = {0x0102030405060708, 0x1112131415161718};
  std::memcpy(expected.data() + 8, words, sizeof(words));
  expected[33] = std::byte{0xef};
  EXPECT_EQ(to.read(stream_), expected);
}

TEST_P(GatherTest, ARowIsCopiedWhileAStreamIsCaptured) {
  Arena from(GetParam(), 32);
  Arena to(GetParam(), 32);
  Cases cases(1, 1);
  const Bytes sent = cases.noise(32);
  from.write(sent, stream_);
  const StreamHandle captured = bench_->stream();
  check(bench_->graphs.begin_capture(captured, CaptureMode::kThreadLocal), "begin");
  const std::uint64_t address = from.address();
  copy_row({*GetParam().api, GetParam().device, captured},
           linear_row(GatherDirection::kIn, to.address(), 32), std::span(&address, 1));
  const ExecHandle exec = bench_->instantiate(bench_->end(captured));
  check(bench_->graphs.launch(exec, captured), "launch");
  check(bench_->api.synchronize_stream(captured), "launch");
  EXPECT_EQ(to.read(stream_), sent);
}

INSTANTIATE_TEST_SUITE_P(Devices, GatherTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

// The row that describes a strided tensor.
TEST(GatherRow, OfADenseTensorIsLinear) {
  const Dims dims = {4, 5, 6};
  const Dims strides = {6, 24, 1};  // axes 0 and 1 swapped
  const GatherRow row = strided_row(GatherDirection::kIn, 4096, dims, strides, strides, 4);
  EXPECT_TRUE(row.is_linear());
  EXPECT_EQ(row.bytes(), 4u * 5 * 6 * 4);
}

TEST(GatherRow, JoinsAxesAndCopiesABroadcastOnce) {
  const Dims dims = {2, 7, 3, 5, 1};
  const Dims strides = {400, 0, 20, 1, 9};
  const GatherRow row = strided_row(GatherDirection::kIn, 4096, dims, strides, strides, 2);
  EXPECT_EQ(row.rank, 2u);
  EXPECT_EQ(row.element, 10u);
  EXPECT_EQ(row.bytes(), 2u * 3 * 5 * 2);
  EXPECT_EQ(row.words(), 1u);
}

TEST(GatherRow, PaddedTakesAWordForTheAddressAndTwoForEachAxis) {
  const Dims dims = {2, 7};
  const GatherRow row = padded_row(GatherDirection::kIn, 4096, dims, 2);
  EXPECT_EQ(row.words(), 5u);
  EXPECT_EQ(row.bytes(), 28u);
}

}  // namespace
}  // namespace cgtree::testing
