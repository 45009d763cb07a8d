"""library_sources: the sources of libraries, for tests that build them in another way."""

_SourcesInfo = provider(doc = "Sources of a target and of what it depends on.", fields = ["files"])

def _sources_aspect_impl(_target, ctx):
    direct = []
    below = []
    for name in ["srcs", "hdrs", "textual_hdrs", "deps"]:
        for item in getattr(ctx.rule.attr, name, []):
            if name != "deps":
                direct += [f for f in item.files.to_list() if f.is_source and not f.short_path.startswith("../")]
            if _SourcesInfo in item:
                below.append(item[_SourcesInfo].files)
    return [_SourcesInfo(files = depset(direct, transitive = below))]

_sources_aspect = aspect(
    implementation = _sources_aspect_impl,
    attr_aspects = ["srcs", "deps"],
)

def _library_sources_impl(ctx):
    files = depset(transitive = [d[_SourcesInfo].files for d in ctx.attr.deps])
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))]

# Those of this repository, of its libraries `deps` and of all that they depend on.
library_sources = rule(
    implementation = _library_sources_impl,
    attrs = {"deps": attr.label_list(aspects = [_sources_aspect])},
)
