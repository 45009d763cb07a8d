// An engine in C++17: steps, a step function, imported memory and errors, on the host device.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/c/cgtree.hpp"

#if __cplusplus != 201703L
#error "this program is for C++17"
#endif

namespace {

const cgt_device kHost = {CGT_DEVICE_HOST, 0};

void add(const cgt_dims*, const void* const* arguments) {
  const auto* const from = *static_cast<const std::int32_t* const*>(arguments[0]);
  auto* const to = *static_cast<std::int32_t* const*>(arguments[1]);
  for (int i = 0; i < 4; ++i)
    to[i] += from[i];
}

void enqueue_add(cgt_stream stream, void* from, void* to) {
  const cgt_dims one = {{1, 1, 1}, {1, 1, 1}, 0};
  const cgt_argument arguments[] = {{&from, sizeof(from)}, {&to, sizeof(to)}};
  cgt::check(cgt_launch_host(stream, "add", add, &one, arguments, 2));
}

void expect(bool is_true, const char* what) {
  if (!is_true) throw std::logic_error(what);
}

cgt::Tensor row(std::vector<std::int32_t> values) {
  cgt::Tensor made = cgt::empty({4}, CGT_INT32, kHost);
  made.copy_from_host<std::int32_t>(values);
  return made;
}

cgt::Binding binding_of(const cgt::Tensor& tensor) {
  return {tensor.data<void>(), tensor.info().bytes};
}

void run_steps() {
  const cgt::Context context(kHost);
  const cgt::Stream stream(kHost);
  const cgt::Steps steps(context, "decode",
                         {{"tokens", CGT_INPUT_COPIED}, {"cache", CGT_INPUT_MUTATED}});
  const cgt::Tensor cache = row({0, 0, 0, 0});
  std::vector<cgt::Tensor> tokens;
  int runs = 0;
  for (int call = 0; call < 5; ++call) {
    tokens.push_back(row({call, 1, 2, 3}));
    const cgt::Binding bindings[] = {binding_of(tokens.back()), binding_of(cache)};
    for (cgt::Step step = steps.begin({{"batch", 4}, {"adapter", "en"}}, bindings, stream);
         step.must_run(); step.end()) {
      enqueue_add(stream, step.address(0), step.address(1));
      ++runs;
    }
  }
  stream.synchronize();
  expect(cache.copy_to_host<std::int32_t>() == std::vector<std::int32_t>{10, 5, 10, 15},
         "the values of steps");
  expect(runs == 2, "the runs of steps");

  const cgt::Binding bindings[] = {binding_of(tokens[0]), binding_of(cache)};
  const cgt::Steps seeded(context, "seeded");
  const std::string two = "two";
  for (int call = 0; call < 2; ++call) {
    for (const cgt::KeyPart part :
         {cgt::KeyPart("seed", -1), cgt::KeyPart("seed", UINT64_MAX),
          cgt::KeyPart("seed", std::string_view(two).substr(0, 2)), cgt::KeyPart("seed", two)}) {
      cgt::Step step = seeded.begin({part}, bindings, stream);
      expect(step.must_run(), "each key has recordings of its own");
      enqueue_add(stream, step.address(0), step.address(1));
      step.end();
    }
  }
  try {
    steps.begin({{"seed", std::string("a\0b", 3)}}, bindings, stream);
    expect(false, "a text with a zero inside is refused");
  } catch (const cgt::Error& error) {
    expect(error.status() == CGT_INVALID_ARGUMENT, error.what());
  }
  try {
    cgt::Step step = steps.begin({{"batch", 5}}, bindings, stream);
    expect(step.must_run(), "another key must run");
    throw std::runtime_error("the engine fails");
  } catch (const std::runtime_error& error) {
    expect(std::string(error.what()) == "the engine fails", "an exception leaves the step");
  }
  {
    cgt::Step step = steps.begin({{"batch", 5}}, bindings, stream);
    std::thread([&step] {
      try {
        step.end();
        expect(false, "another thread cannot end a step");
      } catch (const cgt::Error& error) {
        expect(error.status() == CGT_INVALID_ARGUMENT, error.what());
      }
    }).join();
  }  // leaves the step
  expect(steps.explain({{"batch", 5}}, bindings).find("warm") != std::string::npos, "explain");
  expect(steps.invalidate(bindings[1].address, bindings[1].bytes) == 1, "invalidate");
  expect(steps.stats_json().find("\"replays\":3") != std::string::npos, "the statistics");
}

// A step block is read by each call, and by the break between the two graphs of the step.
void run_breaks() {
  struct Block {
    std::int32_t add[4];
  };
  const cgt::Context context(kHost);
  const cgt::Stream stream(kHost);
  expect(stream.get().native != 0, "a stream has a handle");
  const cgt::Steps steps(context, "decode",
                         {{"cache", CGT_INPUT_MUTATED}, {"block", 0, sizeof(Block)}});
  const cgt::Tensor cache = row({0, 0, 0, 0});
  std::int32_t seen = 0;
  for (std::int32_t call = 0; call < 5; ++call) {
    const Block block = {{call, 1, 2, 3}};
    const cgt::Binding bindings[] = {binding_of(cache), {&block, sizeof(block)}};
    for (cgt::Step step = steps.begin({}, bindings, stream); step.must_run(); step.end()) {
      enqueue_add(stream, step.address(1), step.address(0));
      cgt::eager_break(
          [&seen](const cgt::StepValues& values) { seen += values.get<Block>(1).add[0]; });
      enqueue_add(stream, step.address(1), step.address(0));
    }
  }
  stream.synchronize();
  expect(cache.copy_to_host<std::int32_t>() == std::vector<std::int32_t>{20, 10, 20, 30},
         "the values of step blocks");
  expect(seen == 10, "the values that breaks have seen");
  expect(steps.last_outcome() == CGT_REPLAYED, "the last outcome");
  (void)context.release_memory();
}

void run_function() {
  const cgt::Context context(kHost);
  // Memory of the engine, which must outlive its import.
  auto memory = std::make_shared<cgt::Tensor>(row({1, 2, 3, 4}));
  void* const data = memory->data<void>();
  const std::weak_ptr<cgt::Tensor> alive = memory;
  cgt::Tensor x = cgt::import_tensor(data, {4}, CGT_INT32, context.stream(), std::move(memory));
  expect(!alive.expired(), "the owner is kept");

  int runs = 0;
  const cgt::Function<2> twice(context, "twice", [&runs](cgt::Span<cgt::TensorRef> inputs) {
    ++runs;
    std::array<cgt::Tensor, 2> made = {cgt::empty({4}, CGT_INT32), cgt::empty({4}, CGT_INT32)};
    for (const cgt::Tensor& output : made) {
      const cgt_stream stream = cgt::current_stream();
      cgt::check(cgt_tensor_copy(output.get(), inputs[0].get(), &stream));
      enqueue_add(stream, inputs[1].data<void>(), output.data<void>());
    }
    return made;
  });
  const cgt::Tensor y = row({10, 20, 30, 40});
  for (int call = 0; call < 4; ++call) {
    cgt::check(cgt_context_mark_step(context.get()));
    const auto [first, second] = twice(x, y);
    expect(first.copy_to_host<std::int32_t>() == std::vector<std::int32_t>{11, 22, 33, 44},
           "the first output");
    expect(second.copy_to_host<std::int32_t>() == first.copy_to_host<std::int32_t>(),
           "the second output");
  }
  expect(runs == 2, "the runs of the function");
  expect(twice.explain({x, y}).find("replay") != std::string::npos, "explain");
  (void)twice.keyed({{"draft", 2}}, x, y);
  expect(runs == 3, "a call with a key has recordings of its own");
  x = cgt::Tensor();
  context.synchronize();
}

void expect_errors() {
  const cgt::Context context(kHost);
  const cgt::Function<> fails(context, "fails", [](cgt::Span<cgt::TensorRef> inputs) {
    return inputs[0].reshape({5});  // it has four elements
  });
  const cgt::Function<> throws(context, "throws", [](cgt::Span<cgt::TensorRef>) -> cgt::Tensor {
    throw std::runtime_error("the body throws");
  });
  const cgt::Tensor x = row({1, 2, 3, 4});
  for (int call = 0; call < 2; ++call) {
    try {
      fails(x);
      expect(false, "an Error of the body is thrown by the call");
    } catch (const cgt::Error& error) {
      expect(error.status() == CGT_INVALID_ARGUMENT, "the status of the body's Error");
      expect(std::string(error.what()).find("'fails'") != std::string::npos, error.what());
    }
    try {
      throws(x);
      expect(false, "an exception of the body is thrown by the call");
    } catch (const cgt::Error& error) {
      expect(error.status() == CGT_STEP_THREW, "the status of the body's exception");
      expect(std::string(error.what()).find("the body throws") != std::string::npos, error.what());
    }
  }
}

}  // namespace

int main() {
  try {
    run_steps();
    run_breaks();
    run_function();
    expect_errors();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  std::printf("%d handles left\n", static_cast<int>(cgt_live_handles()));
  return 0;
}
