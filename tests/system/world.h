// World: runs a WorldProgram on a device and in plain arithmetic on the host: one to three
// contexts, callers on several streams, and threads. Every held tensor must have the value of eager
// execution in the order of the program, in any interaction.
//
// A caller orders its eager work on its streams, as every program must. The library orders the
// calls, the use of a call's outputs on the stream of that call, and copies of outputs on other
// streams after a wait.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/device/pinned_memory.h"
#include "extensions/sizes/precapture.h"
#include "interop/device/graph.h"
#include "interop/exchange/lent_memory.h"
#include "tests/system/model_tensor.h"
#include "tests/system/world_context.h"
#include "tests/system/world_program.h"

namespace cgtree::testing {

// Counts over any number of programs.
struct WorldTotals {
  std::uint64_t calls = 0;
  std::uint64_t recordings = 0;
  std::uint64_t replays = 0;
  std::uint64_t evictions = 0;
  std::uint64_t launches = 0;  // of foreign graphs
  std::uint64_t refused = 0;   // calls without memory, or with an injected fault
  std::uint64_t verified = 0;  // replays
  // Of the recordings that contexts have at their end.
  std::uint64_t rebound_inputs = 0;
  std::uint64_t rebound_buffers = 0;
  std::uint64_t rebound_replays = 0;  // of recordings with either
  std::uint64_t foreign = 0;          // recordings with a foreign pointer
  std::uint64_t declared = 0;         // recordings with an address in declared memory
  long most_events = 0;               // the most that existed while no work was in flight
  std::map<std::string, std::uint64_t, std::less<>> done;  // rare events, by name
};

class World {
 public:
  // `totals`: the run's counts are added to it. `events`: the device's number of events, or null.
  World(Device device, const WorldProgram& program, WorldTotals& totals,
        const std::atomic<long>* events = nullptr);
  ~World();

  // Returns a description of the failure; empty without one.
  std::string run();

 private:
  static constexpr int kVariables = 5;
  static constexpr int kStreams = 3;
  static constexpr int kMany = 10;

  struct Variable {
    Tensor tensor;
    ModelTensor model;
    int caller = -1;       // the stream of its caller, if it is an output with its own memory
    StreamRef writer;      // the stream of the eager work that wrote it
    bool is_kept = false;  // mark_step() must not end it
    int ends_with = -1;    // the context whose mark_step() must end it, unless it is kept
  };
  // A graph that the caller has captured, or a tensor to compare.
  struct Captured {
    Graph graph;
    GraphExec exec;
    Variable x;
    Variable y;
    int context = -1;      // owns the graph's memory, until the end of either
    std::uint64_t id = 0;  // of the capture

    bool has_graph() const { return exec.handle() != ExecHandle::kNull; }
    void drop_graph() {
      exec = GraphExec();
      graph = Graph();
    }
  };

  // Memory of a step that another library keeps.
  struct Leased {
    Lease lease;
    ModelTensor model;
  };

  void execute(const WorldOperation& operation);
  // world_calls.cc
  void call(const WorldOperation& operation);
  bool run_call(const WorldOperation& operation, const WorldContext::Function& function,
                std::span<const Tensor> inputs, std::span<const Tensor> buffers, bool mutates,
                std::vector<Tensor>& outputs);
  void call_here(const WorldOperation& operation, const WorldContext::Function& function,
                 std::span<const Tensor> inputs, std::span<const Tensor> buffers, bool mutates,
                 StreamRef caller, std::vector<Tensor>& outputs);
  void expect_gaps_refused(const WorldOperation& operation, const WorldContext::Function& function,
                           std::span<const Tensor> inputs);
  void misfit(const WorldOperation& operation);
  // world_axes.cc
  void buckets(const WorldOperation& operation);
  void list(const WorldOperation& operation);
  void columns(const WorldOperation& operation);
  void overlap(const WorldOperation& operation);
  void key_rows(const WorldOperation& operation);
  // world_inputs.cc
  void many(const WorldOperation& operation);
  void renew(const WorldOperation& operation);
  void second(const WorldOperation& operation);
  void stale(const WorldOperation& operation);
  void returned(const WorldOperation& operation);
  // world_closures.cc
  void keep(const WorldOperation& operation);
  void closure(const WorldOperation& operation);
  void lend(const WorldOperation& operation);
  void lent(const WorldOperation& operation);
  void guard(const WorldOperation& operation);
  // world_elsewhere.cc
  void fork(const WorldOperation& operation);
  void intrude(const WorldOperation& operation);
  void elsewhere(const WorldOperation& operation);
  // world_breaks.cc, world_steps.cc, world_sessions.cc, world_draws.cc and world_precaptures.cc
  void change(const WorldOperation& operation);
  void engine(const WorldOperation& operation);
  void session(const WorldOperation& operation);
  void draw(const WorldOperation& operation);
  void precapture(const WorldOperation& operation);
  void learn(const WorldOperation& operation);
  // world_streams.cc
  Variable import_of(Variable x);
  void import(const WorldOperation& operation);
  void recycle(const WorldOperation& operation);
  void end_stream(int number);
  // world_readers.cc
  void read(const WorldOperation& operation);
  void read_beside(const WorldOperation& operation);
  void read_and_write(const WorldOperation& operation);
  void copy_out(const WorldOperation& operation);
  // world_captures.cc
  Variable lent_or_fresh(const WorldOperation& operation);
  void capture(const WorldOperation& operation);
  void launch(const WorldOperation& operation);
  void release(const WorldOperation& operation);
  // world_flow.cc
  void flow(const WorldOperation& operation);
  // world_leases.cc
  void lease(const WorldOperation& operation);
  void check_leased();
  // world_memory.cc
  void keep_output(const WorldOperation& operation);
  void outlive(const WorldOperation& operation);
  void end_context(int number);
  void mark_step(int number);
  void hoard(const WorldOperation& operation);
  bool is_managed(const Tensor& tensor, int context) const;
  // world_monitors.cc
  void tend(const WorldOperation& operation);
  static void watch(WorldContext& with);
  void inspect(const WorldOperation& operation);
  // world_tensors.cc
  Variable& ready(int number);
  Variable fresh(int choice);
  Variable fresh_of(const Shape& shape);
  Variable small(int choice);
  Variable of_dims(int number, const Shape& shape);
  Variable table_column(const Shape& dims);
  static bool is_stale(const Tensor& tensor);
  void put(int number, Variable variable);
  float next_value();
  // world_checks.cc
  void expect(const Tensor& tensor, const ModelTensor& model, const std::string& name);
  void check();
  void finish();
  void count(const Context& context);

  WorldContext& context(const WorldOperation& operation);
  WorldContext& use(int number);
  StreamRef caller_of(const WorldOperation& operation) const;
  int caller_number(const WorldOperation& operation) const;
  bool is_on_thread(const WorldOperation& operation) const;
  void wait_for_all(StreamRef stream);
  void wait_for_writers(StreamRef stream, const Variable& x);
  void all_wait_for(StreamRef stream);
  void settle();

  const Device device_;
  const WorldProgram& program_;
  std::optional<PinnedMemory> pinned_;
  std::vector<Stream> own_streams_;  // of contexts; they outlive the tensors
  std::vector<std::optional<Stream>> streams_;
  std::optional<Stream> producer_;
  std::optional<Stream> reader_;  // for kReader; writing calls do not wait for it
  std::vector<std::unique_ptr<WorldContext>> contexts_;
  std::vector<int> options_;
  std::vector<Variable> stock_;    // fresh tensors, made while no work is in flight
  std::vector<Tensor> graveyard_;  // tensors that eager work may still use
  std::array<Variable, kVariables> variables_;
  std::vector<Captured> captured_;
  std::vector<std::array<ModelTensor, WorldContext::kTables>> tables_;
  std::vector<std::array<Variable, kMany>> many_;  // by context
  std::vector<Tensor> stale_;                      // ended outputs
  std::vector<Variable> elsewhere_;                // the most recent outputs on device 1
  std::vector<ModelTensor> lent_values_;           // values of tensors that closures held
  std::vector<Leased> leased_;
  std::vector<Variable> hoard_;
  WorldTotals& totals_;
  const std::atomic<long>* const events_;
  bool may_throw_ = false;  // the next call may throw, other than by its fault
  int ends_with_ = -1;      // -1, or the context whose mark_step() ends the last outputs
  int last_context_ = 0;
  int last_caller_ = -1;
  std::uint32_t values_made_ = 0;
  std::uint32_t taken_ = 0;  // tensors used of stock_
};

}  // namespace cgtree::testing
