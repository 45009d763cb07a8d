// Advice uses the names of the caller's language: names of C++ do not appear in the log, in C or in
// Python.
#include "extensions/watch/spelling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cgtree/values/explanation.h"

namespace cgtree {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Row {
  std::string cpp, names, c;
};

TEST(SpellingTest, OptionsChoicesAndFunctionsHaveTheNamesOfTheLanguage) {
  const Row rows[] = {
      {"raise CompileOptions::max_recordings, or let AtLimit::kEvict drop old ones",
       "raise max_recordings of the function, or let at_limit=\"evict\" drop old ones",
       "raise cgt_function_options.max_recordings, or let CGT_EVICT drop old ones"},
      {"raise ContextOptions::max_graph_bytes.", "raise max_graph_bytes of the context.",
       "raise cgt_context_options.max_graph_bytes."},
      {"choose OnStaticChange::kRecord or kDemote",
       "choose on_static_change=\"record\" or on_static_change=\"demote\"",
       "choose CGT_STATIC_CHANGE_RECORD or CGT_STATIC_CHANGE_DEMOTE"},
      {"give the axis buckets, or AxisPolicy::kExact", "give the axis buckets, or policy=\"exact\"",
       "give the axis buckets, or CGT_AXIS_EXACT"},
      {"call mark_step() where a step begins", "call mark_step() where a step begins",
       "call cgt_context_mark_step() where a step begins"},
      {"unfreeze() it, or record such calls before freeze()",
       "unfreeze() it, or record such calls before freeze()",
       "cgt_function_unfreeze() it, or record such calls before cgt_function_freeze()"},
      {"compile it with CompileOptions::enabled = true", "compile it with enabled = true",
       "compile it with no CGT_FUNCTION_EAGER"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(spelled(row.cpp, Spelling::kNames), row.names);
    EXPECT_EQ(spelled(row.cpp, Spelling::kC), row.c);
    EXPECT_EQ(spelled(row.c, Spelling::kC), row.c);  // repeated spelling changes nothing
  }
}

TEST(SpellingTest, OtherTextStays) {
  const std::string text =
      "my_mark_step() of MyCompileOptions::max_recordings, MyNode::kEvict, kind k";
  EXPECT_EQ(spelled(text, Spelling::kNames), text);
  EXPECT_EQ(spelled(text, Spelling::kC), text);
}

TEST(SpellingTest, NoAdviceHasANameOfCppInAnotherLanguage) {
  for (int i = 0; i < kSkipReasonCount; ++i) {
    const auto reason = static_cast<SkipReason>(i);
    for (const Spelling spelling : {Spelling::kNames, Spelling::kC}) {
      EXPECT_THAT(spelled(advice(reason), spelling), Not(HasSubstr("::"))) << name(reason);
      EXPECT_THAT(spelled(explain(reason), spelling), Not(HasSubstr("::"))) << name(reason);
    }
  }
  for (int i = 1; i <= static_cast<int>(Mismatch::Kind::kFootprint); ++i) {
    const Mismatch mismatch{.kind = static_cast<Mismatch::Kind>(i),
                            .recorded = "float32 {2} on host:0",
                            .given = "float32 {3} on host:0"};
    EXPECT_THAT(spelled(advice(mismatch), Spelling::kC), Not(HasSubstr("::")));
    EXPECT_THAT(spelled(advice(mismatch), Spelling::kNames), Not(HasSubstr("::")));
  }
}

}  // namespace
}  // namespace cgtree
