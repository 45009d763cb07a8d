// Saves, compares and restores.
#include "extensions/verify/replay_comparison.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/format.h"
#include "base/log_event.h"
#include "cgtree/memory/declared_memory.h"
#include "cgtree/record/gather.h"
#include "cgtree/record/step.h"
#include "extensions/audit/audit.h"
#include "extensions/verify/compare.h"
#include "interop/device/device_api.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

using Of = Divergence::Of;

// Returns the element as a text that shows all its bits, unless it is a NaN.
std::string text_of(const ElementBits& bits, DType dtype) {
  const double real = real_part(bits, dtype);
  switch (dtype) {
    case DType::kUInt64:
      return str_format("{}", bits.low);
    case DType::kInt64:
      return str_format("{}", static_cast<std::int64_t>(bits.low));
    case DType::kComplex64:
      return str_format("({:.9g}, {:.9g})", real, imaginary_part(bits, dtype));
    case DType::kComplex128:
      return str_format("({:.17g}, {:.17g})", real, imaginary_part(bits, dtype));
    case DType::kFloat64:
      return str_format("{:.17g}", real);
    default:
      break;
  }
  if (real != real) return str_format("nan ({:#x})", bits.low);
  return str_format("{:.9g}", real);
}

std::string text_of(const PhiloxPosition& position) {
  return str_format("seed {}, offset {}", position.seed, position.offset);
}

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.address() == b.address() && a.dtype() == b.dtype() && a.shape() == b.shape();
}

// Copies bytes of the device to host memory. Waits for the stream.
void read(StreamRef stream, void* to, std::uintptr_t from, std::size_t bytes) {
  const DeviceScope current = stream.make_device_current();
  check(stream.api().copy(stream.handle(), to, reinterpret_cast<const void*>(from), bytes),
        "read what a comparison has found");
  check(stream.api().synchronize_stream(stream.handle()), "read what a comparison has found");
}

// Returns whether the recording has larger sizes than the call.
bool is_padded(const Call& call) {
  const AxisPlan* const plan = call.function().axes.get();
  for (std::size_t axis = 0; plan != nullptr && axis < plan->size(); ++axis) {
    if (!plan->rule(axis).is_of_key() && call.axes().padded[axis] != call.axes().actual[axis])
      return true;
  }
  return false;
}

// Returns the rounding error of work of another size: libraries choose their kernels by sizes, and
// products of float32 may take ten bits of each factor.
double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
      return 0x1p-30;
    case DType::kFloat32:
    case DType::kComplex64:
      return 0x1p-10;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 0x1p-5;
    default:
      return is_floating(dtype) ? 0x1p-2 : 0;
  }
}

// Returns the first elements of each axis.
Tensor first_of(Tensor tensor, std::span<const std::int64_t> dims) {
  for (std::size_t a = 0; a < dims.size(); ++a)
    tensor = tensor.slice(static_cast<int>(a), 0, dims[a]);
  return tensor;
}

// Returns whether the work of an engine may run twice. Nothing shows which memory it writes, so
// each address in the graph must lie in a copy, in a binding that is restored, in memory that the
// engine declares (declared, bound or not), or in a variable of code.
bool may_run_twice(const Call& call, const Audit& audit, const DeclaredMemory& declared) {
  const auto declared_ranges = declared.list();
  const auto is_declared = [&](const Range& range) {
    return std::ranges::any_of(declared_ranges,
                               [&](const auto& each) { return each.second.contains(range); });
  };
  const auto is_known = [&](const UsedMemory& memory) {
    switch (memory.owner) {
      case MemoryOwner::kInput:
        return call.treatment(memory.number) != Treatment::kStatic ||
               call.function().input_options(memory.number).is_mutated || is_declared(memory.range);
      case MemoryOwner::kScratch:
      case MemoryOwner::kDeclared:
      case MemoryOwner::kModule:
        return true;
      default:
        return false;
    }
  };
  return audit.unseen.empty() && std::ranges::all_of(audit.memory, is_known);
}

}  // namespace

// While a PutBack lives, written memory has its contents from before the replay, or those of the
// eager run.
class ReplayComparison::PutBack {
 public:
  explicit PutBack(const ReplayComparison& check) noexcept : check_(check) {}
  void exchange() {
    for (const Written& written : check_.written_) {
      exchange_elements(check_.memory_.stream(), written.tensor, written.saved);
      ++exchanged_;
    }
  }
  ~PutBack() {
    for (const Written& written : std::span(check_.written_).first(exchanged_))
      put_back(written);
  }
  PutBack(const PutBack&) = delete;
  PutBack& operator=(const PutBack&) = delete;

 private:
  void put_back(const Written& written) const noexcept {
    try {
      copy_elements(check_.memory_.stream(), written.tensor, written.saved);
    } catch (const std::exception& error) {
      log_event(LogLevel::kError, "verify function={} what=\"{} is lost: {}\"",
                check_.call_.function().name, check_.what(written.of, written.index), error.what());
    }
  }

  const ReplayComparison& check_;
  std::size_t exchanged_ = 0;
};

// If two outputs are the same view of memory from outside, one of them suffices.
ReplayComparison::ReplayComparison(const Call& call, const Recording& recording,
                                   ContextMemory& memory)
    : call_(call),
      recording_(recording),
      memory_(memory),
      runs_padded_(call.function().is_callers_work || recording.draws_numbers()),
      sizes_differ_(!runs_padded_ && is_padded(call)) {
  const InputList& inputs = call.inputs();
  for (std::uint32_t i = 0; i < inputs.step_size(); ++i) {
    if (!call.function().input_options(i).is_mutated || call.treatment(i) == Treatment::kValue) {
      continue;
    }
    Tensor whole = inputs[i];
    if (inputs.in_place(i) && inputs.is_padded(i)) {
      whole = Tensor(whole.storage(), whole.byte_offset(), inputs.shape(i), whole.dtype());
    }
    written_.push_back({Of::kInput, i, whole, inputs[i], {}});
  }
  for (std::uint32_t i = 0; i < recording.outputs.size(); ++i) {
    const OutputRecord& output = recording.outputs[i];
    const bool is_same = output.kind == OutputRecord::Kind::kSame;
    const StorageRef& constant = recording.outputs[is_same ? output.index : i].constant;
    if (!constant || constant->device() != memory.device()) continue;
    const Tensor tensor(constant, output.byte_offset, output.shape, output.dtype);
    const auto is_this = [&](const Written& other) { return is_same_view(other.tensor, tensor); };
    if (std::ranges::any_of(written_, is_this)) continue;
    written_.push_back({Of::kOutput, i, tensor, tensor, {}});
  }
  std::erase_if(written_, [](const Written& written) { return written.tensor.elements() == 0; });
}

ReplayComparison::~ReplayComparison() = default;

std::unique_ptr<ReplayComparison> ReplayComparison::prepare(const Call& call,
                                                            const Recording& recording,
                                                            ContextMemory& memory,
                                                            UnverifiedReason* why_not) {
  std::unique_ptr<ReplayComparison> made(new ReplayComparison(call, recording, memory));
  *why_not = UnverifiedReason::kEagerBreaks;
  if (!recording.further.empty()) return nullptr;
  *why_not = UnverifiedReason::kLoopStream;
  if (audit_of(recording).hands_out_rows) return nullptr;
  *why_not = UnverifiedReason::kForeignMemory;
  if (call.function().is_callers_work &&
      !may_run_twice(call, audit_of(recording), *memory.declared())) {
    return nullptr;
  }
  *why_not = UnverifiedReason::kSharedMemory;
  if (made->shares_memory()) return nullptr;
  *why_not = UnverifiedReason::kNoMemory;
  try {
    made->save();
  } catch (const OutOfMemory&) {
    return nullptr;
  }
  return made;
}

bool ReplayComparison::shares_memory() const {
  for (std::size_t i = 0; i < written_.size(); ++i) {
    if (may_overlap_itself(written_[i].tensor.shape())) return true;
    for (std::size_t j = 0; j < i; ++j) {
      if (may_overlap(written_[i].tensor, written_[j].tensor)) return true;
    }
  }
  return false;
}

Tensor ReplayComparison::make_like(const Tensor& tensor) const {
  return {memory_.allocate_value(tensor.bytes()), 0, Shape(tensor.shape().dims()), tensor.dtype()};
}

void ReplayComparison::save() {
  const std::size_t pairs = written_.size() + recording_.outputs.size();
  found_ = memory_.allocate_value(std::max<std::size_t>(pairs, 1) * sizeof(ComparedElements));
  for (Written& written : written_)
    written.saved = make_like(written.tensor);
  for (const Written& written : written_)
    copy_elements(memory_.stream(), written.saved, written.tensor);
}

bool ReplayComparison::is_written(std::uint32_t input) const {
  return std::ranges::any_of(written_, [&](const Written& written) {
    return written.of == Of::kInput && written.index == input;
  });
}

// No two of them begin at the same address: they would share memory.
const ReplayComparison::Written* ReplayComparison::find_constant(const Tensor& output) const {
  const auto found = std::ranges::find_if(written_, [&](const Written& written) {
    return written.of == Of::kOutput && written.tensor.address() == output.address();
  });
  return found == written_.end() ? nullptr : &*found;
}

void ReplayComparison::begin_eager_run() {
  for (const GatherNode& root : recording_.roots) {
    root.for_each_draw([&](const PhiloxSequenceRef& sequence, const PhiloxPosition& first,
                           std::uint64_t blocks) { draws_.add(sequence, first, blocks); });
  }
  put_back_ = std::make_unique<PutBack>(*this);
  put_back_->exchange();
}

ReplayComparison::Result ReplayComparison::compare(std::span<const Tensor> replayed,
                                                   std::span<const Tensor> eager) {
  const std::unique_ptr<PutBack> put_back = std::move(put_back_);
  Result result;
  result.divergence = pair_outputs(replayed, eager);
  if (result.divergence) return result;
  for (const Written& written : written_) {
    pairs_.push_back({written.of, written.index,
                      first_of(written.saved, written.actual.shape().dims()), written.actual});
  }
  result.divergence = compare_pairs(&result.compared);
  if (result.divergence) return result;
  for (std::uint32_t i = 0; i < draws_.moves().size(); ++i) {
    const RepeatedDraws::Move& move = draws_.moves()[i];
    if (move.replayed == move.now) continue;
    result.divergence = Divergence{.of = Of::kDraws,
                                   .index = i,
                                   .what = str_format("where it leaves generator {}", i),
                                   .replayed = text_of(move.replayed),
                                   .eager = text_of(move.now)};
    break;
  }
  return result;
}

// Outputs that are the caller's tensors, or memory from outside, are compared as written memory.
// Kernels must not touch memory of another device.
std::optional<Divergence> ReplayComparison::pair_outputs(std::span<const Tensor> replayed,
                                                         std::span<const Tensor> eager) {
  if (replayed.size() != eager.size()) {
    return Divergence{.of = Of::kStep,
                      .what = "the number of outputs",
                      .replayed = std::to_string(replayed.size()),
                      .eager = std::to_string(eager.size())};
  }
  const auto is_here = [&](const Tensor& tensor) { return tensor.device() == memory_.device(); };
  for (std::uint32_t i = 0; i < replayed.size(); ++i) {
    const OutputRecord& record = recording_.outputs[i];
    const bool is_alike = replayed[i].dtype() == eager[i].dtype() &&
                          std::ranges::equal(replayed[i].shape().dims(), eager[i].shape().dims());
    const auto differs = [&](std::string here, std::string there) {
      return Divergence{.of = Of::kOutput,
                        .index = i,
                        .what = what(Of::kOutput, i),
                        .replayed = std::move(here),
                        .eager = std::move(there)};
    };
    if (!is_alike && is_cut(replayed[i], eager[i])) {
      pairs_.push_back({Of::kOutput, i, first_of(replayed[i], eager[i].shape().dims()), eager[i]});
      continue;
    }
    if (!is_alike) return differs(cgtree::describe(replayed[i]), cgtree::describe(eager[i]));
    if (is_same_view(replayed[i], eager[i]) || !is_here(replayed[i]) || !is_here(eager[i])) {
      continue;
    }
    if (const Written* const constant = find_constant(replayed[i])) {
      pairs_.push_back(
          {Of::kOutput, i, first_of(constant->saved, replayed[i].shape().dims()), eager[i]});
      continue;
    }
    const bool is_input = record.kind == OutputRecord::Kind::kInput;
    if (is_input && is_written(record.index)) {
      return differs(str_format("a view of {}, {}", what(Of::kInput, record.index),
                                cgtree::describe(replayed[i])),
                     str_format("{} at {:#x}, {} bytes away", cgtree::describe(eager[i]),
                                eager[i].address(), eager[i].address() - replayed[i].address()));
    }
    pairs_.push_back({Of::kOutput, i, replayed[i], eager[i]});
  }
  return std::nullopt;
}

// An output that is not cut to the call's sizes, because it does not name its axis, is compared up
// to the size of the eager run's output.
bool ReplayComparison::is_cut(const Tensor& replayed, const Tensor& eager) const {
  if (!sizes_differ_ || replayed.dtype() != eager.dtype() || replayed.rank() != eager.rank() ||
      replayed.device() != memory_.device() || eager.device() != memory_.device()) {
    return false;
  }
  const CallAxes& axes = call_.axes();
  for (int a = 0; a < replayed.rank(); ++a) {
    const std::int64_t here = replayed.shape().dim(a);
    const std::int64_t there = eager.shape().dim(a);
    bool is_of_axis = here == there;
    for (std::size_t axis = 0; axis < call_.function().axes->size(); ++axis)
      is_of_axis = is_of_axis || (here == axes.padded[axis] && there == axes.actual[axis]);
    if (!is_of_axis) return false;
  }
  return true;
}

bool ReplayComparison::is_compared(const Pair& pair) const {
  return tolerance(pair) < std::numeric_limits<double>::infinity();
}

std::optional<Divergence> ReplayComparison::compare_pairs(std::vector<VerifiedTensor>* compared) {
  if (pairs_.empty()) return std::nullopt;
  const StreamRef stream = memory_.stream();
  std::vector<ComparedElements> found(pairs_.size());
  const std::size_t bytes = found.size() * sizeof(ComparedElements);
  write_values(stream, found_->address(), found.data(), bytes);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& pair = pairs_[i];
    if (!is_compared(pair)) continue;
    compare_elements(stream, pair.replayed, pair.eager, tolerance(pair),
                     found_->address() + i * sizeof(ComparedElements));
  }
  read(stream, found.data(), found_->address(), bytes);
  std::optional<Divergence> first;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& pair = pairs_[i];
    compared->push_back(
        {what(pair.of, pair.index), tolerance(pair), std::bit_cast<double>(found[i].largest)});
    if (found[i].differing > 0 && !first) first = describe(pair, found[i]);
  }
  return first;
}

Divergence ReplayComparison::describe(const Pair& pair, const ComparedElements& found) const {
  const DType dtype = pair.replayed.dtype();
  Divergence divergence{.of = pair.of,
                        .index = pair.index,
                        .what = what(pair.of, pair.index),
                        .element = found.first,
                        .differing = found.differing,
                        .elements = static_cast<std::uint64_t>(pair.replayed.elements()),
                        .largest = std::bit_cast<double>(found.largest),
                        .tolerance = tolerance(pair)};
  const std::span<const std::int64_t> dims = pair.replayed.shape().dims();
  divergence.position.resize(dims.size());
  std::uint64_t rest = found.first;
  for (std::size_t a = dims.size(); a-- > 0;) {
    divergence.position[a] = static_cast<std::int64_t>(rest % static_cast<std::uint64_t>(dims[a]));
    rest /= static_cast<std::uint64_t>(dims[a]);
  }
  std::uint64_t places[2];
  find_element(pairs_of(pair.replayed, pair.eager), found.first, &places[0], &places[1]);
  ElementBits bits[2];
  for (int side = 0; side < 2; ++side)
    read(memory_.stream(), &bits[side], places[side], size_of(dtype));
  divergence.replayed = text_of(bits[0], dtype);
  divergence.eager = text_of(bits[1], dtype);
  if (sizes_differ_) {
    divergence.suspects.push_back(
        "the replay was padded and the eager run was not: the function writes, or returns, what it "
        "makes of the padding; say InputOptions::padding, or read axis_length()");
  }
  return divergence;
}

std::string ReplayComparison::what(Of of, std::uint32_t index) const {
  if (of == Of::kInput) return call_.describe(index);
  const std::vector<OutputOptions>& outputs = call_.function().options.outputs;
  return text_of_output(index, index < outputs.size() ? outputs[index].name : "");
}

double ReplayComparison::tolerance(const Pair& pair) const {
  const double given = tolerance(pair.of, pair.index);
  return sizes_differ_ ? std::max(given, rounding_of(pair.eager.dtype())) : given;
}

double ReplayComparison::tolerance(Of of, std::uint32_t index) const {
  const Function& function = call_.function();
  if (of == Of::kInput) return function.input_options(index).tolerance;
  const std::vector<OutputOptions>& outputs = function.options.outputs;
  return index < outputs.size() ? outputs[index].tolerance : 0;
}

}  // namespace cgtree
