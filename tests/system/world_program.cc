// Draws, prints, reads and shrinks programs.
#include "tests/system/world_program.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

#include "base/error.h"

namespace cgtree::testing {
namespace {

constexpr std::array<std::string_view, kDeeds> kDeedNames = {
    "fresh",      "drop",       "view",       "halves",      "mark_step",   "check",   "eager",
    "chain",      "alias",      "sum",        "bump",        "into",        "nested",  "big",
    "second",     "read",       "copy",       "drop_there",  "capture",     "launch",  "workspace",
    "keep",       "closure",    "swap",       "buckets",     "list",        "columns", "overlap",
    "misfit",     "replace",    "on_capture", "end_context", "end_stream",  "import",  "release",
    "tend",       "fork",       "intrude",    "outlive",     "keep_output", "block",   "break",
    "table",      "move_table", "change",     "engine",      "many",        "renew",   "stale",
    "return",     "reader",     "draw",       "elsewhere",   "lent",        "lend",    "key_rows",
    "precapture", "learn",      "inspect",    "recycle",     "lease",       "flow",    "hoard",
    "guard",      "session"};

// The deeds that a feature adds.
std::vector<Deed> deeds_of(Feature feature) {
  switch (feature) {
    case Feature::kStreams:
      return {Deed::kRead, Deed::kRead};
    case Feature::kNoteUse:
      return {Deed::kCopy, Deed::kCopy};
    case Feature::kThreads:
      return {Deed::kDropThere};
    case Feature::kForeign:
      return {Deed::kCapture, Deed::kLaunch, Deed::kLaunch};
    case Feature::kWorkspaces:
      return {Deed::kWorkspace, Deed::kWorkspace, Deed::kKeep};
    case Feature::kClosures:
      return {Deed::kClosure, Deed::kClosure, Deed::kSwap, Deed::kEager};
    case Feature::kAxes:
      return {Deed::kBuckets};
    case Feature::kLists:
      return {Deed::kList};
    case Feature::kColumns:
      return {Deed::kColumns};
    case Feature::kOverlaps:
      return {Deed::kOverlap};
    case Feature::kBudgets:
      return {Deed::kBig, Deed::kBig};
    case Feature::kFaults:
      return {Deed::kMisfit};
    case Feature::kReplacing:
      return {Deed::kReplace};
    case Feature::kCapturing:
      return {Deed::kOnCapture};
    case Feature::kEnds:
      return {Deed::kEndContext, Deed::kEndStream, Deed::kOutlive};
    case Feature::kImports:
      return {Deed::kImport};
    case Feature::kTending:
      return {Deed::kCapture, Deed::kLaunch, Deed::kRelease, Deed::kTend, Deed::kTend};
    case Feature::kSecondInput:
      return {Deed::kSecond, Deed::kHalves};
    case Feature::kForks:
      return {Deed::kFork, Deed::kFork};
    case Feature::kContexts:
      return {Deed::kIntrude};
    case Feature::kKeeping:
      return {Deed::kKeepOutput, Deed::kKeepOutput, Deed::kMarkStep};
    case Feature::kBlocks:
      return {Deed::kBlock, Deed::kBreak, Deed::kBreak};
    case Feature::kTables:
      return {Deed::kTable, Deed::kTable, Deed::kMoveTable};
    case Feature::kBreaks:
      return {Deed::kChange, Deed::kChange, Deed::kChange};
    case Feature::kSteps:
      return {Deed::kEngine, Deed::kEngine, Deed::kEngine};
    case Feature::kInputs:
      return {Deed::kMany, Deed::kMany, Deed::kMany, Deed::kRenew, Deed::kRenew, Deed::kStale};
    case Feature::kReturned:
      return {Deed::kReturn, Deed::kReturn};
    case Feature::kReaders:
      return {Deed::kReader, Deed::kReader, Deed::kBump, Deed::kInto};
    case Feature::kDraws:
      return {Deed::kDraw, Deed::kDraw};
    case Feature::kElsewhere:
      return {Deed::kElsewhere, Deed::kElsewhere};
    case Feature::kLending:
      return {Deed::kLent, Deed::kLent, Deed::kLend};
    case Feature::kKeyAxes:
      return {Deed::kKeyRows, Deed::kKeyRows};
    case Feature::kPrecaptures:
      return {Deed::kPrecapture, Deed::kLearn, Deed::kLearn, Deed::kLearn};
    case Feature::kInspectors:
      return {Deed::kTable, Deed::kTable, Deed::kInspect};
    case Feature::kRecycling:
      return {Deed::kRecycle, Deed::kRecycle, Deed::kEndStream};
    case Feature::kLeases:
      return {Deed::kLease, Deed::kLease, Deed::kLease};
    case Feature::kFlows:
      return {Deed::kFlow, Deed::kFlow};
    case Feature::kHoards:
      return {Deed::kHoard, Deed::kHoard};
    case Feature::kGuards:
      return {Deed::kGuard, Deed::kGuard, Deed::kGuard};
    case Feature::kSessions:
      return {Deed::kSession, Deed::kSession, Deed::kSession};
    default:
      return {};
  }
}

}  // namespace

const std::array<NamedFeature, kFeatures> kNamedFeatures = {{
    {"contexts", Feature::kContexts},
    {"streams", Feature::kStreams},
    {"note_use", Feature::kNoteUse},
    {"threads", Feature::kThreads},
    {"foreign", Feature::kForeign},
    {"workspaces", Feature::kWorkspaces},
    {"closures", Feature::kClosures},
    {"axes", Feature::kAxes},
    {"lists", Feature::kLists},
    {"columns", Feature::kColumns},
    {"overlaps", Feature::kOverlaps},
    {"budgets", Feature::kBudgets},
    {"faults", Feature::kFaults},
    {"replacing", Feature::kReplacing},
    {"capturing", Feature::kCapturing},
    {"ends", Feature::kEnds},
    {"imports", Feature::kImports},
    {"monitors", Feature::kMonitors},
    {"second_input", Feature::kSecondInput},
    {"per_thread", Feature::kPerThread},
    {"tending", Feature::kTending},
    {"forks", Feature::kForks},
    {"keeping", Feature::kKeeping},
    {"blocks", Feature::kBlocks},
    {"tables", Feature::kTables},
    {"verifying", Feature::kVerifying},
    {"breaks", Feature::kBreaks},
    {"steps", Feature::kSteps},
    {"inputs", Feature::kInputs},
    {"returned", Feature::kReturned},
    {"readers", Feature::kReaders},
    {"draws", Feature::kDraws},
    {"elsewhere", Feature::kElsewhere},
    {"lending", Feature::kLending},
    {"key_axes", Feature::kKeyAxes},
    {"hooks", Feature::kHooks},
    {"precaptures", Feature::kPrecaptures},
    {"inspectors", Feature::kInspectors},
    {"recycling", Feature::kRecycling},
    {"leases", Feature::kLeases},
    {"flows", Feature::kFlows},
    {"hoards", Feature::kHoards},
    {"guards", Feature::kGuards},
    {"sessions", Feature::kSessions},
}};

Features parse_features(std::string_view text) {
  Features features = 0;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const bool takes_away = word.starts_with('-');
    if (takes_away) word.remove_prefix(1);
    Features bits = 0;
    if (word == "all") bits = (Features{1} << kFeatures) - 1;
    for (const NamedFeature& named : kNamedFeatures) {
      if (named.name == word) bits = bit(named.feature);
    }
    if (bits == 0 && word != "none") {
      throw InvalidArgument(fmt::format("there is no feature '{}'", word));
    }
    features = takes_away ? features & ~bits : features | bits;
  }
  return features;
}

WorldProgram draw_world(std::mt19937& random, Features features) {
  const auto pick = [&](int count) {
    return static_cast<std::uint8_t>(random() % static_cast<unsigned>(count));
  };
  WorldProgram program;
  // A program has only a few features: a failure that needs many operations of one feature would be
  // rare among all features.
  std::vector<Features> allowed;
  for (int i = 0; i < kFeatures; ++i) {
    const Features feature = Features{1} << i;
    if ((features & feature) == 0) continue;
    allowed.push_back(feature);
    if (pick(6) == 0) program.features |= feature;
  }
  if (!allowed.empty()) program.features |= allowed[pick(static_cast<int>(allowed.size()))];
  if (program.has(Feature::kVerifying)) {
    program.features &= ~(bit(Feature::kClosures) | bit(Feature::kFaults) | bit(Feature::kBreaks) |
                          bit(Feature::kHooks) | bit(Feature::kDraws) | bit(Feature::kLending));
  }
  for (std::uint8_t& option : program.options)
    option = pick(8);
  std::vector<Deed> special;
  for (int i = 0; i < kFeatures; ++i) {
    if ((program.features & (Features{1} << i)) == 0) continue;
    for (const Deed deed : deeds_of(static_cast<Feature>(i)))
      special.push_back(deed);
  }
  program.rounds = 1 + pick(6);
  const int count = 3 + pick(18);
  const int contexts = pick(2) == 0 ? 1 : 1 + pick(3);
  for (int i = 0; i < count; ++i) {
    Deed deed = Deed::kChain;
    switch (special.empty() ? pick(2) : pick(4)) {
      case 0:
        deed = static_cast<Deed>(pick(static_cast<int>(Deed::kSecond)));
        break;
      case 1:
        deed = static_cast<Deed>(static_cast<int>(Deed::kChain) + pick(6));
        break;
      default:
        deed = special[pick(static_cast<int>(special.size()))];
    }
    std::uint8_t fault = 0;
    if (program.has(Feature::kFaults) && pick(10) == 0)
      fault = static_cast<std::uint8_t>(1 + pick(2));
    if (program.has(Feature::kHooks) && pick(10) == 0) fault = 3;
    program.operations.push_back(
        {deed, pick(5), pick(8), pick(5), pick(contexts), pick(4), fault, pick(256)});
  }
  return program;
}

std::string to_text(const WorldProgram& program) {
  std::string text = fmt::format("{} {}.{}.{} {}:", program.features, program.options[0],
                                 program.options[1], program.options[2], program.rounds);
  for (const WorldOperation& o : program.operations) {
    text += fmt::format(" {}.{}.{}.{}.{}.{}.{}.{}", static_cast<int>(o.deed), o.x, o.y, o.to,
                        o.context, o.stream, o.fault, o.choice);
  }
  return text;
}

std::string to_listing(const WorldProgram& program) {
  std::string text = fmt::format("options {}.{}.{}, {} rounds of\n", program.options[0],
                                 program.options[1], program.options[2], program.rounds);
  for (const WorldOperation& o : program.operations) {
    text += fmt::format("  {}(x={} y={} to={} context={} stream={} choice={}{})\n",
                        kDeedNames[static_cast<std::size_t>(o.deed)], o.x, o.y, o.to, o.context,
                        o.stream, o.choice, o.fault != 0 ? fmt::format(" fault={}", o.fault) : "");
  }
  return text;
}

WorldProgram parse_world(const std::string& text) {
  WorldProgram program;
  std::istringstream in(text);
  char mark = 0;
  int options[3] = {};
  in >> program.features >> options[0] >> mark >> options[1] >> mark >> options[2] >>
      program.rounds >> mark;
  if (!in || mark != ':') {
    throw InvalidArgument(fmt::format("'{}' does not begin as a program does", text));
  }
  for (int i = 0; i < 3; ++i)
    program.options[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(options[i]);
  std::string word;
  while (in >> word) {
    int fields[8] = {};
    std::istringstream fields_in(word);
    for (int& field : fields) {
      if (!(fields_in >> field) || field < 0 || field > 255) {
        throw InvalidArgument(fmt::format("operation '{}' is not eight numbers", word));
      }
      fields_in.get(mark);
    }
    if (fields[0] >= kDeeds) throw InvalidArgument(fmt::format("there is no deed {}", fields[0]));
    const auto byte = [&](int i) { return static_cast<std::uint8_t>(fields[i]); };
    program.operations.push_back({static_cast<Deed>(byte(0)), byte(1), byte(2), byte(3), byte(4),
                                  byte(5), byte(6), byte(7)});
  }
  return program;
}

WorldProgram shrink(WorldProgram program, const std::function<bool(const WorldProgram&)>& fails) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    const auto try_this = [&](WorldProgram candidate) {
      if (!fails(candidate)) return;
      program = std::move(candidate);
      smaller = true;
    };
    for (std::size_t i = program.operations.size(); i-- > 0;) {
      WorldProgram without = program;
      without.operations.erase(without.operations.begin() + static_cast<std::ptrdiff_t>(i));
      try_this(std::move(without));
    }
    for (int i = 0; i < kFeatures; ++i) {
      WorldProgram without = program;
      without.features &= ~(Features{1} << i);
      if (without.features != program.features) try_this(std::move(without));
    }
    WorldProgram shorter = program;
    if (--shorter.rounds > 0) try_this(std::move(shorter));
  }
  return program;
}

}  // namespace cgtree::testing
