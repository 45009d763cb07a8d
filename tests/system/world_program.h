// WorldProgram: a program for several contexts, streams and threads as data, so that it can be
// drawn, run, shrunk, printed and read. world.h says what its operations do.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace cgtree::testing {

// What a program may do beside plain calls. Each can be switched off by itself.
enum class Feature : std::uint8_t {
  kContexts,     // contexts pass tensors to each other, and no caller waits for them
  kStreams,      // callers take turns on streams, and read what they are given there
  kNoteUse,      // copies on other streams, whose source is dropped at once
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
  kReplacing,    // a step replaces the variable that it was given
  kCapturing,    // a step throws only while it is captured
  kEnds,         // contexts and streams end while others go on
  kImports,      // tensors of another library, which works on a stream of its own
  kMonitors,     // another thread reads statistics during calls
  kSecondInput,  // the output is one of two inputs of one storage
  kPerThread,    // callers on the per-thread default streams of several threads
  kTending,      // memory is given back, graphs of callers end, and snapshots are taken
  kForks,        // steps work on side streams, which the library may not see
  kKeeping,      // outputs are kept across mark_step()
  kBlocks,       // step blocks that change at each call, read by kernels and in breaks
  kTables,       // kernels read memory that is no tensor, and that moves
  kVerifying,    // replays are verified; steps then neither throw nor read what was replaced
  kBreaks,       // breaks assign, drop, throw, call, explain and allocate
  kSteps,        // an engine's own work, whose steps are held, left, and ended where they must not
  kInputs,       // many copied inputs, of which some end and others lie where they did
  kReturned,     // a rebound input that is returned, also into a buffer
  kReaders,      // copies on another stream whose source is written afterwards
  kDraws,        // steps draw random numbers, and calls fail after that
  kElsewhere,    // steps make outputs on another device
  kLending,      // a step reads an output of another context through its closure
  kKeyAxes,      // outputs whose size is an integer of the key
  kHooks,        // before_first_launch throws
  kPrecaptures,  // sizes are predicted and recorded beforehand, one inside another, and learned
  kInspectors,   // another thread is inside the context when memory is undeclared
  kRecycling,    // streams end with work under way, and later ones have their handles
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

// Operands are taken modulo what there is, so that any sequence of operations is a program. `x`,
// `y` and `to` name variables, `context` a context, and `stream` the caller's stream, 0 for none.
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
  kRead,        // kStreams: read on the stream of the call that made it
  kCopy,        // kNoteUse: copied on another stream to pinned or device memory, and dropped
  kDropThere,   // kThreads: as kDrop
  kCapture,     // kForeign
  kLaunch,      //
  kWorkspace,   // kWorkspaces: uses a workspace of the size of x
  kKeep,        // the step keeps a table
  kClosure,     // kClosures
  kSwap,        // replaces what the closure holds
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
  kRelease,     // kTending: a graph of the caller's is gone
  kTend,        // trims, releases memory, freezes, validates, takes a snapshot, explains, or
                // invalidates
  kFork,        // kForks: y says how the step forks and joins
  kIntrude,     // kContexts: the step calls another context, which is refused
  kOutlive,     // kEnds: one output outlives the context that made it
  kKeepOutput,  // kKeeping
  kBlock,       // kBlocks: adds what is in a block; y says how large it is
  kBreak,       // multiplies by what is in a block, in a break
  kTable,       // kTables: adds what is in memory that is no tensor
  kMoveTable,   // that memory is freed; y says how the context hears of it
  kChange,      // kBreaks: choice says what happens in which break
  kEngine,      // kSteps: choice says what happens in a break and around the step
  kMany,        // kInputs: a weighted sum of ten inputs
  kRenew,       // another tensor takes the place of one of the ten
  kStale,       // a call with an output that has ended, which throws
  kReturn,      // kReturned: x, or a view of it, beside an output; choice says which have a buffer
  kReader,      // kReaders
  kDraw,        // kDraws: choice says what fails
  kElsewhere,   // kElsewhere
  kLent,        // kLending
  kLend,        // the closure gets another output
  kKeyRows,     // kKeyAxes
  kPrecapture,  // kPrecaptures
  kLearn,       // a call of a size that is learned, or an idle moment
  kInspect,     // kInspectors
  kRecycle,     // kRecycling: x is copied on a stream that ends
  kLease,       // kLeases: y says what of the step is held
  kFlow,        // kFlows: choice says whether a body throws
  kHoard,       // kHoards: choice says whether results are fed back
  kGuard,       // kGuards: choice says what is decided
  kSession,     // kSessions: to says what the work does, the others which sessions call
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
  std::uint8_t choice = 0;  // of deeds that say so
};

struct WorldProgram {
  Features features = 0;
  std::array<std::uint8_t, 3> options = {};  // of the contexts; the third is 0 if there are two
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

// As shrink() of a StepProgram; leaves out features, too.
WorldProgram shrink(WorldProgram program, const std::function<bool(const WorldProgram&)>& fails);

}  // namespace cgtree::testing
