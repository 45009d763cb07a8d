// OptionSchema: types, defaults, rules. Each test is modelled on the ConfigSchema test of TVM that
// it names.
#include "targets/option_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace cgtree {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;
using Strings = std::vector<std::string>;
using Map = std::map<std::string, std::string, std::less<>>;

OptionValue text(const char* value) {
  return std::string(value);
}
OptionValue number(std::int64_t value) {
  return value;
}

template <typename Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    return std::string(error.message());
  }
  return "nothing was thrown";
}

OptionSchema schema() {
  OptionSchema schema;
  schema.add({"speed", OptionType::kInt, "in km/h"})
      .add({"name", OptionType::kString, "", text("none")})
      .add({"is_on", OptionType::kBool, "whether it is"})
      .add({"sizes", OptionType::kInts})
      .add({"libs", OptionType::kStrings})
      .add({"notes", OptionType::kMap});
  return schema;
}

// BasicTypes, ArrayOptionType, MapOptionType.
TEST(OptionSchemaTest, TakesAValueOfEachType) {
  const Options given = {
      {"speed", number(7)},  {"name", text("x")},         {"is_on", true},
      {"sizes", Ints{1, 2}}, {"libs", Strings{"a", "b"}}, {"notes", Map{{"k", "v"}}}};
  EXPECT_EQ(schema().resolve(given), given);
}

// TypeCoercionPasses: only an empty list fits both types.
TEST(OptionSchemaTest, AnEmptyListIsOfEitherType) {
  EXPECT_EQ(schema().resolve({{"libs", Ints{}}}).at("libs"), OptionValue(Strings{}));
}

// TypeMismatchRejection, TypeMismatchBoolForInt.
TEST(OptionSchemaTest, AnotherTypeIsRefusedWithBothSides) {
  EXPECT_EQ(refusal([] {
              schema().resolve({{"speed", true}});
            }),
            "option 'speed' is of type int, and was given true, of type bool");
  EXPECT_THAT(refusal([] { schema().resolve({{"is_on", number(1)}}); }), HasSubstr("'is_on'"));
  EXPECT_THAT(refusal([] { schema().resolve({{"name", number(1)}}); }), HasSubstr("given 1"));
  EXPECT_THAT(refusal([] { schema().resolve({{"libs", Ints{1}}}); }), HasSubstr("list of string"));
}

// DefaultValueMaterialization, DefaultValueViaTrait, ExplicitOverridesDefault, MissingNonRequired,
// EmptySchemaEmptyConfig.
TEST(OptionSchemaTest, DefaultsFillInForWhatIsNotGiven) {
  EXPECT_EQ(schema().resolve({}), (Options{{"name", text("none")}}));
  EXPECT_EQ(schema().resolve({{"name", text("x")}}), (Options{{"name", text("x")}}));
  EXPECT_EQ(OptionSchema().resolve({}), Options());
}

// UnknownKeyRejection.
TEST(OptionSchemaTest, AnUnknownOptionIsRefusedWithTheKnownOnes) {
  EXPECT_EQ(refusal([] {
              schema().resolve({{"sped", number(1)}});
            }),
            "option 'sped' is unknown; known are speed, name, is_on, sizes, libs, notes");
  EXPECT_THAT(refusal([] { OptionSchema().resolve({{"x", true}}); }), HasSubstr("known are none"));
}

// DuplicateKeyRejected.
TEST(OptionSchemaTest, AnOptionIsDeclaredOnce) {
  OptionSchema twice = schema();
  EXPECT_THAT(refusal([&] {
                twice.add({"speed", OptionType::kBool});
              }),
              HasSubstr("'speed' is declared twice"));
}

TEST(OptionSchemaTest, ADefaultThatDoesNotFitIsNotDeclared) {
  OptionSchema wrong;
  EXPECT_THROW(wrong.add({"x", OptionType::kInt, "", text("one")}), InvalidArgument);
  EXPECT_EQ(wrong.find("x"), nullptr);
}

TEST(OptionSchemaTest, ARuleSaysWhatIsWrongWithTheValue) {
  OptionSchema even;
  even.add({"n", OptionType::kInt, "", std::nullopt, [](const OptionValue& value) {
              return std::get<std::int64_t>(value) % 2 == 0 ? "" : "must be even";
            }});
  EXPECT_EQ(even.resolve({{"n", number(4)}}).at("n"), number(4));
  EXPECT_EQ(refusal([&] {
              even.resolve({{"n", number(3)}});
            }),
            "option 'n' was given 3, and it must be even");
}

// DeclarationOrderPreserved, ListOptionsNames, HasOption, DocStringTrait, OptionEntryTypeStr.
TEST(OptionSchemaTest, ListsItsOptionsAsDeclared) {
  const OptionSchema known = schema();
  std::string list;
  for (const OptionSpec& spec : known.specs())
    list += spec.name + ": " + std::string(name(spec.type)) + "; ";
  EXPECT_EQ(list,
            "speed: int; name: string; is_on: bool; sizes: list of int; libs: list of string; "
            "notes: map of string; ");
  EXPECT_EQ(known.find("speed")->help, "in km/h");
  EXPECT_EQ(known.find("nothing"), nullptr);
}

}  // namespace
}  // namespace cgtree
