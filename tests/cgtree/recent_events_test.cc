// The last events of a context: kept in memory, written on request and by signals.
#include "extensions/watch/recent_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "extensions/watch/flight_recorder.h"
#include "extensions/watch/watch.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using json = nlohmann::json;

// Returns the lines as JSON; with may_be_cut, the last line may be incomplete.
std::vector<json> lines_of(const std::string& text, bool may_be_cut = false) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    json read = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool is_last = stream.peek() == std::char_traits<char>::eof();
    EXPECT_TRUE(!read.is_discarded() || (is_last && may_be_cut)) << line;
    if (!read.is_discarded()) lines.push_back(std::move(read));
  }
  return lines;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

FlightEntry numbered(std::uint32_t number, std::string_view function) {
  return {.node = number, .function = ShortText<48>(function), .event = FlightEvent::kRecord};
}

TEST(FlightRecorderTest, HoldsTheLastEventsInOrderAsADequeWould) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int context = 0; context < 20; ++context) {
    FlightRecorder& recorder = FlightRecorder::take({.context = ShortText<128>("context")});
    std::deque<std::uint32_t> model;
    const std::uint32_t count = random() % 4 == 0 ? random() % 5000 : random() % 1200;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto node = static_cast<std::uint32_t>(random() % 1000);
      recorder.add(numbered(node, "f"));
      model.push_back(node);
      if (model.size() > FlightRecorder::kEvents) model.pop_front();
      if (i % 97 != 0 && i + 1 < count) continue;
      FlightRecorder::Header header;
      ASSERT_TRUE(recorder.header(header));
      std::deque<std::uint32_t> kept;
      const std::uint64_t overwritten = recorder.visit(
          header.life, [&](const FlightEntry& entry) { kept.push_back(entry.node); });
      ASSERT_EQ(kept, model);
      ASSERT_EQ(overwritten, i + 1 - model.size());
    }
    recorder.give_back();
  }
}

TEST(FlightRecorderTest, AReaderSeesNoEventThatWasHalfWritten) {
  FlightRecorder& recorder = FlightRecorder::take({.context = ShortText<128>("context")});
  FlightRecorder::Header header;
  ASSERT_TRUE(recorder.header(header));
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    for (std::uint32_t i = 0; !ends; ++i)
      recorder.add(numbered(i, std::string(40, static_cast<char>('a' + i % 26))));
  });
  for (int read = 0; read < 200; ++read) {
    std::uint64_t last = 0;
    (void)recorder.visit(header.life, [&](const FlightEntry& entry) {
      EXPECT_EQ(entry.function.view(), std::string(40, static_cast<char>('a' + entry.node % 26)));
      EXPECT_EQ(entry.node, static_cast<std::uint32_t>(entry.number));
      EXPECT_TRUE(last == 0 || entry.number > last);
      last = entry.number;
    });
  }
  ends = true;
  writer.join();
  recorder.give_back();
}

TEST(FlightRecorderTest, AContextThatTakesAUsedRecorderHasNoneOfItsEvents) {
  FlightRecorder& first = FlightRecorder::take({});
  first.add(numbered(1, "f"));
  first.give_back();
  FlightRecorder& second = FlightRecorder::take({});
  FlightRecorder::Header header;
  ASSERT_TRUE(second.header(header));
  (void)second.visit(header.life, [](const FlightEntry&) { ADD_FAILURE(); });
  second.add(numbered(2, "g"));
  // As a reader that asked before the end of the first context.
  (void)second.visit(header.life - 1, [](const FlightEntry&) { ADD_FAILURE(); });
  second.give_back();
  EXPECT_FALSE(second.header(header));
}

TEST(ShortTextTest, SaysWhenATextWasCut) {
  EXPECT_EQ(ShortText<8>("1234567").view(), "1234567");
  EXPECT_EQ(ShortText<8>("12345678").view(), "1234...");
  ShortText<8> text("1234");
  EXPECT_EQ(((text += "56") += "789").view(), "1234...");
  EXPECT_EQ((text += "0").view(), "1234...");
}

class RecentEventsTest : public TreeTest {
 protected:
  using F = CompiledFunction<Tensor(Tensor)>;

  void SetUp() override {
    TreeTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  void TearDown() override {
    for (const char* const end : {".jsonl", ".model"})
      std::filesystem::remove(path(end));
    TreeTest::TearDown();
  }
  // The path is the same in a test and in the process of its death test.
  static std::string path(const std::string& end = ".jsonl") {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + test->name();
    std::ranges::replace(name, '/', '_');
    return ::testing::TempDir() + "/cgtree_" + name + end;
  }
  std::vector<json> recent() { return lines_of(recent_events(context())); }
  F doubled(std::string name) {
    return compile(context(), std::move(name), [](Tensor x) { return affine(x, 2, 0); });
  }
};
CGTREE_ON_ALL_DEVICES(RecentEventsTest);

TEST_P(RecentEventsTest, AreThoseOfTheEventFileUnderRandomPrograms) {
  make_context({.name = "random",
                .max_recordings = 6,
                .at_limit = AtLimit::kEvict,
                .extensions = {watch({.event_file = path(".model")})}});
  std::vector<F> functions;
  for (int i = 0; i < 4; ++i) {
    functions.push_back(compile(context(), "f" + std::to_string(i),
                                [this](Tensor x) {
                                  if (random_() % 16 == 0) throw std::runtime_error("by chance");
                                  return affine(x, 2, 0);
                                },
                                {.enabled = i != 3,
                                 .max_recordings = 3,
                                 .at_limit = i % 2 == 0 ? AtLimit::kEvict : AtLimit::kRunEagerly}));
  }
  for (int call = 0; call < 2500; ++call) {
    try {
      (void)functions[random_() % 4](random_tensor({1 + static_cast<std::int64_t>(random_() % 4)}));
    } catch (const std::runtime_error&) {  // at random
    }
    if (random_() % 50 == 0) context().mark_step();
    if (random_() % 300 == 0) (void)context().release_memory();
  }
  std::deque<json> model;
  std::size_t overwritten = 0;
  for (const json& line : lines_of(text_of(path(".model")))) {
    const std::string event = line["event"];
    const std::set<std::string> kept = {"warm_up", "record", "skip", "evict", "drop", "failure"};
    if (!kept.contains(event)) continue;
    const bool has_cause = event == "warm_up" || event == "record";  // only the file has causes
    model.push_back({event, line["function"], line.value("node", 0),
                     has_cause ? "" : line.value("reason", "")});
    if (model.size() <= FlightRecorder::kEvents) continue;
    model.pop_front();
    ++overwritten;
  }
  const std::vector<json> kept = recent();
  ASSERT_EQ(kept[0]["event"], "open");
  EXPECT_EQ(kept[0]["overwritten"], overwritten);
  EXPECT_GT(overwritten, 0u);
  std::deque<json> seen;
  for (const json& line : kept) {
    if (line["event"] == "open") continue;
    seen.push_back(
        {line["event"], line["function"], line.value("node", 0), line.value("reason", "")});
    EXPECT_EQ(line["context"], "random");
    EXPECT_EQ(line["process"], getpid());
  }
  EXPECT_EQ(seen, model);
}

TEST_P(RecentEventsTest, SayHowManyReplaysCameBeforeAndWhyACallDidNotReplay) {
  make_context({.name = "a \"name\" \\ \n \xFF ü"});
  const F f = doubled("f");
  for (int call = 0; call < 5; ++call)
    (void)f(random_tensor({3}));
  {
    const NoGraph scope;
    (void)f(random_tensor({3}));
  }
  const std::vector<json> lines = recent();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["context"], "a \"name\" \\ \n \xEF\xBF\xBD ü");
  EXPECT_EQ(lines[1]["event"], "warm_up");
  EXPECT_EQ(lines[2]["event"], "record");
  EXPECT_EQ(lines[2]["node"], 1);
  EXPECT_EQ(lines[3]["event"], "skip");
  EXPECT_EQ(lines[3]["reason"], "no_graph_scope");
  EXPECT_EQ(lines[3]["function_replays"], 3);
  EXPECT_GE(lines[3]["us"], 0);
}

TEST_P(RecentEventsTest, MayBeReadInAStepWhichIsTheOneThatRuns) {
  std::vector<std::string> seen;
  const F f = compile(context(), "f", [&](Tensor x) {
    const json last = recent().back();
    EXPECT_EQ(last["event"], "running");
    EXPECT_EQ(last["function"], "f");
    seen.push_back(last["call"]);
    dump_events(context(), path());
    EXPECT_EQ(lines_of(text_of(path())).back(), last);
    return affine(x, 2, 0);
  });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({3}));
  EXPECT_THAT(seen, ::testing::ElementsAre("warm_up", "record"));
  EXPECT_EQ(recent().back()["event"], "record");
}

TEST_P(RecentEventsTest, MayBeWrittenByAnotherThreadWhileCallsGoOn) {
  make_context({.max_recordings = 2, .at_limit = AtLimit::kEvict});
  const F f = doubled("f");
  std::atomic<bool> ends = false;
  std::atomic<int> dumps = 0;
  std::thread reader([&] {
    for (; !ends; ++dumps) {
      dump_events(context(), path());
      EXPECT_EQ(lines_of(text_of(path()))[0]["event"], "open");
    }
  });
  for (std::int64_t call = 0; call < 300 || dumps < 20; ++call)
    (void)f(random_tensor({1 + call / 2 % 5}));
  ends = true;
  reader.join();
}

TEST_P(RecentEventsTest, AFileThatCannotBeWrittenIsNamedWithTheReason) {
  const auto fails = [](const char* why) { return ThrowsMessage<InvalidArgument>(HasSubstr(why)); };
  EXPECT_THAT([&] { dump_events(context(), "/no/such/folder/events"); },
              fails("'/no/such/folder/events': No such file or directory"));
  EXPECT_THAT([&] { dump_events(context(), "/dev/full"); },
              fails("'/dev/full': No space left on device"));
  EXPECT_THAT([&] { dump_events_on_signal(""); }, fails("a path of 0 bytes"));
  EXPECT_THAT([&] { dump_events_on_signal(std::string(4096, 'x')); }, fails("4096 bytes"));
  for (const int signal : {0, -1, SIGKILL, SIGSTOP, 1000}) {
    EXPECT_THAT([&] { dump_events_on_signal(path(), {{signal}}); },
                fails("no signal that can be handled"));
  }
}

TEST_P(RecentEventsTest, AProcessThatAbortsLeavesTheCallThatRan) {
  const auto crash = [&] {
    dump_events_on_signal(path());
    const F f = compile(context(), "f", [&](Tensor x) {
      if (lines_of(recent_events(context())).size() > 2) std::abort();
      return affine(x, 2, 0);
    });
    for (int call = 0; call < 3; ++call)
      (void)f(random_tensor({3}));
  };
  EXPECT_EXIT(crash(), ::testing::KilledBySignal(SIGABRT), "");
  const std::vector<json> lines = lines_of(text_of(path()));
  ASSERT_GE(lines.size(), 3u);
  EXPECT_EQ(lines[0]["signal"], SIGABRT);
  EXPECT_EQ(lines.back()["event"], "running");
  EXPECT_EQ(lines.back()["call"], "record");
}

// The system ends a process that ignores a fault; otherwise the fault would repeat.
TEST_P(RecentEventsTest, AProcessThatIgnoresFaultsEndsAllTheSame) {
  const auto crash = [&] {
    ::alarm(20);
    (void)::signal(SIGSEGV, SIG_IGN);
    dump_events_on_signal(path());
    (void)::raise(SIGSEGV);  // a raised signal, not a fault: ignored
    const auto* const memory = static_cast<volatile char*>(
        ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    (void)*memory;
  };
  EXPECT_EXIT(crash(), ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(lines_of(text_of(path())).at(0)["signal"], SIGSEGV);
}

TEST_P(RecentEventsTest, AFileThatCannotBeWrittenDoesNotKeepAProcessFromEnding) {
  const auto crash = [&] {
    dump_events_on_signal("/dev/full");
    std::abort();
  };
  EXPECT_EXIT(crash(), ::testing::KilledBySignal(SIGABRT),
              "the last events cannot be written to /dev/full");
}

TEST_P(RecentEventsTest, AProcessThatIsKilledWhileItWritesLeavesAReadableFile) {
  const auto die = [&] {
    const F f = doubled("f");
    for (int call = 0; call < 3; ++call)
      (void)f(random_tensor({3}));
    dump_events(context(), path());
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      (void)raise(SIGKILL);
    }).detach();
    for (;;)
      dump_events(context(), path());
  };
  EXPECT_EXIT(die(), ::testing::KilledBySignal(SIGKILL), "");
  (void)lines_of(text_of(path()), /*may_be_cut=*/true);
}

std::atomic<int> g_signals = 0;

// Counts SIGUSR2 for the rest of the process. A handler that was installed after
// dump_events_on_signal() would replace its handler, also for later devices.
void count_signals() {
  static const int error = [] {
    struct sigaction count = {};
    count.sa_handler = [](int) { ++g_signals; };
    return ::sigaction(SIGUSR2, &count, nullptr);
  }();
  ASSERT_EQ(error, 0);
}

TEST_P(RecentEventsTest, SignalsMayComeAtAnyTimeAndGoOnToTheHandlerThatWasThere) {
  make_context({.max_recordings = 2, .at_limit = AtLimit::kEvict});
  ASSERT_NO_FATAL_FAILURE(count_signals());
  g_signals = 0;
  dump_events_on_signal(path(), {{SIGUSR1, SIGUSR2}});
  const F f = doubled("f");
  std::atomic<bool> ends = false;
  const pthread_t caller = pthread_self();
  std::thread sender([&] {
    // With a file that takes longer to write than this wait, an unlimited sender would never let
    // the calls end.
    for (int sent = 0; sent < 1000 && !ends; ++sent) {
      (void)pthread_kill(caller, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  for (std::int64_t call = 0; call < 100; ++call) {
    const std::vector<float> x = random_floats(1 + call / 2 % 5);
    EXPECT_EQ(values(f(tensor({static_cast<std::int64_t>(x.size())}, x))), affine_of(x, 2, 0));
  }
  ends = true;
  sender.join();
  (void)raise(SIGUSR2);
  EXPECT_EQ(g_signals, 1);
  const std::vector<json> lines = lines_of(text_of(path()));
  const auto is_own = [](const json& line) { return line.value("function", "") == "f"; };
  EXPECT_GT(std::ranges::count_if(lines, is_own), 10);
  EXPECT_EQ(lines[0]["signal"], SIGUSR2);
}

TEST_P(RecentEventsTest, ASignalThatAProcessSurvivesWritesEachTime) {
  dump_events_on_signal(path(), {{SIGURG, SIGWINCH, SIGCHLD, SIGCONT}});
  for (const int signal :
       {SIGURG, SIGURG, SIGURG, SIGWINCH, SIGWINCH, SIGCHLD, SIGCHLD, SIGCONT, SIGCONT}) {
    (void)std::remove(path().c_str());
    ASSERT_EQ(raise(signal), 0);
    EXPECT_TRUE(std::ifstream(path()).good()) << signal;
  }
}

// The parent continues the stopped process, which then stops again.
TEST_P(RecentEventsTest, ASignalThatStopsAProcessWritesEachTime) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    (void)::setpgid(0, 0);             // not an orphaned group: the parent is in the session
    (void)::signal(SIGCONT, SIG_DFL);  // an earlier test may write at SIGCONT, too
    dump_events_on_signal(path(), {{SIGTSTP}});
    for (int i = 0; i < 2; ++i) {
      (void)std::remove(path().c_str());
      (void)raise(SIGTSTP);
      if (!std::ifstream(path()).good()) ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
    (void)::kill(child, SIGCONT);
  }
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace cgtree::testing
