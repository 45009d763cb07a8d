// Loops that hand out rows: the host gets each row of each round once, and may end the loop.
#include "extensions/flow/loop_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cgtree/steps.h"
#include "extensions/flow/control_flow.h"
#include "extensions/scopes/scope.h"
#include "extensions/sizes/precapture.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "extensions/watch/watch.h"
#include "interop/device/graph_api.h"
#include "interop/random/random.h"
#include "interop/tensor/copy.h"
#include "tests/support/captured_log.h"
#include "tests/support/flags.h"
#include "tests/support/flow_steps.h"
#include "tests/support/gate.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using std::chrono::seconds;

constexpr int kWidth = 3;  // floats of a row

class LoopStreamTest : public TreeTest {
 protected:
  Tensor flag(std::int32_t value) {
    return from_host(Shape(), std::span<const std::int32_t>(&value, 1), device());
  }
  static std::int32_t count(const Tensor& tensor) { return tensor.to_vector<std::int32_t>()[0]; }

  // y = x, followed by rounds of y = 2 y + 1 that hand out y, until y[0] reaches `limit` or after
  // `most` rounds.
  auto doubling(LoopStream& rows, float limit, std::int64_t most) {
    return [this, &rows, limit, most](Tensor x) {
      const Tensor y = affine(x, 1, 0);
      const Tensor below = empty(Shape(), DType::kInt32, device());
      return loop(most, rows, [&]() -> LoopRound {
        update(y, 2, 1);
        const Tensor negative = affine(y, -1, 0);
        compare(negative, -limit, below);
        return {below, y};
      });
    };
  }
  static std::vector<std::vector<float>> doubled(std::vector<float> y, float limit, int most) {
    std::vector<std::vector<float>> rows;
    do {
      y = affine_of(y, 2, 1);
      rows.push_back(y);
    } while (y[0] < limit && std::ssize(rows) < most);
    return rows;
  }
  LoopStream make(std::size_t rows) { return {device(), kWidth * sizeof(float), rows}; }
  // Returns the next row, which must arrive within seconds.
  static std::vector<float> next(LoopStream& rows, LoopRow* row) {
    std::vector<float> values(kWidth, -7);
    const std::optional<LoopRow> got =
        rows.next(std::as_writable_bytes(std::span(values)), seconds(5));
    EXPECT_TRUE(got.has_value());
    *row = got.value_or(LoopRow{.is_last = true});
    EXPECT_EQ(row->bytes, kWidth * sizeof(float));
    return values;
  }
  static bool is_empty(LoopStream& rows) {
    std::vector<float> values(kWidth);
    return !rows.next(std::as_writable_bytes(std::span(values)), seconds(0));
  }

  Tensor flag_;
};
CGTREE_ON_ALL_DEVICES(LoopStreamTest);

TEST_P(LoopStreamTest, EachRoundOfEachRunHandsOutItsRowOnce) {
  LoopStream rows = make(16);
  CompiledFunction f = compile(context(), "f", doubling(rows, 50, 9));
  for (std::uint64_t call = 1; call <= 8; ++call) {
    const std::vector<float> x = random_floats(kWidth);
    const auto expected = doubled(x, 50, 9);
    const Tensor rounds = f(tensor({kWidth}, x));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      LoopRow row;
      EXPECT_EQ(next(rows, &row), expected[i]) << call << " " << i;
      EXPECT_EQ(row.loop, call);
      EXPECT_EQ(row.round, static_cast<std::int32_t>(i));
      EXPECT_EQ(row.is_last, i + 1 == expected.size());
    }
    EXPECT_TRUE(is_empty(rows));
    EXPECT_EQ(count(rounds), std::ssize(expected));
  }
  EXPECT_EQ(f.stats().replays, 6u) << to_string(f.stats());
}

// Its memory does not belong to the call, which may fail.
TEST_P(LoopStreamTest, ALoopStreamOutlivesTheCallThatHasMadeIt) {
  for (const bool is_captured : {false, true}) {
    make_context({.checked = is_captured});
    std::optional<LoopStream> rows;
    const Tensor on = flag(1);
    bool throws = true;
    CompiledFunction f = compile(context(), "f", [&](Tensor x) {
      const Tensor y = affine(x, 1, 0);
      if (is_captured != current_stream().is_capturing() && !rows) return y;
      if (!rows) rows.emplace(device(), kWidth * sizeof(float), 8);
      (void)loop(2, *rows, [&]() -> LoopRound {
        if (std::exchange(throws, false)) throw std::runtime_error("boom");
        update(y, 2, 1);
        return {on, y};
      });
      return y;
    });
    const std::vector<float> x = random_floats(kWidth);
    for (int call = 0; call < 2 && throws; ++call) {
      try {
        (void)f(tensor({kWidth}, x));
      } catch (const std::runtime_error&) {
      }
    }
    ASSERT_TRUE(rows.has_value());
    context().synchronize();
    rows->drop();
    // Other tensors take the memory that the call has released.
    std::vector<Tensor> tables;
    CompiledFunction g = compile(context(), "g", [&](Tensor z) {
      for (int i = 0; i < 8; ++i)
        tables.push_back(affine(z, 1, 0));
      return add(z, tables.back());
    });
    const std::vector<float> z = random_floats(6);
    (void)g(tensor({6}, z));
    for (int call = 0; call < 4; ++call) {
      const std::vector<float> once = affine_of(x, 2, 1);
      EXPECT_EQ(values(f(tensor({kWidth}, x))), affine_of(once, 2, 1)) << call;
      LoopRow row;
      EXPECT_EQ(next(*rows, &row), once);
      EXPECT_EQ(next(*rows, &row), affine_of(once, 2, 1));
      EXPECT_TRUE(row.is_last);
    }
    EXPECT_GT(f.stats().replays, 0u) << to_string(f.stats());
    for (const Tensor& table : tables)
      EXPECT_EQ(values(table), z);
    tables.clear();
  }
}

TEST_P(LoopStreamTest, ALoopThatIsStoppedBeforeItBeginsEndsWithItsFirstRound) {
  LoopStream rows = make(16);
  CompiledFunction f = compile(context(), "f", doubling(rows, 1e30f, 5));
  for (int call = 0; call < 6; ++call) {
    const bool is_stopped = call % 2 != 0;
    if (is_stopped) rows.stop();
    EXPECT_EQ(count(f(random_tensor({kWidth}))), is_stopped ? 1 : 5) << call;
    LoopRow row;
    do {
      (void)next(rows, &row);
    } while (!row.is_last);
  }
}

// The host is behind by many rows, or by one.
TEST_P(LoopStreamTest, StopAppliesToALoopWhoseRowsAreAllRead) {
  LoopStream rows = make(16);
  const Tensor x = random_tensor({kWidth}), on = flag(1);
  const StreamScope current(context().stream());
  for (const int expected : {2, 4}) {
    int round = 0;
    const Tensor rounds = loop(4, rows, [&]() -> LoopRound {
      LoopRow row;
      if (round++ == 1) {
        EXPECT_EQ(next(rows, &row), values(x));
      }
      if (round == 2 && expected == 2) rows.stop();
      return {on, x};
    });
    EXPECT_EQ(count(rounds), expected);
    (void)rows.drop();
  }
}

// Uses of pinned memory on a default stream cannot be noted; an eager round ends before its row is
// read.
TEST_P(LoopStreamTest, ALoopRunsOnADefaultStreamToo) {
  LoopStream rows = make(16);
  const Tensor x = random_tensor({kWidth}), on = flag(1);
  for (const StreamHandle handle : {StreamHandle::kLegacy, StreamHandle::kPerThread}) {
    const StreamScope current(StreamRef(device(), handle));
    EXPECT_EQ(count(loop(2, rows, [&]() -> LoopRound { return {on, x}; })), 2);
    LoopRow row;
    for (int round = 0; round < 2; ++round)
      EXPECT_EQ(next(rows, &row), values(x));
    EXPECT_TRUE(row.is_last);
  }
}

TEST_P(LoopStreamTest, RowsThatWereOverwrittenAreSaidToBeLostAndTheRestIsRead) {
  for (const std::size_t kept : {4, 9}) {
    LoopStream rows = make(kept);
    CompiledFunction f = compile(context(), "f", doubling(rows, 1e30f, 10));
    for (int call = 0; call < 4; ++call) {
      const std::vector<float> x = random_floats(kWidth);
      const auto expected = doubled(x, 1e30f, 10);
      (void)f(tensor({kWidth}, x)).to_vector<std::int32_t>();
      std::vector<float> values(kWidth);
      try {
        (void)rows.next(std::as_writable_bytes(std::span(values)), seconds(0));
        ADD_FAILURE() << "nothing was thrown";
      } catch (const InvalidArgument& error) {
        const std::string lost = std::to_string(10 - kept) + " rows";
        EXPECT_NE(std::string(error.what()).find(lost), std::string::npos) << error.what();
      }
      for (std::size_t i = 10 - kept; i < 10; ++i) {
        LoopRow row;
        EXPECT_EQ(next(rows, &row), expected[i]);
        EXPECT_EQ(row.round, static_cast<std::int32_t>(i));
      }
      EXPECT_TRUE(is_empty(rows));
    }
  }
}

TEST_P(LoopStreamTest, ExactlyAsManyRowsAsItHasAreKept) {
  LoopStream rows = make(10);
  CompiledFunction f = compile(context(), "f", doubling(rows, 1e30f, 10));
  for (int call = 0; call < 4; ++call) {
    (void)f(random_tensor({kWidth})).to_vector<std::int32_t>();
    LoopRow row;
    for (int i = 0; i < 10; ++i) {
      (void)next(rows, &row);
      EXPECT_EQ(row.round, i);
    }
  }
}

TEST_P(LoopStreamTest, ARowThatIsLargerThanTheBufferRemains) {
  LoopStream rows = make(4);
  CompiledFunction f = compile(context(), "f", doubling(rows, 0, 1));
  (void)f(random_tensor({kWidth}));
  std::vector<float> small(kWidth - 1);
  EXPECT_THROW((void)rows.next(std::as_writable_bytes(std::span(small)), seconds(5)),
               InvalidArgument);
  LoopRow row;
  (void)next(rows, &row);
  EXPECT_TRUE(row.is_last);
}

TEST_P(LoopStreamTest, ASecondThreadMayNotReadMeanwhile) {
  LoopStream rows = make(4);
  CompiledFunction f = compile(context(), "f", doubling(rows, 0, 1));
  const Tensor x = random_tensor({kWidth});
  std::atomic<bool> is_over = false;
  std::thread reader([&] {
    std::vector<float> values(kWidth);
    bool has_read = false;
    while (!has_read) {
      try {
        has_read = rows.next(std::as_writable_bytes(std::span(values)), seconds(1)).has_value();
      } catch (const ConcurrentUse&) {  // another thread is waiting in it
      }
    }
    is_over = true;
  });
  bool is_refused = false;
  for (int i = 0; i < 100'000'000 && !is_refused; ++i) {
    try {
      (void)is_empty(rows);
    } catch (const ConcurrentUse&) {
      is_refused = true;
    }
  }
  EXPECT_TRUE(is_refused);
  EXPECT_FALSE(is_over);
  (void)f(x);
  reader.join();
  EXPECT_TRUE(is_empty(rows));
}

TEST_P(LoopStreamTest, TheRowsOfALoopWithinALoopComeInOrder) {
  LoopStream rows = make(32);
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor on) {
    const Tensor y = affine(x, 1, 0);
    return loop(3, [&] {
      (void)loop(2, rows, [&]() -> LoopRound {
        update(y, 2, 1);
        return {on, y};
      });
      return on;
    });
  });
  std::uint64_t number = 0;
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(kWidth);
    const auto expected = doubled(x, 1e30f, 6);
    (void)f(tensor({kWidth}, x), flag(1));
    for (int i = 0; i < 6; ++i) {
      LoopRow row;
      EXPECT_EQ(next(rows, &row), expected[static_cast<std::size_t>(i)]);
      EXPECT_EQ(row.round, i % 2);
      if (i % 2 == 0) ++number;
      EXPECT_EQ(row.loop, number);
    }
  }
  EXPECT_TRUE(is_empty(rows));
}

TEST_P(LoopStreamTest, ARecordingOutlivesTheStreamThatItWritesTo) {
  std::optional<LoopStream> rows(make(4));
  const Tensor x = random_tensor({kWidth});
  const Tensor on = flag(1);
  CompiledFunction f = compile(context(), "f", [&](Tensor y) {
    if (!rows) return affine(y, 0, 0);
    return loop(2, *rows, [&]() -> LoopRound { return {on, y}; });
  });
  for (int call = 0; call < 3; ++call)
    (void)f(x);
  rows.reset();
  const Tensor others = random_tensor({4096});  // at the row's address, if its memory was free
  const std::vector<float> before = values(others);
  EXPECT_EQ(count(f(x)), 2);
  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(values(others), before);
}

TEST_P(LoopStreamTest, AReplayThatHandsOutRowsIsNotVerified) {
  make_context({.extensions = {verify({.every = 1})}});
  LoopStream rows = make(16);
  CompiledFunction f = compile(context(), "f", doubling(rows, 1e30f, 2));
  for (int call = 0; call < 5; ++call) {
    (void)f(random_tensor({kWidth}));
    LoopRow row;
    for (int i = 0; i < 2; ++i)
      (void)next(rows, &row);
    EXPECT_TRUE(row.is_last);
    EXPECT_TRUE(is_empty(rows)) << call;
  }
  EXPECT_EQ(f.stats().verified, 0u);
  EXPECT_EQ(f.stats().unverified[static_cast<int>(UnverifiedReason::kLoopStream)], 3u);
}

TEST_P(LoopStreamTest, ABodyThatThrowsLeavesTheStreamInOrder) {
  LoopStream rows = make(16);
  bool throws = false;
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor on) {
    const Tensor y = affine(x, 1, 0);
    int round = 0;
    return loop(2, rows, [&]() -> LoopRound {
      if (throws && round++ == 1) throw std::runtime_error("the body");
      update(y, 2, 1);
      return {on, y};
    });
  });
  throws = true;
  EXPECT_THROW((void)f(random_tensor({kWidth}), flag(1)), std::runtime_error);
  throws = false;
  LoopRow row;
  (void)next(rows, &row);
  EXPECT_FALSE(row.is_last);
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(kWidth);
    (void)f(tensor({kWidth}, x), flag(1));
    for (const std::vector<float>& expected : doubled(x, 1e30f, 2))
      EXPECT_EQ(next(rows, &row), expected);
    EXPECT_TRUE(row.is_last);
    EXPECT_EQ(row.loop, static_cast<std::uint64_t>(call) + 2);
  }
}

// The host has read the rows of that loop, or dropped them; a stop() before its end does not apply
// to a later loop.
TEST_P(LoopStreamTest, ALoopWhoseBodyHasThrownIsNotTheOneThatStopMeans) {
  constexpr int kRounds = 5;
  enum Stops { kNever, kBefore, kInBody, kWithRowsUnread, kAfterwards };
  for (const int failing : {0, 1, 3}) {
    for (const Stops stops : {kNever, kBefore, kInBody, kWithRowsUnread, kAfterwards}) {
      LoopStream rows = make(16);
      int fails_in = -1;
      const auto step = [&](Tensor x, Tensor on) {
        int round = 0;
        return loop(kRounds, rows, [&]() -> LoopRound {
          if (round == fails_in && stops == kInBody) rows.stop();
          if (round++ == fails_in) throw std::runtime_error("the body");
          return {on, x};
        });
      };
      CompiledFunction f = compile(context(), "f", step);
      CompiledFunction eager = compile(context(), "eager", step, {.enabled = false});
      const auto rounds_of_call = [&] {
        const std::int32_t made = count(f(random_tensor({kWidth}), flag(1)));
        LoopRow row;
        for (int i = 0; i < made; ++i)
          (void)next(rows, &row);
        EXPECT_TRUE(row.is_last);
        EXPECT_TRUE(is_empty(rows));
        return made;
      };
      for (int call = 0; call < 2; ++call) {
        if (call > 0) {
          EXPECT_EQ(rounds_of_call(), kRounds);
        }
        fails_in = failing;
        if (stops == kBefore && failing == 0) rows.stop();
        EXPECT_THROW((void)(call > 0 ? eager : f)(random_tensor({kWidth}), flag(1)),
                     std::runtime_error);
        fails_in = -1;
        if (stops == kWithRowsUnread && failing > 0) rows.stop();
        if (call == 0) {
          rows.drop();
        } else {
          LoopRow row;
          for (int i = 0; i < failing; ++i)
            (void)next(rows, &row);
        }
        EXPECT_TRUE(is_empty(rows));
        if (stops == kAfterwards) rows.stop();
        EXPECT_EQ(rounds_of_call(), stops == kAfterwards ? 1 : kRounds) << failing << ' ' << stops;
        EXPECT_EQ(rounds_of_call(), kRounds);
      }
    }
  }
}

TEST_P(LoopStreamTest, RowsThatAreDrawnAreThoseOfAnEagerRun) {
  const Generator generator(seed_);
  LoopStream rows = make(16);
  const auto step = [&](Tensor on) {
    return loop(3, rows,
                [&]() -> LoopRound {
                  return {on, uniform({kWidth}, generator)};
                },
                {generator});
  };
  CompiledFunction eager = compile(context(), "eager", step, {.enabled = false});
  CompiledFunction f = compile(context(), "f", step);
  const Tensor on = flag(1);
  std::set<std::vector<float>> seen;
  for (int call = 0; call < 5; ++call) {
    std::vector<std::vector<float>> drawn;
    for (const auto* const each : {&eager, &f}) {
      generator.set_seed(seed_ + static_cast<std::uint64_t>(call));
      (void)(*each)(on);
      LoopRow row;
      for (int i = 0; i < 3; ++i)
        drawn.push_back(next(rows, &row));
    }
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(drawn[i], drawn[i + 3]) << call << " " << i;
      seen.insert(drawn[i]);
    }
  }
  EXPECT_EQ(seen.size(), 15u);
  EXPECT_GE(f.stats().replays, 3u) << to_string(f.stats());
}

TEST_P(LoopStreamTest, TensorsThatCannotBeRowsAreRefused) {
  EXPECT_THROW(LoopStream(device(), 0, 4), InvalidArgument);
  EXPECT_THROW(LoopStream(device(), 6, 4), InvalidArgument);
  EXPECT_THROW(LoopStream(device(), 4, 0), InvalidArgument);
  LoopStream rows = make(4);
  const StreamScope current(context().stream());
  const Tensor on = flag(1), row = random_tensor({kWidth});
  const auto expect_refused = [&](const Tensor& one) {
    EXPECT_THROW((void)loop(1, rows, [&]() -> LoopRound { return {on, one}; }), InvalidArgument);
  };
  expect_refused(Tensor());
  expect_refused(random_tensor({kWidth + 1}));
  expect_refused(random_tensor({2, kWidth}).slice(1, 0, 1));
  expect_refused(
      from_host({1}, std::span<const std::uint8_t>(std::array<std::uint8_t, 1>{1}), device()));
  EXPECT_THROW((void)loop(0, rows, [&]() -> LoopRound { return {on, row}; }), InvalidArgument);
  EXPECT_THROW((void)loop(1, rows, nullptr), InvalidArgument);
  EXPECT_THROW((void)loop(1, rows, [&]() -> LoopRound { return {row, row}; }), InvalidArgument);
  EXPECT_TRUE(is_empty(rows));
  (void)loop(1, rows, [&]() -> LoopRound { return {on, row}; });
  LoopRow got;
  EXPECT_EQ(next(rows, &got), values(row));
}

TEST_P(LoopStreamTest, DroppedRowsAreGoneAndTheNextLoopMayBeStopped) {
  LoopStream rows = make(4);
  CompiledFunction f = compile(context(), "f", doubling(rows, 1e30f, 3));
  EXPECT_EQ(rows.drop(), 0u);
  for (int call = 0; call < 4; ++call) {
    for (int i = 0; i < call; ++i)
      EXPECT_EQ(count(f(random_tensor({kWidth}))), 3);
    EXPECT_EQ(rows.drop(), static_cast<std::uint64_t>(3 * call));
    EXPECT_TRUE(is_empty(rows));
    rows.stop();
    EXPECT_EQ(count(f(random_tensor({kWidth}))), 1);
    LoopRow row;
    (void)next(rows, &row);
    EXPECT_EQ(row.round, 0);
    EXPECT_TRUE(row.is_last);
  }
}

// A precapture runs its recordings, and no caller reads their rows.
TEST_P(LoopStreamTest, RowsOfAPrecaptureCanBeDropped) {
  LoopStream rows = make(2);
  const Tensor on = flag(1);
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x) {
                                 const Tensor y = affine(x, 2, 0);
                                 const Tensor row(y.storage(), 0, {1}, DType::kFloat32);
                                 (void)loop(3, rows, [&]() -> LoopRound { return {on, row}; });
                                 return y;
                               },
                               {.inputs = {{.dynamic = {{0, "rows"}}}},
                                .buckets = {{"rows", {4, 8}}},
                                .outputs = {{.dynamic = {{0, "rows"}}}}});
  (void)precapture(f, {}, [&](const CallSizes& sizes) {
    return std::vector<Tensor>{random_tensor({sizes["rows"]})};
  });
  context().synchronize();
  EXPECT_GT(rows.drop(), 6u);
  for (std::int64_t size = 1; size <= 8; ++size) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 0));
    float got = 0;
    rows.drop();
    EXPECT_FALSE(rows.next(std::as_writable_bytes(std::span(&got, 1)), seconds(0)));
  }
  EXPECT_EQ(f.stats().replays, 8u) << to_string(f.stats());
}

TEST_P(LoopStreamTest, ALoopWithinALoopHasAStreamOfItsOwn) {
  LoopStream rows = make(16), others = make(16);
  const auto step = [&](LoopStream& inner) {
    return [this, &rows, &inner](Tensor x, Tensor on) {
      const Tensor y = affine(x, 1, 0);
      return loop(2, rows, [&]() -> LoopRound {
        (void)loop(2, inner, [&]() -> LoopRound {
          update(y, 2, 1);
          return {on, y};
        });
        return {on, y};
      });
    };
  };
  CompiledFunction same = compile(context(), "same", step(rows));
  for (int call = 0; call < 3; ++call)
    EXPECT_THROW((void)same(random_tensor({kWidth}), flag(1)), InvalidArgument);
  EXPECT_TRUE(is_empty(rows));
  CompiledFunction f = compile(context(), "f", step(others));
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(kWidth);
    const auto expected = doubled(x, 1e30f, 4);
    (void)f(tensor({kWidth}, x), flag(1));
    LoopRow row;
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(next(others, &row), expected[i]);
    EXPECT_EQ(next(rows, &row), expected[1]);
    EXPECT_EQ(next(rows, &row), expected[3]);
    EXPECT_TRUE(row.is_last);
  }
}

// One of the two functions has its loop inside a branch, which may not be taken.
TEST_P(LoopStreamTest, FunctionsMayShareAStreamAndBranchesMayLeaveItAlone) {
  LoopStream rows = make(16);
  CompiledFunction f = compile(context(), "f", doubling(rows, 1e30f, 2));
  CompiledFunction g = compile(context(), "g", [&](Tensor x, Tensor taken, Tensor on) {
    const Tensor y = affine(x, 1, 0);
    branch(taken, [&] {
      (void)loop(3, rows, [&]() -> LoopRound {
        update(y, 2, 1);
        return {on, y};
      });
    });
    return y;
  });
  std::uint64_t loops = 0;
  for (int call = 0; call < 16; ++call) {
    const bool is_f = random_() % 2 == 0, is_taken = random_() % 2 == 0;
    const std::vector<float> x = random_floats(kWidth);
    const Tensor input = tensor({kWidth}, x);
    if (is_f) {
      (void)f(input);
    } else {
      (void)g(input, flag(is_taken ? 1 : 0), flag(1));
    }
    context().synchronize();
    if (is_f || is_taken) {
      ++loops;
      LoopRow row;
      for (const std::vector<float>& expected : doubled(x, 1e30f, is_f ? 2 : 3))
        EXPECT_EQ(next(rows, &row), expected);
      EXPECT_TRUE(row.is_last);
      EXPECT_EQ(row.loop, loops);
    }
    EXPECT_TRUE(is_empty(rows));
  }
}

// Rows and slots of all sizes.
TEST_P(LoopStreamTest, RowsMayBeOfAnySizeUpToThatOfTheStream) {
  const Tensor on = flag(1);
  for (const std::int64_t most : {1, 2, 5, 257}) {
    LoopStream rows(device(), static_cast<std::size_t>(4 * most), 3);
    for (std::int64_t size = 0; size <= most; size += std::max<std::int64_t>(most / 3, 1)) {
      CompiledFunction f = compile(context(), "f", [&](Tensor x) {
        return loop(2, rows, [&]() -> LoopRound { return {on, x.slice(0, 1, 1 + size)}; });
      });
      for (int call = 0; call < 4; ++call) {
        const std::vector<float> x = random_floats(size + 2);
        (void)f(tensor({size + 2}, x));
        for (int i = 0; i < 2; ++i) {
          std::vector<float> got(static_cast<std::size_t>(most), 7);
          const auto row = rows.next(std::as_writable_bytes(std::span(got)), seconds(5));
          ASSERT_TRUE(row);
          EXPECT_EQ(row->bytes, static_cast<std::size_t>(4 * size));
          got.resize(static_cast<std::size_t>(size));
          EXPECT_EQ(got, std::vector<float>(x.begin() + 1, x.end() - 1));
        }
      }
    }
  }
}

// The context treats recordings with rows like all others.
TEST_P(LoopStreamTest, RowsAreThoseOfTheCallWhateverTheContextDoesBeside) {
  make_context({.extensions = {verify({.every = 2}), watch({.time_every_nth_replay = 2})}});
  LoopStream rows = make(16);
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x, Tensor other) {
                                 const Tensor y = add(affine(x, 1, 0), affine(other, 0, 0));
                                 (void)loop(2, rows, [&]() -> LoopRound {
                                   const Scope scope("round");
                                   update(y, 2, 1);
                                   return {flag_, y};
                                 });
                                 return y;
                               },
                               {.inputs = {{}, {.is_static = true}}, .max_switch_nodes = 100});
  flag_ = flag(1);
  const Tensor others[] = {random_tensor({kWidth}), random_tensor({kWidth})};
  for (int call = 0; call < 12; ++call) {
    const std::vector<float> x = random_floats(kWidth);
    const auto expected = doubled(x, 1e30f, 2);
    EXPECT_EQ(values(f(tensor({kWidth}, x), others[call % 2])), expected[1]);
    LoopRow row;
    for (const std::vector<float>& one : expected)
      EXPECT_EQ(next(rows, &row), one);
    EXPECT_TRUE(is_empty(rows));
  }
  EXPECT_GE(f.stats().replays, 8u) << to_string(f.stats());
}

TEST_P(LoopStreamTest, WorkBetweenBeginAndEndHandsOutRows) {
  const Stream stream(device());
  const Tensor cache = tensor({kWidth}, std::vector<float>(kWidth, 0)), on = flag(1);
  LoopStream rows = make(16);
  Steps steps(context(), "decode", {.bindings = {{.name = "cache", .is_mutated = true}}});
  const std::vector<Binding> bindings{
      {reinterpret_cast<const void*>(cache.address()), cache.bytes()}};
  std::vector<float> expected(kWidth, 0);
  for (int i = 0; i < 8; ++i) {
    for (Step step = steps.begin({}, bindings, stream); step.must_run(); step.end()) {
      (void)loop(2, rows, [&]() -> LoopRound {
        update(cache, 1, 1);
        return {on, cache};
      });
    }
    LoopRow row;
    for (int round = 0; round < 2; ++round) {
      expected = affine_of(expected, 1, 1);
      EXPECT_EQ(next(rows, &row), expected) << i;
    }
    EXPECT_TRUE(row.is_last);
    EXPECT_EQ(row.loop, static_cast<std::uint64_t>(i + 1));
    EXPECT_TRUE(is_empty(rows));
  }
  EXPECT_EQ(steps.stats().replays, 6u) << to_string(steps.stats());
}

// A stream that is made in a step outlives the step.
TEST_P(LoopStreamTest, AStreamMayBeMadeByTheFirstCallOfItsFunction) {
  std::optional<LoopStream> rows;
  const Tensor on = flag(1);
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (!rows) rows.emplace(make(4));
    const Tensor scratch = affine(x, 3, 0);
    const Tensor y = affine(x, 1, 0);
    (void)loop(2, *rows, [&]() -> LoopRound {
      update(y, 2, 1);
      return {on, y};
    });
    return affine(scratch, 1, 0);
  });
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(kWidth);
    EXPECT_EQ(values(f(tensor({kWidth}, x))), affine_of(x, 3, 0));
    LoopRow row;
    for (const std::vector<float>& one : doubled(x, 1e30f, 2))
      EXPECT_EQ(next(*rows, &row), one);
    EXPECT_EQ(row.loop, static_cast<std::uint64_t>(call + 1));
  }
  EXPECT_EQ(f.stats().replays, 4u) << to_string(f.stats());
  rows.reset();
}

// Loops in branches, in choices, and one behind the other.
TEST_P(LoopStreamTest, RandomBranchesAndLoopsHandOutWhatPlainArithmeticDoes) {
  const std::vector<Stream> sides = flow_sides(device());
  LoopStream rows(device(), 20 * sizeof(float), 64);
  std::uint64_t handed_out = 0;
  for (int program = 0; program < 30 || handed_out <= 30; ++program) {
    const Flow flow = draw_flow(random_);
    CompiledFunction f = compile(context(), "f", [&](Tensor x) {
      Tensor y = affine(x, 1, 0);
      run_flow(flow, y, sides, nullptr, &rows);
      return y;
    });
    for (int i = 0; i < 5; ++i) {
      std::vector<float> x = random_floats(20);
      const Tensor y = f(tensor({20}, x));
      std::vector<std::vector<float>> expected;
      run_flow(flow, x, nullptr, &expected);
      ASSERT_EQ(values(y), x) << "call " << i << " of program " << program;
      for (const std::vector<float>& one : expected) {
        std::vector<float> got(20);
        ASSERT_TRUE(rows.next(std::as_writable_bytes(std::span(got)), seconds(5)));
        ASSERT_EQ(got, one) << "call " << i << " of program " << program;
      }
      handed_out += expected.size();
      ASSERT_EQ(rows.drop(), 0u);
    }
  }
}

TEST_P(LoopStreamTest, ABodyMayCallAFunctionThatBranchesAndHandsOutRows) {
  LoopStream rows = make(32);
  const Tensor on = flag(1);
  CompiledFunction g = compile(context(), "g", [&](Tensor x) {
    const Tensor y = affine(x, 1, 0);
    branch(on, [&] { update(y, 1, 1); });
    (void)loop(2, rows, [&]() -> LoopRound {
      update(y, 2, 0);
      return {on, y};
    });
    return y;
  });
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 1, 0);
    (void)loop(3, [&] {
      copy_elements(current_stream(), y, g(y));
      return on;
    });
    return affine(y, 1, 0);
  });
  for (int call = 0; call < 6; ++call) {
    std::vector<float> y = random_floats(kWidth);
    const Tensor made = f(tensor({kWidth}, y));
    for (int round = 0; round < 6; ++round) {
      y = affine_of(y, 2, round % 2 == 0 ? 2 : 0);
      LoopRow row;
      EXPECT_EQ(next(rows, &row), y) << call << ' ' << round;
      EXPECT_EQ(row.round, round % 2);
    }
    EXPECT_EQ(values(made), y);
    EXPECT_TRUE(is_empty(rows));
  }
  EXPECT_GE(f.stats().replays, 4u) << to_string(f.stats());
}

// Each loop is in a separate step; some steps throw in a round.
TEST_P(LoopStreamTest, StepsThatThrowInABodyLeaveTheNextOnesInOrder) {
  LoopStream rows = make(16);
  Steps steps(context(), "steps");
  const Tensor on = flag(1), x = random_tensor({kWidth});
  const std::vector<float> expected = values(x);
  bool is_stopped = false;
  for (int i = 0; i < 12; ++i) {
    const bool throws = i % 3 == 1;
    bool has_thrown = false;
    try {
      for (Step step = steps.begin(Key(), {}); step.must_run(); step.end()) {
        int round = 0;
        (void)loop(3, rows, [&]() -> LoopRound {
          const bool is_eager = !current_stream().is_capturing();
          if (throws && is_eager && round++ == 1) throw std::runtime_error("the body");
          return {on, x};
        });
      }
    } catch (const std::runtime_error&) {
      has_thrown = true;
    }
    context().synchronize();
    if (has_thrown) {
      rows.drop();
      rows.stop();
      is_stopped = true;
      continue;
    }
    LoopRow row;
    int made = 0;
    do {
      EXPECT_EQ(next(rows, &row), expected) << i;
      ++made;
    } while (!row.is_last);
    EXPECT_EQ(made, std::exchange(is_stopped, false) ? 1 : 3) << i;
    EXPECT_TRUE(is_empty(rows));
  }
  EXPECT_GT(steps.stats().replays, 0u) << to_string(steps.stats());
}

// Devices on which the host continues while the device works.
class LateLoopStreamTest : public LoopStreamTest {};
INSTANTIATE_TEST_SUITE_P(Devices, LateLoopStreamTest,
                         ::testing::ValuesIn(devices_that_work_later()), device_name);

TEST_P(LateLoopStreamTest, ARowIsThereOnceItsRoundIsOver) {
  LoopStream rows = make(16);
  CompiledFunction f = compile(context(), "f", doubling(rows, 1e30f, 3));
  LoopRow row;
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(kWidth);
    const Tensor input = tensor({kWidth}, x);
    context().synchronize();
    if (call < 2) {  // these read on the host, and therefore wait
      (void)f(input);
    } else {
      Gate gate(context().stream());
      (void)f(input);
      EXPECT_TRUE(!gate.is_closed() || is_empty(rows));
      gate.open();
    }
    for (const std::vector<float>& expected : doubled(x, 1e30f, 3))
      EXPECT_EQ(next(rows, &row), expected);
    EXPECT_TRUE(row.is_last);
  }
}

// Its pending work may depend on the receiver of the exception, as in a collective of several
// ranks.
TEST_P(LateLoopStreamTest, ABodyThatThrowsIsNotWaitedFor) {
  const Stream side(device());
  LoopStream rows = make(16);
  const Tensor x = random_tensor({kWidth}), on = flag(1);
  std::optional<Gate> gate;
  bool throws = true;
  CompiledFunction f = compile(context(), "f", [&](Tensor in) {
    return loop(3, rows, [&]() -> LoopRound {
      if (std::exchange(throws, false)) {
        gate.emplace(side);
        current_stream().wait_for(side);
        throw std::runtime_error("the body");
      }
      return {on, in};
    });
  });
  EXPECT_THROW((void)f(x), std::runtime_error);
  EXPECT_TRUE(gate->is_closed());
  rows.stop();  // stops the next loop
  gate->open();
  EXPECT_EQ(count(f(x)), 1);
  EXPECT_EQ(count(f(x)), 3);
}

// Their memory is not used again while the loop runs, and rows can be read after the end of the
// context.
TEST_P(LateLoopStreamTest, AContextAndAStreamMayEndWhileALoopRuns) {
  for (const bool has_context : {true, false}) {
    make_context({});
    LoopStream kept = make(16);
    std::optional<LoopStream> rows(make(16));
    const Tensor x = random_tensor({kWidth}), on = flag(1);
    std::optional f = compile(context(), "f", [&](Tensor in) {
      const Tensor y = affine(in, 1, 0);
      (void)loop(3, kept, [&]() -> LoopRound {
        update(y, 2, 1);
        (void)loop(2, *rows, [&]() -> LoopRound { return {on, y}; });
        return {on, y};
      });
      return y;
    });
    for (int call = 0; call < 3; ++call)
      (void)(*f)(x);
    context().synchronize();
    kept.drop();
    Gate gate(context().stream());
    (void)(*f)(x);
    std::thread opens([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate.open();
    });
    rows.reset();
    f.reset();
    if (!has_context) context_.reset();
    LoopStream other = make(16);
    opens.join();
    LoopRow row;
    for (const std::vector<float>& one : doubled(values(x), 1e30f, 3))
      EXPECT_EQ(next(kept, &row), one);
    EXPECT_TRUE(row.is_last);
    EXPECT_TRUE(is_empty(other));
    make_context({});
  }
}

TEST_P(LateLoopStreamTest, TheHostEndsALoopThatRuns) {
  constexpr std::int64_t kMost = 3'000'000;  // takes seconds
  LoopStream rows = make(1000);
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor on) {
    const Tensor y = affine(x, 1, 0);
    return loop(kMost, rows, [&]() -> LoopRound {
      update(y, 1, 1);
      return {on, y};
    });
  });
  // Rows are overwritten if the host reads slower than the device writes.
  const auto read = [&] {
    for (;;) {
      std::vector<float> values(kWidth);
      try {
        return rows.next(std::as_writable_bytes(std::span(values)), seconds(5)).value();
      } catch (const InvalidArgument&) {
      }
    }
  };
  const Tensor x = random_tensor({kWidth}), once = flag(0), on = flag(1);
  for (int call = 0; call < 4; ++call) {
    const bool is_stopped = call >= 2;
    const Tensor rounds = f(x, is_stopped ? on : once);
    LoopRow row = read();
    EXPECT_EQ(row.is_last, !is_stopped);
    if (is_stopped) rows.stop();
    const std::int32_t made = count(rounds);
    EXPECT_LT(made, kMost);
    while (!row.is_last)
      row = read();
    EXPECT_EQ(row.round, made - 1);
    EXPECT_TRUE(is_empty(rows));
  }
}

// The same holds if the device overwrites the oldest row at once.
TEST_P(LateLoopStreamTest, TheLoopOfTheOldestRowThatIsLeftIsStopped) {
  constexpr std::int64_t kMost = 10'000'000;  // takes seconds
  LoopStream rows = make(2);
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor on) {
    return loop(kMost, rows, [&]() -> LoopRound { return {on, x}; });
  });
  const Tensor x = random_tensor({kWidth}), once = flag(0), on = flag(1);
  for (int call = 0; call < 3; ++call)
    (void)f(x, once);
  const Tensor rounds = f(x, on);
  for (bool any_lost = false; !any_lost;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::vector<float> row(kWidth);
    try {
      (void)rows.next(std::as_writable_bytes(std::span(row)), seconds(0));
    } catch (const InvalidArgument&) {
      any_lost = true;
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(10));  // loses that row, too
  rows.stop();
  EXPECT_LT(count(rounds), kMost);
}

TEST_P(LateLoopStreamTest, RecordingsMayGoWhileTheirLoopsRun) {
  make_context({.max_recordings = 2, .at_limit = AtLimit::kEvict});
  LoopStream rows = make(1000);
  std::vector<CompiledFunction<Tensor(Tensor)>> functions;
  for (const int most : {1, 2, 3, 4})
    functions.push_back(
        compile(context(), "f" + std::to_string(most), doubling(rows, 1e30f, most)));
  std::vector<std::vector<float>> expected;
  for (int round = 0; round < 6; ++round) {
    const Stream side(device());
    Gate gate(side);
    const std::vector<float> x = random_floats(kWidth);
    const Tensor input = tensor({kWidth}, x);
    context().stream().wait_for(side);
    std::thread opens([&] {  // eager calls wait for the gate
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      gate.open();
    });
    for (std::size_t i = 0; i < functions.size(); ++i) {
      for (int call = 0; call < 4; ++call) {
        (void)functions[i](input);
        for (const std::vector<float>& row : doubled(x, 1e30f, static_cast<int>(i) + 1))
          expected.push_back(row);
      }
      if (round == 5) functions[i] = compile(context(), "other", [](Tensor y) { return y; });
    }
    opens.join();
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    LoopRow row;
    ASSERT_EQ(next(rows, &row), expected[i]) << i;
  }
  EXPECT_TRUE(is_empty(rows));
  EXPECT_GT(context().stats().evictions, 0u);
}

// With and without a watch.
TEST_P(LateLoopStreamTest, ObjectsOfALoopMayEndInAnyOrderWhileItRuns) {
  const CapturedLog log;
  std::array<int, 5> order = {0, 1, 2, 3, 4};
  std::mt19937 random(static_cast<unsigned>(seed_));
  for (int round = 0; round < 24; ++round) {
    std::ranges::shuffle(order, random);
    std::optional<Context> context(std::in_place, device());
    std::optional<Stream> side(device());
    std::optional<LoopStream> rows(make(16));
    std::optional f = compile(*context, "f", [&](Tensor x, Tensor on) {
      const Tensor y = affine(x, 1, 0);
      (void)loop(3, *rows, [&]() -> LoopRound {
        update(y, 2, 1);
        return {on, y};
      });
      return affine(y, 1, 0);
    });
    if (round % 2 == 0)
      watch_progress(*context, std::make_shared<ProgressWatch>(
                                   ProgressOptions{.time_limit = std::chrono::milliseconds(0)}));
    const std::vector<float> x = random_floats(kWidth);
    std::optional<Tensor> input(tensor({kWidth}, x)), on(flag(1)), y;
    for (int call = 0; call < 3; ++call)
      y = (*f)(*input, *on);
    context->synchronize();
    rows->drop();
    Gate gate(*side);
    context->stream().wait_for(*side);
    y = (*f)(*input, *on);
    std::thread opens([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      gate.open();
    });
    for (const int part : order) {
      if (part == 0) context.reset();
      if (part == 1) rows.reset();
      if (part == 2) f.reset();
      if (part == 3) input.reset(), on.reset();
      if (part == 4) {
        EXPECT_EQ(values(*y), doubled(x, 1e30f, 3).back()) << round;
        y.reset();
      }
    }
    opens.join();
  }
  for (const std::string& line : log.lines())
    ADD_FAILURE() << line;
}

// One thread calls, another reads; both and a third thread stop the running loop.
TEST_P(LateLoopStreamTest, RowsAreWholeAlsoIfThreadsStopTheirLoops) {
  constexpr int kMost = 40;
  constexpr int kCalls = 150;
  LoopStream rows = make(8192);
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor on) {
    const Tensor y = affine(x, 1, 0);
    return loop(kMost, rows, [&]() -> LoopRound {
      update(y, 1, 1);
      return {on, y};
    });
  });
  const std::vector<float> whole = {1, 2, 3};  // with exact sums
  const Tensor x = tensor({kWidth}, whole), on = flag(1);
  std::atomic<bool> is_over = false;
  std::thread stops([&] {
    std::mt19937 random(static_cast<unsigned>(seed_) + 1);
    while (!is_over) {
      if (random() % 4 == 0) rows.stop();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
  });
  std::vector<int> made;
  std::thread reads([&] {
    std::mt19937 random(static_cast<unsigned>(seed_) + 2);
    const std::vector<float> first = values(x);
    LoopRow row;
    for (std::uint64_t call = 1; call <= kCalls; ++call) {
      int round = 0;
      do {
        const std::vector<float> got = next(rows, &row);
        if (::testing::Test::HasFailure()) return;
        EXPECT_EQ(got, affine_of(first, 1, static_cast<float>(round + 1)));
        EXPECT_EQ(row.round, round++);
        EXPECT_EQ(row.loop, call);
        if (random() % 100 == 0) rows.stop();
      } while (!row.is_last);
      made.push_back(round);
    }
  });
  std::vector<int> rounds;
  for (int call = 0; call < kCalls; ++call)
    rounds.push_back(count(f(x, on)));
  reads.join();
  is_over = true;
  stops.join();
  EXPECT_EQ(made, rounds);
  EXPECT_TRUE(is_empty(rows));
}

TEST_P(LateLoopStreamTest, AStreamThatEndsBeforeLaterWorkLosesNoMemory) {
  const CapturedLog log;
  const Stream stream(device());
  const StreamScope current(stream);
  const Tensor row = random_tensor({kWidth}), on = flag(1);
  {
    LoopStream rows = make(4);
    (void)loop(2, rows, [&]() -> LoopRound { return {on, row}; });
    LoopRow got;
    EXPECT_EQ(next(rows, &got), values(row));
    EXPECT_EQ(next(rows, &got), values(row));
    const auto rest = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
    check(stream.ref().graphs().launch_host_function(stream.ref().handle(), rest, nullptr), "rest");
  }
  stream.synchronize();
  EXPECT_TRUE(log.lines().empty()) << log.lines()[0];
}

}  // namespace
}  // namespace cgtree::testing
