// The functions cgs_* of the file that tools/amalgamate makes. The test is compiled together with
// that file, in which all other functions are hidden: by a C++ compiler for the host device, by
// nvcc for a GPU.
#ifdef __CUDACC__
#include <cgtree_steps.cu>
#else
#include <cgtree_steps.cc>
#endif

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace {

using cgtree::Device;

const Device kDevice{cgtree::DeviceType::CGS_DEVICE_TYPE, 0};
constexpr int kCount = 256;  // floats of a range
constexpr std::size_t kBytes = kCount * sizeof(float);

void expect_ok(cgtree::Code code) {
  ASSERT_EQ(code, cgtree::Code::kSuccess);
}

// A range of device memory.
class Memory {
 public:
  explicit Memory(float value = 0) : data_(cgtree::allocate_device_memory(kDevice, kBytes)) {
    fill(value);
  }
  ~Memory() { cgtree::free_device_memory(kDevice, data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  float* get() const { return static_cast<float*>(data_); }
  cgs_range range() const { return {data_, kBytes}; }
  void fill(float value) const {
    const std::vector<float> values(kCount, value);
    copy(data_, values.data());
  }
  // Returns the value of all elements, or NaN if they differ. Requires: all work is done.
  float value() const {
    std::vector<float> values(kCount);
    copy(values.data(), data_);
    for (const float one : values)
      if (one != values[0]) return NAN;
    return values[0];
  }

 private:
  static void copy(void* to, const void* from) {
    cgtree::DeviceAPI& api = cgtree::device_api(kDevice);
    const cgtree::Stream stream(kDevice);
    expect_ok(api.copy(stream.ref().handle(), to, from, kBytes));
    stream.synchronize();
  }

  void* data_;
};

struct Axpy {
  float a;
  const float* x;
  float* y;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = a * x[i] + y[i]; }
};
struct AddFromBlock {
  const int* block;
  float* y;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const { y[i] += static_cast<float>(block[0]); }
};

// An Engine has a step of three bindings: x is copied, y is written, w is checked.  y = a * x + w *
// ... + y
class SmallDoorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (cgtree::find_device_api(kDevice.type) == nullptr ||
        !cgtree::device_api(kDevice).has_device(0))
      FAIL() << "no device";
  }
  void SetUp() override { open({}); }
  void TearDown() override {
    cgs_close(steps_);
    stream_.synchronize();
  }

  void open(cgs_options options) {
    cgs_close(steps_);
    options.struct_size = sizeof options;
    const cgs_binding bindings[] = {{"x", CGS_COPIED, 0}, {"y", CGS_WRITTEN, 0}, {"w", 0, 0}};
    ASSERT_EQ(cgs_open(&steps_, "decode", 0, bindings, 3, &options), CGS_DONE) << cgs_why(nullptr);
  }
  std::string why() const { return cgs_why(steps_); }
  void expect_in_why(const char* text) const {
    EXPECT_NE(why().find(text), std::string::npos) << why();
  }
  CUstream_st* stream() const { return reinterpret_cast<CUstream_st*>(stream_.ref().handle()); }
  int begin(const Memory& x, const Memory& y, const Memory& w, std::int64_t key) {
    const cgs_range ranges[] = {x.range(), y.range(), w.range()};
    return cgs_begin(steps_, &key, sizeof key, ranges, 3, stream());
  }
  void work(float a) {
    const auto* x = static_cast<const float*>(cgs_address(steps_, 0));
    auto* y = static_cast<float*>(cgs_address(steps_, 1));
    const auto* w = static_cast<const float*>(cgs_address(steps_, 2));
    cgtree::parallel_for(stream_.ref(), kCount, Axpy{a, x, y});
    cgtree::parallel_for(stream_.ref(), kCount, Axpy{2, w, y});
  }
  // Returns the number of runs of the work. `a` comes from the key.
  int step(const Memory& x, const Memory& y, const Memory& w, std::int64_t key) {
    int runs = 0;
    int run = begin(x, y, w, key);
    for (; run == CGS_RUN; run = cgs_end(steps_), ++runs)
      work(static_cast<float>(key));
    EXPECT_EQ(run, CGS_DONE) << cgs_why(steps_);
    return runs;
  }
  float value(const Memory& memory) const {
    stream_.synchronize();
    return memory.value();
  }
  cgs_stats stats() const {
    cgs_stats all = {};
    all.struct_size = sizeof all;
    EXPECT_EQ(cgs_get_stats(steps_, &all), CGS_DONE);
    return all;
  }

  const cgtree::Stream stream_{kDevice};
  cgs_steps* steps_ = nullptr;
};

std::int64_t number_at(void* data) {
  return *static_cast<const std::int64_t*>(data);
}

TEST_F(SmallDoorTest, ADecisionOfTheHostIsAskedAgainBeforeEachReplay) {
  const Memory x(1), y(0), w(0);
  std::int64_t splits = 2;
  const auto run = [&] {
    int runs = 0;
    int run = begin(x, y, w, 0);
    for (; run == CGS_RUN; run = cgs_end(steps_), ++runs) {
      std::int64_t answer = 0;
      EXPECT_EQ(cgs_guard(steps_, "splits", number_at, &splits, &answer), CGS_DONE) << why();
      work(static_cast<float>(answer));
    }
    EXPECT_EQ(run, CGS_DONE) << why();
    return runs;
  };
  float expected = 0;
  for (int i = 0; i < 12; ++i) {
    splits = 2 + i % 2;
    EXPECT_EQ(run(), i < 4 ? 1 : 0) << i;
    expected += static_cast<float>(splits);
  }
  EXPECT_EQ(value(y), expected);
  splits = 7;
  EXPECT_EQ(run(), 1);
  expect_in_why("guard 'splits' [2] recorded, [7] given");
  std::int64_t answer = 0;
  EXPECT_EQ(cgs_guard(steps_, "splits", number_at, &splits, &answer), CGS_INVALID);
  expect_in_why("without an open step");
  ASSERT_EQ(begin(x, y, w, 1), CGS_RUN);
  EXPECT_EQ(cgs_guard(steps_, "", number_at, &splits, &answer), CGS_INVALID);
  EXPECT_EQ(cgs_guard(steps_, "splits", nullptr, &splits, &answer), CGS_INVALID);
  EXPECT_EQ(cgs_leave(steps_), CGS_DONE);
}

TEST_F(SmallDoorTest, TheDataOfAGuardIsNotAskedAfterARelease) {
  struct Data {
    std::int64_t answer = 2;
    int asked = 0;
  };
  const auto ask = [](void* data) {
    auto* const given = static_cast<Data*>(data);
    ++given->asked;
    return given->answer;
  };
  const Memory x(1), y(0), w(3);
  Data first, second;
  const auto run_with = [&](Data& data) {
    int runs = 0;
    int run = begin(x, y, w, 0);
    for (; run == CGS_RUN; run = cgs_end(steps_), ++runs) {
      std::int64_t answer = 0;
      EXPECT_EQ(cgs_guard(steps_, "splits", ask, &data, &answer), CGS_DONE) << why();
      work(static_cast<float>(answer));
    }
    return runs;
  };
  for (int i = 0; i < 3; ++i)
    (void)run_with(first);
  ASSERT_EQ(cgs_release(steps_), CGS_DONE);
  first.asked = 0;
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(run_with(second), i == 0 ? 1 : 0) << i;
  EXPECT_EQ(first.asked, 0);
  EXPECT_GT(second.asked, 0);
}

TEST_F(SmallDoorTest, AStepIsWarmedUpThenCapturedThenReplayed) {
  const Memory x(1), y(0), w(3);
  EXPECT_EQ(step(x, y, w, 5), 1);
  EXPECT_EQ(step(x, y, w, 5), 1);
  EXPECT_EQ(step(x, y, w, 5), 0);
  EXPECT_EQ(value(y), 3 * (5 + 6));
  EXPECT_EQ(stats().calls, 3u);
  EXPECT_EQ(stats().warm_ups, 1u);
  EXPECT_EQ(stats().recordings, 1u);
  EXPECT_EQ(stats().replays, 1u);
  EXPECT_EQ(stats().kept, 1u);
  EXPECT_STREQ(cgs_why(steps_), "replay");
}

TEST_F(SmallDoorTest, ACopiedBindingMayBeElsewhereAtEachCall) {
  const Memory y(0), w(0);
  float expected = 0;
  int runs = 0;
  for (int i = 1; i <= 8; ++i) {
    const Memory x(static_cast<float>(i));
    runs += step(x, y, w, 1);
    expected += static_cast<float>(i);
    EXPECT_EQ(value(y), expected);
  }
  EXPECT_EQ(runs, 2);
}

TEST_F(SmallDoorTest, ACheckedAddressThatIsAnotherOneIsRecordedToo) {
  const Memory x(0), y(0), w(1), other(10);
  for (int i = 0; i < 3; ++i)
    step(x, y, w, 1);
  EXPECT_EQ(value(y), 6);
  EXPECT_GT(step(x, y, other, 1), 0);  // not the recording of w
  EXPECT_EQ(value(y), 26);
  EXPECT_NE(std::string(cgs_why(steps_)).find("'w'"), std::string::npos) << cgs_why(steps_);
}

TEST_F(SmallDoorTest, OneRecordingServesAllSessions) {
  cgs_close(steps_);
  const cgs_binding bindings[] = {
      {"x", CGS_COPIED, 0}, {"y", CGS_WRITTEN | CGS_SESSION, 0}, {"w", 0, 0}};
  ASSERT_EQ(cgs_open(&steps_, "decode", 0, bindings, 3, nullptr), CGS_DONE) << cgs_why(nullptr);
  const Memory x(1), w(3);
  std::vector<std::unique_ptr<Memory>> sessions;
  std::vector<float> expected(16, 0);
  while (sessions.size() < expected.size())
    sessions.push_back(std::make_unique<Memory>());
  const auto call = [&](std::size_t session) {
    expected[session] += 5 + 6;
    return step(x, *sessions[session], w, 5);
  };
  EXPECT_EQ(call(0), 1);
  EXPECT_EQ(call(0), 1);
  EXPECT_EQ(call(1), 1);  // captured, without a new recording
  for (std::size_t i = 0; i < 64; ++i)
    EXPECT_EQ(call((7 * i) % expected.size()), 0);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(value(*sessions[i]), expected[i]) << i;
  EXPECT_EQ(stats().recordings, 1u);
  for (const auto& session : sessions)
    EXPECT_EQ(cgs_invalidate(steps_, session->get(), kBytes), CGS_DONE);
  EXPECT_EQ(stats().kept, 1u);
  EXPECT_EQ(cgs_invalidate(steps_, w.get(), kBytes), CGS_DONE);
  EXPECT_EQ(stats().kept, 0u);
}

TEST_F(SmallDoorTest, AGuardThatAsksASessionKeepsARecordingForEach) {
  cgs_close(steps_);
  const cgs_binding bindings[] = {
      {"x", CGS_COPIED, 0}, {"y", CGS_WRITTEN | CGS_SESSION, 0}, {"w", 0, 0}};
  ASSERT_EQ(cgs_open(&steps_, "decode", 0, bindings, 3, nullptr), CGS_DONE) << cgs_why(nullptr);
  const Memory x(1), w(0);
  const Memory sessions[] = {Memory(0), Memory(0), Memory(0)};
  std::int64_t factors[] = {1, 1, 1};
  float expected[] = {0, 0, 0};
  const auto call = [&](std::size_t session) {
    int run = begin(x, sessions[session], w, 0);
    for (; run == CGS_RUN; run = cgs_end(steps_)) {
      std::int64_t answer = 0;
      EXPECT_EQ(cgs_guard(steps_, "factor", number_at, &factors[session], &answer), CGS_DONE);
      work(static_cast<float>(answer));
    }
    expected[session] += static_cast<float>(factors[session]);
    EXPECT_EQ(value(sessions[session]), expected[session]);
  };
  for (const std::size_t session : {0, 0, 1, 2})
    call(session);
  EXPECT_EQ(stats().recordings, 3u);
  factors[1] = 5;
  for (const std::size_t session : {0, 1, 2, 1, 0})
    call(session);
}

TEST_F(SmallDoorTest, AnotherKeyIsAnotherRecording) {
  const Memory x(1), y(0), w(0);
  std::mt19937 random(7);
  float expected = 0;
  for (int i = 0; i < 60; ++i) {
    const int key = static_cast<int>(random() % 4);
    step(x, y, w, key);
    expected += static_cast<float>(key);
    ASSERT_EQ(value(y), expected);
  }
  EXPECT_EQ(stats().kept, 4u);
  EXPECT_EQ(stats().replays, 60u - 8u);
}

TEST_F(SmallDoorTest, AStructInHostMemoryIsThatOfEachCall) {
  cgs_steps* blocks = nullptr;
  const cgs_binding bindings[] = {{"lengths", CGS_HOST, sizeof(int)}, {"y", CGS_WRITTEN, 0}};
  ASSERT_EQ(cgs_open(&blocks, "blocks", 0, bindings, 2, nullptr), CGS_DONE) << cgs_why(nullptr);
  const Memory y(0);
  float expected = 0;
  int runs = 0;
  for (int i = 1; i <= 6; ++i) {
    const int block = i * 100;
    const cgs_range ranges[] = {{&block, sizeof block}, y.range()};
    int run = cgs_begin(blocks, nullptr, 0, ranges, 2, stream());
    for (; run == CGS_RUN; run = cgs_end(blocks), ++runs)
      cgtree::parallel_for(stream_.ref(), kCount,
                           AddFromBlock{static_cast<const int*>(cgs_address(blocks, 0)), y.get()});
    ASSERT_EQ(run, CGS_DONE) << cgs_why(blocks);
    expected += static_cast<float>(block);
    EXPECT_EQ(value(y), expected);
  }
  EXPECT_EQ(runs, 2);
  cgs_close(blocks);
}

TEST_F(SmallDoorTest, WorkThatRefusesItsCaptureRunsAsItIsAndWhySaysSo) {
  const Memory x(1), y(0), w(0);
  int runs = 0;
  for (int i = 0; i < 4; ++i) {
    int run = begin(x, y, w, 1);
    for (; run == CGS_RUN; run = cgs_end(steps_), ++runs) {
      if (cgs_is_captured(steps_)) cgs_refuse(steps_, "reads a length on the host");
      work(1);
    }
    ASSERT_EQ(run, CGS_DONE) << cgs_why(steps_);
  }
  EXPECT_EQ(value(y), 4);
  EXPECT_EQ(runs, 5);  // twice in the second call
  EXPECT_EQ(stats().replays, 0u);
  EXPECT_EQ(stats().eager, 3u);
  EXPECT_NE(std::string(cgs_why(steps_)).find("run_eagerly"), std::string::npos) << cgs_why(steps_);
}

TEST_F(SmallDoorTest, AStepThatIsLeftLeavesNoTrace) {
  const Memory x(1), y(0), w(0);
  step(x, y, w, 1);
  ASSERT_EQ(begin(x, y, w, 1), CGS_RUN);  // captured
  work(1);
  EXPECT_EQ(cgs_leave(steps_), CGS_DONE);
  EXPECT_EQ(value(y), 1);
  EXPECT_EQ(cgs_address(steps_, 0), nullptr);
  for (int i = 0; i < 3; ++i)
    step(x, y, w, 1);
  EXPECT_EQ(value(y), 4);
  EXPECT_GT(stats().replays, 0u);
}

TEST_F(SmallDoorTest, MemoryThatGoesTakesItsRecordingsWithIt) {
  const Memory x(1), y(0), w(0);
  for (int i = 0; i < 3; ++i)
    step(x, y, w, 1);
  EXPECT_EQ(stats().kept, 1u);
  EXPECT_EQ(cgs_invalidate(steps_, w.get(), kBytes), CGS_DONE);
  EXPECT_EQ(stats().kept, 0u);
  EXPECT_GT(step(x, y, w, 1), 0);
  EXPECT_EQ(value(y), 4);
}

TEST_F(SmallDoorTest, AFrozenStepRecordsNothing) {
  const Memory x(1), y(0), w(0);
  for (int i = 0; i < 2; ++i)
    step(x, y, w, 1);
  ASSERT_EQ(cgs_freeze(steps_, 1), CGS_DONE);
  EXPECT_EQ(step(x, y, w, 1), 0);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(step(x, y, w, 2), 1);
  EXPECT_NE(std::string(cgs_why(steps_)).find("frozen"), std::string::npos) << cgs_why(steps_);
  ASSERT_EQ(cgs_freeze(steps_, 0), CGS_DONE);
  for (int i = 0; i < 3; ++i)
    step(x, y, w, 2);
  EXPECT_EQ(stats().kept, 2u);
  EXPECT_EQ(value(y), 3 + 12);
}

TEST_F(SmallDoorTest, AReleaseDropsAllRecordingsAndTheNextCallRecordsAtOnce) {
  const Memory x(1), y(0), w(0);
  for (int i = 0; i < 3; ++i)
    step(x, y, w, 1);
  ASSERT_EQ(cgs_release(steps_), CGS_DONE) << cgs_why(steps_);
  EXPECT_EQ(stats().kept, 0u);
  EXPECT_EQ(step(x, y, w, 1), 1);
  EXPECT_EQ(step(x, y, w, 1), 0);
  EXPECT_EQ(value(y), 5);
}

TEST_F(SmallDoorTest, TheRecordingUsedLongestAgoIsDroppedAtTheLimit) {
  open({.max_recordings = 2});
  const Memory x(1), y(0), w(0);
  float expected = 0;
  for (int round = 0; round < 12; ++round) {
    for (int key = 1; key <= 3; ++key) {
      step(x, y, w, key);
      expected += static_cast<float>(key);
      ASSERT_EQ(value(y), expected);
      ASSERT_LE(stats().kept, 2u);
    }
  }
  EXPECT_GT(stats().evictions, 0u);
}

TEST_F(SmallDoorTest, NamesOfAKeyAreInMessages) {
  open({.key_names = "batch draft"});
  const Memory x(1), y(0), w(0);
  const cgs_range ranges[] = {x.range(), y.range(), w.range()};
  const std::int64_t key[] = {8, 2, 0};
  EXPECT_EQ(cgs_begin(steps_, key, 0, ranges, 3, stream()), CGS_INVALID);  // also at the first call
  for (int i = 0; i < 2; ++i) {
    int run = cgs_begin(steps_, key, 16, ranges, 3, stream());
    for (; run == CGS_RUN; run = cgs_end(steps_))
      work(1);
    ASSERT_EQ(run, CGS_DONE) << cgs_why(steps_);
  }
  for (const std::size_t bytes : {0, 8, 24})
    EXPECT_EQ(cgs_begin(steps_, key, bytes, ranges, 3, stream()), CGS_INVALID);
  EXPECT_EQ(cgs_begin(steps_, key, 8, ranges, 3, stream()), CGS_INVALID);
  EXPECT_NE(std::string(cgs_why(steps_)).find("a key of 8 bytes, where 2 names stand for 16 bytes"),
            std::string::npos)
      << cgs_why(steps_);
}

TEST_F(SmallDoorTest, AnArgumentThatIsWrongIsNamedAndNothingIsLost) {
  const Memory x(1), y(0), w(0);
  step(x, y, w, 1);
  const cgs_range no_address[] = {{nullptr, 8}, y.range(), w.range()};
  EXPECT_EQ(cgs_begin(steps_, nullptr, 0, no_address, 3, stream()), CGS_INVALID);
  EXPECT_NE(std::string(cgs_why(steps_)).find("'x'"), std::string::npos) << cgs_why(steps_);
  const std::string long_key(57, 'k');
  EXPECT_EQ(cgs_begin(steps_, long_key.data(), long_key.size(), no_address, 3, stream()),
            CGS_INVALID);
  EXPECT_EQ(cgs_begin(steps_, nullptr, 8, no_address, 3, stream()), CGS_INVALID);
  EXPECT_NE(std::string(cgs_why(steps_)).find("null key"), std::string::npos) << cgs_why(steps_);
  EXPECT_EQ(cgs_begin(steps_, nullptr, 0, nullptr, 3, stream()), CGS_INVALID);
  EXPECT_NE(std::string(cgs_why(steps_)).find("null array of ranges"), std::string::npos);
  EXPECT_EQ(cgs_end(steps_), CGS_INVALID);
  EXPECT_EQ(cgs_begin(nullptr, nullptr, 0, nullptr, 0, nullptr), CGS_INVALID);
  EXPECT_STREQ(cgs_why(nullptr), "the cgs_steps is null");
  cgs_steps* none = nullptr;
  EXPECT_EQ(cgs_open(nullptr, "f", 0, nullptr, 0, nullptr), CGS_INVALID);
  EXPECT_EQ(cgs_open(&none, "", 0, nullptr, 0, nullptr), CGS_INVALID);
  EXPECT_EQ(cgs_open(&none, "f", 4711, nullptr, 0, nullptr), CGS_INVALID);
  EXPECT_NE(std::string(cgs_why(nullptr)).find("4711"), std::string::npos) << cgs_why(nullptr);
  const cgs_binding nameless[] = {{nullptr, 0, 8}};
  EXPECT_EQ(cgs_open(&none, "f", 0, nameless, 1, nullptr), CGS_INVALID);
  const cgs_binding half[] = {{"block", CGS_HOST, 0}};
  EXPECT_EQ(cgs_open(&none, "f", 0, half, 1, nullptr), CGS_INVALID);
  const cgs_options larger = {.struct_size = 4711};
  EXPECT_EQ(cgs_open(&none, "f", 0, nullptr, 0, &larger), CGS_INVALID);
  EXPECT_EQ(none, nullptr);
  ASSERT_EQ(begin(x, y, w, 1), CGS_RUN);
  EXPECT_EQ(begin(x, y, w, 1), CGS_INVALID);  // the open step stays open
  work(1);
  EXPECT_EQ(cgs_end(steps_), CGS_DONE) << cgs_why(steps_);
  EXPECT_EQ(step(x, y, w, 1), 0);
  EXPECT_EQ(value(y), 3);
}

TEST_F(SmallDoorTest, AnOptionOrAFlagThatIsNotKnownIsRefusedWhenItIsOpened) {
  cgs_steps* none = nullptr;
  for (const char* const names : {"batch batch", "batch, draft", "a=b"}) {
    const cgs_options named = {.struct_size = sizeof named, .key_names = names};
    EXPECT_EQ(cgs_open(&none, "f", 0, nullptr, 0, &named), CGS_INVALID) << names;
  }
  const cgs_binding odd[] = {{"x", 16, 0}};
  EXPECT_EQ(cgs_open(&none, "f", 0, odd, 1, nullptr), CGS_INVALID);
  EXPECT_STREQ(cgs_why(nullptr), "binding 'x' has flags 0x10, where this library knows 0xf");
  const cgs_options half = {.struct_size = sizeof(std::size_t) + 4};  // ends inside a pointer
  EXPECT_EQ(cgs_open(&none, "f", 0, nullptr, 0, &half), CGS_INVALID);
  const cgs_binding block[] = {{"block", CGS_HOST | CGS_COPIED, 8}};
  EXPECT_EQ(cgs_open(&none, "f", 0, block, 1, nullptr), CGS_INVALID);
  EXPECT_NE(std::string(cgs_why(nullptr)).find("no other flag goes with CGS_HOST"),
            std::string::npos)
      << cgs_why(nullptr);
  EXPECT_EQ(none, nullptr);
}

TEST_F(SmallDoorTest, ARangeOfNoBytesMayPointAnywhere) {
  const Memory x(1), y(0);
  int runs = 0;
  for (std::uintptr_t i = 0; i < 4; ++i) {
    const cgs_range ranges[] = {x.range(), y.range(), {reinterpret_cast<void*>(i * 8), 0}};
    int run = cgs_begin(steps_, nullptr, 0, ranges, 3, stream());
    for (; run == CGS_RUN; run = cgs_end(steps_))
      ++runs;
    ASSERT_EQ(run, CGS_DONE) << why();
  }
  EXPECT_EQ(runs, 2);
  const cgs_range endless[] = {{x.get(), SIZE_MAX}, y.range(), {nullptr, 0}};
  EXPECT_EQ(cgs_begin(steps_, nullptr, 0, endless, 3, stream()), CGS_INVALID);
  expect_in_why("binding 0 'x' of 'decode' has 18446744073709551615 bytes at");
}

TEST_F(SmallDoorTest, WorkThatRefusesItsWarmUpIsNeverCaptured) {
  const Memory x(1), y(0), w(0);
  for (int i = 0; i < 4; ++i) {
    int run = begin(x, y, w, 1);
    for (; run == CGS_RUN; run = cgs_end(steps_)) {
      EXPECT_FALSE(cgs_is_captured(steps_));
      if (i == 0) ASSERT_EQ(cgs_refuse(steps_, "reads a length on the host"), CGS_DONE);
      work(1);
    }
    ASSERT_EQ(run, CGS_DONE) << why();
  }
  EXPECT_EQ(value(y), 4);
  EXPECT_EQ(stats().eager, 3u);
  expect_in_why("capture of 'decode' was refused: reads a length on the host");
}

TEST_F(SmallDoorTest, OnlyTheWorkOfAStepIsRefused) {
  const Memory x(1), y(0), w(0);
  step(x, y, w, 1);
  EXPECT_EQ(cgs_refuse(steps_, "no step is open"), CGS_INVALID);
  cgs_steps* other = nullptr;
  ASSERT_EQ(cgs_open(&other, "other", 0, nullptr, 0, nullptr), CGS_DONE);
  ASSERT_EQ(begin(x, y, w, 1), CGS_RUN);
  EXPECT_EQ(cgs_refuse(other, "the step of another one is open"), CGS_INVALID);
  EXPECT_EQ(cgs_begin(other, nullptr, 0, nullptr, 0, stream()), CGS_INVALID);
  work(1);
  EXPECT_EQ(cgs_end(steps_), CGS_DONE) << why();
  EXPECT_EQ(step(x, y, w, 1), 0);
  EXPECT_EQ(value(y), 3);
  cgs_close(other);
}

TEST_F(SmallDoorTest, WhyNamesTheCaptureThatHasFailed) {
  const Memory x(1), y(0), w(0);
  const std::int64_t key = 1;
  const cgs_range ranges[] = {x.range(), y.range(), w.range()};
  for (int i = 0; i < 3; ++i) {
    int run = cgs_begin(steps_, &key, sizeof key, ranges, 3, nullptr);  // the legacy stream
    for (; run == CGS_RUN; run = cgs_end(steps_)) {
    }
    ASSERT_EQ(run, CGS_DONE) << why();
    if (i > 0) expect_in_why("capture of 'decode' failed: ");
  }
  EXPECT_EQ(stats().eager, 2u);
  open({.max_graph_bytes = 1});
  for (int i = 0; i < 3; ++i)
    step(x, y, w, 1);
  expect_in_why("cgs_options.max_graph_bytes; ");
  expect_in_why(" its own, which is larger, max_graph_bytes is 1");
  ASSERT_EQ(begin(x, y, w, 2), CGS_RUN);
  EXPECT_EQ(cgs_leave(steps_), CGS_DONE);
  expect_in_why("throw: the step was left before its end()");
  expect_in_why("cgs_leave()");
}

TEST_F(SmallDoorTest, CallsThatDropRecordingsAreRefusedWhileAStepIsOpen) {
  const Memory x(1), y(0), w(0);
  for (int i = 0; i < 2; ++i) {  // a warm-up, then a capture
    ASSERT_EQ(begin(x, y, w, 1), CGS_RUN);
    EXPECT_EQ(cgs_invalidate(steps_, w.get(), kBytes), CGS_INVALID);
    EXPECT_EQ(why(),
              "cgs_invalidate() while a step of 'decode' is open: cgs_end() or cgs_leave() "
              "comes first");
    EXPECT_EQ(cgs_release(steps_), CGS_INVALID);
    expect_in_why("cgs_release() while a step of 'decode' is open");
    work(1);
    ASSERT_EQ(cgs_end(steps_), CGS_DONE) << why();
  }
  EXPECT_EQ(step(x, y, w, 1), 0);
  EXPECT_EQ(value(y), 3);
}

TEST_F(SmallDoorTest, WorkThatThrowsLeavesNoTraceOnceItIsLeft) {
  struct Leave {
    cgs_steps* steps;
    ~Leave() { cgs_leave(steps); }
  };
  const Memory x(1), y(0), w(0);
  for (int i = 0; i < 4; ++i) {  // two warm-ups, two captures; the first of each throws
    const bool throws = i % 2 == 0;
    try {
      const Leave leave{steps_};
      int run = begin(x, y, w, 1);
      for (; run == CGS_RUN; run = cgs_end(steps_)) {
        EXPECT_EQ(cgs_is_captured(steps_), i > 1);
        if (throws && i > 1) work(1);  // in a capture, which never runs
        if (throws) throw std::runtime_error("of the engine");
        work(1);
      }
      ASSERT_EQ(run, CGS_DONE) << why();
    } catch (const std::runtime_error&) {
      expect_in_why("throw: the step was left before its end()");
    }
    EXPECT_FALSE(stream_.ref().is_capturing());
  }
  EXPECT_EQ(step(x, y, w, 1), 0);
  EXPECT_EQ(value(y), 3);
  EXPECT_EQ(stats().failures, 2u);
  EXPECT_EQ(stats().calls, 5u);
}

TEST_F(SmallDoorTest, AStepBelongsToTheThreadThatHasBegunIt) {
  const Memory x(1), y(0), w(0);
  for (int i = 0; i < 2; ++i) {  // a warm-up, then a capture
    ASSERT_EQ(begin(x, y, w, 1), CGS_RUN);
    std::thread([&] {
      EXPECT_EQ(begin(x, y, w, 1), CGS_BUSY);
      EXPECT_STREQ(cgs_why(nullptr), "a step is open on another thread: end or leave it there");
      EXPECT_EQ(cgs_address(steps_, 0), nullptr);
      EXPECT_EQ(cgs_end(steps_), CGS_BUSY);
      EXPECT_EQ(cgs_leave(steps_), CGS_BUSY);
      EXPECT_EQ(cgs_refuse(steps_, "of another thread"), CGS_BUSY);
      EXPECT_EQ(cgs_invalidate(steps_, w.get(), kBytes), CGS_BUSY);
      EXPECT_EQ(cgs_freeze(steps_, 1), CGS_BUSY);
      EXPECT_EQ(cgs_release(steps_), CGS_BUSY);
      EXPECT_EQ(cgs_close(steps_), CGS_BUSY);
    }).join();
    work(1);
    ASSERT_EQ(cgs_end(steps_), CGS_DONE) << why();
  }
  std::thread([&] { EXPECT_EQ(step(x, y, w, 1), 0); }).join();  // between steps, each thread may
  EXPECT_EQ(value(y), 3);
}

TEST_F(SmallDoorTest, AThreadThatEndsLeavesItsStep) {
  const Memory x(1), y(0), w(0);
  for (int i = 0; i < 2; ++i) {  // a warm-up, then a capture
    std::thread([&] { EXPECT_EQ(begin(x, y, w, 1), CGS_RUN); }).join();
    EXPECT_FALSE(stream_.ref().is_capturing());
    EXPECT_EQ(step(x, y, w, 1), 1);
  }
  EXPECT_EQ(step(x, y, w, 1), 0);
  EXPECT_EQ(value(y), 3);
  EXPECT_EQ(stats().failures, 2u);
}

// A stream that the engine owns: only cgs_retire_stream() reports its end.
TEST_F(SmallDoorTest, AStreamThatIsRetiredMayGoBeforeTheLastStep) {
  cgtree::DeviceAPI& api = cgtree::device_api(kDevice);
  const Memory x(1), y, w(0);
  for (int i = 0; i < 4; ++i) {
    cgtree::StreamHandle own;
    expect_ok(api.create_stream(0, cgtree::StreamKind::kNonBlocking, &own));
    auto* const native = reinterpret_cast<CUstream_st*>(static_cast<std::uintptr_t>(own));
    const cgs_range memory[] = {x.range(), y.range(), w.range()};
    const std::int64_t key = 1;
    int run = cgs_begin(steps_, &key, sizeof key, memory, 3, native);
    for (; run == CGS_RUN; run = cgs_end(steps_)) {
      const auto* const at = static_cast<const float*>(cgs_address(steps_, 0));
      cgtree::parallel_for(cgtree::StreamRef(api, kDevice, own), kCount, Axpy{1, at, y.get()});
    }
    EXPECT_EQ(run, CGS_DONE) << why();
    EXPECT_EQ(cgs_retire_stream(0, native), CGS_DONE) << cgs_why(nullptr);
    expect_ok(api.destroy_stream(own));
  }
  EXPECT_EQ(stats().replays, 2u);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cgs_close(std::exchange(steps_, nullptr)), CGS_DONE);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(y.value(), 4);
  EXPECT_EQ(cgs_retire_stream(0, nullptr), CGS_DONE);
  EXPECT_EQ(cgs_retire_stream(99, reinterpret_cast<CUstream_st*>(8)), CGS_INVALID);
  EXPECT_NE(std::string(cgs_why(nullptr)).find("99"), std::string::npos) << cgs_why(nullptr);
}

struct Flags {
  std::atomic<bool> has_started = false;
  std::atomic<bool> may_go_on = false;
};

// The replay, or the release that waits for it, is inside while the stream is blocked.
TEST_F(SmallDoorTest, AThreadIsBusyWhileAnotherIsInside) {
  const Memory x(1), y(0), w(0);
  Flags flags;
  const auto wait = [](void* data) {
    Flags& shared = *static_cast<Flags*>(data);
    shared.has_started = true;
    while (!shared.may_go_on)
      std::this_thread::yield();
  };
  const auto call = [&] {
    int run = CGS_BUSY;
    while ((run = begin(x, y, w, 1)) == CGS_BUSY) {
    }
    for (; run == CGS_RUN; run = cgs_end(steps_)) {
      work(1);
      expect_ok(cgtree::device_api(kDevice).graphs()->launch_host_function(stream_.ref().handle(),
                                                                           wait, &flags));
    }
    EXPECT_EQ(run, CGS_DONE);
  };
  flags.may_go_on = true;
  call();
  call();
  stream_.synchronize();
  flags.has_started = flags.may_go_on = false;
  std::thread inside([&] {
    call();
    while (cgs_release(steps_) == CGS_BUSY) {
    }
  });
  while (!flags.has_started)
    std::this_thread::yield();
  while (cgs_freeze(steps_, 0) != CGS_BUSY)
    std::this_thread::yield();
  EXPECT_STREQ(cgs_why(nullptr), "another thread is inside the cgs_steps: use it on one at a time");
  EXPECT_EQ(cgs_close(steps_), CGS_BUSY);
  flags.may_go_on = true;
  inside.join();
  EXPECT_EQ(value(y), 3);
  EXPECT_EQ(stats().replays, 1u);
}

// Calls all functions at random, and tracks the values that memory must have.
class RandomProgramTest : public SmallDoorTest {
 protected:
  enum class Throw { kNever, kBeforeItsWork, kBehindItsWork };

  std::size_t pick(std::size_t count) { return random_() % count; }

  void open_at_random() {
    cgs_options options = {.struct_size = sizeof options};
    options.max_recordings = pick(6);
    options.max_graph_bytes = pick(2) * 300000;
    options.captures_strictly = static_cast<int>(pick(2));
    options.runs_eagerly = pick(8) == 0;
    const auto of_session = [&] { return pick(2) == 0 ? CGS_SESSION : 0u; };
    const cgs_binding bindings[] = {{"x", CGS_COPIED, 0},
                                    {"y", CGS_WRITTEN | of_session(), 0},
                                    {"w", of_session(), 0},
                                    {"block", CGS_HOST, sizeof(int)},
                                    {"z", CGS_COPIED | CGS_WRITTEN, 0}};
    cgs_close(steps_);
    ASSERT_EQ(cgs_open(&steps_, "random", 0, bindings, 5, &options), CGS_DONE) << cgs_why(nullptr);
  }

  // Makes every wrong call while a step is open. None has an effect.
  void misuse(const cgs_range* ranges) {
    EXPECT_EQ(cgs_begin(steps_, nullptr, 0, ranges, 5, stream()), CGS_INVALID);
    EXPECT_EQ(cgs_invalidate(steps_, ranges[1].address, 1), CGS_INVALID);
    EXPECT_EQ(cgs_release(steps_), CGS_INVALID);
    EXPECT_EQ(cgs_address(steps_, 5), nullptr);
    std::thread([&] {
      EXPECT_EQ(cgs_leave(steps_), CGS_BUSY);
      EXPECT_EQ(cgs_close(steps_), CGS_BUSY);
    }).join();
  }

  // Returns true if the work has run or will run.
  bool call(std::size_t x, std::size_t y, std::size_t w, std::size_t z, int key, Throw throws) {
    auto block = std::make_unique<int>(key + static_cast<int>(pick(3)));
    added_ = static_cast<float>(*block);
    const cgs_range ranges[] = {
        xs_[x].range(), ys_[y].range(), ws_[w].range(), {block.get(), sizeof(int)}, zs_[z].range()};
    bool runs = false;
    int run = cgs_begin(steps_, &key, sizeof key, ranges, 5, stream());
    *block = 4711;  // already read
    block.reset();
    const bool refuses = pick(16) == 0;
    try {
      for (; run == CGS_RUN; run = cgs_end(steps_)) {
        runs = false;
        if (pick(8) == 0) misuse(ranges);
        if (refuses) EXPECT_EQ(cgs_refuse(steps_, "at random"), CGS_DONE);
        if (throws == Throw::kBeforeItsWork) throw std::runtime_error("before");
        work(static_cast<float>(key));
        cgtree::parallel_for(stream_.ref(), kCount,
                             AddFromBlock{static_cast<const int*>(cgs_address(steps_, 3)),
                                          static_cast<float*>(cgs_address(steps_, 1))});
        cgtree::parallel_for(stream_.ref(), kCount,
                             Axpy{1, static_cast<const float*>(cgs_address(steps_, 0)),
                                  static_cast<float*>(cgs_address(steps_, 4))});
        runs = !cgs_is_captured(steps_);
        if (throws == Throw::kBehindItsWork) throw std::runtime_error("behind");
      }
    } catch (const std::runtime_error&) {
      EXPECT_EQ(cgs_leave(steps_), CGS_DONE);
      return runs;
    }
    EXPECT_EQ(run, CGS_DONE) << why();
    return true;
  }

  void play(int i) {
    const std::size_t x = pick(3), y = pick(4), w = pick(2), z = pick(2);
    const int key = static_cast<int>(pick(3));
    const cgs_stats before = stats();
    switch (pick(16)) {
      case 0:
        EXPECT_EQ(cgs_invalidate(steps_, ws_[w].get(), kBytes), CGS_DONE);
        break;
      case 1:
        EXPECT_EQ(cgs_release(steps_), CGS_DONE) << why();
        EXPECT_EQ(stats().kept, 0u);
        break;
      case 2:
      case 3:
        EXPECT_EQ(cgs_freeze(steps_, static_cast<int>(pick(2))), CGS_DONE);
        break;
      case 4:
        EXPECT_EQ(cgs_refuse(steps_, "outside"), CGS_INVALID);
        EXPECT_EQ(cgs_end(steps_), CGS_INVALID);
        EXPECT_EQ(cgs_leave(steps_), CGS_DONE);
        break;
      default:
        if (!call(x, y, w, z, key, pick(6) == 0 ? static_cast<Throw>(1 + pick(2)) : Throw::kNever))
          break;
        y_values_[y] += static_cast<float>(key) * static_cast<float>(x + 1) +
                        2 * static_cast<float>(w + 5) + added_;
        z_values_[z] += static_cast<float>(x + 1);
    }
    ASSERT_EQ(value(ys_[y]), y_values_[y]) << "at " << i << ": " << why();
    ASSERT_EQ(value(zs_[z]), z_values_[z]) << "at " << i << ": " << why();
    const cgs_stats now = stats();
    ASSERT_EQ(now.calls, now.warm_ups + now.recordings + now.replays + now.eager + now.failures);
    ASSERT_LE(before.calls, now.calls);
    ASSERT_FALSE(stream_.ref().is_capturing());
    ASSERT_FALSE(why().empty());
  }

  std::mt19937 random_;
  const Memory xs_[3] = {Memory(1), Memory(2), Memory(3)};
  const Memory ys_[4], ws_[2] = {Memory(5), Memory(6)}, zs_[2];
  float y_values_[4] = {0, 0, 0, 0}, z_values_[2] = {0, 0};
  float added_ = 0;  // from the block of the last call
};

TEST_F(RandomProgramTest, MemoryIsAsTheWorkWouldHaveLeftItAndAllOfItIsGivenBack) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  random_.seed(seed);
  const auto free_memory = [] {  // other programs use a GPU, too
    const bool is_alone = kDevice.type != cgtree::DeviceType::kCuda;
    cgtree::DeviceAPI& api = cgtree::device_api(kDevice);
    return is_alone ? std::get<std::int64_t>(api.attribute(0, cgtree::DeviceAttribute::kFreeMemory))
                    : 0;
  };
  cgs_close(std::exchange(steps_, nullptr));
  const std::int64_t free_before = free_memory();
  for (int round = 0; round < 4; ++round) {
    open_at_random();
    for (int i = 0; i < 150 && !HasFatalFailure(); ++i)
      play(i);
    EXPECT_EQ(cgs_release(steps_), CGS_DONE) << why();
    EXPECT_EQ(cgs_close(std::exchange(steps_, nullptr)), CGS_DONE);
    EXPECT_EQ(free_memory(), free_before);
  }
}

TEST_F(SmallDoorTest, ThreadsHaveStepsOfTheirOwn) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      cgs_steps* own = nullptr;
      const cgs_binding bindings[] = {{"x", CGS_COPIED, 0}, {"y", CGS_WRITTEN, 0}};
      ASSERT_EQ(cgs_open(&own, "own", 0, bindings, 2, nullptr), CGS_DONE);
      const cgtree::Stream stream(kDevice);
      const Memory y(0);
      const Memory x(1);
      for (int i = 0; i < 50; ++i) {
        const cgs_range ranges[] = {x.range(), y.range()};
        int run = cgs_begin(own, nullptr, 0, ranges, 2,
                            reinterpret_cast<CUstream_st*>(stream.ref().handle()));
        for (; run == CGS_RUN; run = cgs_end(own)) {
          cgtree::parallel_for(stream.ref(), kCount,
                               Axpy{1, static_cast<const float*>(cgs_address(own, 0)), y.get()});
        }
        ASSERT_EQ(run, CGS_DONE) << cgs_why(own);
      }
      stream.synchronize();
      cgs_close(own);
      EXPECT_EQ(y.value(), 50);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

}  // namespace
