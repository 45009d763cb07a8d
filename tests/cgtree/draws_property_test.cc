// Random programs that draw: graphed calls against the same calls run eagerly, bit for bit.
//
// Two contexts run the same program with separate generators: one with graphs, one with `enabled =
// false`. After every operation outputs and generators are equal, in each phase and after
// exceptions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "interop/random/random.h"
#include "tests/support/random_steps.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

// One side: a context's functions and generators.
class Program {
 public:
  Program(Context& context, bool enabled, unsigned seed)
      : context_(context),
        generators_{Generator(seed), Generator(seed), Generator(seed + 1)},
        functions_{
            compile(context, "one", [this](Tensor x) { return one(x); }, {.enabled = enabled}),
            compile(context, "two", [this](Tensor x) { return two(x); }, {.enabled = enabled}),
            compile(context, "checkpoints", [this](Tensor x) { return checkpoints(x); },
                    {.enabled = enabled}),
            compile(context, "nests", [this](Tensor x) { return functions_[0](x); },
                    {.enabled = enabled})} {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Context& context() { return context_; }
  const Generator& generator(int i) const { return generators_[i]; }
  Tensor call(int function, const Tensor& x) const { return functions_[function](x); }
  FunctionStats stats(int function) const { return functions_[function].stats(); }

  bool fail = false;  // makes each step function throw after its draws

 private:
  void may_fail() const {
    if (fail) throw std::runtime_error("the user's own");
  }
  Tensor one(const Tensor& x) const {
    Tensor y = add_noise(x, generators_[0]);
    may_fail();
    return add(y, normal(Shape(x.shape().dims()), generators_[0]));
  }
  Tensor two(const Tensor& x) const {
    Tensor y = add_noise(add_noise(x, generators_[1]), generators_[2]);
    may_fail();
    return add_noise(y, generators_[1]);
  }
  Tensor checkpoints(const Tensor& x) const {
    Tensor y = add_noise(x, generators_[2]);
    const GeneratorState saved = generators_[2].state();
    y = add(y, uniform(Shape(x.shape().dims()), generators_[2]));
    generators_[2].set_state(saved);
    may_fail();
    return add_noise(y, generators_[2]);
  }

  Context& context_;
  Generator generators_[3];
  CompiledFunction<Tensor(Tensor)> functions_[4];
};

class DrawsPropertyTest : public TreeTest {
 protected:
  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }
};
CGTREE_ON_ALL_DEVICES(DrawsPropertyTest);

// Also row 4.2 cudagraph_indexing_ops: eager == warm-up == record == replay, on random steps.
// Acceptance: random cudagraphs_aot_eager_compat_equal, cudagraph_indexing_ops.
TEST_P(DrawsPropertyTest, GraphedProgramsDrawWhatTheirEagerTwinsDraw) {
  Context eager_context(device());
  Program graphed(context(), true, seed_);
  Program eager(eager_context, false, seed_);
  Program* const both[] = {&graphed, &eager};
  const std::int64_t sizes[] = {1, 6, 300};
  std::vector<std::vector<float>> held_values[2];
  std::vector<Tensor> held[2];
  GeneratorState saved;

  const auto replays = [&] {
    std::uint64_t all = 0;
    for (int function = 0; function < 4; ++function)
      all += graphed.stats(function).replays;
    return all;
  };
  for (int operation = 0; operation < 1200 || replays() <= 100; ++operation) {
    SCOPED_TRACE(fmt::format("seed {}, operation {}", seed_, operation));
    const int kind = pick(12);
    const int which = pick(3);
    const unsigned number = random_();
    const std::int64_t size = sizes[pick(3)];
    const std::vector<float> x = random_floats(size);
    const int function = pick(4);
    bool fails = kind == 6;
    if (kind == 7) saved = graphed.generator(which).state();
    for (int side = 0; side < 2; ++side) {
      Program& program = *both[side];
      if (kind <= 6) {
        program.fail = fails;
        try {
          held[side].push_back(program.call(function, tensor({size}, x)));
          fails = false;  // replays do not run the function, so the twin must not throw
        } catch (const std::runtime_error&) {
          ASSERT_TRUE(fails);
        }
      } else if (kind == 8) {
        program.generator(which).set_state(saved);
      } else if (kind == 9) {
        program.generator(which).set_seed(number);
      } else if (kind == 10) {
        const StreamScope scope(program.context().stream());
        held[side].push_back(uniform({size}, program.generator(which), device()));
      } else if (kind == 11) {
        for (const Tensor& tensor : held[side])
          held_values[side].push_back(values(tensor));
        held[side].clear();
        program.context().mark_step();
      }
    }
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(graphed.generator(i).state(), eager.generator(i).state()) << i;
    ASSERT_EQ(held_values[0], held_values[1]);
    for (auto& list : held_values)
      list.clear();
  }
}

}  // namespace
}  // namespace cgtree::testing
