// WorldContext: a context with one compiled step function per kind of call of a WorldProgram, and
// what their closures hold.
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

// Makes `stream` wait for `other`, with or without the library's seeing it.
void make_wait(StreamRef stream, StreamRef other, bool is_seen);

class WorldContext {
 public:
  using Function = CompiledFunction<std::vector<Tensor>(std::span<const Tensor>)>;
  static constexpr int kTables = 3;
  // The ways of kFork. The library sees kSeen; the others use events of their own.
  enum Fork { kSeen, kUnseen, kUnseenCopy, kNotJoined };
  static constexpr int kForks = 4;

  // `own`: the context's stream, null for one that it makes. `verify_every`: see
  // VerifyOptions::every. `has_hook`: fault 3 throws before the first launch of a recording.
  WorldContext(Device device, int option, bool has_budget, StreamRef own, std::size_t verify_every,
               bool has_hook);
  ~WorldContext();
  WorldContext(const WorldContext&) = delete;
  WorldContext& operator=(const WorldContext&) = delete;

  Context& context() { return *context_; }
  // `number`: of the table of kKeep; of kSecond, 1 and 2 make the inputs; of kFork, a Fork.
  const Function& function(Deed deed, int number = 0) const {
    return functions_[index(deed, number)];
  }
  // Makes new tensors for the closures of kClosure to read, copy from and copy to; the first holds
  // `value`.
  void swap(float value);
  // The values that the first has held.
  const std::vector<float>& values() const { return values_; }
  const Tensor& table(int number) const { return tables_[static_cast<std::size_t>(number)]; }
  // Frees the memory that kTable reads, and makes other memory, which holds `value`. The context
  // hears of it: as of declared memory, or by invalidate(). Requires that all work is done.
  void move_table(float value, bool declares);
  // Requires that the context knows of the memory as declared.
  void undeclare_table() {
    is_table_declared_ = false;
    context_->undeclare("table");
  }
  bool has_table() const { return table_ != nullptr; }
  float table_value() const { return table_value_; }
  bool rebinds() const { return rebinds_; }
  // What a family of deeds has in this context, made when it is first asked for from
  // Family(WorldContext&); it ends before the context.
  template <typename Family>
  Family& family() {
    std::shared_ptr<void>& made = families_[typeid(Family)];
    if (made == nullptr) made = std::make_shared<Family>(*this);
    return *static_cast<Family*>(made.get());
  }
  // A function of a family, whose step throws as `fault` says.
  Function make(const char* name, StepFunction step, CompileOptions options = {});
  // What the last recordings' before_first_launch has made: six times the number.
  struct MadeInHook {
    Tensor tensor;
    float number = 0;
  };
  const std::array<MadeInHook, 2>& made_in_hooks() const { return made_in_hooks_; }
  // The side stream of kFork.
  const Stream& side() const { return side_; }

  // How many calls the program has made, those that threw included.
  std::uint64_t calls = 0;
  // How many of them, and of the replays, functions have made that were destroyed since.
  std::uint64_t ended_calls = 0;
  std::uint64_t ended_replays = 0;
  // How many recordings were announced.
  std::size_t hooks = 0;

  // Of the call in progress: see WorldOperation; and what the step does first.
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
  void* table_ = nullptr;  // memory of the device
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
