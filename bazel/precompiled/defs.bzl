"""precompiled_header, and a cc_test that is compiled with one.

Half of the compile time of a test goes to headers that nearly all tests include. A precompiled
header holds them parsed. It changes no test: each still includes the headers that it needs, and a
compiler that cannot use the file reads the header instead.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@rules_cc//cc:defs.bzl", _cc_test = "cc_test")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _precompiled_header_impl(ctx):
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    compiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    names = ctx.actions.declare_file(ctx.label.name + ".h.d")  # without it -fpch-deps has none
    ctx.actions.write(header, "".join(["#include {}\n".format(name) for name in ctx.attr.includes]))

    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    info = cc_common.merge_cc_infos(direct_cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    context = info.compilation_context
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = compiled.path,
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = depset(transitive = [
            context.system_includes,
            getattr(context, "external_includes", depset()),
        ]),
        preprocessor_defines = context.defines,
        use_pic = True,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
                             ["-x", "c++-header", "-MD", "-MF", names.path],
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([header], transitive = [context.headers, toolchain.all_files]),
        mnemonic = "CppPrecompile",
        outputs = [compiled, names],
        progress_message = "Precompiling " + ctx.label.name + ".h",
    )
    own = cc_common.create_compilation_context(headers = depset([header, compiled]))
    return [
        DefaultInfo(files = depset([header])),
        cc_common.merge_cc_infos(direct_cc_infos = [
            CcInfo(compilation_context = own),
        ], cc_infos = [info]),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "includes": attr.string_list(doc = "What to include, with its brackets or quotes."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cc_test(name, header = "//tests/support:gtest_headers", copts = [], deps = [], **kwargs):
    """A cc_test whose sources are C++ and begin with a precompiled header.

    Args:
      name: the target.
      header: a precompiled_header. Most of the sources should include its headers.
      copts: as in cc_test.
      deps: as in cc_test.
      **kwargs: as in cc_test.
    """
    _cc_test(
        name = name,
        # GCC must name the headers within, or Bazel would not notice their changes.
        copts = ["-include", "$(execpath {})".format(header)] + select({
            "//bazel/precompiled:clang": [],
            "//conditions:default": ["-fpch-deps"],
        }) + copts,
        deps = deps + [header],
        **kwargs
    )
