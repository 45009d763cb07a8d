// Targets through C: text in, text and answers out.
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/c_api/c_tools.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

// What a function that writes text writes.
template <typename Write>
std::string text_of(const Write& write) {
  char text[2048] = "?";
  std::size_t length = 0;
  const cgt_status status = write(text, sizeof(text), &length);
  EXPECT_EQ(outcome(status), "CGT_OK");
  EXPECT_EQ(length, std::strlen(text));
  return text;
}

std::string json_of(const char* target) {
  return text_of([&](auto... buffer) { return cgt_target_json(target, buffer...); });
}
std::string option_of(const char* target, const char* name) {
  return text_of([&](auto... buffer) { return cgt_target_option(target, name, buffer...); });
}

TEST(CApiTargetTest, ATextBecomesAllThatTheTargetHasAndIsReadAgainAsTheSame) {
  for (const char* text : {"cuda", "host", "nvidia/h100",
                           R"({"kind": "cuda", "arch": "sm_90", "feature.x": true,)"
                           R"( "host": "host"})"}) {
    const std::string json = json_of(text);
    EXPECT_EQ(nlohmann::json::parse(json)["kind"], text[0] == 'h' ? "host" : "cuda");
    EXPECT_EQ(json_of(json.c_str()), json);
  }
}

TEST(CApiTargetTest, ItAnswersAboutOptionsKeysFeaturesAndItsHost) {
  const char* const target =
      R"({"kind": "cuda", "arch": "sm_90", "keys": ["mine"], "feature.x": true, "host": "host"})";
  std::int32_t type = -1, has = -1;
  EXPECT_EQ(option_of(target, "arch"), "sm_90");
  EXPECT_EQ(option_of("nvidia/h100", "thread_warp_size"), "32");
  EXPECT_EQ(option_of(target, "device"), "");
  EXPECT_DONE(cgt_target_device_type(target, &type));
  EXPECT_EQ(type, CGT_DEVICE_CUDA);
  EXPECT_DONE(cgt_target_has_key(target, "mine", &has));
  EXPECT_EQ(has, 1);
  EXPECT_DONE(cgt_target_has_key(target, "yours", &has));
  EXPECT_EQ(has, 0);
  EXPECT_DONE(cgt_target_has_feature(target, "x", &has));
  EXPECT_EQ(has, 1);
  EXPECT_DONE(cgt_target_has_feature(target, "y", &has));
  EXPECT_EQ(has, 0);
  const auto host_of = [](const char* text) {
    return text_of([&](auto... buffer) { return cgt_target_host_json(text, buffer...); });
  };
  EXPECT_EQ(host_of(target), json_of("host"));
  EXPECT_EQ(host_of("host"), "");
}

TEST(CApiTargetTest, ADeviceTellsOfItself) {
  const auto told = [](cgt_device device) {
    return text_of([&](auto... buffer) { return cgt_target_of_device_json(device, buffer...); });
  };
  EXPECT_EQ(nlohmann::json::parse(told({CGT_DEVICE_HOST, 0}))["kind"], "host");
  cgt_device best = {};
  EXPECT_DONE(cgt_device_best(&best));
  std::int32_t type = -1;
  EXPECT_DONE(cgt_target_device_type(told(best).c_str(), &type));
  EXPECT_EQ(type, best.type);
  EXPECT_FAILS(cgt_target_of_device_json({CGT_DEVICE_HOST, 77}, nullptr, 0, nullptr),
               CGT_INVALID_ARGUMENT, "77");
  EXPECT_FAILS(cgt_target_of_device_json({4711, 0}, nullptr, 0, nullptr), CGT_INVALID_ARGUMENT,
               "there is no kind of target");
}

TEST(CApiTargetTest, ATagIsRegisteredOnceAndMustBeATarget) {
  EXPECT_DONE(cgt_target_register_tag("ours/one", R"({"kind": "cuda", "arch": "sm_80"})"));
  EXPECT_EQ(option_of("ours/one", "arch"), "sm_80");
  EXPECT_FAILS(cgt_target_register_tag("ours/one", R"({"kind": "cuda"})"), CGT_INVALID_ARGUMENT,
               "ours/one");
  EXPECT_FAILS(cgt_target_register_tag("ours/two", "{"), CGT_INVALID_ARGUMENT, "");
  EXPECT_FAILS(cgt_target_register_tag(nullptr, "{}"), CGT_INVALID_ARGUMENT, "name is NULL");
  EXPECT_FAILS(cgt_target_register_tag("ours/two", nullptr), CGT_INVALID_ARGUMENT, "JSON is NULL");
}

TEST(CApiTargetTest, WhatIsWrongIsNamed) {
  char text[8] = "as is";
  std::size_t length = 0;
  std::int32_t answer = 77;
  EXPECT_FAILS(cgt_target_json("vulkan", text, sizeof(text), &length), CGT_INVALID_ARGUMENT,
               "vulkan");
  EXPECT_FAILS(cgt_target_json(R"({"kind": "cuda", "ark": 1})", text, sizeof(text), &length),
               CGT_INVALID_ARGUMENT, "ark");
  EXPECT_FAILS(cgt_target_json("", text, sizeof(text), &length), CGT_INVALID_ARGUMENT, "");
  EXPECT_FAILS(cgt_target_json(nullptr, text, sizeof(text), &length), CGT_INVALID_ARGUMENT,
               "the target is NULL");
  EXPECT_FAILS(cgt_target_json("cuda", text, sizeof(text), &length), CGT_BUFFER_TOO_SMALL, "");
  EXPECT_STREQ(text, "as is");
  EXPECT_FAILS(cgt_target_option("cuda", "ark", text, sizeof(text), &length), CGT_INVALID_ARGUMENT,
               "option 'ark' of target kind 'cuda' is unknown; there are ");
  EXPECT_THAT(last_error().message, HasSubstr("arch"));
  EXPECT_FAILS(cgt_target_option("cuda", nullptr, text, sizeof(text), &length),
               CGT_INVALID_ARGUMENT, "name is NULL");
  EXPECT_FAILS(cgt_target_device_type("cuda", nullptr), CGT_INVALID_ARGUMENT, "is NULL");
  EXPECT_FAILS(cgt_target_has_key("cuda", nullptr, &answer), CGT_INVALID_ARGUMENT, "is NULL");
  EXPECT_FAILS(cgt_target_has_feature("cuda", "x", nullptr), CGT_INVALID_ARGUMENT, "is NULL");
  EXPECT_FAILS(cgt_target_has_key("vulkan", "x", &answer), CGT_INVALID_ARGUMENT, "vulkan");
  EXPECT_EQ(answer, 77);
}

}  // namespace
}  // namespace cgtree::testing
