// The fields of the CUDA Array Interface: what is read, what is refused, and with which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "interop/exchange/cuda_array_interface.h"
#include "tests/support/cuda_array_interface_json.h"

namespace cgtree {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json valid() {
  return {{"shape", {2, 3}}, {"typestr", "<f4"}, {"data", {4096, false}}, {"version", 3}};
}

Json with(const char* key, Json value) {
  Json json = valid();
  json[key] = std::move(value);
  return json;
}

CudaArrayInterface parse(const Json& json) {
  return parse_cuda_array_interface(entries_of_json(json));
}

// What is wrong with it; the fault and the message, or "" if nothing is.
std::pair<BoundaryFault, std::string> refusal(const Json& json) {
  try {
    (void)parse(json);
  } catch (const BoundaryError& error) {
    return {error.fault(), std::string(error.message())};
  }
  return {BoundaryFault::kMissing, ""};
}

#define EXPECT_REFUSED(json, wanted, text)             \
  do {                                                 \
    const auto [fault, message] = refusal(json);       \
    EXPECT_THAT(message, HasSubstr(text)) << (json);   \
    EXPECT_EQ(fault, BoundaryFault::wanted) << (json); \
  } while (false)

TEST(CaiFieldsTest, AllFieldsAreRead) {
  Json json = valid();
  json["strides"] = {24, 8};
  json["stream"] = 7;
  json["descr"] = Json::array({Json::array({"", "<f4"})});
  json["mask"] = nullptr;
  json["data"] = {4096, true};

  const CudaArrayInterface array = parse(json);

  EXPECT_EQ(array.version, 3);
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
  EXPECT_THAT(*array.strides, ElementsAre(24, 8));
  EXPECT_EQ(to_string(array.type), "<f4");
  EXPECT_EQ(array.data, 4096u);
  EXPECT_TRUE(array.read_only);
  EXPECT_EQ(array.stream, 7u);
  EXPECT_EQ(to_string(*array.descr), "(('', '<f4'),)");
}

// Acceptance: cai 2.
TEST(CaiFieldsTest, EachMandatoryFieldIsMissed) {
  for (const char* key : {"shape", "typestr", "data", "version"}) {
    Json json = valid();
    json.erase(key);
    EXPECT_REFUSED(json, kMissing, "'" + std::string(key) + "' is missing");
  }
}

// Acceptance: cai 1.
TEST(CaiFieldsTest, AFieldOfTheWrongTypeIsNamedWithWhatItIs) {
  EXPECT_REFUSED(Json::array(), kWrongType, "is a array: expected an object");
  EXPECT_REFUSED(with("shape", 6), kWrongType, "'shape' is 6: expected a tuple");
  EXPECT_REFUSED(with("shape", {2, 1.5}), kWrongType, "'shape' is (2, a number)");
  EXPECT_REFUSED(with("shape", {2, true}), kWrongType, "'shape' is (2, True)");
  EXPECT_REFUSED(with("typestr", 4), kWrongType, "'typestr' is 4: expected a string");
  EXPECT_REFUSED(with("data", 4096), kWrongType, "'data' is 4096: expected a pair");
  EXPECT_REFUSED(with("data", {4096}), kWrongType, "'data' is (4096,)");
  EXPECT_REFUSED(with("data", {4096, 0}), kWrongType, "'data' is (4096, 0)");
  EXPECT_REFUSED(with("data", {true, false}), kWrongType, "'data' is (True, False)");
  EXPECT_REFUSED(with("version", "3"), kWrongType, "'version' is '3': expected an integer");
  EXPECT_REFUSED(with("version", true), kWrongType, "'version' is True");
  EXPECT_REFUSED(with("strides", "8"), kWrongType, "'strides' is '8'");
  EXPECT_REFUSED(with("descr", {1}), kWrongType, "'descr' is (1,)");
  EXPECT_REFUSED(with("stream", 1.0), kWrongType, "'stream' is a number");
  EXPECT_REFUSED(with("stream", true), kWrongType, "'stream' is True");
}

TEST(CaiFieldsTest, ValuesThatTheProtocolForbidsAreRefused) {
  EXPECT_REFUSED(with("shape", {2, -3}), kWrongValue, "'shape' is (2, -3): -3 is negative");
  EXPECT_REFUSED(with("shape", {0, -3}), kWrongValue, "-3 is negative");
  EXPECT_REFUSED(with("data", {0, false}), kWrongValue, "'data' is null, but 'shape' is (2, 3)");
  EXPECT_REFUSED(with("data", {-8, false}), kWrongValue, "-8 is negative");
  EXPECT_REFUSED(with("strides", {12}), kWrongValue, "1 numbers, but 'shape' is (2, 3), 2 dim");
  EXPECT_REFUSED(with("stream", -1), kWrongValue, "'stream' is -1: -1 is negative");
  EXPECT_REFUSED(with("shape", {INT64_MAX, INT64_MAX}), kWrongValue, "elements");
}

TEST(CaiFieldsTest, AnArrayBeyondTheAddressesThereAreIsRefused) {
  Json json = with("shape", {INT64_MAX / 2});
  EXPECT_REFUSED(json, kWrongValue, "beyond the addresses");
  json = with("strides", {-8192, 4});
  EXPECT_REFUSED(json, kWrongValue, "beyond the addresses");
  json = with("strides", {INT64_MAX, INT64_MAX});
  EXPECT_REFUSED(json, kWrongValue, "beyond the addresses");
  EXPECT_EQ(refusal(with("data", {UINT64_MAX - 24, false})).second, "");
  EXPECT_REFUSED(with("data", {UINT64_MAX - 22, false}), kWrongValue, "beyond the addresses");
}

// T-CAI 8.
// Acceptance: cai 8.
TEST(CaiFieldsTest, SwappedBytesAreRefused) {
  EXPECT_REFUSED(with("typestr", ">f4"), kNotSupported, "'typestr' is '>f4': its bytes are in");
  EXPECT_REFUSED(with("typestr", ">U1"), kNotSupported, "other order");
  EXPECT_EQ(to_string(parse(with("typestr", ">u1")).type), "|u1") << "one byte has no order";
}

// T-CAI 10.
// Acceptance: cai 10.
TEST(CaiFieldsTest, EveryTypeStringIsReadOrRefused) {
  const std::pair<const char*, DType> known[] = {
      {"|b1", DType::kBool},      {"|i1", DType::kInt8},        {"<i2", DType::kInt16},
      {"<i4", DType::kInt32},     {"<i8", DType::kInt64},       {"|u1", DType::kUInt8},
      {"<u2", DType::kUInt16},    {"<u4", DType::kUInt32},      {"<u8", DType::kUInt64},
      {"<f2", DType::kFloat16},   {"<f4", DType::kFloat32},     {"<f8", DType::kFloat64},
      {"<c8", DType::kComplex64}, {"<c16", DType::kComplex128},
  };
  for (const auto& [text, dtype] : known) {
    EXPECT_EQ(to_dtype(parse(with("typestr", text)).type), dtype) << text;
    EXPECT_EQ(to_string(to_type_string(dtype)), text);
  }
  EXPECT_EQ(to_string(to_type_string(DType::kBFloat16)), "<V2");
  EXPECT_EQ(to_string(to_type_string(DType::kFloat8E4M3FN)), "|V1");
  for (const char* text : {"<f16", "<c32", "<M8[ns]", "<m8", "|V8", "<V2", "|S5", "<U3", "|t4"}) {
    const TypeString type = parse(with("typestr", text)).type;
    EXPECT_EQ(to_dtype(type), std::nullopt) << text;
    EXPECT_EQ(to_string(type), text);
  }
  EXPECT_REFUSED(with("typestr", "|O8"), kNotSupported, "Python objects");
  for (const char* text : {"", "f4", "<f", "<f4 ", "<x4", "?f4", "<f-4", "<f3", "<i16", "|b8",
                           "<V0", "<M8ns", "<f4[ns]", "<V99999999999", "<M8[]", "|V-8", "<c4"}) {
    EXPECT_REFUSED(with("typestr", text), kWrongValue, "'typestr' is");
  }
}

TEST(CaiFieldsTest, FieldsOfBitsHaveBytesOnlyWhereTheyAreWhole) {
  for (const auto& [text, bytes] : {std::pair("|t8", 1), {"|t24", 3}, {"<U3", 12}, {"|S5", 5}})
    EXPECT_EQ(element_bytes(parse(with("typestr", text)).type), bytes) << text;
  for (const char* text : {"|t4", "|t12"})
    EXPECT_EQ(element_bytes(parse(with("typestr", text)).type), std::nullopt) << text;
}

// T-CAI 11.
// Acceptance: cai 11.
TEST(CaiFieldsTest, MasksAreRefusedWhateverTheVersion) {
  EXPECT_REFUSED(with("mask", Json::object()), kNotSupported, "masked arrays are not supported");
  Json json = with("mask", false);
  json["version"] = 0;
  EXPECT_REFUSED(json, kNotSupported, "'mask' is False");
}

// T-CAI 12.
// Acceptance: cai 12.
TEST(CaiFieldsTest, StreamsAreAsTheProtocolNumbersThem) {
  EXPECT_REFUSED(with("stream", 0), kWrongValue, "'stream' is 0, which could mean no stream or");
  EXPECT_EQ(parse(with("stream", 1)).stream, 1u);
  EXPECT_EQ(parse(with("stream", 2)).stream, 2u);
  EXPECT_EQ(parse(with("stream", 0x7f0000001000)).stream, 0x7f0000001000u);
  EXPECT_EQ(parse(with("stream", UINT64_MAX)).stream, UINT64_MAX);
  EXPECT_EQ(parse(with("stream", nullptr)).stream, std::nullopt);
  EXPECT_EQ(parse(valid()).stream, std::nullopt);
  // More than 64 bits: a float in JSON, an integer in Python.
  EXPECT_REFUSED(with("stream", 1e30), kWrongType, "'stream' is");
}

// T-CAI 13.
// Acceptance: cai 13.
TEST(CaiFieldsTest, VersionsFromZeroOnAreRead) {
  for (const int version : {0, 1, 2, 3, 4}) {
    EXPECT_EQ(parse(with("version", version)).version, version);
  }
  EXPECT_REFUSED(with("version", -1), kWrongValue, "'version' is -1: expected 0 to 3, or later");
}

// T-CAI 5 and 6.
// Acceptance: cai 5.
TEST(CaiFieldsTest, NoElementsHaveNoAddressAndNoDimensionsOneElement) {
  Json json = with("shape", {0, 3});
  EXPECT_EQ(parse(json).data, 0u) << "normalised";
  json["data"] = {0, false};
  json["strides"] = {INT64_MIN, INT64_MAX};
  EXPECT_EQ(parse(json).data, 0u);
  EXPECT_EQ(elements_of(parse(json)), 0);
  EXPECT_EQ(elements_of(parse(with("shape", Json::array()))), 1);
}

TEST(CaiFieldsTest, UnknownKeysAreIgnored) {
  EXPECT_EQ(parse(with("event", {1, 2})), parse(valid()));
}

TEST(CaiFieldsTest, WhatIsWrittenIsReadBackAsTheSame) {
  Json json = valid();
  EXPECT_EQ(parse_cuda_array_interface(to_entries(parse(json))), parse(json));
  json["strides"] = {-12, 4};
  json["stream"] = 2;
  json["descr"] = Json::array({Json::array({Json::array({"title", "name"}), "<f4", {2}})});
  json["data"] = {UINT64_MAX / 2 + 5, true};
  EXPECT_EQ(parse_cuda_array_interface(to_entries(parse(json))), parse(json));
  EXPECT_EQ(parse(json_of_entries(to_entries(parse(json)))), parse(json));
}

// T-CAI 1: the types are those that consumers insist on.
// Acceptance: cai 1.
TEST(CaiFieldsTest, WhatIsWrittenHasTheTypesOfTheProtocol) {
  const Json plain = json_of_entries(to_entries(parse(valid())));
  EXPECT_EQ(plain.dump(), R"({"data":[4096,false],"shape":[2,3],"stream":null,"strides":null,)"
                          R"("typestr":"<f4","version":3})");
  Json old = valid();
  old["version"] = 2;
  EXPECT_FALSE(json_of_entries(to_entries(parse(old))).contains("stream"));
}

TEST(CaiFieldsTest, LongValuesAreCutShortInMessages) {
  Json json = valid();
  json["shape"] = std::string(10'000, 'x');
  EXPECT_LT(refusal(json).second.size(), 200u);
  json["shape"] = Json::array({"x"});
  for (int i = 0; i < 1000; ++i)
    json["shape"].push_back(i);
  EXPECT_THAT(refusal(json).second, HasSubstr("1001 in all"));
  EXPECT_LT(refusal(json).second.size(), 200u);
}

}  // namespace
}  // namespace cgtree
