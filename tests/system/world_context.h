// WorldContext: a context with one compiled step function per kind of call of a WorldProgram, and
// the objects in their closures.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <typeindex>
#include <vector>

#include "cgtree/cgtree.h"
#include "tests/system/world_program.h"

namespace cgtree::testing {

// Makes `stream` wait for `other`; `is_seen`: by functions of the library.
void make_wait(StreamRef stream, StreamRef other, bool is_seen);

class WorldContext {
 public:
  using Function = CompiledFunction<std::vector<Tensor>(std::span<const Tensor>)>;
  static constexpr int kTables = 3;
  // The ways of kFork. The library sees kSeen; the others use their own events.
  enum Fork { kSeen, kUnseen, kUnseenCopy, kNotJoined };
  static constexpr int kForks = 4;

  // `own`: the context's stream; null lets the context make one. `verify_every`: see
  // VerifyOptions::every. `has_hook`: fault 3 throws before the first launch of a recording.
  WorldContext(Device device, int option, bool has_budget, StreamRef own, std::size_t verify_every,
               bool has_hook);
  ~WorldContext();
  WorldContext(const WorldContext&) = delete;
  WorldContext& operator=(const WorldContext&) = delete;

  Context& context() { return *context_; }
  // `number`: for kKeep, the number of the table; for kSecond, 1 and 2 make the inputs; for kFork,
  // a Fork.
  const Function& function(Deed deed, int number = 0) const {
    return functions_[index(deed, number)];
  }
  // Makes new tensors for the closures of kClosure to read, copy from and copy to; the first holds
  // `value`.
  void swap(float value);
  // The values of the first tensor over time.
  const std::vector<float>& values() const { return values_; }
  const Tensor& table(int number) const { return tables_[static_cast<std::size_t>(number)]; }
  // Frees the memory that kTable reads, and allocates other memory, filled with `value`. The
  // context learns of it by undeclare() and declare(), or by invalidate(). Requires: all work is
  // done.
  void move_table(float value, bool declares);
  // Requires: the memory is declared.
  void undeclare_table() {
    is_table_declared_ = false;
    context_->undeclare("table");
  }
  bool has_table() const { return table_ != nullptr; }
  float table_value() const { return table_value_; }
  bool rebinds() const { return rebinds_; }
  // Returns the objects that a family of deeds has in this context. Family(WorldContext&) makes
  // them at the first use; they end before the context.
  template <typename Family>
  Family& family() {
    std::shared_ptr<void>& made = families_[typeid(Family)];
    if (made == nullptr) made = std::make_shared<Family>(*this);
    return *static_cast<Family*>(made.get());
  }
  // Compiles a function of a family; its step throws according to `fault`.
  Function make(const char* name, StepFunction step, CompileOptions options = {});
  // A tensor made by before_first_launch of one of the last recordings: six times the number.
  struct MadeInHook {
    Tensor tensor;
    float number = 0;
  };
  const std::array<MadeInHook, 2>& made_in_hooks() const { return made_in_hooks_; }
  // The side stream of kFork.
  const Stream& side() const { return side_; }

  // The number of calls of the program, failed calls included.
  std::uint64_t calls = 0;
  // The numbers of calls and replays of functions that were destroyed since.
  std::uint64_t ended_calls = 0;
  std::uint64_t ended_replays = 0;
  // The number of announced recordings.
  std::size_t hooks = 0;

  // Of the call in progress: see WorldOperation; `during` is run at the start of the step.
  int fault = 0;
  std::function<void()> during;

 private:
  static std::size_t index(Deed deed, int number) {
    if (deed == Deed::kKeep) return static_cast<std::size_t>(kDeeds + number);
    if (deed == Deed::kSecond && number > 0) {
      return static_cast<std::size_t>(kDeeds + kTables + number - 1);
    }
    if (deed == Deed::kFork && number > 0) {
      return static_cast<std::size_t>(kDeeds + kTables + 2 + number);
    }
    if (number > 0) return static_cast<std::size_t>(kDeeds + kTables + 2);
    return static_cast<std::size_t>(deed);
  }
  std::vector<Tensor> outputs_of(Deed deed, int number, std::span<const Tensor> inputs);
  std::vector<Tensor> fork(Fork how, const Tensor& x);
  void free_table();

  const Device device_;
  const Stream side_;
  std::optional<Context> context_;
  Tensor for_hook_;
  std::array<MadeInHook, 2> made_in_hooks_;
  Tensor workspace_;
  std::array<Tensor, kTables> tables_;
  void* table_ = nullptr;  // memory of the device outside tensors
  float table_value_ = 0;
  bool is_table_declared_ = false;
  Tensor source_;
  Tensor sink_;
  std::vector<float> values_;
  const bool rebinds_;
  const std::size_t max_switch_nodes_;
  std::vector<Function> functions_;  // by index()
  std::map<std::type_index, std::shared_ptr<void>> families_;
};

}  // namespace cgtree::testing
