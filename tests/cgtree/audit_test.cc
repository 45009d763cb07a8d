// The audit: the memory that a recording refers to, and the recording's end with that memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "allocator/pool/block.h"
#include "cgtree/steps.h"
#include "extensions/audit/audit_options.h"
#include "extensions/verify/verification.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "extensions/watch/watch.h"
#include "interop/device/device_api.h"
#include "tests/support/captured_log.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kCount = 32;

void axpy(float a, const void* x, void* y) {
  const StreamRef stream = current_stream();
  check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(kCount),
                                      arguments_of(a, x, y, kCount)),
        "launch axpy");
}

// Memory of the device without a tensor.
class RawMemory {
 public:
  RawMemory(Device device, std::size_t bytes) : device_(device) {
    check(device_api(device).alloc_data_space(device.id, bytes, &data_), "allocate");
  }
  ~RawMemory() { (void)device_api(device_).free_data_space(device_.id, data_); }
  RawMemory(const RawMemory&) = delete;
  RawMemory& operator=(const RawMemory&) = delete;

  void* data() const { return data_; }
  void fill(std::uint8_t value, std::size_t bytes) const {
    StreamRef stream = current_stream_or_none();
    std::optional<Stream> own;
    if (!stream) stream = own.emplace(device_);
    check(stream.graphs().memset(stream.handle(), data_, value, bytes), "fill");
    stream.synchronize();
  }

 private:
  const Device device_;
  void* data_ = nullptr;
};

class AuditTest : public TreeTest {
 protected:
  static constexpr std::size_t kBytes = kCount * sizeof(float);

  // x + table. Only the step function knows the table's address.
  using OneTensor = CompiledFunction<Tensor(Tensor)>;
  OneTensor with_table(const void* table, std::string name = "f") {
    return compile(context(), std::move(name), [table](Tensor x) {
      Tensor y = affine(x, 1, 0);
      axpy(1, table, y.data());
      return y;
    });
  }
  template <typename Function>
  void record(Function& function) {
    for (int call = 0; call < 2; ++call)
      (void)function(random_tensor({kCount}));
    ASSERT_EQ(function.stats().recordings, 1u);
  }
  json snapshot() { return json::parse(snapshot_json(context())); }
  // The number of the recording's words in memory of each owner.
  std::map<std::string, std::size_t> words(std::size_t node = 0) {
    std::map<std::string, std::size_t> words;
    const json all = snapshot();
    for (const json& memory : all["nodes"][node]["audit"]["memory"])
      words[memory["owner"]] += memory["words"].get<std::size_t>();
    return words;
  }
  std::size_t foreign(std::size_t node = 0) {
    return snapshot()["nodes"][node]["audit"]["foreign"].size();
  }
};
CGTREE_ON_ALL_DEVICES(AuditTest);

TEST_P(AuditTest, EveryAddressOfACleanStepIsAttributed) {
  const Tensor weights = random_tensor({kCount});
  const Tensor captured = random_tensor({kCount});
  auto f = compile(context(), "f",
                   [&](Tensor x, Tensor w) {
                     const Tensor middle = add(x, w);  // in scratch memory
                     return add(middle, captured);
                   },
                   {.inputs = {{}, {.is_static = true}}});
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({kCount}), weights);

  const json node = snapshot()["nodes"][0];
  EXPECT_EQ(node["audit"]["foreign"], json::array());
  EXPECT_EQ(node["audit"]["unseen"], json::array());
  const auto found = words();
  EXPECT_EQ(found.at("input"), 2u);
  EXPECT_EQ(found.at("output"), 1u);
  EXPECT_EQ(found.at("scratch"), 2u);  // written, then read
  EXPECT_EQ(found.at("kept"), 1u);
  EXPECT_EQ(found.size(), 4u);
  for (const json& memory : node["audit"]["memory"]) {
    if (memory["owner"] == "input" && memory["number"] == 1) {
      EXPECT_EQ(memory["address"], weights.address());
    }
  }
}

TEST_P(AuditTest, ForeignMemoryNamesTheKernelTheParameterTheOffsetAndTheAllocation) {
  const RawMemory table(device(), 4 * kBytes);
  auto f = with_table(static_cast<char*>(table.data()) + kBytes);
  record(f);

  const json foreign = snapshot()["nodes"][0]["audit"]["foreign"];
  ASSERT_EQ(foreign.size(), 1u);
  EXPECT_THAT(foreign[0]["kernel"], HasSubstr("axpy"));
  EXPECT_EQ(foreign[0]["place"], "parameter 1");
  EXPECT_EQ(foreign[0]["address"], reinterpret_cast<std::uintptr_t>(table.data()) + kBytes);
  EXPECT_EQ(foreign[0]["memory_address"], reinterpret_cast<std::uintptr_t>(table.data()));
  EXPECT_EQ(foreign[0]["memory_bytes"], 4 * kBytes);
  EXPECT_THAT(std::string(foreign[0]["what"]),
              AllOf(HasSubstr("byte 128 of 512 bytes"), HasSubstr("declare()")));
}

TEST_P(AuditTest, TheHostMemoryBehindACopyIsForeign) {
  std::vector<float> host(kCount, 3);
  auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 1, 0);
    const StreamRef stream = current_stream();
    check(stream.api().copy(stream.handle(), y.data(), host.data(), kBytes), "copy");
    return y;
  });
  record(f);

  const json foreign = snapshot()["nodes"][0]["audit"]["foreign"];
  ASSERT_EQ(foreign.size(), 1u);
  EXPECT_EQ(foreign[0]["kernel"], "a copy");
  EXPECT_EQ(foreign[0]["place"], "the source");
}

TEST_P(AuditTest, WarnsOnceForEachFunctionOfPageableMemoryBehindACopy) {
  const auto copying = [&](const char* name, bool is_written) {
    return compile(context(), name, [=](Tensor x) {
      Tensor y = affine(x, 1, 0);
      const auto host = std::make_unique<std::vector<float>>(kCount, 3);
      const StreamRef stream = current_stream();
      void* const to = is_written ? host->data() : y.data();
      const void* const from = is_written ? y.data() : host->data();
      check(stream.api().copy(stream.handle(), to, from, kBytes), "copy");
      if (!stream.is_capturing()) stream.synchronize();
      static std::vector<std::vector<float>> kept;  // each replay writes it
      kept.push_back(std::move(*host));
      return y;
    });
  };
  CapturedLog log(LogLevel::kWarn);
  auto f = copying("f", false);
  auto g = copying("g", true);
  record(f);
  record(g);
  (void)f(random_tensor({kCount, 2}));
  (void)f(random_tensor({kCount, 2}));

  ASSERT_EQ(log.lines().size(), 2u) << ::testing::PrintToString(log.lines());
  EXPECT_THAT(log.lines()[0], AllOf(HasSubstr("host_memory function=f node=1"),
                                    HasSubstr("from 0x"), HasSubstr("step_block()")));
  EXPECT_THAT(log.lines()[1], AllOf(HasSubstr("function=g"), HasSubstr("to 0x")));
}

TEST_P(AuditTest, DoesNotWarnOfHostMemoryThatStays) {
  static std::array<float, kCount> variable = {3};
  static constexpr std::array<float, kCount> kConstant = {4};
  std::vector<float> declared(kCount, 5);
  context().declare("table", declared.data(), kBytes);
  const Tensor host = from_host<float>({kCount}, declared, Device::host());
  auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 1, 0);
    const StreamRef stream = current_stream();
    for (const void* const from :
         {static_cast<const void*>(variable.data()), static_cast<const void*>(kConstant.data()),
          static_cast<const void*>(declared.data()), static_cast<const void*>(host.data())}) {
      check(stream.api().copy(stream.handle(), y.data(), from, kBytes), "copy");
    }
    return y;
  });
  CapturedLog log(LogLevel::kWarn);
  record(f);

  EXPECT_EQ(log.lines().size(), 0u) << ::testing::PrintToString(log.lines());
  context().undeclare("table");
}

TEST_P(AuditTest, ByDefaultAForeignPointerIsRecordedAndNoWarning) {
  const RawMemory table(device(), kBytes);
  CapturedLog log(LogLevel::kWarn);
  auto f = with_table(table.data());
  record(f);

  EXPECT_EQ(foreign(), 1u);
  EXPECT_EQ(log.lines().size(), 0u);
}

TEST_P(AuditTest, WarnsOncePerKernel) {
  make_context({.extensions = {audit({.on_foreign_pointer = OnForeignPointer::kWarn})}});
  const RawMemory table(device(), kBytes);
  CapturedLog log(LogLevel::kWarn);
  auto f = with_table(table.data());
  auto g = with_table(table.data(), "g");
  record(f);
  record(g);

  std::string text;
  for (const std::string& line : log.lines())
    text += line + "\n";
  EXPECT_THAT(text, HasSubstr("foreign_pointer function=f"));
  EXPECT_EQ(text.find("foreign_pointer"), text.rfind("foreign_pointer")) << text;
}

TEST_P(AuditTest, ThrowsAndLeavesNoTraceWhereThatIsAskedFor) {
  make_context({.extensions = {audit({.on_foreign_pointer = OnForeignPointer::kThrow})}});
  const RawMemory table(device(), kBytes);
  table.fill(0, kBytes);
  auto f = with_table(table.data());
  const Tensor x = random_tensor({kCount});
  EXPECT_EQ(values(f(x)), values(x));

  EXPECT_THAT([&] { (void)f(x); },
              ThrowsMessage<CaptureError>(AllOf(HasSubstr("axpy"), HasSubstr("parameter 1"))));
  EXPECT_EQ(stats().recordings, 0u);
  validate();

  context().declare("table", table.data(), kBytes);
  EXPECT_EQ(values(f(x)), values(x));
  EXPECT_EQ(values(f(x)), values(x));
  EXPECT_EQ(f.stats().replays, 1u);
}

TEST_P(AuditTest, AForeignPointerIsNoReasonToCopyWhatMayBeRebound) {
  make_context({.extensions = {audit({.on_foreign_pointer = OnForeignPointer::kThrow})}});
  const RawMemory table(device(), kBytes);
  table.fill(0, kBytes);
  auto f = compile(context(), "f",
                   [&](Tensor x) {
                     Tensor y = affine(x, 1, 0);
                     axpy(1, table.data(), y.data());
                     return y;
                   },
                   {.inputs = {{.rebind = Rebind::kAlways}}});
  (void)f(random_tensor({kCount}));
  EXPECT_THROW((void)f(random_tensor({kCount})), CaptureError);

  context().declare("table", table.data(), kBytes);
  (void)f(random_tensor({kCount}));
  EXPECT_EQ(snapshot()["nodes"][0]["inputs"][0]["treatment"], "rebound");
}

TEST_P(AuditTest, DeclaredMemoryIsNotForeignAndHasItsName) {
  const RawMemory table(device(), kBytes);
  context().declare("the table", table.data(), kBytes);
  auto f = with_table(table.data());
  record(f);

  EXPECT_EQ(foreign(), 0u);
  const json memory = snapshot()["nodes"][0]["audit"]["memory"];
  const auto declared =
      std::ranges::find_if(memory, [](const json& entry) { return entry["owner"] == "declared"; });
  ASSERT_NE(declared, memory.end());
  EXPECT_EQ((*declared)["text"], "the table");
}

TEST_P(AuditTest, UndeclareDropsExactlyTheRecordingsThatReferToIt) {
  const RawMemory first(device(), kBytes);
  const RawMemory second(device(), kBytes);
  context().declare("first", first.data(), kBytes);
  context().declare("second", second.data(), kBytes);
  auto f = with_table(first.data(), "f");
  auto g = with_table(second.data(), "g");
  record(f);
  record(g);

  context().undeclare("first");

  EXPECT_EQ(f.stats().kept_recordings, 0u);
  EXPECT_EQ(g.stats().kept_recordings, 1u);
}

TEST_P(AuditTest, MemoryThatHasMovedDropsTheRecordingsOfWhereItWas) {
  const RawMemory before(device(), kBytes);
  const RawMemory after(device(), kBytes);
  before.fill(0, kBytes);
  after.fill(0, kBytes);
  const void* workspace = before.data();
  context().declare("workspace", workspace, kBytes);
  auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 1, 0);
    axpy(1, workspace, y.data());
    return y;
  });
  record(f);
  context().declare("workspace", workspace, kBytes);
  EXPECT_EQ(f.stats().kept_recordings, 1u);

  workspace = after.data();
  context().declare("workspace", workspace, kBytes);
  before.fill(0x7f, kBytes);  // large numbers
  EXPECT_EQ(f.stats().kept_recordings, 0u);

  const Tensor x = random_tensor({kCount});
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(x)), values(x));
}

// As a library that frees its table inside the step function.
TEST_P(AuditTest, UndeclaredInsideACallTheRecordingsGoBeforeTheNextOne) {
  const RawMemory table(device(), kBytes);
  table.fill(0, kBytes);
  context().declare("table", table.data(), kBytes);
  auto f = with_table(table.data());
  record(f);
  bool is_freed = false;
  auto g = compile(context(), "g", [&](Tensor x) {
    if (!std::exchange(is_freed, true)) context().undeclare("table");
    return affine(x, 1, 0);
  });
  (void)g(random_tensor({kCount}));
  EXPECT_TRUE(is_freed);

  (void)g(random_tensor({kCount}));
  EXPECT_EQ(f.stats().kept_recordings, 0u);
}

TEST_P(AuditTest, MayBeUndeclaredOnAnyThread) {
  const RawMemory table(device(), kBytes);
  context().declare("table", table.data(), kBytes);
  auto f = with_table(table.data());
  record(f);

  std::thread([&] { context().undeclare("table"); }).join();

  EXPECT_EQ(f.stats().kept_recordings, 0u);
}

// The memory itself stays allocated, so that a call is right with or without its recording.
TEST_P(AuditTest, DeclarationsMayChangeOnOneThreadWhileAnotherCallsAndAThirdLooks) {
  make_context({.extensions = {verify({.every = 3})}});
  const RawMemory table(device(), 2 * kBytes);
  table.fill(0, 2 * kBytes);
  auto* const data = static_cast<char*>(table.data());
  auto f = with_table(data);
  auto g = with_table(data + kBytes, "g");
  std::atomic<bool> ends = false;
  std::thread owner([&] {
    while (!ends) {
      context().declare("table", data, 2 * kBytes);
      context().declare("table", data, kBytes);  // the second half becomes foreign again
      context().undeclare("table");
    }
  });
  std::thread monitor([&] {
    while (!ends) {
      (void)snapshot();
      (void)verification_of(context());
      (void)stats();
    }
  });
  for (int call = 0; call < 300; ++call) {
    const Tensor x = random_tensor({kCount});
    EXPECT_EQ(values((call % 2 == 0 ? f : g)(x)), values(x));
  }
  ends = true;
  owner.join();
  monitor.join();
  EXPECT_GE(f.stats().recordings, 1u);
  validate();
}

TEST_P(AuditTest, ContextsOnSeveralThreadsRecordAuditAndRebindBesideEachOther) {
  const RawMemory table(device(), kBytes);
  table.fill(0, kBytes);
  const auto run = [&] {
    Context own(device(), {.extensions = {verify({.every = 2})}});
    for (int round = 0; round < 12; ++round) {
      auto f = compile(own, "f",
                       [&](Tensor x) {
                         Tensor y = affine(x, 2, 1);
                         axpy(1, table.data(), y.data());
                         return y;
                       },
                       {.inputs = {{.rebind = Rebind::kAlways}}});
      for (int call = 0; call < 6; ++call) {
        const auto first = static_cast<float>(call + round);
        const Tensor x =
            from_host<float>(Shape({kCount}), std::vector<float>(kCount, first), device());
        EXPECT_EQ(f(x).to_vector<float>(), std::vector<float>(kCount, 2 * first + 1));
      }
      EXPECT_EQ(f.stats().verified, 2u);
      const json node = json::parse(snapshot_json(own))["nodes"].back();
      EXPECT_EQ(node["audit"]["foreign"].size(), 1u);
      EXPECT_EQ(node["inputs"][0]["treatment"], "rebound");
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back(run);
  for (std::thread& thread : threads)
    thread.join();
}

TEST_P(AuditTest, RefusesBadDeclarations) {
  const RawMemory table(device(), kBytes);
  auto* const data = static_cast<char*>(table.data());
  context().declare("table", data, kBytes / 2);

  const auto refuses = [&](const char* name, const void* address, std::size_t bytes,
                           const char* what) {
    EXPECT_THAT([&] { context().declare(name, address, bytes); },
                ThrowsMessage<InvalidArgument>(HasSubstr(what)))
        << name;
  };
  refuses("", data, 1, "without a name");
  refuses("none", data, 0, "'none' (0 bytes");
  refuses("null", nullptr, 8, "'null'");
  refuses("endless", data, SIZE_MAX, "'endless'");
  refuses("other", data + kBytes / 2 - 1, 8, "overlaps with 'table'");
  EXPECT_THAT([&] { context().undeclare("other"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("'other'")));
  context().declare("other", data + kBytes / 2, kBytes / 2);
}

TEST_P(AuditTest, InvalidateDropsEveryRecordingWithAWordInTheRange) {
  const RawMemory arena(device(), 4 * kBytes);
  auto* const data = static_cast<char*>(arena.data());
  auto f = with_table(data, "f");
  auto g = with_table(data + kBytes, "g");
  auto h = with_table(data + 2 * kBytes, "h");
  record(f);
  record(g);
  record(h);

  EXPECT_EQ(context().invalidate(data + 3 * kBytes, kBytes), 0u);
  EXPECT_EQ(context().invalidate(data + kBytes, 2 * kBytes), 2u);
  EXPECT_EQ(f.stats().kept_recordings, 1u);
  EXPECT_EQ(g.stats().kept_recordings + h.stats().kept_recordings, 0u);
}

TEST_P(AuditTest, InvalidateRefusesARangeBeyondTheLastAddress) {
  const RawMemory table(device(), kBytes);
  auto f = with_table(table.data());
  record(f);

  EXPECT_THAT([&] { (void)context().invalidate(table.data(), SIZE_MAX); },
              ThrowsMessage<InvalidArgument>(HasSubstr("18446744073709551615 bytes")));
  EXPECT_EQ(f.stats().kept_recordings, 1u);
  EXPECT_EQ(context().invalidate(table.data(), 0), 0u);
  EXPECT_EQ(context().invalidate(nullptr, SIZE_MAX), 1u);
}

// The step function knows the address of an earlier output, and does not ask for it again.
TEST_P(AuditTest, AnOutputWhoseAddressTheStepKnewLivesAsLongAsTheRecording) {
  auto make = compile(context(), "make", [](Tensor x) { return affine(x, 1, 0); });
  const std::vector<float> numbers = random_floats(kCount);
  std::optional<Tensor> table = make(tensor({kCount}, numbers));
  auto f = with_table(table->data());
  record(f);
  EXPECT_EQ(foreign(), 0u);
  EXPECT_EQ(words().at("live_output"), 1u);

  table.reset();
  for (int call = 0; call < 5; ++call) {
    (void)make(random_tensor({kCount}));  // a replay would write there
    const std::vector<float> x = random_floats(kCount);
    std::vector<float> expected = numbers;
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] += x[i];
    EXPECT_EQ(values(f(tensor({kCount}, x))), expected);
  }
  context().mark_step();
  EXPECT_EQ(f.stats().kept_recordings, 0u);
}

TEST_P(AuditTest, FreedMemoryOfThePoolIsForeign) {
  auto make = compile(context(), "make", [](Tensor x) { return affine(x, 1, 0); });
  const void* stale = nullptr;
  {
    const Tensor y = make(random_tensor({kCount}));
    stale = y.data();
  }
  auto f = with_table(stale);
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({kCount}));

  const json all = snapshot();
  for (const json& node : all["nodes"]) {
    for (const json& pointer : node["audit"]["foreign"])
      EXPECT_THAT(std::string(pointer["what"]), HasSubstr("a pool of this context"));
  }
}

TEST_P(AuditTest, BoundMemoryOfStepsIsAnInputAndTheRestIsForeign) {
  const RawMemory bound(device(), kBytes);
  const RawMemory unbound(device(), kBytes);
  bound.fill(0, kBytes);
  unbound.fill(0, kBytes);
  Steps steps(context(), "s", {.bindings = {{.name = "kv", .is_mutated = true}}});
  const Binding bindings[] = {{bound.data(), kBytes}};
  for (int call = 0; call < 3; ++call) {
    for (Step step = steps.begin({}, bindings); step.must_run(); step.end())
      axpy(1, unbound.data(), step.address(0));
  }
  EXPECT_EQ(steps.stats().replays, 1u);
  EXPECT_EQ(words().at("input"), 1u);
  EXPECT_EQ(foreign(), 1u);

  auto f = with_table(unbound.data());
  record(f);
  EXPECT_EQ(steps.invalidate(unbound.data(), kBytes), 1u);  // its own recording
  EXPECT_EQ(f.stats().kept_recordings, 1u);
}

TEST_P(AuditTest, TellsTheEventFileOnceForEachKernel) {
  const std::string path = ::testing::TempDir() + "/foreign_" + GetParam().name + ".jsonl";
  std::remove(path.c_str());
  make_context({.extensions = {watch({.event_file = path})}});
  const RawMemory table(device(), kBytes);
  auto f = with_table(table.data());
  auto g = with_table(table.data(), "g");
  record(f);
  record(g);

  std::ifstream file(path);
  std::vector<json> events;
  for (std::string line; std::getline(file, line);) {
    const json event = json::parse(line);
    if (event["event"] == "foreign_pointer") events.push_back(event);
  }
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["function"], "f");
  EXPECT_EQ(events[0]["place"], "parameter 1");
  EXPECT_EQ(events[0]["memory_bytes"], kBytes);
}

TEST_P(AuditTest, HostFunctionsAreCountedAsUnseen) {
  auto f = compile(context(), "f", [](Tensor x) {
    const StreamRef stream = current_stream();
    check(stream.graphs().launch_host_function(
              stream.handle(), [](void*) {}, nullptr),
          "launch");
    return affine(x, 1, 0);
  });
  record(f);

  const json unseen = snapshot()["nodes"][0]["audit"]["unseen"];
  ASSERT_EQ(unseen.size(), 1u);
  EXPECT_EQ(unseen[0]["nodes"], 1u);
}

// Random tables in one arena are declared piece by piece. Each undeclare() and invalidate() drops
// exactly those recordings with a word in its range, and all values are right.
TEST_P(AuditTest, RandomReleasesLeaveExactlyWhatDoesNotReferToThem) {
  constexpr std::size_t kPieces = 6;
  const RawMemory arena(device(), kPieces * kBytes);
  arena.fill(0, kPieces * kBytes);
  const auto piece = [&](std::size_t i) { return static_cast<char*>(arena.data()) + i * kBytes; };
  std::vector<OneTensor> functions;
  std::vector<std::size_t> table_of;
  for (int i = 0; i < 10; ++i) {
    table_of.push_back(random_() % kPieces);
    functions.push_back(with_table(piece(table_of.back()), fmt::format("f{}", i)));
  }
  std::vector<bool> is_declared(kPieces, false);
  for (int round = 0; round < 60; ++round) {
    const std::size_t i = random_() % kPieces;
    const std::size_t f = random_() % functions.size();
    std::vector<std::size_t> before;
    for (OneTensor& function : functions)
      before.push_back(function.stats().kept_recordings);
    Range gone;
    if (random_() % 3 == 0) {
      const std::size_t bytes = random_() % (2 * kBytes) + 1;
      gone = {reinterpret_cast<std::uintptr_t>(piece(i)), bytes};
      (void)context().invalidate(piece(i), bytes);
    } else if (is_declared[i]) {
      gone = {reinterpret_cast<std::uintptr_t>(piece(i)), kBytes};
      context().undeclare(fmt::format("piece {}", i));
      is_declared[i] = false;
    } else {
      context().declare(fmt::format("piece {}", i), piece(i), kBytes);
      is_declared[i] = true;
    }
    for (std::size_t k = 0; k < functions.size(); ++k) {
      const bool has_word =
          gone.overlaps({reinterpret_cast<std::uintptr_t>(piece(table_of[k])), 1});
      EXPECT_EQ(functions[k].stats().kept_recordings, has_word ? 0 : before[k]) << k;
    }
    const Tensor x = random_tensor({kCount});
    EXPECT_EQ(values(functions[f](x)), values(x));
  }
}

}  // namespace
}  // namespace cgtree::testing
