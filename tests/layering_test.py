"""The tree obeys the layering rules, and a planted violation of each rule is found."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, "tools")

import check_layering  # noqa: E402
import source_tree  # noqa: E402

SAYS = "// What this file is for.\n"


def violations_of(files):
    """The violations in a tree that holds these files (path -> text)."""
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


class DirectionTest(unittest.TestCase):
    def test_every_include_against_the_arrows_is_found(self):
        rooms = ["base", "interop", "allocator", "cgtree", "tests"]
        for right, used in enumerate(rooms):
            for user in rooms[:right]:
                with self.subTest(user=user, used=used):
                    found = violations_of_include(f"{user}/a.h", f'"{used}/b.h"')
                    self.assertEqual(len(found), 1, found)
                    self.assertIn(f"{user}/a.h:2", found[0])

    def test_includes_along_the_arrows_pass(self):
        for user, used in [("interop/a.cc", "base/b.h"), ("cgtree/tree/a.cc", "allocator/pool/b.h"),
                           ("tests/cgtree/a_test.cc", "cgtree/tree/b.h"),
                           ("examples/a.cc", "tests/support/b.h"),
                           ("tools/a.cc", "tests/support/b.h"), ("base/a.cc", "base/a.h")]:
            with self.subTest(user=user, used=used):
                self.assertEqual(violations_of_include(user, f'"{used}"'), [])

    def test_rooms_at_the_end_do_not_use_one_another(self):
        for user, used in [("examples/a.cc", "tools/b.h"), ("benchmarks/a.cc", "examples/b.h"),
                           ("tools/a.cc", "tests/base/b.h"), ("examples/a.cc", "tests/base/b.h"),
                           ("tests/cgtree/a.cc", "tools/b.h"),
                           ("benchmarks/serve/a.cc", "examples/branching/b.h"),
                           ("examples/serve/a.cc", "benchmarks/serve/b.h")]:
            with self.subTest(user=user, used=used):
                self.assertEqual(len(violations_of_include(user, f'"{used}"')), 1)

    def test_the_benchmark_of_the_server_uses_the_server(self):
        for user in ["benchmarks/serve/a.cc", "tests/benchmarks/serve/a_test.cc"]:
            with self.subTest(user=user):
                self.assertEqual(violations_of_include(user, '"examples/serve/b.h"'), [])
        text = 'cc_library(name = "a", deps = ["//examples/serve:server"])\n'
        self.assertEqual(violations_of({"benchmarks/serve/BUILD.bazel": text}), [])
        self.assertEqual(len(violations_of({"benchmarks/BUILD.bazel": text})), 1)

    def test_a_dependency_against_the_arrows_is_found_in_a_build_file(self):
        for label in ["//cgtree", "//cgtree/tree:record", "@cgtree//tests/support", "//:cgtree"]:
            with self.subTest(label=label):
                text = f'cc_library(\n    name = "a",\n    deps = ["{label}"],\n)\n'
                found = violations_of({"base/BUILD.bazel": text})
                self.assertEqual(len(found), 1, found)
                self.assertIn("base/BUILD.bazel:3", found[0])

    def test_visibility_may_name_the_rooms_to_the_right(self):
        text = 'package(default_visibility = ["//tests:__subpackages__", "//cgtree:__pkg__"])\n'
        self.assertEqual(violations_of({"base/BUILD.bazel": text}), [])

    def test_comments_of_a_build_file_are_not_dependencies(self):
        self.assertEqual(violations_of({"base/BUILD.bazel": '# "//cgtree"\n'}), [])

    def test_a_folder_that_is_no_room_is_found(self):
        self.assertEqual(len(violations_of({"helpers/a.cc": SAYS})), 1)


class SubRoomTest(unittest.TestCase):
    def test_every_include_of_a_sub_room_to_the_right_is_found_and_names_both(self):
        for room, sub_rooms in check_layering.SUB_ROOMS.items():
            for right, used in enumerate(sub_rooms):
                for user in sub_rooms[:right]:
                    with self.subTest(room=room, user=user, used=used):
                        found = violations_of_include(f"{room}/{user}/a.h", f'"{room}/{used}/b.h"')
                        self.assertEqual(len(found), 1, found)
                        self.assertIn(f"{room}/{user} may not use {room}/{used}", found[0])

    def test_includes_of_a_sub_room_to_the_left_pass(self):
        for user, used in [("interop/collectives/a.cc", "interop/device/cuda/b.h"),
                           ("interop/device/host/a.cc", "interop/device/b.h"),
                           ("allocator/caching/a.cc", "allocator/segments/b.h"),
                           ("cgtree/tree/a.cc", "cgtree/record/b.h"),
                           ("cgtree/memory/a.cc", "interop/random/b.h")]:
            with self.subTest(user=user, used=used):
                self.assertEqual(violations_of_include(user, f'"{used}"'), [])

    def test_the_core_uses_nothing_that_stands_around_it(self):
        for user, used in [("cgtree/tree/a.cc", "interop/collectives/b.h"),
                           ("cgtree/memory/a.cc", "interop/exchange/b.h"),
                           ("cgtree/options.h", "allocator/reports/b.h"),
                           ("cgtree/compile.cc", "cgtree/check/b.h"),
                           ("cgtree/memory/a.cc", "allocator/threads/b.h"),
                           ("cgtree/memory/a.cc", "allocator/caching/b.h"),
                           ("cgtree/memory/a.cc", "allocator/segments/b.h"),
                           ("cgtree/memory/a.cc", "interop/random/random.h"),
                           ("cgtree/compile.h", "cgtree/option_table.h"),
                           ("cgtree/compile.h", "cgtree/precapture.h"),
                           ("cgtree/context.h", "cgtree/metrics.h"),
                           ("cgtree/steps.cc", "interop/exchange/foreign_memory.h"),
                           ("cgtree/tree/a.cc", "interop/device/profiler.h"),
                           ("cgtree/tree/a.cc", "interop/tensor/cuda/row_kernel.h"),
                           ("cgtree/steps.cc", "allocator/captures/b.h"),
                           ("interop/device/a.cc", "interop/device/cuda/b.h"),
                           ("interop/device/a.cc", "interop/device/host/b.h")]:
            with self.subTest(user=user, used=used):
                found = violations_of_include(user, f'"{used}"')
                self.assertEqual(len(found), 1, found)
                self.assertIn("is in the core", found[0])

    def test_what_stands_around_the_core_uses_it(self):
        for user, used in [("cgtree/watch/a.cc", "cgtree/tree/b.h"),
                           ("cgtree/check/a.cc", "cgtree/tree/b.h"),
                           ("cgtree/surroundings.cc", "cgtree/check/b.h"),
                           ("cgtree/pools/a.cc", "allocator/caching/b.h"),
                           ("cgtree/bare_pools.cc", "cgtree/memory/b.h"),
                           ("allocator/threads/a.cc", "allocator/pool/b.h"),
                           ("allocator/captures/a.cc", "allocator/caching/b.h"),
                           ("interop/device/device.cc", "interop/device/host/b.h"),
                           ("interop/tensor/copy.cc", "interop/tensor/cuda/b.h"),
                           ("interop/device/host/a.cc", "interop/device/b.h"),
                           ("cgtree/context_pages.cc", "cgtree/watch/b.h")]:
            with self.subTest(user=user, used=used):
                self.assertEqual(violations_of_include(user, f'"{used}"'), [])

    def test_faces_use_every_sub_room_and_none_uses_them(self):
        for face in ["cgtree/cgtree.h", "cgtree/compile.h", "cgtree/context.h", "cgtree/c_api.h",
                     "cgtree/precapture.h", "cgtree/c_api/step.h"]:
            with self.subTest(face=face):
                self.assertEqual(violations_of_include(face, '"cgtree/tree/a.h"'), [])
                found = violations_of_include("cgtree/tree/a.cc", f'"{face}"')
                self.assertEqual(len(found), 1, found)
                self.assertIn("cgtree/tree may not use cgtree (faces)", found[0])
        self.assertEqual(violations_of_include("allocator/cuda/a.h", '"allocator/reports/b.h"'), [])
        found = violations_of_include("allocator/reports/a.h", '"allocator/cuda/b.h"')
        self.assertEqual(len(found), 1, found)

    def test_values_are_used_by_every_sub_room_and_use_none(self):
        self.assertEqual(violations_of_include("cgtree/memory/a.h", '"cgtree/options.h"'), [])
        self.assertEqual(violations_of_include("cgtree/stats.h", '"cgtree/explanation.h"'), [])
        for used in ["cgtree/memory/b.h", "cgtree/context.h"]:
            with self.subTest(used=used):
                found = violations_of_include("cgtree/options.h", f'"{used}"')
                self.assertEqual(len(found), 1, found)
                self.assertIn("cgtree (values) may not use cgtree", found[0])


class DoorTest(unittest.TestCase):
    def test_spdlog_outside_base_is_found(self):
        self.assertEqual(violations_of_include("base/log.cc", "<spdlog/spdlog.h>"), [])
        self.assertEqual(len(violations_of_include("cgtree/a.cc", "<spdlog/spdlog.h>")), 1)
        text = 'cc_library(name = "a", deps = ["@spdlog"])\n'
        self.assertEqual(len(violations_of({"cgtree/BUILD.bazel": text})), 1)

    def test_a_lock_without_a_rank_is_found(self):
        for text in ["std::mutex mutex_;", "mutable std::shared_mutex m;",
                     "std::condition_variable changed_;"]:
            text = f"// A file.\n{text}\n"
            self.assertEqual(len(violations_of({"cgtree/a.h": text})), 1, text)
            self.assertEqual(len(violations_of({"python/extension/a.cc": text})), 1, text)
            self.assertEqual(violations_of({"base/mutex.h": text}), [])
            self.assertEqual(violations_of({"tests/cgtree/a_test.cc": text}), [])
        text = "// A file.\nstd::condition_variable_any resized_;\n"
        self.assertEqual(violations_of({"cgtree/a.h": text}), [])

    def test_a_join_without_the_header_that_fmt_11_has_it_in_is_found(self):
        use = 'text = fmt::join(names, ", ");\n'
        self.assertEqual(len(violations_of({"base/a.cc": f"{SAYS}#include <fmt/format.h>\n{use}"})), 1)
        self.assertEqual(violations_of({"base/a.cc": f"{SAYS}#include <fmt/ranges.h>\n{use}"}), [])

    def test_cuda_headers_outside_their_places_are_found(self):
        for header in ["<cuda_runtime_api.h>", "<cuda.h>", "<cub/block/block_reduce.cuh>"]:
            for path in ["cgtree/a.cc", "cgtree/a.cu", "interop/device.cc", "tests/cgtree/a.cc",
                         "tools/a.cu", "interop/tensor/a.cu", "cgtree/cuda.cc"]:
                with self.subTest(path=path, header=header):
                    self.assertEqual(len(violations_of_include(path, header)), 1)

    def test_cuda_headers_in_their_places_pass(self):
        for path in ["interop/device/cuda/a.cc", "allocator/cuda/a.h", "tests/cgtree/a.cu",
                     "tests/interop/cuda/a_test.cc", "benchmarks/support/cuda.cc",
                     "examples/serve/kernels.cu"]:
            with self.subTest(path=path):
                self.assertEqual(violations_of_include(path, "<cuda_runtime_api.h>"), [])

    def test_the_toolkit_as_a_dependency_of_the_library_is_found(self):
        text = 'cc_library(name = "a", deps = ["@local_cuda//:cudart"])\n'
        self.assertEqual(len(violations_of({"allocator/BUILD.bazel": text})), 1)
        self.assertEqual(violations_of({"interop/device/cuda/BUILD.bazel": text}), [])

    def test_a_quoted_include_that_is_not_from_the_root_is_found(self):
        self.assertEqual(len(violations_of_include("base/a.cc", '"a.h"')), 1)


class FileTest(unittest.TestCase):
    def test_a_file_that_does_not_say_what_it_is_for_is_found(self):
        for path, text in {"base/a.h": "#pragma once\n", "tools/a.py": "import os\n",
                           "tools/a": "#!/bin/bash\nset -e\n", "base/empty.cc": "",
                           "bazel/a.bzl": 'load(":b.bzl", "b")\n'}.items():
            with self.subTest(path=path):
                self.assertEqual(len(violations_of({path: text})), 1)

    def test_a_file_that_says_what_it_is_for_passes(self):
        for path, text in {"base/a.h": SAYS, "tools/a.py": '#!/usr/bin/env python3\n"""Does a."""\n',
                           "tools/a": "#!/bin/bash\n# Does a.\n", "docs/a.md": "no comment"}.items():
            with self.subTest(path=path):
                self.assertEqual(violations_of({path: text}), [])
