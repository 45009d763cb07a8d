// The step functions on the device; world_calls.cc has their plain arithmetic.
#include "tests/system/world_context.h"

#include <algorithm>

#include "cgtree/values/eager_break.h"
#include "extensions/scopes/scope.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "extensions/watch/watch.h"
#include "interop/device/device_api.h"
#include "interop/device/kernel.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/support/steps.h"
#include "tests/support/test_kernels.h"
#include "tests/system/step_context.h"

namespace cgtree::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::int64_t kBigElements = 500'000;
constexpr std::int64_t kTableElements = 40;
constexpr std::size_t kTableBytes = kTableElements * sizeof(float);

ContextOptions limits_of(int option, bool has_budget, StreamRef own) {
  if (option == 7) return {.stream = own};
  if (option == 5) return {.pools_grow_in_place = true};
  if (!has_budget) return {};
  switch (option) {
    case 1:
      return {.max_recordings = 3, .at_limit = AtLimit::kEvict};
    case 2:
      return {.max_recordings = 2};
    case 3:
      return {.max_bytes = 10 * kMiB, .at_limit = AtLimit::kEvict};
    case 4:
      return {.max_bytes = 8 * kMiB};
    case 6:
      return {.max_bytes = 12 * kMiB,
              .max_recordings = 6,
              .max_graph_bytes = kMiB,
              .at_limit = AtLimit::kEvict};
    default:
      return {};
  }
}

ContextOptions options_of(int option, bool has_budget, StreamRef own, std::size_t verify_every) {
  ContextOptions options = limits_of(option, has_budget, own);
  options.outputs_lie_apart = option % 4 >= 2;
  options.extensions = {watch({.time_every_nth_replay = static_cast<std::size_t>(option % 3)}),
                        verify({.every = verify_every})};
  return options;
}

// Every other context uses inputs and buffers in place, if the proof succeeds.
void rebind(CompileOptions& options) {
  if (options.inputs.size() < 2) options.inputs.resize(2);
  if (options.outputs.empty()) options.outputs.resize(1);
  for (InputOptions& input : options.inputs)
    input.rebind = Rebind::kAlways;
  for (OutputOptions& output : options.outputs)
    output.rebind = Rebind::kAlways;
}

CompileOptions compile_options(Deed deed, bool rebinds) {
  CompileOptions options;
  const std::vector<DynamicAxis> rows = {{0, "rows"}};
  const std::vector<Buckets> buckets = {{"rows", {2, 4, 8, 40}}};
  switch (deed) {
    case Deed::kBump:
    case Deed::kReplace:
      options.inputs = {{.is_mutated = true}};
      break;
    case Deed::kMisfit:
      options.inputs = {{.is_static = true, .is_mutated = true}};
      break;
    case Deed::kBuckets:
      options = {.inputs = {{.dynamic = rows}},
                 .buckets = buckets,
                 .outputs = {{.dynamic = rows}, {.dynamic = rows}}};
      break;
    case Deed::kList:
      options = {.inputs = {{.dynamic = rows}}, .buckets = buckets, .outputs = {{.dynamic = rows}}};
      break;
    case Deed::kColumns:
      options = {.inputs = {{.dynamic = rows}},
                 .buckets = buckets,
                 .outputs = {{.dynamic = {{1, "rows"}}}}};
      break;
    case Deed::kOverlap:
      options = {.inputs = {{.is_mutated = true, .dynamic = rows}}, .buckets = buckets};
      break;
    default:
      break;
  }
  if (rebinds) rebind(options);
  if (rebinds && deed == Deed::kSum) options.inputs[1].require_contiguous = true;
  return options;
}

// Copies x to the begin of the memory.
Tensor put(const Tensor& memory, const Tensor& x) {
  const Tensor part(memory.storage(), 0, Shape(x.shape().dims()), DType::kFloat32);
  copy_elements(current_stream(), part, x);
  note_use(memory.storage(), current_stream());
  return part;
}

// Joins in its destructor, so that a step that throws has joined, too.
class Join {
 public:
  Join(StreamRef main, StreamRef side, bool is_seen) : main_(main), side_(side), seen_(is_seen) {}
  ~Join() {
    try {
      make_wait(main_, side_, seen_);
    } catch (const Error&) {  // the capture is invalid already
    }
  }

 private:
  const StreamRef main_;
  const StreamRef side_;
  const bool seen_;
};

}  // namespace

void make_wait(StreamRef stream, StreamRef other, bool is_seen) {
  if (is_seen) return stream.wait_for(other);
  Event event;
  event.record(other);
  event.make_wait(stream);
}

WorldContext::WorldContext(Device device, int option, bool has_budget, StreamRef own,
                           std::size_t verify_every, bool has_hook)
    : device_(device),
      side_(device),
      rebinds_(option % 2 == 1),
      max_switch_nodes_(option % 3 == 0 ? 0 : 4) {
  ContextOptions options = options_of(option, has_budget, own, verify_every);
  if (has_hook) {
    const std::vector<float> ones(6, 1);
    for_hook_ = from_host<float>({6}, ones, device);
    options.before_first_launch = [this](const NewRecording&) {
      const auto number = static_cast<float>(++hooks);
      Tensor made = affine(for_hook_, 0, number);
      if (fault == 3) throw InjectedFault();
      made_in_hooks_[hooks % 2] = {std::move(made), number};
    };
  }
  context_.emplace(device, std::move(options));
  if (option % 2 == 0) {
    watch_progress(*context_, std::make_shared<ProgressWatch>(ProgressOptions{
                                  .every_nth_replay = 1 + static_cast<std::size_t>(option % 3),
                                  .time_limit = std::chrono::milliseconds(0),
                                  .times_scopes = option % 4 == 0}));
  }
  const auto add = [&](Deed deed, int number) {
    functions_.push_back(make(
        "step",
        [this, deed, number](std::span<const Tensor> inputs) {
          return outputs_of(deed, number, inputs);
        },
        compile_options(deed, rebinds_)));
  };
  for (int i = 0; i < kDeeds; ++i)
    add(static_cast<Deed>(i), 0);
  for (int i = 0; i < kTables; ++i)
    add(Deed::kKeep, i);
  add(Deed::kSecond, 1);
  add(Deed::kSecond, 2);
  add(Deed::kClosure, 1);
  for (int i = 1; i < kForks; ++i)
    add(Deed::kFork, i);
}

WorldContext::~WorldContext() {
  context_->synchronize();
  free_table();
}

// Fills the memory with NaN, so that later reads show.
void WorldContext::free_table() {
  if (table_ == nullptr) return;
  static_cast<void>(side_.ref().graphs().memset(side_.ref().handle(), table_, 0xff, kTableBytes));
  side_.synchronize();
  static_cast<void>(device_api(device_).free_data_space(device_.id, table_));
  table_ = nullptr;
}

void WorldContext::move_table(float value, bool declares) {
  DeviceAPI& api = device_api(device_);
  void* made = nullptr;
  check(api.alloc_data_space(device_.id, kTableBytes, &made), "allocate a table");
  check(side_.ref().graphs().launch_kernel(side_.ref().handle(), fill_kernel(),
                                           dims_for(kTableElements),
                                           arguments_of(made, value, kTableElements)),
        "fill a table");
  side_.synchronize();
  if (is_table_declared_ && !declares) context_->undeclare("table");
  if (!is_table_declared_ && table_ != nullptr) {
    static_cast<void>(context_->invalidate(table_, kTableBytes));
  }
  if (declares) context_->declare("table", made, kTableBytes);
  is_table_declared_ = declares;
  free_table();
  table_ = made;
  table_value_ = value;
}

void WorldContext::swap(float value) {
  const std::vector<float> values(6, value);
  const Tensor from = from_host<float>({6}, values, device_);
  context_->eager([&] {
    source_ = affine(from, 1, 0);
    sink_ = affine(from, 1, 0);
  });
  context_->synchronize();  // `from` is freed after this
  values_.push_back(value);
}

WorldContext::Function WorldContext::make(const char* name, StepFunction step,
                                          CompileOptions options) {
  options.max_switch_nodes = max_switch_nodes_;
  return compile(
      *context_, name,
      [this, step = std::move(step)](std::span<const Tensor> inputs) {
        std::optional<Scope> outer("step");
        if (during) during();
        if (fault == 1) throw InjectedFault();
        const Scope inner("work");
        std::vector<Tensor> outputs = step(inputs);
        if (fault == 2) throw InjectedFault();
        outer.reset();  // scopes may cross
        return outputs;
      },
      std::move(options));
}

std::vector<Tensor> WorldContext::outputs_of(Deed deed, int number,
                                             std::span<const Tensor> inputs) {
  const Tensor& x = inputs[0];
  switch (deed) {
    case Deed::kAlias:
      return {x, affine(x, 2, 0)};
    case Deed::kSum:
      return {add(affine(x, 0.5f, 0), inputs[1])};
    case Deed::kBump:
    case Deed::kReplace:
      update(x, 0.5f, 1);
      return {affine(x, -1, 0)};
    case Deed::kNested: {
      const Tensor y = affine(x, 1, 1);
      return function(Deed::kChain)({&y, 1});
    }
    case Deed::kBig:
      return {affine(put(empty({kBigElements}, DType::kFloat32), x), 0.5f, 1)};
    case Deed::kSecond: {
      if (number == 0) return {inputs[1]};
      const Tensor first = empty({number == 1 ? 256 : 128}, DType::kFloat32);
      update(put(first, x), 1, 0);
      update(first, 0, 1);
      if (number == 1) return {first};
      const Tensor second = empty({128}, DType::kFloat32);
      update(second, 0, 2);
      return {first, second};
    }
    case Deed::kWorkspace: {
      if (!workspace_.defined() || workspace_.bytes() < x.bytes()) {
        workspace_ = empty({x.elements()}, DType::kFloat32);
      }
      const Tensor part = put(workspace_, x);
      update(part, 0.5f, 1);
      return {affine(part, -1, 0)};
    }
    case Deed::kKeep: {
      Tensor& table = tables_[static_cast<std::size_t>(number)];
      if (!table.defined()) table = affine(x, 1, 0);
      return {add(x, table)};
    }
    case Deed::kClosure: {
      if (number == 1) return {add(x, source_)};
      const Tensor copied = empty({6}, DType::kFloat32);
      copy(copied, source_);
      copy(sink_, affine(x, 3, 0));
      return {add(x, copied)};
    }
    case Deed::kBuckets:
      return {affine(x, 0.5f, 1), x};
    case Deed::kList:
      if (inputs.size() == 1) return {affine(x, 0.5f, 1)};
      return {affine(x, 0.5f, 1), affine(inputs[2], 2, 0)};
    case Deed::kColumns:
      return {affine(x, 2, 1).transpose(0, 1)};
    case Deed::kOverlap:
      update(x, 0.5f, 1);
      return {affine(inputs[1], -1, 0)};
    case Deed::kMisfit:
      for (int i = 0; i < 4; ++i)
        update(x, 0, static_cast<float>(i));
      return {affine(x, 1, 0)};
    case Deed::kFork:
      return fork(static_cast<Fork>(number), x);
    case Deed::kBlock:
      return {add(affine(x, 0.5f, 0),
                  Tensor(inputs[1].storage(), 0, Shape(x.shape().dims()), DType::kFloat32))};
    case Deed::kBreak: {
      const Tensor y = affine(x, 0.5f, 0);
      eager_break([to = reinterpret_cast<void*>(y.address()),
                   count = y.elements()](const StepValues& values) {
        const float factor = *reinterpret_cast<const float*>(values.bytes(1).data());
        const StreamRef stream = current_stream();
        check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(count),
                                            arguments_of(factor, to, to, count)),
              "axpy");
      });
      return {affine(y, -1, 1)};
    }
    case Deed::kTable: {
      const Tensor y = affine(x, 1, 0);
      const StreamRef stream = current_stream();
      check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(y.elements()),
                                          arguments_of(1.0f, table_, y.data(), y.elements())),
            "axpy");
      return {y};
    }
    case Deed::kOnCapture: {
      const Tensor y = affine(x, 0.5f, 1);
      if (current_stream().is_capturing()) throw InjectedFault();
      return {affine(y, -1, 0)};
    }
    default:
      return {affine(affine(x, 0.5f, 1), -1, 0)};
  }
}

// Both streams allocate and free at the same time.
std::vector<Tensor> WorldContext::fork(Fork how, const Tensor& x) {
  const StreamRef main = current_stream();
  const bool is_seen = how == kSeen || how == kNotJoined;
  Tensor left;
  Tensor right;
  make_wait(side_, main, is_seen);
  {
    std::optional<Join> join;
    if (how != kNotJoined) join.emplace(main, side_, is_seen);
    if (how == kUnseenCopy) {
      const Tensor first = affine(x, 1, 1);
      make_wait(side_, main, false);
      right = empty(Shape(x.shape().dims()), DType::kFloat32);
      copy_elements(side_, right, first);
      note_use(first.storage(), side_);
      note_use(right.storage(), side_);
    } else {
      const StreamScope scope(side_);
      right = affine(affine(x, -1, 0), -1, 1);
    }
    left = affine(affine(x, 0.5f, 0), -1, 0);
  }
  if (how == kNotJoined) return {left, right};
  return {add(left, right)};
}

}  // namespace cgtree::testing
