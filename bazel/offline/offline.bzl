"""External repositories for a machine that has only Debian's packages.

Nothing here downloads. Two kinds of repository are made:

 * stand-ins for the rule repositories that Bazel 4's own tools load (rules_cc,
   rules_java, remote_coverage_tools);
 * wrappers of system packages under the labels that the Bazel Central Registry
   uses, so that BUILD files are the same with Bzlmod.
"""

def _files_repository_impl(rctx):
    for path, content in rctx.attr.contents.items():
        rctx.file(path, content, executable = False)
    for path, label in rctx.attr.executables.items():
        rctx.file(path, rctx.read(rctx.path(Label(label))), executable = True)

_files_repository = repository_rule(
    implementation = _files_repository_impl,
    attrs = {
        "contents": attr.string_dict(doc = "file in the repository -> its text"),
        "executables": attr.string_dict(doc = "file in the repository -> label to copy"),
    },
)

_RULES_CC_DEFS = """\
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
"""

_RULES_CC_NATIVE = """\
native_cc_info = CcInfo
"""

_RULES_JAVA_DEFS = """\
java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
"""

_COVERAGE_TOOLS_BUILD = """\
package(default_visibility = ["//visibility:public"])

filegroup(name = "coverage_report_generator", srcs = ["lcov_merger.py"])

filegroup(name = "lcov_merger", srcs = ["lcov_merger.py"])
"""

def _find(rctx, directories, name):
    for directory in directories:
        candidate = rctx.path(directory + "/" + name)
        if candidate.exists:
            return candidate
    return None

def _system_library_impl(rctx):
    prefixes = ["/usr/local", "/usr"]
    if "SYSTEM_PREFIX" in rctx.os.environ:
        prefixes = [rctx.os.environ["SYSTEM_PREFIX"]] + prefixes
    libdirs = []
    for prefix in prefixes:
        for libdir in ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib"]:
            libdirs.append(prefix + "/" + libdir)

    missing = []
    for header in rctx.attr.headers:
        found = _find(rctx, [p + "/include" for p in prefixes], header)
        if found:
            rctx.symlink(found, "include/" + header)
        else:
            missing.append("include/" + header)
    for library in rctx.attr.libraries:
        # Alternatives are separated by "|": the first that exists is used.
        found = None
        for alternative in library.split("|"):
            found = _find(rctx, libdirs, alternative)
            if found:
                rctx.symlink(found, "lib/" + alternative)
                break
        if not found:
            missing.append("lib/" + library)
    if missing:
        fail("@{}: {} not found under {}. Try: apt-get install {}".format(
            rctx.name,
            ", ".join(missing),
            ", ".join(prefixes),
            rctx.attr.debian_package,
        ))
    for path, content in rctx.attr.sources.items():
        rctx.file(path, content, executable = False)
    rctx.file("BUILD.bazel", rctx.attr.build_file_content, executable = False)

_system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "build_file_content": attr.string(mandatory = True),
        "debian_package": attr.string(mandatory = True),
        "headers": attr.string_list(doc = "directories or files under <prefix>/include"),
        "libraries": attr.string_list(doc = "library files, alternatives joined by |"),
        "sources": attr.string_dict(doc = "extra files: path -> text"),
    },
    environ = ["SYSTEM_PREFIX"],
    local = True,
)

_GOOGLETEST_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "gtest",
    srcs = ["lib/libgmock.a", "lib/libgtest.a"],
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    linkopts = ["-pthread"],
)

cc_library(
    name = "gtest_main",
    srcs = ["lib/libgmock_main.a"],
    deps = [":gtest"],
)
"""

_FMT_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "fmt",
    srcs = ["src/fmt.cc"],
    hdrs = glob(["include/fmt/*.h"]),
    includes = ["include"],
)
"""

# The package has no static library. Compiled once, and not again in each file that formats.
_FMT_SOURCE = """\
#include "fmt/format-inl.h"

FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template FMT_API dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template FMT_API locale_ref::locale_ref(const std::locale&);
template FMT_API std::locale locale_ref::get<std::locale>() const;
template FMT_API thousands_sep_result<char> thousands_sep_impl(locale_ref);
template FMT_API char decimal_point_impl(locale_ref);
template FMT_API void buffer<char>::append(const char*, const char*);
template FMT_API void vformat_to(buffer<char>&, string_view, format_args, locale_ref);
}  // namespace detail
FMT_END_NAMESPACE
"""

_SPDLOG_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "spdlog",
    srcs = ["src/spdlog.cc"],
    hdrs = glob(["include/spdlog/**/*.h"]),
    defines = ["SPDLOG_COMPILED_LIB", "SPDLOG_FMT_EXTERNAL"],
    includes = ["include"],
    linkopts = ["-pthread"],
    deps = ["@fmt"],
)
"""

# The same as spdlog's own src/*.cpp; the package ships the -inl.h that they include.
_SPDLOG_SOURCE = """\
#include "spdlog/async.h"

#include "spdlog/spdlog-inl.h"
#include "spdlog/common-inl.h"
#include "spdlog/details/backtracer-inl.h"
#include "spdlog/details/file_helper-inl.h"
#include "spdlog/details/log_msg-inl.h"
#include "spdlog/details/log_msg_buffer-inl.h"
#include "spdlog/details/null_mutex.h"
#include "spdlog/details/os-inl.h"
#include "spdlog/details/periodic_worker-inl.h"
#include "spdlog/details/registry-inl.h"
#include "spdlog/details/thread_pool-inl.h"
#include "spdlog/async_logger-inl.h"
#include "spdlog/cfg/helpers-inl.h"
#include "spdlog/logger-inl.h"
#include "spdlog/pattern_formatter-inl.h"
#include "spdlog/sinks/ansicolor_sink-inl.h"
#include "spdlog/sinks/base_sink-inl.h"
#include "spdlog/sinks/basic_file_sink-inl.h"
#include "spdlog/sinks/rotating_file_sink-inl.h"
#include "spdlog/sinks/sink-inl.h"
#include "spdlog/sinks/stdout_color_sinks-inl.h"
#include "spdlog/sinks/stdout_sinks-inl.h"

#include <mutex>

template class SPDLOG_API spdlog::sinks::base_sink<std::mutex>;
template class SPDLOG_API spdlog::sinks::base_sink<spdlog::details::null_mutex>;
template class SPDLOG_API spdlog::sinks::basic_file_sink<std::mutex>;
template class SPDLOG_API spdlog::sinks::basic_file_sink<spdlog::details::null_mutex>;
template class SPDLOG_API spdlog::sinks::rotating_file_sink<std::mutex>;
template class SPDLOG_API spdlog::sinks::rotating_file_sink<spdlog::details::null_mutex>;
template class SPDLOG_API spdlog::sinks::stdout_sink_base<spdlog::details::console_mutex>;
template class SPDLOG_API spdlog::sinks::stdout_sink_base<spdlog::details::console_nullmutex>;
template class SPDLOG_API spdlog::sinks::stdout_sink<spdlog::details::console_mutex>;
template class SPDLOG_API spdlog::sinks::stdout_sink<spdlog::details::console_nullmutex>;
template class SPDLOG_API spdlog::sinks::stderr_sink<spdlog::details::console_mutex>;
template class SPDLOG_API spdlog::sinks::stderr_sink<spdlog::details::console_nullmutex>;
template class SPDLOG_API spdlog::sinks::ansicolor_sink<spdlog::details::console_mutex>;
template class SPDLOG_API spdlog::sinks::ansicolor_sink<spdlog::details::console_nullmutex>;
template class SPDLOG_API spdlog::sinks::ansicolor_stdout_sink<spdlog::details::console_mutex>;
template class SPDLOG_API spdlog::sinks::ansicolor_stdout_sink<spdlog::details::console_nullmutex>;
template class SPDLOG_API spdlog::sinks::ansicolor_stderr_sink<spdlog::details::console_mutex>;
template class SPDLOG_API spdlog::sinks::ansicolor_stderr_sink<spdlog::details::console_nullmutex>;

template SPDLOG_API std::shared_ptr<spdlog::logger> spdlog::stdout_color_mt<spdlog::synchronous_factory>(
    const std::string& logger_name, color_mode mode);
template SPDLOG_API std::shared_ptr<spdlog::logger> spdlog::stdout_color_st<spdlog::synchronous_factory>(
    const std::string& logger_name, color_mode mode);
template SPDLOG_API std::shared_ptr<spdlog::logger> spdlog::stderr_color_mt<spdlog::synchronous_factory>(
    const std::string& logger_name, color_mode mode);
template SPDLOG_API std::shared_ptr<spdlog::logger> spdlog::stderr_color_st<spdlog::synchronous_factory>(
    const std::string& logger_name, color_mode mode);
"""

_NLOHMANN_JSON_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "json",
    hdrs = glob(["include/nlohmann/**/*.hpp"]),
    includes = ["include"],
)
"""

_CLI11_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "cli11",
    hdrs = glob(["include/CLI/**/*.hpp"]),
    includes = ["include"],
)
"""

_BENCHMARK_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_import", "cc_library")

package(default_visibility = ["//visibility:public"])

# Debian has no libbenchmark.a: the shared library travels in the runfiles.
cc_import(
    name = "shared",
    shared_library = glob(["lib/libbenchmark.so.*"])[0],
)

cc_library(
    name = "benchmark",
    hdrs = glob(["include/benchmark/*.h"]),
    includes = ["include"],
    linkopts = ["-pthread"],
    deps = [":shared"],
)

cc_library(
    name = "benchmark_main",
    srcs = ["lib/libbenchmark_main.a"],
    deps = [":benchmark"],
)
"""

_RAPIDCHECK_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "rapidcheck",
    srcs = ["lib/librapidcheck.a"],
    hdrs = glob([
        "include/rapidcheck.h",
        "include/rapidcheck/**/*.h",
        "include/rapidcheck/**/*.hpp",
    ]),
    includes = ["include"],
)

cc_library(
    name = "rapidcheck_gtest",
    deps = [":rapidcheck"],
)
"""

_ZLIB_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "zlib",
    srcs = ["lib/libz.a"],
    hdrs = [
        "include/zconf.h",
        "include/zlib.h",
    ],
    includes = ["include"],
)
"""

def offline_repositories():
    """Every external repository, without a download (Bazel without Bzlmod)."""
    _files_repository(
        name = "rules_cc",
        contents = {
            "BUILD.bazel": "",
            "cc/BUILD.bazel": "",
            "cc/common/BUILD.bazel": "",
            "cc/common/cc_info.bzl": 'load("//cc/private:native.bzl", "native_cc_info")\n\nCcInfo = native_cc_info\n',
            "cc/defs.bzl": _RULES_CC_DEFS,
            "cc/private/BUILD.bazel": "",
            "cc/private/native.bzl": _RULES_CC_NATIVE,
        },
    )
    _files_repository(
        name = "rules_java",
        contents = {
            "BUILD.bazel": "",
            "java/BUILD.bazel": "",
            "java/defs.bzl": _RULES_JAVA_DEFS,
        },
    )
    _files_repository(
        name = "remote_coverage_tools",
        contents = {"BUILD.bazel": _COVERAGE_TOOLS_BUILD},
        executables = {"lcov_merger.py": "//bazel/offline:lcov_merger.py"},
    )
    _system_library(
        name = "googletest",
        build_file_content = _GOOGLETEST_BUILD,
        debian_package = "libgtest-dev libgmock-dev",
        headers = ["gtest", "gmock"],
        libraries = ["libgtest.a", "libgmock.a", "libgmock_main.a"],
    )
    _system_library(
        name = "fmt",
        build_file_content = _FMT_BUILD,
        debian_package = "libfmt-dev",
        headers = ["fmt"],
        sources = {"src/fmt.cc": _FMT_SOURCE},
    )
    _system_library(
        name = "spdlog",
        build_file_content = _SPDLOG_BUILD,
        debian_package = "libspdlog-dev",
        headers = ["spdlog"],
        sources = {"src/spdlog.cc": _SPDLOG_SOURCE},
    )
    _system_library(
        name = "nlohmann_json",
        build_file_content = _NLOHMANN_JSON_BUILD,
        debian_package = "nlohmann-json3-dev",
        headers = ["nlohmann"],
    )
    _system_library(
        name = "cli11",
        build_file_content = _CLI11_BUILD,
        debian_package = "libcli11-dev",
        headers = ["CLI"],
    )
    _system_library(
        name = "google_benchmark",
        build_file_content = _BENCHMARK_BUILD,
        debian_package = "libbenchmark-dev",
        headers = ["benchmark"],
        libraries = ["libbenchmark.so.1debian|libbenchmark.so.1", "libbenchmark_main.a"],
    )
    _system_library(
        name = "rapidcheck",
        build_file_content = _RAPIDCHECK_BUILD,
        debian_package = "librapidcheck-dev",
        headers = ["rapidcheck", "rapidcheck.h"],
        libraries = ["librapidcheck.a"],
    )
    _system_library(
        name = "zlib",
        build_file_content = _ZLIB_BUILD,
        debian_package = "zlib1g-dev",
        headers = ["zconf.h", "zlib.h"],
        libraries = ["libz.a"],
    )
