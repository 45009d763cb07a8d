// Target: kinds, options, tags, hosts, JSON in and out. Tests modelled on TVM's name them.
#include "targets/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "interop/device/device.h"
#include "simulator/host_device.h"
#include "targets/target_kind.h"

namespace cgtree {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    static_cast<void>(Target(text));
  } catch (const InvalidArgument& error) {
    return std::string(error.message());
  }
  return "nothing was thrown";
}

// A kind for these tests.
const TargetKind& test_kind() {
  static const bool registered = [] {
    TargetKind kind{"test_kind", DeviceType::kHost, {"cpu", "test"}, {}, nullptr};
    kind.options.add({"name", OptionType::kString, "", OptionValue(std::string("woof"))})
        .add({"speed", OptionType::kInt})
        .add({"is_on", OptionType::kBool})
        .add({"libs", OptionType::kStrings})
        .add({"device", OptionType::kString});
    register_target_kind(std::move(kind));
    return true;
  }();
  static_cast<void>(registered);
  return target_kind("test_kind");
}

// test_list_kinds, TargetKindRegistry.ListTargetKinds, TargetKind.GetAttrMap.
TEST(TargetKindTest, ListsOursAndTheUsers) {
  EXPECT_EQ(test_kind().name, "test_kind");
  EXPECT_THAT(list_target_kinds(), ElementsAre("host", "cuda", "test_kind"));
  EXPECT_EQ(target_kind("cuda").device_type, DeviceType::kCuda);
  EXPECT_EQ(find_target_kind("tape"), nullptr);
}

TEST(TargetKindTest, ANameThatIsTakenOrIsNoneIsRefused) {
  static_cast<void>(test_kind());
  for (const char* name : {"host", "cuda", "test_kind", "", "a b", "{", "a/b"})
    EXPECT_THROW(register_target_kind({name}), InvalidArgument) << name;
}

// TargetKindRegistry.ListTargetOptions.
TEST(TargetKindTest, CudaHasTvmsOptions) {
  for (const char* option : {"arch", "max_shared_memory_per_block", "max_threads_per_block",
                             "thread_warp_size", "registers_per_block", "l2_cache_size_bytes",
                             "max_num_threads", "libs", "model", "device"}) {
    EXPECT_NE(target_kind("cuda").options.find(option), nullptr) << option;
  }
}

// test_all_targets_device_type_verify, test_target_string_parse.
TEST(TargetTest, TheNameOfAKindIsATarget) {
  for (const char* kind : {"host", "cuda"}) {
    EXPECT_EQ(Target(kind).kind().name, kind);
    EXPECT_EQ(Target(kind).device_type(), target_kind(kind).device_type);
  }
  const Target cuda("cuda");
  EXPECT_THAT(cuda.keys(), ElementsAre("cuda", "gpu"));
  EXPECT_EQ(cuda.option<std::int64_t>("thread_warp_size"), 32);
  EXPECT_EQ(cuda.option<std::int64_t>("max_num_threads"), 1024);
  EXPECT_EQ(cuda.option<std::int64_t>("registers_per_block"), std::nullopt);
}

// test_cli_string_rejected.
TEST(TargetTest, ACommandLineIsRefusedWithWhatToWrite) {
  EXPECT_THAT(refusal("cuda -arch=sm_90"), HasSubstr("options are written as JSON"));
}

// test_target_config, TargetCreation.NestedConfig, attr_bool_value, attr_l2_cache_size_bytes,
// test_target_string_parse_with_spaces.
TEST(TargetTest, ReadsTypedOptionsFromJson) {
  const Target target(R"(  {"kind": "cuda", "arch": "sm_80", "fast_math": true,
                          "libs": ["cublas", "cudnn x"], "l2_cache_size_bytes": 5000}  )");
  EXPECT_EQ(target.option<std::string>("arch"), "sm_80");
  EXPECT_EQ(target.option<bool>("fast_math"), true);
  EXPECT_EQ(target.option<std::vector<std::string>>("libs"),
            (std::vector<std::string>{"cublas", "cudnn x"}));
  EXPECT_EQ(target.option<std::int64_t>("l2_cache_size_bytes"), 5000);
}

TEST(TargetTest, AskingForAnotherTypeOrAnUnknownOptionIsRefused) {
  const Target target("cuda");
  EXPECT_THROW((void)target.option<bool>("arch"), InvalidArgument);
  EXPECT_THROW((void)target.option<bool>("color"), InvalidArgument);
}

// TargetCreationFail.UnrecognizedConfigOption, UnknownNonFeatureKeyStillFails.
TEST(TargetTest, AnUnknownOptionIsNamedWithTheKnownOnes) {
  EXPECT_THAT(refusal(R"({"kind": "host", "mcpi": "x"})"),
              HasSubstr("target of kind 'host': option 'mcpi' is unknown; known are device"));
}

// TargetCreationFail.TypeMismatch, test_config_map.
TEST(TargetTest, AValueOfAnotherTypeIsRefusedWithTheOption) {
  for (const char* value : {"true", "\"1\"", "[1]", "{\"a\": \"b\"}", "1.5", "null", "[1, \"a\"]",
                            "18446744073709551615", "-1", "0"}) {
    const std::string text = std::string(R"({"kind": "cuda", "max_num_threads": )") + value + "}";
    EXPECT_THAT(refusal(text), HasSubstr("option 'max_num_threads'")) << value;
  }
}

// TargetCreationFail.TargetKindNotFound.
TEST(TargetTest, AKindThatIsMissingOrUnknownIsRefusedWithTheKnownOnes) {
  EXPECT_THAT(refusal("tape"), HasSubstr("target kind 'tape' is unknown; there are host, cuda"));
  EXPECT_THAT(refusal(R"({"kind": "tape"})"), HasSubstr("'tape' is unknown"));
  EXPECT_THAT(refusal(R"({"arch": "sm_90"})"), HasSubstr("has no \"kind\""));
  EXPECT_THAT(refusal(R"({"kind": 3})"), HasSubstr("option 'kind' is a string"));
}

TEST(TargetTest, TextThatIsNotJsonIsRefused) {
  for (const char* text :
       {"", " ", "{", "{]", "{\"kind\"", "{\"kind\": \"cuda\"} x", "{\"a\":\"\xff\"}"})
    EXPECT_NE(refusal(text), "nothing was thrown") << text;
  EXPECT_THAT(refusal("{" + std::string(1 << 17, ' ')), HasSubstr("at most 65536 are read"));
}

TEST(TargetTest, AnArchitectureMustLookLikeOne) {
  for (const char* good : {"sm_75", "sm_90a", "sm_120", "sm_100f", "compute_90"})
    EXPECT_EQ(Target(std::string(R"({"kind": "cuda", "arch": ")") + good + "\"}")
                  .option<std::string>("arch"),
              good);
  for (const char* bad : {"", "90", "sm_", "sm_9", "sm_9x", "sm_90b", "sm_9000", "SM_90", "sm_a"})
    EXPECT_THAT(refusal(std::string(R"({"kind": "cuda", "arch": ")") + bad + "\"}"),
                HasSubstr("must be sm_NN"))
        << bad;
}

// TargetCreation.DeduplicateKeys.
TEST(TargetTest, KeysAreTheGivenOnesThenTheDeviceEachOnce) {
  static_cast<void>(test_kind());
  EXPECT_THAT(Target(R"({"kind": "test_kind", "keys": ["a", "b", "a"], "device": "mine"})").keys(),
              ElementsAre("a", "b", "mine"));
  EXPECT_THAT(Target(R"({"kind": "test_kind", "device": "cpu"})").keys(),
              ElementsAre("cpu", "test"));
  EXPECT_TRUE(Target(R"({"kind": "test_kind", "keys": []})").keys().empty());
}

// test_target_features, TargetCreation.TargetFeatures.
TEST(TargetTest, FeaturesAreThoseThatAreTrueOfAnyName) {
  const Target target(R"({"kind": "host", "feature.b": true, "feature.a": true,
                          "feature.c": false})");
  EXPECT_THAT(target.features(), ElementsAre("a", "b"));
  EXPECT_EQ(Target(target.to_json()), target);
  EXPECT_THAT(refusal(R"({"kind": "host", "feature.a": 1})"), HasSubstr("'feature.a' is a bool"));
}

// test_target_tag_0, test_target_tag_1.
TEST(TargetTest, ATagIsATarget) {
  const Target target("nvidia/h100");
  EXPECT_EQ(target.tag(), "nvidia/h100");
  EXPECT_EQ(target.option<std::string>("arch"), "sm_90a");
  for (const std::string& tag : list_target_tags())
    EXPECT_EQ(Target(tag).tag(), tag);
  EXPECT_THAT(refusal(R"({"tag": "nvidia/none"})"),
              HasSubstr("'nvidia/none' is unknown; there are nvidia/"));
}

// test_target_tag_override.
TEST(TargetTest, OptionsBesideATagOverrideIt) {
  const Target target(R"({"tag": "nvidia/a100", "l2_cache_size_bytes": 7, "keys": ["k"]})");
  EXPECT_EQ(target.option<std::int64_t>("l2_cache_size_bytes"), 7);
  EXPECT_EQ(target.option<std::string>("arch"), "sm_80");
  EXPECT_THAT(target.keys(), ElementsAre("k"));
}

TEST(TargetTest, ATagIsRegisteredOnceAndMustBeATarget) {
  register_target_tag("test/tag", R"({"kind": "host", "mcpu": "x"})");
  EXPECT_EQ(Target("test/tag").option<std::string>("mcpu"), "x");
  EXPECT_THROW(register_target_tag("test/tag", R"({"kind": "host"})"), InvalidArgument);
  EXPECT_THROW(register_target_tag("nvidia/t4", R"({"kind": "cuda"})"), InvalidArgument);
  EXPECT_THROW(register_target_tag("no_slash", R"({"kind": "host"})"), InvalidArgument);
  EXPECT_THROW(register_target_tag("test/wrong", R"({"kind": "host", "x": 1})"), InvalidArgument);
  EXPECT_THROW(register_target_tag("test/kind", "host"), InvalidArgument);
  EXPECT_THROW(register_target_tag("test/two", R"({"tag": "nvidia/t4"})"), InvalidArgument);
}

// test_target_host_tags, _dict, _single, merge_0 to merge_2, test_target_with_host,
// RoundTripCanonicalizerFeaturesNestedHost.
TEST(TargetTest, AHostIsATargetOfItsOwn) {
  const Target written(R"({"kind": "cuda", "host": {"kind": "host", "mcpu": "x",
                           "feature.avx": true}})");
  const Target named(R"({"kind": "cuda", "host": "host"})");
  const Target tagged(R"({"tag": "nvidia/t4", "host": {"tag": "nvidia/t4"}})");
  EXPECT_EQ(written.host()->option<std::string>("mcpu"), "x");
  EXPECT_EQ(Target(written.to_json()), written);
  EXPECT_THAT(Target(written.to_json()).host()->features(), ElementsAre("avx"));
  EXPECT_EQ(named.host()->kind().name, "host");
  EXPECT_EQ(tagged.host()->tag(), "nvidia/t4");
  EXPECT_EQ(Target("cuda").host(), std::nullopt);
}

TEST(TargetTest, HostsOfHostsAreBounded) {
  std::string text = R"({"kind": "host"})";
  for (int i = 0; i < 4; ++i)
    text = R"({"kind": "host", "host": )" + text + "}";
  EXPECT_EQ(Target(text).to_json(), Target(Target(text).to_json()).to_json());
  EXPECT_NE(refusal(R"({"kind": "host", "host": )" + text + "}"), "nothing was thrown");
}

// test_json_roundtrip, test_str_is_json, test_module_dict_from_deserialized_targets.
TEST(TargetTest, AWrittenTargetIsReadAsTheSame) {
  for (const char* text :
       {"cuda", "host", "nvidia/h200", R"({"kind": "cuda", "libs": [], "keys": []})",
        R"({"kind": "cuda", "model": "\"\\\u00e9", "nvrtc_options": ["-G"]})"}) {
    const Target target(text);
    EXPECT_EQ(Target(target.to_json()), target) << text;
    EXPECT_EQ(Target(target.to_json()).to_json(), target.to_json()) << text;
  }
  EXPECT_NE(Target("cuda"), Target("host"));
}

// test_device_from_target_input_forms, …_index; test_target_from_device_*.
TEST(TargetTest, ADeviceTellsOfItself) {
  const Target target = Target::from_device(Device::host(2));
  EXPECT_EQ(target.kind().name, "host");
  EXPECT_GT(target.option<std::int64_t>("num_cores").value_or(0), 0);
  const Target given(R"({"kind": "host", "from_device": 0, "num_cores": 3})");
  EXPECT_EQ(given.option<std::int64_t>("num_cores"), 3);
  EXPECT_THROW((void)Target::from_device(Device::host(99)), InvalidArgument);
  EXPECT_THROW((void)Target::from_device({DeviceType::kFirstUserType, 0}), InvalidArgument);
  EXPECT_THAT(refusal(R"({"kind": "host", "from_device": -1})"), HasSubstr("'from_device'"));
}

TEST(TargetTest, AGpuTellsItsArchitecture) {
  if (Device::best().type != DeviceType::kCuda) GTEST_SKIP() << "no GPU, or no driver for it";
  const Target target = Target::from_device(Device::cuda());
  EXPECT_THAT(target.option<std::string>("arch").value_or(""), ::testing::StartsWith("sm_"));
  EXPECT_EQ(target.option<std::int64_t>("max_threads_per_block"), 1024);
}

}  // namespace
}  // namespace cgtree
