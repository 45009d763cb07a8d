// Makes tensors of bindings, and passes the calls of Steps to the engine.
#include "cgtree/steps.h"

#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/axes/axis_layout.h"
#include "cgtree/tree/attempt.h"
#include "cgtree/tree/engine.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

// An AddressSpace owns a storage that begins at 0 and holds all addresses of a device, so that a
// tensor can refer to the address of a binding. The memory itself is the caller's. It is destroyed
// with the last tensor: a Steps may be destroyed in a break in its call.
class AddressSpace final : public StorageOwner {
 public:
  static StorageRef make(Device device, const StorageDomain* domain = nullptr) {
    return StorageRef((new AddressSpace(device, domain))->storage_);
  }

  void release(Storage&) noexcept override { delete this; }

 private:
  AddressSpace(Device device, const StorageDomain* domain)
      : storage_(*this, device, StreamRef(), nullptr, SIZE_MAX, domain) {}

  Storage storage_;
};

CompileOptions compile_options(const StepsOptions& options) {
  CompileOptions compiled;
  for (const BindingOptions& binding : options.bindings) {
    compiled.inputs.push_back(
        {.name = binding.name,
         .is_static = !binding.is_copied,
         .alignment = 1,
         .is_mutated = binding.is_mutated,
         .tolerance = binding.is_compared ? 0 : std::numeric_limits<double>::infinity(),
         .rebind = binding.is_per_session ? Rebind::kAlways : Rebind::kNever});
  }
  detail::copy_shared_options(options, compiled);
  return compiled;
}

std::vector<Tensor> not_a_function(std::span<const Tensor>) {
  throw InvalidArgument("what runs between begin() and end() is no function");
}

void check_options(const std::string& name, const StepsOptions& options) {
  // A copy would replace memory that the engine reads in place.
  if (options.on_static_change == OnStaticChange::kDemote) {
    throw InvalidArgument(str_format(
        "'{}': OnStaticChange::kDemote is not for Steps: a binding is copied only where its "
        "options say so",
        name));
  }
  for (const AxisOptions& key : options.keys) {
    if (key.policy != AxisPolicy::kLearned) continue;
    throw InvalidArgument(str_format(
        "'{}': '{}' of the key has AxisPolicy::kLearned, which is not for Steps: a SizeLearner "
        "calls the function, and this work is the caller's; take another policy",
        name, key.name));
  }
  for (std::size_t i = 0; i < options.bindings.size(); ++i) {
    const BindingOptions& binding = options.bindings[i];
    if (binding.host_bytes == 0 || (!binding.is_copied && !binding.is_mutated)) continue;
    throw InvalidArgument(str_format(
        "binding {} '{}' of '{}' is a step block in host memory, and declared as {}: a block is "
        "passed by value; leave is_copied and is_mutated false",
        i, binding.name, name, binding.is_mutated ? "mutated" : "copied"));
  }
  for (std::size_t i = 0; i < options.bindings.size(); ++i) {
    const BindingOptions& binding = options.bindings[i];
    const bool throws = options.on_static_change == OnStaticChange::kThrow;
    if (!binding.is_per_session || !(throws || binding.is_copied || binding.host_bytes != 0))
      continue;
    throw InvalidArgument(str_format(
        "binding {} '{}' of '{}' has is_per_session, and {}: leave one out", i, binding.name, name,
        throws ? "OnStaticChange::kThrow refuses another address" : "may lie anywhere already"));
  }
}

FunctionState& add_function(Context& context, std::string name, const StepsOptions& options) {
  check_options(name, options);
  FunctionState& function = context.share_engine()->add_function(std::move(name), not_a_function,
                                                                 compile_options(options));
  function.is_callers_work = true;
  function.further_inputs.is_static = true;
  function.further_inputs.alignment = 1;
  return function;
}

}  // namespace

// Keeps the engine and the name in case the Steps is destroyed first. A function that the step
// calls may also destroy both the Step and the Steps: the Open lives until that function returns.
struct Step::Open {
  explicit Open(const Steps& steps) : engine(steps.engine_), name(steps.name()) {}

  static std::shared_ptr<Open> make(const Steps& steps, const InputList& inputs, StreamRef on) {
    auto open = std::make_shared<Open>(steps);
    if (on) open->stream.emplace(on);
    open->entry.emplace(open->engine->gate);
    open->call.emplace(*open->engine, *open->entry, *steps.function_, inputs, open->none,
                       steps.capture_mode_, open);
    open->leave_if_done();
    return open;
  }
  // A call that has ended is no longer inside the context, however long its step is kept.
  void leave_if_done() noexcept {
    if (call->must_run()) return;
    entry.reset();
    stream.reset();
  }

  std::shared_ptr<Engine> engine;
  const std::string name;  // the function may be destroyed when the call ends
  std::optional<StreamScope> stream;
  std::optional<Entry> entry;
  TensorList none;
  std::optional<Attempt> call;
};

Step::Step(std::shared_ptr<Open> open) noexcept : open_(std::move(open)) {
}

Step::~Step() = default;
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;

bool Step::must_run() const noexcept {
  return open_ != nullptr && open_->call->must_run();
}

bool Step::is_captured() const noexcept {
  return must_run() && open_->call->is_captured();
}

void* Step::address(std::size_t i) const {
  if (!must_run()) {
    throw InvalidArgument(str_format(
        "address({}) of a step that has nothing to run: it was replayed, or has ended", i));
  }
  const std::span<const Tensor> inputs = open_->call->inputs();
  if (i >= inputs.size()) {
    throw InvalidArgument(str_format("address({}) of a step with {} bindings", i, inputs.size()));
  }
  return reinterpret_cast<void*>(inputs[i].address());
}

Explanation Step::why() const {
  if (!must_run())
    throw InvalidArgument("why() of a step that has nothing to run: it was replayed, or has ended");
  return open_->call->why();
}

void Step::end() {
  if (open_ == nullptr) {
    throw InvalidArgument("end() of a step that was replayed: there is nothing to end");
  }
  if (!open_->call->must_run()) {
    throw InvalidArgument(
        str_format("end() of a step of '{}' that has nothing to end: it was replayed, or has ended",
                   open_->name));
  }
  const std::shared_ptr<Open> open = open_;  // breaks may destroy this
  try {
    open->call->end();
  } catch (...) {
    open->leave_if_done();
    throw;
  }
  open->leave_if_done();
}

void Step::refuse(std::string_view why) {
  if (!must_run()) {
    throw InvalidArgument(
        "refuse() of a step that has nothing to run: it was replayed, or has ended");
  }
  open_->call->refuse_capture(why);
}

Outcome Step::outcome() const noexcept {
  return open_ == nullptr ? Outcome::kReplay : open_->call->outcome();
}

Steps::Steps(Context& context, std::string name, StepsOptions options)
    : FunctionHandle(context.share_engine(), add_function(context, std::move(name), options)),
      device_memory_(AddressSpace::make(context.device())),
      host_memory_(AddressSpace::make(Device::host(), &kValueDomain)),
      capture_mode_(options.capture_mode) {
  for (std::size_t i = 0; i < options.bindings.size(); ++i) {
    host_bytes_.push_back(options.bindings[i].host_bytes);
    if (options.bindings[i].is_per_session) of_sessions_.push_back(i);
  }
}

bool Steps::is_host(std::size_t i) const noexcept {
  return i < host_bytes_.size() && host_bytes_[i] != 0;
}

std::string Steps::describe(std::size_t i) const {
  return str_format("{} of '{}'", text_of_binding(i, function_->input_options(i).name),
                    function_->name);
}

void Steps::check_block(std::size_t i, const Binding& binding) const {
  if (binding.bytes != host_bytes_[i]) {
    throw InvalidArgument(str_format(
        "{} is a step block of {} bytes, and was declared with {}: build both sides with the same "
        "version of the struct",
        describe(i), binding.bytes, host_bytes_[i]));
  }
  if (binding.address == nullptr) {
    throw InvalidArgument(
        str_format("{} is null: a step block is read by each begin()", describe(i)));
  }
}

// Keeps the tensors of bindings that have not changed. `last_` is empty if this has thrown.
InputList Steps::inputs(std::span<const Binding> bindings) {
  if (bindings.empty()) {
    last_.clear();
    tensors_.clear();
    return InputList(tensors_);
  }
  if (bindings.size() == last_.size() &&
      std::memcmp(bindings.data(), last_.data(), bindings.size_bytes()) == 0) {
    return InputList(tensors_);
  }
  last_.clear();
  tensors_.resize(bindings.size());
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(bindings[i].address);
    const auto bytes = static_cast<std::int64_t>(bindings[i].bytes);
    Tensor& tensor = tensors_[i];
    if (is_host(i)) [[unlikely]] {
      check_block(i, bindings[i]);
    }
    if (bytes < 0 || address + bindings[i].bytes < address) [[unlikely]] {
      throw InvalidArgument(
          str_format("{} has {} bytes at {:#x}, which end behind the last address", describe(i),
                     bindings[i].bytes, address));
    }
    const bool is_as_large = tensor.defined() && tensor.elements() == bytes;
    if (is_as_large && tensor.byte_offset() == address) [[likely]] {
      continue;
    }
    const Shape shape = is_as_large ? tensor.shape() : Shape({bytes});
    tensor = Tensor::known_to_fit(is_host(i) ? host_memory_ : device_memory_, address, shape,
                                  DType::kUInt8);
  }
  for (const std::size_t i : of_sessions_)  // its address is patched into the graph unchecked
    if (i < bindings.size()) check_place(i, bindings[i]);
  last_.assign(bindings.begin(), bindings.end());
  return InputList(tensors_);
}

void Steps::check_outside(std::string_view what) const {
  if (!StepScope::active()) return;
  throw InvalidArgument(str_format(
      "{} of '{}' while a step is open on this thread, or inside a step function: end that first",
      what, name()));
}

void Steps::check_place(std::size_t i, const Binding& binding) const {
  if (binding.bytes == 0 || is_host(i)) return;
  if (binding.address == nullptr) {
    throw InvalidArgument(str_format("{} is null, and has {} bytes", describe(i), binding.bytes));
  }
  const Device device = engine_->memory->device();
  try {
    (void)locate(device_api(device), device, binding.address, /*is_wanted=*/true);
  } catch (const BoundaryError& error) {
    throw InvalidArgument(
        str_format("{}: {}; a struct in host memory is declared with BindingOptions::host_bytes",
                   describe(i), error.message()));
  }
}

void Steps::check(std::span<const Binding> bindings) const {
  for (std::size_t i = 0; i < bindings.size(); ++i)
    check_place(i, bindings[i]);
}

Step Steps::begin(const Key& key, std::span<const Binding> bindings, StreamRef stream) {
  check_outside("begin()");
  const InputList list = inputs(bindings).with_key(key.text());
  const StreamRef other = stream == current_stream_or_none() ? StreamRef() : stream;
  {
    std::optional<StreamScope> scope;
    if (other) scope.emplace(other);
    if (engine_->replay_predicted(*function_, list)) return Step(nullptr);
  }
  check(bindings);
  std::shared_ptr<Step::Open> open = Step::Open::make(*this, list, other);
  if (open->call->must_run() && open->call->is_captured()) clear_stack();
  return Step(std::move(open));
}

InputList Steps::checked_inputs(const Key& key, std::span<const Binding> bindings) {
  check(bindings);
  return inputs(bindings).with_key(key.text());
}

Explanation Steps::explain(const Key& key, std::span<const Binding> bindings) {
  check_outside("explain()");
  Explanation why = engine_->explain(*function_, checked_inputs(key, bindings));
  if (why.skip_reason != SkipReason::kOverlappingInputs) return why;
  throw InvalidArgument(
      str_format("'{}' cannot begin with these bindings: {}", name(), to_string(why)));
}

std::size_t Steps::invalidate(const void* address, std::size_t bytes) {
  return engine_->invalidate(function_, {reinterpret_cast<std::uintptr_t>(address), bytes});
}

}  // namespace cgtree
