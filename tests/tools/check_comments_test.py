"""tools/check_comments.py finds names without a comment, and doxygen_filter.py marks comments."""

import sys
import unittest

sys.path.insert(0, "tools")

import check_comments  # noqa: E402
import doxygen_filter  # noqa: E402

HEADER = """\
// A header.
#pragma once

#define CGTREE_BARE 1
// Commented.
#define CGTREE_SAID(a) \\
  f(a)
#define CGTREE_OWN(a) a
CGTREE_OWN(int x;)
#undef CGTREE_OWN

namespace cgtree {

class Forward;

// A Said is commented.
class Said {
 public:
  Said() = default;
  explicit Said(int);
  ~Said();
  Said(const Said&) = delete;
  Said& operator=(Said&&) noexcept;
  bool bare() const { return x_ > 1; }
  bool behind() const noexcept;  // whether it lies behind
  // Returns both.
  template <typename T>
  requires requires { T::value; }
  auto above(const T& value) const -> std::pair<int, T> {
    if (value) { return {1, value}; }
    return {};
  }
  int above(int) const;
  friend bool operator==(const Said&, const Said&) = default;
  std::vector<int> operator()(std::function<void(int)> f) const;
  operator bool() const;
  friend bool operator==(const Said& a, const Said& b) { return a.x_ == b.x_; }
  friend bool operator<(const Said& a, const Said& b) { return a.x_ < b.x_; }

 private:
  int hidden() const;
  int x_ = 0;
};

template <typename T>
auto Said::above(const T& value) const -> std::pair<int, T> {
  return {0, value};
}
class Said<T>::Member {
 public:
  explicit Member(int);
};
inline bool operator<=(const Said& a, int b) {
  return a.bare() <= b;
}

struct Bare {
  int first = 0;   // in bytes, which goes on
                   // on a second line
  int second = 1;
  std::function<void(const Said&)> callback = nullptr;
  enum class Kind { kOne, kTwo };
};

// What happens.
enum class Choice : int {
  kBare,
  kSaid,  // it happens
};

// ---- A bar is no comment ----
using Alias = std::vector<int>;
template <>
struct Results<void> {
  static void take();
};
inline constexpr int kCount = 3;
// The next two are for both.
void one();
void two(int n = f(1));
void three();

namespace detail {
void hidden();
}  // namespace detail

}  // namespace cgtree
"""
C_HEADER = """\
typedef int32_t c_status;
// The next two are handles.
typedef struct c_one* c_one_handle;
typedef struct c_two* c_two_handle;
typedef struct c_three* c_three_handle;
// The next two are numbers.
#define C_FIRST 1
#define C_SECOND 2
#define C_THIRD 3
// The next.
typedef struct c_error {
  uint32_t size;  // "//" is no comment in a string
  int (*minimum)(void* user, size_t count);
  const char* where;
} c_error;
typedef void (*c_body)(const void* arguments);
C_API c_status c_check(c_error* error) __attribute__((cold));
enum { C_ONE = 1, C_TWO = 1 << 2 };
#ifdef __cplusplus
extern "C" {
#endif
C_API c_status c_inside(void);
#ifdef __cplusplus
}
#endif
"""


class CheckCommentsTest(unittest.TestCase):
    def found(self, text, with_fields=False):
        return [f"{one.kind} {one.name}" for one in check_comments.missing(text, with_fields)]

    def test_public_names_without_a_comment_are_found(self):
        self.assertEqual(self.found(HEADER), [
            "macro CGTREE_BARE",
            "function Said::Said", "function Said::bare", "function Said::operator()",
            "function Said::operator bool",
            "type Member", "function Member::Member", "function operator<=", "type Bare", "type Bare::Kind", "type Alias", "constant kCount", "function three"])

    def test_members_and_enumerators_are_found_if_they_are_asked_for(self):
        self.assertEqual(set(self.found(HEADER, True)) - set(self.found(HEADER)), {
            "field Bare::second", "field Bare::callback", "enumerator Bare::Kind::kOne",
            "enumerator Bare::Kind::kTwo", "enumerator Choice::kBare"})

    def test_c_is_read_too(self):
        self.assertEqual(self.found(C_HEADER, True), [
            "macro C_THIRD", "type c_status", "type c_three_handle", "field minimum", "field where", "type c_body", "function c_check",
            "enumerator C_ONE", "enumerator C_TWO", "function c_inside"])

    def test_lines_are_those_of_the_header(self):
        for one in check_comments.missing(HEADER, True):
            line = HEADER.splitlines()[one.line - 1]
            self.assertIn(one.name.split("::")[-1].removeprefix("operator ").split("(")[0], line)


class DoxygenFilterTest(unittest.TestCase):
    def test_comments_are_marked_by_what_they_are_of(self):
        self.assertEqual(doxygen_filter.filtered(
            "// A file.\n"
            "//\n"
            "//   code();\n"
            "#pragma once  // as it is\n"
            "// ---- Bar ----\n"
            "// Of the next.\n"
            "int a = 1;  // of a\n"
            "            // goes on\n"
            "// Of b.\n"
            'const char* b = "//";\n'), (
                "/// @file\n"
                "/// A file.\n"
                "///\n"
                "///     code();\n"
                "#pragma once  // as it is\n"
                "// ---- Bar ----\n"
                "/// Of the next.\n"
                "int a = 1;  ///< of a\n"
                "            ///< goes on\n"
                "/// Of b.\n"
                'const char* b = "//";\n'))

    def test_names_that_are_not_public_become_empty_lines(self):
        text = "int a;\nnamespace detail {\nint b;\n}  // namespace detail\nint c;\n"
        self.assertEqual(doxygen_filter.filtered(text), "int a;\n\n\n\nint c;\n")


if __name__ == "__main__":
    unittest.main()
