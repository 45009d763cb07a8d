// Branches and loops through C: replays decide anew, and a body that fails leaves no trace.
#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/c_api/flow_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CControlFlowTest : public CStepTest {
 protected:
  cgt_status call(cgt_function function, cgt_tensor x, cgt_tensor flag, OwnedTensor& y) {
    const cgt_tensor inputs[] = {x, flag};
    y = OwnedTensor();
    return cgt_call(function, inputs, 2, y.out(), 1);
  }
  OwnedTensor flag(std::int32_t value) const { return make_flags(device(), {value}); }
  std::string explain(cgt_function function, cgt_tensor x, cgt_tensor flag) {
    const cgt_tensor inputs[] = {x, flag};
    return text_of(cgt_function_explain, function, nullptr, 0, inputs, 2);
  }
};
CGTREE_ON_ALL_DEVICES(CControlFlowTest);

TEST_P(CControlFlowTest, ABranchTakesTheWayThatEachReplayIsGiven) {
  const OwnedFunction function = compile([](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    const cgt_tensor y = out[0] = copy_of(in[0]);
    const Enqueue then = [&](auto...) { return add_to(y, 2, in[0]), CGT_OK; };
    const Enqueue otherwise = [&](auto...) { return add_to(y, -1, in[0]), CGT_OK; };
    const cgt_body bodies[] = {body_of(then), body_of(otherwise)};
    if (const cgt_status status = cgt_branch(in[1], &bodies[0], &bodies[1], nullptr, 0, nullptr, 0))
      return status;
    return cgt_branch(in[1], &bodies[0], nullptr, nullptr, 0, nullptr, 0);
  });
  OwnedTensor y;
  for (int i = 0; i < 6; ++i) {
    const OwnedTensor x = make_tensor_of(device(), {1.0f * i, 2}), taken = flag(i % 2);
    EXPECT_DONE(call(function, x, taken, y));
    EXPECT_THAT(values_of(y), ElementsAre(i % 2 != 0 ? 5.0f * i : 0, i % 2 != 0 ? 10.0f : 0)) << i;
  }
  EXPECT_EQ(stats(function)["replays"], 4);
}

TEST_P(CControlFlowTest, AChoiceWithResultsHasABodyForEachNumber) {
  const OwnedFunction function = compile([](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    const Enqueue first = [&](cgt_tensor* results, auto) { return results[0] = in[0], CGT_OK; };
    const Enqueue second = [&](cgt_tensor* results, auto) {
      results[0] = copy_of(in[0]);  // which ends with the body
      add_to(results[0], 2, in[0]);
      return CGT_OK;
    };
    const cgt_body bodies[] = {body_of(first), body_of(second)};
    return cgt_choose(in[1], bodies, 2, nullptr, 0, out, 1);
  });
  const std::int32_t indices[] = {0, 1, 2, -1, 0, 1};
  OwnedTensor y;
  for (const std::int32_t index : indices) {
    const OwnedTensor x = make_tensor_of(device(), {1, 3}), number = flag(index);
    EXPECT_DONE(call(function, x, number, y));
    EXPECT_THAT(values_of(y), index == 0 ? ElementsAre(1, 3) : ElementsAre(3, 9)) << index;
  }
  EXPECT_EQ(stats(function)["replays"], 4);
}

TEST_P(CControlFlowTest, AChoiceWithoutResultsMayRunNoBody) {
  const OwnedFunction function = compile([](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    const cgt_tensor y = out[0] = copy_of(in[0]);
    const Enqueue once = [&](auto...) { return add_to(y, 1, in[0]), CGT_OK; };
    const Enqueue twice = [&](auto...) { return add_to(y, 2, in[0]), CGT_OK; };
    const cgt_body bodies[] = {body_of(once), body_of(twice)};
    return cgt_choose(in[1], bodies, 2, nullptr, 0, nullptr, 0);
  });
  OwnedTensor y;
  for (const std::int32_t index : {1, 0, 2, -1, 1, 0}) {
    const OwnedTensor x = make_tensor_of(device(), {1, 3}), number = flag(index);
    EXPECT_DONE(call(function, x, number, y));
    const float scale = index == 0 ? 2 : index == 1 ? 3 : 1;
    EXPECT_THAT(values_of(y), ElementsAre(scale, 3 * scale)) << index;
  }
  EXPECT_EQ(stats(function)["replays"], 4);
}

TEST_P(CControlFlowTest, ALoopRunsUntilItsFlagIsZeroOrItsLimitIsReached) {
  const OwnedFunction function = compile(
      [](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
        const cgt_tensor y = out[0] = copy_of(in[0]);
        const cgt_tensor flags = copy_of(in[1]);
        const Enqueue round = [&](cgt_tensor* results, std::size_t count) {
          EXPECT_EQ(count, 1u);
          add_to(y, 1, in[0]);
          results[0] = next_flag(flags);
          return CGT_OK;
        };
        const cgt_body body = body_of(round);
        return cgt_loop(4, &body, nullptr, 0, &out[1]);
      },
      2);
  for (int i = 0; i < 8; ++i) {
    const int ones = i % 6;  // rounds that go on
    std::vector<std::int32_t> flags(8, 0);
    std::fill(flags.begin() + 1, flags.begin() + 1 + ones, i + 1);
    const OwnedTensor x = make_tensor_of(device(), {1, -1}), given = make_flags(device(), flags);
    const cgt_tensor inputs[] = {x, given};
    cgt_tensor made[2] = {};
    EXPECT_DONE(cgt_call(function, inputs, 2, made, 2));
    const OwnedTensor y(made[0]), rounds(made[1]);
    const int expected = std::min(ones + 1, 4);
    EXPECT_EQ(number_of(rounds), expected) << i;
    EXPECT_THAT(values_of(y), ElementsAre(1.0f + expected, -1.0f - expected)) << i;
  }
  EXPECT_EQ(stats(function)["replays"], 6);
}

TEST_P(CControlFlowTest, WorkBetweenBeginAndEndMayLoop) {
  OwnedFunction steps;
  EXPECT_DONE(
      cgt_steps_create(context_, "decode", nullptr, CGT_CAPTURE_MODE_THREAD_LOCAL, steps.out()));
  const OwnedTensor cache = make_tensor_of(device(), {0, 0}), x = make_tensor_of(device(), {1, 2});
  const OwnedTensor flags = make_flags(device(), {0, 1, 1, 0});
  int calls = 0;
  for (int i = 0; i < 6; ++i) {
    const std::int32_t fresh[] = {0, 1, i % 2, 0};
    EXPECT_DONE(cgt_tensor_copy_from_host(flags, fresh, sizeof(fresh)));
    const cgt_binding bindings[] = {CGT_BINDING(info_of(cache).data, 8),
                                    CGT_BINDING(info_of(flags).data, 16)};
    std::int32_t must_run = 0;
    EXPECT_DONE(cgt_step_begin(steps, nullptr, 0, bindings, 2, nullptr, &must_run));
    while (must_run != 0) {
      const Enqueue round = [&](cgt_tensor* results, auto) {
        ++calls;
        add_to(cache, 1, x);
        results[0] = next_flag(flags);
        return CGT_OK;
      };
      const cgt_body body = body_of(round);
      EXPECT_DONE(cgt_loop(8, &body, nullptr, 0, nullptr));
      EXPECT_DONE(cgt_step_end(steps, &must_run));
    }
    EXPECT_DONE(cgt_context_synchronize(context_));
  }
  EXPECT_THAT(values_of(cache), ElementsAre(15, 30));
  EXPECT_EQ(calls, 2 + 2);  // two rounds, and two captures
  EXPECT_EQ(stats(steps)["replays"], 4);
}

// As work on the current stream, outside of steps.
TEST_P(CControlFlowTest, OutsideOfAStepItRunsOnTheCurrentStream) {
  cgt_stream stream = {};
  EXPECT_DONE(cgt_stream_create(c_device(device()), 0, &stream));
  EXPECT_DONE(cgt_stream_push(stream));
  const OwnedTensor y = make_tensor_of(device(), {1}), x = make_tensor_of(device(), {2});
  const OwnedTensor yes = flag(3), no = flag(0);
  const Enqueue once = [&](auto...) { return add_to(y, 1, x), CGT_OK; };
  const Enqueue twice = [&](auto...) { return add_to(y, 2, x), CGT_OK; };
  const cgt_body bodies[] = {body_of(once), body_of(twice)};
  EXPECT_DONE(cgt_branch(yes, &bodies[0], &bodies[1], nullptr, 0, nullptr, 0));
  EXPECT_DONE(cgt_branch(no, &bodies[0], &bodies[1], nullptr, 0, nullptr, 0));
  EXPECT_DONE(cgt_stream_synchronize(stream));
  EXPECT_THAT(values_of(y), ElementsAre(7));
  EXPECT_DONE(cgt_stream_pop());
  EXPECT_DONE(cgt_stream_destroy(stream));
}

// ---- Random numbers ----

// y moves one place to the front, and its last element is drawn.
cgt_status append_draw(cgt_tensor y, cgt_generator generator) {
  const std::int64_t count = info_of(y).elements;
  EXPECT_DONE(cgt_tensor_copy(part_of(y, 0, count - 1), copy_of(part_of(y, 1, count)), nullptr));
  return cgt_fill_uniform(generator, part_of(y, count - 1, count), nullptr);
}

TEST_P(CControlFlowTest, BodiesDrawInReplaysWhatTheyDrawEagerly) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  OwnedGenerator generators[2];
  for (OwnedGenerator& generator : generators)
    EXPECT_DONE(cgt_generator_create(0, generator.out()));
  const cgt_generator given[] = {generators[0], generators[1]};
  const Body step = [&](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    const cgt_tensor y = out[0] = copy_of(in[0]);
    const cgt_tensor flags = copy_of(in[1]);
    const Enqueue first = [&](auto...) { return append_draw(y, given[0]); };
    const Enqueue second = [&](auto...) { return append_draw(y, given[1]); };
    const Enqueue drawn = [&](cgt_tensor* results, auto) {
      results[0] = copy_of(in[0]);
      return cgt_fill_uniform(given[1], results[0], nullptr);
    };
    const Enqueue same = [&](cgt_tensor* results, auto) { return results[0] = in[0], CGT_OK; };
    const cgt_body bodies[] = {body_of(first), body_of(second)};
    const Enqueue round = [&](cgt_tensor* results, auto) {
      const cgt_tensor taken = results[0] = next_flag(flags);
      EXPECT_DONE(cgt_branch(taken, &bodies[0], &bodies[1], given, 2, nullptr, 0));
      EXPECT_DONE(cgt_choose(taken, bodies, 2, given, 2, nullptr, 0));
      return CGT_OK;
    };
    const cgt_body body = body_of(round), results[] = {body_of(drawn), body_of(same)};
    EXPECT_DONE(cgt_loop(5, &body, given, 2, nullptr));
    EXPECT_DONE(cgt_choose(part_of(in[1], 0, 1), results, 2, &given[1], 1, &out[1], 1));
    return cgt_branch(part_of(in[1], 0, 1), &results[0], &results[1], &given[1], 1, &out[2], 1);
  };
  const cgt_function_options eagerly = {.struct_size = sizeof(eagerly),
                                        .flags = CGT_FUNCTION_EAGER};
  const OwnedFunction eager = compile(step, 3, &eagerly), function = compile(step, 3);
  std::set<float> seen;
  std::size_t draws = 0;
  for (int i = 0; i < 6; ++i) {
    const std::int32_t first = i % 2;
    const OwnedTensor x = make_tensor_of(device(), std::vector<float>(8, -1.0f));
    const OwnedTensor flags = make_flags(device(), {first, 1, i % 3 != 0 ? 1 : 0, 0, 0});
    const cgt_tensor inputs[] = {x, flags};
    std::vector<std::vector<float>> found[2];
    for (const cgt_function each : {cgt_function(eager), cgt_function(function)}) {
      EXPECT_DONE(cgt_generator_set_seed(given[0], seed + static_cast<std::uint64_t>(2 * i)));
      EXPECT_DONE(cgt_generator_set_seed(given[1], seed + static_cast<std::uint64_t>(2 * i + 1)));
      cgt_tensor made[3] = {};
      EXPECT_DONE(cgt_call(each, inputs, 2, made, 3));
      for (const cgt_tensor one : made) {
        const OwnedTensor owned(one);
        found[each == eager ? 0 : 1].push_back(values_of(owned));
      }
    }
    EXPECT_EQ(found[0], found[1]) << i;
    for (const std::vector<float>& values : found[0]) {
      for (const float value : values) {
        if (value != -1) seen.insert(value), ++draws;
      }
    }
  }
  EXPECT_EQ(draws, 6u * 8 + 2 * (2 + 3 + 3 + 2 + 3 + 3));
  EXPECT_GE(seen.size() + 2, draws);  // of 24 bits, some may be drawn twice
  EXPECT_EQ(stats(function)["replays"], 4);
}

TEST_P(CControlFlowTest, ABodyDrawsOnlyFromWhatTheCallWasGiven) {
  OwnedGenerator given, other;
  EXPECT_DONE(cgt_generator_create(1, given.out()));
  EXPECT_DONE(cgt_generator_create(2, other.out()));
  const OwnedFunction function = compile([&](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    const cgt_tensor y = out[0] = copy_of(in[0]);
    const cgt_generator generator = given;
    const Enqueue then = [&](auto...) { return cgt_fill_uniform(other, y, nullptr); };
    const cgt_body body = body_of(then);
    return cgt_branch(in[1], &body, nullptr, &generator, 1, nullptr, 0);
  });
  const OwnedTensor x = make_tensor_of(device(), {1, 2}), taken = flag(1);
  OwnedTensor y;
  EXPECT_FAILS(call(function, x, taken, y), CGT_INVALID_ARGUMENT, "uses a generator");
}

// ---- Handles ----

// A body is no call: what it destroys is no call's input, and gone at once.
TEST_P(CControlFlowTest, ABodyMayDestroyHandlesThatWereMadeAroundIt) {
  const OwnedFunction function = compile([](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    const cgt_tensor y = out[0] = copy_of(in[0]);
    const cgt_tensor predicate = copy_of(in[1]);
    const Enqueue then = [&](auto...) {
      const cgt_tensor scratch = copy_of(in[0]);
      bool is_there = true;
      add_to(y, 1, scratch);
      const Enqueue frees = [&](auto...) {
        // Where it is captured it is called twice.
        if (std::exchange(is_there, false)) {
          EXPECT_DONE(cgt_tensor_destroy(scratch));
        }
        add_to(y, 1, in[0]);
        return CGT_OK;
      };
      const cgt_body body = body_of(frees);
      return cgt_branch(in[1], &body, nullptr, nullptr, 0, nullptr, 0);
    };
    const cgt_body body = body_of(then);
    return cgt_branch(predicate, &body, nullptr, nullptr, 0, nullptr, 0);
  });
  OwnedTensor y;
  for (int i = 0; i < 6; ++i) {
    const OwnedTensor x = make_tensor_of(device(), {1, 2}), taken = flag(1 - i / 4);
    EXPECT_DONE(call(function, x, taken, y));
    EXPECT_THAT(values_of(y), i < 4 ? ElementsAre(3, 6) : ElementsAre(1, 2)) << i;
  }
  EXPECT_EQ(stats(function)["replays"], 4);
}

TEST_P(CControlFlowTest, HandlesThatABodyMakesEndWithIt) {
  const OwnedFunction function = compile([](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    out[0] = copy_of(in[0]);
    cgt_tensor scratch = nullptr;
    const Enqueue then = [&](auto...) { return scratch = copy_of(in[0]), CGT_OK; };
    const cgt_body body = body_of(then);
    const cgt_status status = cgt_branch(in[1], &body, nullptr, nullptr, 0, nullptr, 0);
    EXPECT_FAILS(cgt_tensor_destroy(scratch), CGT_INVALID_HANDLE, "was destroyed");
    return status;
  });
  const OwnedTensor x = make_tensor_of(device(), {1}), taken = flag(1);
  OwnedTensor y;
  EXPECT_DONE(call(function, x, taken, y));
  EXPECT_DONE(call(function, x, taken, y));
}

// ---- Bodies that fail ----

TEST_P(CControlFlowTest, ABodyThatFailsFailsTheCallAndLeavesNoTrace) {
  cgt_status answer = CGT_OK;
  bool throws = false;
  const OwnedFunction function = compile([&](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    const Enqueue then = [&](cgt_tensor* results, auto) -> cgt_status {
      results[0] = copy_of(in[0]);
      if (throws) throw std::runtime_error("no such token");
      if (answer != CGT_OK) cgt_set_error("told to fail");
      add_to(results[0], 1, in[0]);
      return answer;
    };
    const cgt_body body = body_of(then);
    cgt_tensor result = nullptr;
    const cgt_status status = cgt_branch(in[1], &body, &body, nullptr, 0, &result, 1);
    EXPECT_EQ(result == nullptr, status != CGT_OK);
    out[0] = result;
    return status;
  });
  const OwnedTensor x = make_tensor_of(device(), {1, 2}), taken = flag(1);
  OwnedTensor y;
  for (int call_number = 0; call_number < 2; ++call_number) {  // to warm up, and to record
    answer = CGT_USER_STATUS + 7;
    EXPECT_FAILS(call(function, x, taken, y), CGT_USER_STATUS + 7,
                 "'decode': then() of branch(): told to fail");
    answer = CGT_OK;
    throws = true;
    EXPECT_FAILS(call(function, x, taken, y), CGT_STEP_THREW,
                 "then() of branch() threw: no such token");
    throws = false;
    EXPECT_DONE(call(function, x, taken, y));
    EXPECT_THAT(values_of(y), ElementsAre(2, 4));
    y = OwnedTensor();
  }
  EXPECT_EQ(stats(function)["failures"], 4);
  EXPECT_DONE(call(function, x, taken, y));
  EXPECT_EQ(stats(function)["replays"], 1);
}

TEST_P(CControlFlowTest, ReadingBackInABodyKeepsTheStepFromBeingRecorded) {
  const OwnedFunction function = compile([&](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    out[0] = copy_of(in[0]);
    const Enqueue round = [&](cgt_tensor* results, auto) {
      results[0] = in[1];
      return cgt_stream_synchronize(c_stream(current()));
    };
    const cgt_body body = body_of(round);
    return cgt_loop(3, &body, nullptr, 0, nullptr);
  });
  const OwnedTensor x = make_tensor_of(device(), {1, 2}), no = flag(0);
  OwnedTensor y;
  for (int i = 0; i < 3; ++i)
    EXPECT_DONE(call(function, x, no, y));
  EXPECT_EQ(stats(function)["skips"]["capture_failed"], 2) << stats(function);
  EXPECT_THAT(explain(function, x, no), HasSubstr("the body of loop()"));
}

TEST_P(CControlFlowTest, WhatIsWrongIsNamed) {
  cgt_stream stream = {};
  EXPECT_DONE(cgt_stream_create(c_device(device()), 0, &stream));
  EXPECT_DONE(cgt_stream_push(stream));
  const OwnedTensor yes = flag(1), number = make_tensor_of(device(), {1});
  const Enqueue none = [](auto...) { return CGT_OK; };
  const cgt_body body = body_of(none), missing = {nullptr, nullptr};
  cgt_tensor result = nullptr;
  const auto branch = [&](cgt_tensor predicate, const cgt_body* then, std::size_t results = 0) {
    return cgt_branch(predicate, then, nullptr, nullptr, 0, results > 0 ? &result : nullptr,
                      results);
  };
  EXPECT_FAILS(branch(nullptr, &body), CGT_INVALID_HANDLE, "the predicate is NULL");
  EXPECT_FAILS(branch(number, &body), CGT_INVALID_ARGUMENT, "predicate of branch() is float32");
  EXPECT_FAILS(branch(yes, nullptr), CGT_INVALID_ARGUMENT, "then() of branch() is missing");
  EXPECT_FAILS(branch(yes, &missing), CGT_INVALID_ARGUMENT, "then() of branch() is missing");
  EXPECT_FAILS(branch(yes, &body, 1), CGT_INVALID_ARGUMENT, "otherwise() of branch() is missing");
  EXPECT_FAILS(cgt_branch(yes, &body, &body, nullptr, 0, nullptr, 1), CGT_INVALID_ARGUMENT,
               "results is NULL");
  EXPECT_FAILS(cgt_branch(yes, &body, &body, nullptr, 0, &result, 1), CGT_INVALID_HANDLE,
               "result 0 of 'then() of branch()' is NULL");
  EXPECT_FAILS(cgt_choose(nullptr, &body, 1, nullptr, 0, nullptr, 0), CGT_INVALID_HANDLE,
               "index is NULL");
  EXPECT_FAILS(cgt_choose(yes, nullptr, 0, nullptr, 0, nullptr, 0), CGT_INVALID_ARGUMENT,
               "without bodies");
  EXPECT_FAILS(cgt_choose(yes, nullptr, 1, nullptr, 0, nullptr, 0), CGT_INVALID_ARGUMENT,
               "bodies is NULL");
  EXPECT_FAILS(cgt_choose(yes, &missing, 1, nullptr, 0, nullptr, 0), CGT_INVALID_ARGUMENT,
               "body 0 of choose() is missing");
  EXPECT_FAILS(cgt_loop(0, &body, nullptr, 0, nullptr), CGT_INVALID_ARGUMENT, "at most 0 rounds");
  EXPECT_FAILS(cgt_loop(3, nullptr, nullptr, 0, nullptr), CGT_INVALID_ARGUMENT,
               "body of loop() is missing");
  EXPECT_FAILS(cgt_loop(3, &body, nullptr, 0, nullptr), CGT_INVALID_HANDLE,
               "result 0 of 'the body of loop()'");
  EXPECT_FAILS(cgt_branch(yes, &body, nullptr, nullptr, 1, nullptr, 0), CGT_INVALID_ARGUMENT,
               "the array of generators is NULL");
  OwnedGenerator generator;
  EXPECT_DONE(cgt_generator_create(1, generator.out()));
  const cgt_generator wrong[] = {generator, nullptr};
  EXPECT_FAILS(cgt_loop(3, &body, wrong, 2, nullptr), CGT_INVALID_HANDLE, "generator 1 is NULL");
  EXPECT_EQ(result, nullptr);
  EXPECT_DONE(cgt_stream_pop());
  EXPECT_DONE(cgt_stream_destroy(stream));
}

}  // namespace
}  // namespace cgtree::testing
