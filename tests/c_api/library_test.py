"""libcgtree.so exports only the functions of the header, and needs only system libraries."""

import ctypes
import os
import re
import subprocess
import unittest

LIBRARY = "bindings/c/libcgtree.so"
HEADER = "bindings/c/c_api.h"


def declared():
    with open(HEADER, encoding="utf-8") as file:
        return set(re.findall(r"CGT_API[^;(]*?\b(cgt_\w+)\(", file.read()))


def output_of(*command):
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout


# Structs without a size field, which never grow.
VALUES = {"cgt_device", "cgt_stream", "cgt_dims", "cgt_argument", "cgt_body", "cgt_axis_use",
          "cgt_axis_size", "cgt_philox_range"}


class HeaderTest(unittest.TestCase):
    def test_each_struct_but_for_values_begins_with_its_size(self):
        with open(HEADER, encoding="utf-8") as file:
            text = file.read()
        structs = re.findall(r"typedef struct (cgt_\w+) \{\s*(?://[^\n]*\s*)*([^;]*);", text)
        sized = {name for name, first in structs if first == "uint32_t struct_size"}
        self.assertEqual({name for name, _ in structs} - sized, VALUES)
        self.assertLessEqual({"cgt_key_part", "cgt_binding", "cgt_group", "cgt_precapture_values"}, sized)


class LibraryTest(unittest.TestCase):
    def setUp(self):
        if re.search(r" __(asan|tsan|ubsan)_", output_of("nm", "-D", "--undefined-only", LIBRARY)):
            self.skipTest("a sanitizer's library needs its runtime loaded first")

    def test_it_shows_what_the_header_declares_and_nothing_else(self):
        lines = output_of("nm", "-D", "--defined-only", LIBRARY).splitlines()
        shown = {line.split()[-1].split("@")[0] for line in lines if line.split()[-2] in "TWVBDRu"}
        self.assertGreater(len(shown), 30)
        self.assertEqual(shown, declared())

    def test_it_can_be_loaded_by_a_program_that_has_nothing_of_it(self):
        library = ctypes.CDLL(os.path.realpath(LIBRARY))
        library.cgt_status_name.restype = ctypes.c_char_p
        with open(HEADER, encoding="utf-8") as file:
            abi = int(re.search(r"#define CGT_ABI_VERSION (\d+)", file.read()).group(1))
        self.assertEqual(library.cgt_abi_version(), abi)
        self.assertIn(f"[libcgtree.so.{abi}]", output_of("readelf", "-d", LIBRARY))
        self.assertEqual(library.cgt_status_name(2), b"CGT_INVALID_HANDLE")

    def test_it_needs_only_what_every_system_has(self):
        needed = re.findall(r"NEEDED.*\[(.*)\]", output_of("readelf", "-d", LIBRARY))
        for name in needed:
            self.assertRegex(name, r"^(libstdc\+\+|libm|libgcc_s|libc|ld-linux.*|libpthread"
                                   r"|libdl|librt)\.so")


if __name__ == "__main__":
    unittest.main()
