// Loops that hand out rows through C: waits, rows that are read or lost, and handles.
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "tests/c_api/flow_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;

using OwnedLoopStream = Owned<cgt_loop_stream, cgt_loop_stream_destroy>;

constexpr std::uint64_t kSeconds = 5'000'000;  // in microseconds: long enough for any row
constexpr std::size_t kRowBytes = 2 * sizeof(float);

class CLoopStreamTest : public CStepTest {
 protected:
  OwnedLoopStream make(std::size_t rows, std::size_t row_bytes = kRowBytes) {
    OwnedLoopStream stream;
    EXPECT_DONE(cgt_loop_stream_create(c_device(device()), row_bytes, rows, stream.out()));
    return stream;
  }
  // (x, on) -> the number of rounds; y = x, and then at most `most` rounds of y += x that hand out
  // y.
  OwnedFunction compile_sums(cgt_loop_stream rows, std::int64_t most) {
    return compile([rows, most](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
      const cgt_tensor y = copy_of(in[0]);
      const Enqueue round = [&](cgt_tensor* results, std::size_t count) {
        EXPECT_EQ(count, 2u);
        add_to(y, 1, in[0]);
        results[0] = in[1];
        results[1] = y;
        return CGT_OK;
      };
      const cgt_body body = body_of(round);
      return cgt_loop_rows(most, rows, &body, nullptr, 0, &out[0]);
    });
  }
  std::int32_t rounds_of(cgt_function function, std::vector<float> x, std::int32_t on = 1) {
    const OwnedTensor given = make_tensor_of(device(), x), flag = make_flags(device(), {on});
    const cgt_tensor inputs[] = {given, flag};
    OwnedTensor rounds;
    EXPECT_DONE(cgt_call(function, inputs, 2, rounds.out(), 1));
    return number_of(rounds);
  }
  static cgt_loop_row next(cgt_loop_stream rows, std::vector<float>* values,
                           std::uint64_t limit = kSeconds) {
    values->assign(2, -7);
    cgt_loop_row row = {.struct_size = sizeof(row), .round = -7, .loop = 77};
    EXPECT_DONE(cgt_loop_stream_next(rows, values->data(), kRowBytes, limit, &row));
    EXPECT_EQ(row.struct_size, sizeof(row));
    return row;
  }
  static bool is_empty(cgt_loop_stream rows) {
    std::vector<float> values;
    const cgt_loop_row row = next(rows, &values, 0);
    EXPECT_TRUE(row.loop != 0 || (row.round == 0 && row.bytes == 0 && row.is_last == 0));
    return row.loop == 0;
  }
};
CGTREE_ON_ALL_DEVICES(CLoopStreamTest);

TEST_P(CLoopStreamTest, AWaitWithoutLimitEndsWithARow) {
  const OwnedLoopStream rows = make(8);
  const OwnedFunction function = compile_sums(rows, 1);
  std::vector<float> values;
  cgt_loop_row row = {};
  std::thread reader([&] { row = next(rows, &values, UINT64_MAX); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(rounds_of(function, {1, 2}), 1);
  reader.join();
  EXPECT_EQ(row.loop, 1u);
  EXPECT_THAT(values, ElementsAre(2, 4));
}

TEST_P(CLoopStreamTest, RowsMayBeDrawn) {
  const OwnedLoopStream rows = make(8);
  OwnedGenerator generator;
  EXPECT_DONE(cgt_generator_create(9, generator.out()));
  const OwnedFunction function = compile([&](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    const cgt_generator given = generator;
    const Enqueue round = [&](cgt_tensor* results, auto) {
      results[0] = in[1];
      results[1] = copy_of(in[0]);
      return cgt_fill_uniform(given, results[1], nullptr);
    };
    const cgt_body body = body_of(round);
    return cgt_loop_rows(3, rows, &body, &given, 1, &out[0]);
  });
  std::set<std::vector<float>> seen;
  for (int i = 0; i < 6; ++i) {
    EXPECT_DONE(cgt_generator_set_seed(generator, static_cast<std::uint64_t>(i % 2)));
    EXPECT_EQ(rounds_of(function, {1, 2}), 3);
    for (int round = 0; round < 3; ++round) {
      std::vector<float> values;
      (void)next(rows, &values);
      seen.insert(values);
    }
  }
  EXPECT_EQ(seen.size(), 6u);  // three for each seed, equal in each phase
}

TEST_P(CLoopStreamTest, RowsThatAreLostOrTooLargeAreNamed) {
  const OwnedLoopStream rows = make(2);
  const OwnedFunction function = compile_sums(rows, 5);
  (void)rounds_of(function, {1, 2});
  std::vector<float> values(2, -7);
  cgt_loop_row row = {.struct_size = sizeof(row), .round = -7};
  const auto read = [&](std::size_t bytes) {
    return cgt_loop_stream_next(rows, values.data(), bytes, 0, &row);
  };
  EXPECT_FAILS(read(kRowBytes), CGT_INVALID_ARGUMENT, "3 rows of a LoopStream were overwritten");
  EXPECT_FAILS(read(4), CGT_INVALID_ARGUMENT, "there is room for 4");
  EXPECT_EQ(row.round, -7);
  EXPECT_EQ(next(rows, &values).round, 3);
  EXPECT_THAT(values, ElementsAre(5, 10));
  EXPECT_EQ(next(rows, &values).round, 4);
  EXPECT_TRUE(is_empty(rows));
}

TEST_P(CLoopStreamTest, ARecordingOutlivesTheHandleOfItsStream) {
  OwnedLoopStream rows = make(4);
  const OwnedFunction function = compile_sums(rows, 2);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(rounds_of(function, {1, 2}), 2);
  const cgt_loop_stream destroyed = rows;
  rows.reset();
  EXPECT_EQ(rounds_of(function, {1, 2}), 2);
  EXPECT_EQ(stats(function)["replays"], 2);
  EXPECT_FAILS(cgt_loop_stream_stop(destroyed), CGT_INVALID_HANDLE,
               "a loop stream that was destroyed");
}

TEST_P(CLoopStreamTest, HandlesOfStreamsAndWatchesAreCounted) {
  const std::size_t before = cgt_live_handles();
  OwnedLoopStream rows = make(4);
  EXPECT_EQ(cgt_live_handles(), before + 1);
  cgt_progress_watch watch = nullptr;
  EXPECT_DONE(cgt_progress_watch_create(nullptr, &watch));
  EXPECT_EQ(cgt_live_handles(), before + 2);
  EXPECT_DONE(cgt_progress_watch_destroy(watch));
  rows.reset();
  EXPECT_EQ(cgt_live_handles(), before);
}

TEST_P(CLoopStreamTest, WrongArgumentsAreNamed) {
  OwnedLoopStream none;
  EXPECT_FAILS(cgt_loop_stream_create(c_device(device()), 6, 4, none.out()), CGT_INVALID_ARGUMENT,
               "4 rows of 6 bytes");
  EXPECT_FAILS(cgt_loop_stream_create(c_device(device()), 4, 4, nullptr), CGT_INVALID_ARGUMENT,
               "the place for the result is NULL");
  EXPECT_DONE(cgt_loop_stream_destroy(nullptr));
  const OwnedLoopStream rows = make(4);
  cgt_stream stream = {};
  EXPECT_DONE(cgt_stream_create(c_device(device()), 0, &stream));
  EXPECT_DONE(cgt_stream_push(stream));
  const OwnedTensor on = make_flags(device(), {1}), large = make_tensor(device(), {3});
  const Enqueue flag_alone = [&](cgt_tensor* results, auto) { return results[0] = on, CGT_OK; };
  const Enqueue too_large = [&](cgt_tensor* results, auto) {
    results[0] = on;
    results[1] = large;
    return CGT_OK;
  };
  const cgt_body body = body_of(flag_alone), other = body_of(too_large);
  const auto loop = [&](cgt_loop_stream to, const cgt_body* each, std::int64_t most = 2) {
    return cgt_loop_rows(most, to, each, nullptr, 0, nullptr);
  };
  EXPECT_FAILS(loop(nullptr, &body), CGT_INVALID_HANDLE, "the loop stream is NULL");
  EXPECT_FAILS(loop(rows, nullptr), CGT_INVALID_ARGUMENT, "body of loop() is missing");
  EXPECT_FAILS(loop(rows, &body, 0), CGT_INVALID_ARGUMENT, "at most 0 rounds");
  EXPECT_FAILS(loop(rows, &body), CGT_INVALID_HANDLE, "result 1 of 'the body of loop()'");
  EXPECT_FAILS(loop(rows, &other), CGT_INVALID_ARGUMENT, "at most the 8 of its LoopStream");
  EXPECT_DONE(cgt_stream_pop());
  EXPECT_DONE(cgt_stream_destroy(stream));

  std::vector<float> values(2);
  cgt_loop_row row = {.struct_size = 7};
  const auto read = [&](float* to, cgt_loop_row* into) {
    return cgt_loop_stream_next(rows, to, kRowBytes, 0, into);
  };
  EXPECT_FAILS(read(nullptr, &row), CGT_INVALID_ARGUMENT, "the buffer is NULL");
  EXPECT_FAILS(read(values.data(), nullptr), CGT_INVALID_ARGUMENT, "cgt_loop_row is NULL");
  EXPECT_FAILS(read(values.data(), &row), CGT_INVALID_ARGUMENT, "cgt_loop_row");
  EXPECT_TRUE(is_empty(rows));
}

}  // namespace
}  // namespace cgtree::testing
