"""Changes of a C header that break programs of the last release are found, and compatible changes pass."""

import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, "tools")

import check_abi  # noqa: E402

# (text of the header, its replacement, the expected finding)
BREAKS = [
    ("CGT_API uint32_t cgt_abi_version(void);", "", "function cgt_abi_version: was uint32_t (void), and is gone"),
    ("CGT_API uint32_t cgt_abi_version(void);", "CGT_API uint64_t cgt_abi_version(void);",
     "function cgt_abi_version: was uint32_t (void), and is uint64_t (void)"),
    ("  int32_t cuda_code;", "  int64_t cuda_code;", "field cgt_error.cuda_code: was int32_t at bit 64, and is int64_t at bit 64"),
    ("  int32_t cuda_code;", "  int32_t between; int32_t cuda_code;",
     "field cgt_error.cuda_code: was int32_t at bit 64, and is int32_t at bit 96"),
    ("  int32_t cuda_code;", "  uint32_t cuda_code;", "field cgt_error.cuda_code: was int32_t at bit 64, and is uint32_t at bit 64"),
    ("  uintptr_t native;\n} cgt_stream;", "  uintptr_t native; int newest;\n} cgt_stream;",
     "struct cgt_stream: was 128 bits, and is 192 bits"),
    ("  int32_t id;\n} cgt_device;", "} cgt_device;", "field cgt_device.id: was int32_t at bit 32, and is gone"),
    ("CGT_INVALID_HANDLE = 2,", "CGT_INVALID_HANDLE = 3,", "enumerator CGT_INVALID_HANDLE: was 2, and is 3"),
    ("typedef int32_t cgt_status;", "typedef int64_t cgt_status;", "type cgt_status: was int32_t, and is int64_t"),
]
ADDITIONS = [
    ("CGT_API uint32_t cgt_abi_version(void);",
     "CGT_API uint32_t cgt_abi_version(void); CGT_API uint32_t cgt_newest(void);"),
    ("CGT_INVALID_HANDLE = 2,", "CGT_INVALID_HANDLE = 2, CGT_NEWEST = 99,"),
    ("  size_t bytes;\n} cgt_binding;", "  size_t bytes; uint32_t newest;\n} cgt_binding;"),
    ("typedef int32_t cgt_status;", "typedef int32_t cgt_status; typedef struct cgt_newest { int x; } cgt_newest;"),
]


@unittest.skipUnless(shutil.which("abidw") and shutil.which("gcc"), "no abidw or no gcc here: run tools/setup")
class CheckAbiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.header = check_abi.HEADER.read_text(encoding="utf-8")
        cls.base = check_abi.describe(cls.header)

    def found(self, text, instead):
        self.assertEqual(self.header.count(text), 1, text)
        return list(check_abi.differences(self.base, check_abi.describe(self.header.replace(text, instead))))

    def test_programs_of_the_last_release_run_with_this_header(self):
        result = subprocess.run([sys.executable, check_abi.__file__], text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_a_change_that_a_program_notices_is_found(self):
        for text, instead, said in BREAKS:
            with self.subTest(text=text, instead=instead):
                self.assertIn(said, self.found(text, instead))

    def test_an_addition_that_the_policy_allows_is_none(self):
        for text, instead in ADDITIONS:
            with self.subTest(text=text, instead=instead):
                self.assertEqual(self.found(text, instead), [])

    def test_a_field_in_the_padding_of_an_earlier_struct_is_found(self):
        grown = "  size_t bytes; uint32_t newest;\n} cgt_binding;"
        header = self.header.replace("  size_t bytes;\n} cgt_binding;", grown)
        later = header.replace(grown, grown.replace("newest;", "newest, later;"))
        self.assertEqual(list(check_abi.differences(check_abi.describe(header), check_abi.describe(later))),
                         ["field cgt_binding.later: is uint32_t at bit 224, inside of what was struct cgt_binding: 256 bits"])

    def test_another_abi_may_be_another(self):
        with_another = self.header.replace("#define CGT_ABI_VERSION 2", "#define CGT_ABI_VERSION 3")
        text, instead, _ = BREAKS[0]
        now = check_abi.describe(with_another.replace(text, instead))
        self.assertEqual(list(check_abi.differences(self.base, now)), [])


if __name__ == "__main__":
    unittest.main()
