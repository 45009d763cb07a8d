// WorldProgram: a program for several contexts, streams and threads as data, so that it can be
// drawn, run, shrunk, printed and read. world.h describes its operations.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace cgtree::testing {

// Features beyond plain calls. Each can be switched off separately.
enum class Feature : std::uint8_t {
  kContexts,     // contexts pass tensors to each other, and no caller waits for them
  kStreams,      // callers take turns on streams, and read outputs on the streams of their calls
  kNoteUse,      // copies on other streams, whose source is dropped immediately
  kThreads,      // handles are released, and contexts are destroyed, on other threads
  kForeign,      // the caller captures a call and launches the graph later
  kWorkspaces,   // a step keeps a workspace and makes it larger; others keep tables
  kClosures,     // a step copies from and to eager() tensors in its closure, which are replaced
  kAxes,         // buckets: outputs that are inputs
  kLists,        // buckets: lists of inputs, with and without buffers
  kColumns,      // buckets: transposed outputs in buffers
  kOverlaps,     // buckets: strided inputs that are mutated beside views that may overlap
  kBudgets,      // small limits of bytes and recordings
  kFaults,       // a step throws, or a buffer does not fit
  kReplacing,    // a step replaces the caller's variable
  kCapturing,    // a step throws only while it is captured
  kEnds,         // contexts and streams end while others go on
  kImports,      // tensors of another library, which works on another stream
  kMonitors,     // another thread reads statistics during calls
  kSecondInput,  // the output is one of two inputs of one storage
  kPerThread,    // callers on the per-thread default streams of several threads
  kTending,      // memory is released, graphs of callers end, and snapshots are taken
  kForks,        // steps work on side streams, which the library may not see
  kKeeping,      // outputs are kept across mark_step()
  kBlocks,       // step blocks that change at each call, read by kernels and in breaks
  kTables,       // kernels read memory outside tensors, which moves
  kVerifying,    // replays are verified; steps then neither throw nor read replaced tensors
  kBreaks,       // breaks assign, drop, throw, call, explain and allocate
  kSteps,        // Steps of an engine, which are held, left, and ended at forbidden places
  kInputs,       // many copied inputs, some of which are replaced, partly at the same addresses
  kReturned,     // a rebound input that is returned, also into a buffer
  kReaders,      // copies on another stream, whose source is then written
  kDraws,        // steps draw random numbers, and calls fail after their draws
  kElsewhere,    // steps make outputs on another device
  kLending,      // a step reads an output of another context through its closure
  kKeyAxes,      // outputs whose size is an integer of the key
  kHooks,        // before_first_launch throws
  kPrecaptures,  // sizes are predicted and recorded beforehand, one inside another, and learned
  kInspectors,   // another thread is inside the context while memory is undeclared
  kRecycling,    // streams end with work in flight, and later streams get their handles
  kLeases,       // another library holds memory of a step
  kFlows,        // steps branch and loop
  kHoards,       // every result is kept, call after call
  kGuards,       // steps depend on decisions of the host that change between calls
  kSessions,     // an engine's sessions, with memory that comes and goes, guards and workspaces
};
inline constexpr int kFeatures = 44;
// A set of features.
using Features = std::uint64_t;

constexpr Features bit(Feature feature) {
  return Features{1} << static_cast<int>(feature);
}

struct NamedFeature {
  std::string_view name;
  Feature feature;
};
extern const std::array<NamedFeature, kFeatures> kNamedFeatures;

// "streams,axes", "all", or "all,-streams". Throws InvalidArgument for an unknown name.
Features parse_features(std::string_view text);

// Operands are taken modulo the number of objects, so that any sequence of operations is a program.
// `x`, `y` and `to` name variables, `context` a context, and `stream` the caller's stream, 0 for
// none.
enum class Deed : std::uint8_t {
  // Plain.
  kFresh,   // a tensor from the host
  kDrop,    //
  kView,    // `to` becomes a view of x
  kHalves,  // `to` and `to` + 1 become the halves of x
  kMarkStep,
  kCheck,  // all values
  kEager,  // `to` becomes an eager() tensor of the context
  // Calls.
  kChain,
  kAlias,
  kSum,
  kBump,
  kInto,
  kNested,
  kBig,  // with much scratch memory
  // Of features.
  kSecond,      // kSecondInput
  kRead,        // kStreams: read on the stream of the producing call
  kCopy,        // kNoteUse: copied on another stream to pinned or device memory, and dropped
  kDropThere,   // kThreads: like kDrop, on another thread
  kCapture,     // kForeign
  kLaunch,      //
  kWorkspace,   // kWorkspaces: uses a workspace of the size of x
  kKeep,        // the step keeps a table
  kClosure,     // kClosures
  kSwap,        // replaces the tensors in the closure
  kBuckets,     // kAxes: returns its input beside an output
  kList,        // kLists: one or three inputs, with and without a buffer
  kColumns,     // kColumns: a transposed output in a buffer
  kOverlap,     // kOverlaps
  kMisfit,      // kFaults: the buffer has another shape
  kReplace,     // kReplacing
  kOnCapture,   // kCapturing
  kEndContext,  // kEnds
  kEndStream,   //
  kImport,      // kImports
  kRelease,     // kTending: a graph of the caller ends
  kTend,        // trims, releases memory, freezes, validates, takes a snapshot, explains, or
                // invalidates
  kFork,        // kForks: y selects the way to fork and join
  kIntrude,     // kContexts: the step calls another context, which is refused
  kOutlive,     // kEnds: one output outlives the context that made it
  kKeepOutput,  // kKeeping
  kBlock,       // kBlocks: adds the value in a block; y selects its size
  kBreak,       // multiplies by the value in a block, in a break
  kTable,       // kTables: adds the value in memory outside tensors
  kMoveTable,   // frees that memory; y selects how the context learns of it
  kChange,      // kBreaks: choice selects the action and its break
  kEngine,      // kSteps: choice selects the actions in a break and around the step
  kMany,        // kInputs: a weighted sum of ten inputs
  kRenew,       // replaces one of the ten
  kStale,       // a call with a stale output, which throws
  kReturn,      // kReturned: returns x or a view of it, and an output; choice selects buffers
  kReader,      // kReaders
  kDraw,        // kDraws: choice selects the failure
  kElsewhere,   // kElsewhere
  kLent,        // kLending
  kLend,        // puts another output into the closure
  kKeyRows,     // kKeyAxes
  kPrecapture,  // kPrecaptures
  kLearn,       // a call with a learned size, or an idle moment
  kInspect,     // kInspectors
  kRecycle,     // kRecycling: copies x on a stream that ends
  kLease,       // kLeases: y selects the memory of the step that is leased
  kFlow,        // kFlows: choice selects a body that throws
  kHoard,       // kHoards: choice selects whether results are inputs of the next call
  kGuard,       // kGuards: choice selects the decisions
  kSession,     // kSessions: to selects the work, the others the sessions
};
inline constexpr int kDeeds = 65;

struct WorldOperation {
  Deed deed = Deed::kCheck;
  std::uint8_t x = 0;
  std::uint8_t y = 0;
  std::uint8_t to = 0;
  std::uint8_t context = 0;
  std::uint8_t stream = 0;
  std::uint8_t fault = 0;   // as in StepProgram; 3 throws before the first launch
  std::uint8_t choice = 0;  // for some deeds
};

struct WorldProgram {
  Features features = 0;
  std::array<std::uint8_t, 3> options = {};  // of the contexts; 0: there is no third one
  int rounds = 1;
  std::vector<WorldOperation> operations;

  bool has(Feature feature) const { return (features & bit(feature)) != 0; }
};

WorldProgram draw_world(std::mt19937& random, Features features);

// "features options rounds: operations", all in numbers.
std::string to_text(const WorldProgram& program);
// "chain(x=1 y=2 to=3 context=0 stream=1 choice=7)", one line per operation.
std::string to_listing(const WorldProgram& program);
// Throws InvalidArgument.
WorldProgram parse_world(const std::string& text);

// Like shrink() of a StepProgram; removes features, too.
WorldProgram shrink(WorldProgram program, const std::function<bool(const WorldProgram&)>& fails);

}  // namespace cgtree::testing
