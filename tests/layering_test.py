"""The tree obeys the layering rules, and a planted violation of each rule is found."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, "tools")

import check_layering  # noqa: E402
import source_tree  # noqa: E402

SAYS = "// What this file is for.\n"


# Two rooms of the core, two around it, and programs.
ROOMS = {
    "base": "Errors.\npart: core\nplain locks: mutex.h\nthread locals: frame.h\nlines: 100\n",
    "core": "Calls.\npart: core\nuses: base\nregistry.cc uses: around\nlines: 100\n",
    "around": "A device.\npart: around\nuses: base, core\nlines: 100\n",
    "around/far": "Words.\npart: around\nuses: around\nlines: 100\n",
    "programs": "Programs.\npart: program\nuses: library\nplain locks: any\n",
    "tests": "Tests.\npart: program\nuses: library, programs\nplain locks: any\nthread locals: any\n",
    "rules": "Build rules.\npart: rules\n",
}


def violations_of(files, rooms=None):
    """Returns the violations in a tree of these files (path -> text) and rooms."""
    rooms = {f"{name}/ROOM": text for name, text in (ROOMS | (rooms or {})).items()}
    files = {"core/registry.cc": SAYS} | rooms | files
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            target = pathlib.Path(root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return check_layering.violations(root)


def violations_of_include(path, include):
    return violations_of({path: f"{SAYS}#include {include}\n"})


class TreeTest(unittest.TestCase):
    def test_the_tree_obeys_the_rules(self):
        root = source_tree.real_root()
        self.assertTrue((root / "base/error.h").is_file(), f"{root} is not the source tree")
        found = check_layering.violations(root)
        if found:
            self.fail("\n" + "\n".join(found))


class RoomTest(unittest.TestCase):
    def test_every_include_that_no_room_allows_is_found(self):
        for user, used in [("base", "core"), ("core", "around"), ("core", "around/far"), ("around", "around/far"),
                           ("around/far", "base"), ("around", "programs"), ("programs", "tests")]:
            with self.subTest(user=user, used=used):
                found = violations_of_include(f"{user}/a.h", f'"{used}/b.h"')
                self.assertEqual(found, [f"{user}/a.h:2: #include {used}/b.h: {user} may not use {used} ({user}/ROOM)"])

    def test_includes_that_a_room_allows_pass(self):
        for user, used in [("base/a.cc", "base/b.h"), ("core/a.cc", "base/b.h"), ("core/cuda/a.cc", "core/b.h"),
                           ("around/far/a.cc", "around/b.h"), ("programs/a.cc", "around/far/b.h"),
                           ("tests/a.cc", "programs/b.h"), ("core/registry.cc", "around/b.h")]:
            with self.subTest(user=user, used=used):
                self.assertEqual(violations_of_include(user, f'"{used}"'), [])

    def test_a_dependency_that_no_room_allows_is_found_in_a_build_file(self):
        for label in ["//core", "//around/far:words", "@cgtree//tests", "//:cgtree"]:
            with self.subTest(label=label):
                text = f'cc_library(\n    name = "a",\n    deps = ["{label}"],\n)\n'
                found = violations_of({"base/BUILD.bazel": text})
                self.assertEqual(len(found), 1, found)
                self.assertIn("base/BUILD.bazel:3", found[0])

    def test_dependencies_that_a_room_allows_pass_in_a_build_file(self):
        for user, label in [("core", "//base"), ("core", "//around"), ("programs", "//:cgtree"), ("base", "//rules:a.bzl")]:
            with self.subTest(user=user, label=label):
                self.assertEqual(violations_of({f"{user}/BUILD.bazel": f'a(deps = ["{label}"])\n'}), [])

    def test_visibility_may_name_any_room(self):
        text = 'package(default_visibility = ["//tests:__subpackages__", "//core:__pkg__"])\n'
        self.assertEqual(violations_of({"base/BUILD.bazel": text}), [])

    def test_comments_of_a_build_file_are_not_dependencies(self):
        self.assertEqual(violations_of({"base/BUILD.bazel": '# "//core"\n'}), [])

    def test_a_folder_in_no_room_is_found(self):
        self.assertEqual(violations_of({"helpers/a.cc": SAYS}),
                         ["helpers/a.cc: its folder is in no room: give it a file ROOM"])

    def test_rooms_that_say_what_may_not_be_are_found(self):
        for text, fault in [
                ("part: core\n", "say first what the room is for"),
                ("A room.\n", "its part is one of"),
                ("A room.\npart: cellar\n", "its part is one of"),
                ("A room.\npart: core\nuses: nowhere\n", "nowhere is no room"),
                ("A room.\npart: core\nuses: base, around\n", "a room of the core may not use around"),
                ("A room.\npart: around\nuses: base, programs\n", "a room of the library may not use programs"),
                ("A room.\npart: core\ngone.cc uses: around\n", "there is no file gone.cc")]:
            with self.subTest(text=text):
                found = violations_of({}, {"new": text})
                self.assertTrue(found and fault in found[0], found)

    def test_rooms_that_use_each_other_are_found(self):
        found = violations_of({}, {"core": ROOMS["core"].replace("base", "base, more"),
                                   "more": "More.\npart: core\nuses: core\n"})
        self.assertEqual(found, ["core/ROOM:1: rooms use each other: core -> more -> core"])

    def test_a_room_with_more_lines_than_it_may_have_is_found(self):
        self.assertEqual(violations_of({"core/a.cc": SAYS * 99}), [])
        self.assertEqual(violations_of({"core/a.cc": SAYS * 100}), ["core/ROOM:1: 101 lines, and 100 are allowed"])
        self.assertEqual(violations_of({"programs/a.cc": SAYS * 100}), [])
        says = {"programs": ROOMS["programs"] + "lines: 100\n"}
        self.assertEqual(violations_of({"programs/a.cc": SAYS * 100}, says), [])
        self.assertEqual(len(violations_of({"programs/a.cc": SAYS * 101}, says)), 1)


class DoorTest(unittest.TestCase):
    def test_headers_of_other_projects_that_no_room_names_are_found(self):
        for header in ["<spdlog/spdlog.h>", "<fmt/format.h>", "<nlohmann/json.hpp>"]:
            self.assertEqual(len(violations_of_include("core/a.cc", header)), 1)
            self.assertEqual(len(violations_of_include("around/a.cc", header)), 1)
            self.assertEqual(violations_of_include("programs/a.cc", header), [])
            text = f"{SAYS}#include {header}\n"
            says = ROOMS["around"] + "third parties: a.cc\n"
            self.assertEqual(violations_of({"around/a.cc": text}, {"around": says}), [])
            self.assertEqual(len(violations_of({"around/b.cc": text}, {"around": says})), 1)

    def test_the_core_cannot_name_a_header_of_another_project(self):
        found = violations_of({}, {"core": ROOMS["core"] + "third parties: any\n"})
        self.assertEqual(found, ["core/ROOM:6: the core includes no header of other projects"])

    def test_a_lock_without_a_rank_is_found(self):
        for text in ["std::mutex mutex_;", "mutable std::shared_mutex m;",
                     "std::condition_variable changed_;"]:
            text = f"// A file.\n{text}\n"
            self.assertEqual(len(violations_of({"core/a.h": text})), 1, text)
            self.assertEqual(len(violations_of({"around/a.cc": text})), 1, text)
            self.assertEqual(violations_of({"base/mutex.h": text}), [])
            self.assertEqual(violations_of({"tests/a_test.cc": text}), [])
        text = "// A file.\nstd::condition_variable_any resized_;\n"
        self.assertEqual(violations_of({"core/a.h": text}), [])

    def test_a_variable_of_threads_outside_its_files_is_found(self):
        for text in ["thread_local int t_depth = 0;", "static constinit thread_local Frame t_frame;"]:
            text = f"// A file.\n{text}\n"
            self.assertEqual(len(violations_of({"core/a.h": text})), 1, text)
            self.assertEqual(len(violations_of({"programs/a.cc": text})), 1, text)
            self.assertEqual(len(violations_of({"base/frame.cc": text})), 1, text)
            self.assertEqual(violations_of({"base/frame.h": text}), [])
            self.assertEqual(violations_of({"tests/a_test.cc": text}), [])
        self.assertEqual(violations_of({"core/a.cc": f'{SAYS}const char* const mode = "thread_local";\n'}), [])

    def test_a_join_without_the_header_that_fmt_11_has_it_in_is_found(self):
        use = 'text = fmt::join(names, ", ");\n'
        self.assertEqual(len(violations_of({"programs/a.cc": f"{SAYS}#include <fmt/format.h>\n{use}"})), 1)
        self.assertEqual(violations_of({"programs/a.cc": f"{SAYS}#include <fmt/ranges.h>\n{use}"}), [])

    def test_cuda_headers_outside_their_places_are_found(self):
        for header in ["<cuda_runtime_api.h>", "<cuda.h>", "<cub/block/block_reduce.cuh>"]:
            for path in ["core/a.cc", "core/a.cu", "tests/a.cc", "around/a.cu", "core/cuda.cc"]:
                with self.subTest(path=path, header=header):
                    self.assertEqual(len(violations_of_include(path, header)), 1)

    def test_cuda_headers_in_their_places_pass(self):
        for path in ["core/cuda/a.cc", "around/cuda/a.h", "tests/core/a.cu", "tests/core/cuda/a_test.cc",
                     "programs/support/cuda.cc"]:
            with self.subTest(path=path):
                self.assertEqual(violations_of_include(path, "<cuda_runtime_api.h>"), [])

    def test_the_toolkit_as_a_dependency_of_the_library_is_found(self):
        text = 'cc_library(name = "a", deps = ["@local_cuda//:cudart"])\n'
        self.assertEqual(len(violations_of({"core/BUILD.bazel": text})), 1)
        self.assertEqual(violations_of({"core/cuda/BUILD.bazel": text}), [])

    def test_a_quoted_include_that_is_not_from_the_root_is_found(self):
        self.assertEqual(len(violations_of_include("base/a.cc", '"a.h"')), 1)

    def test_a_file_of_a_test_outside_the_folder_of_the_test_is_found(self):
        text = f"{SAYS}const auto path = fs::temp_directory_path() / name;\n"
        self.assertEqual(len(violations_of({"tests/core/a_test.cc": text})), 1)
        self.assertEqual(violations_of({"tests/core/a_fuzz_test.cc": text, "programs/a.cc": text}), [])


class FileTest(unittest.TestCase):
    def test_a_file_that_does_not_say_what_it_is_for_is_found(self):
        for path, text in {"base/a.h": "#pragma once\n", "programs/a.py": "import os\n",
                           "programs/a": "#!/bin/bash\nset -e\n", "base/empty.cc": "",
                           "rules/a.bzl": 'load(":b.bzl", "b")\n'}.items():
            with self.subTest(path=path):
                self.assertEqual(len(violations_of({path: text})), 1)

    def test_a_file_that_says_what_it_is_for_passes(self):
        for path, text in {"base/a.h": SAYS, "programs/a.py": '#!/usr/bin/env python3\n"""Does a."""\n',
                           "programs/a": "#!/bin/bash\n# Does a.\n", "docs/a.md": "no comment"}.items():
            with self.subTest(path=path):
                self.assertEqual(violations_of({path: text}), [])
