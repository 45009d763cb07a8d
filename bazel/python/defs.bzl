"""python_test: a unittest file as a test, with the system's python3 and no rules_python."""

def python_test(name, src, data = [], size = "small", **kwargs):
    """Runs a unittest file from the workspace root.

    Args:
      name: the target.
      src: the file with the unittest.TestCase classes.
      data: files that it imports and reads.
      size: as in sh_test.
      **kwargs: as in sh_test.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//bazel/python:run_unittest.sh"],
        args = ["$(rootpath //bazel/python:run_unittest.py)", "$(rootpath {})".format(src)],
        data = [
            src,
            "//bazel/python:leaks_of_others.txt",
            "//bazel/python:run_unittest.py",
        ] + data,
        **kwargs
    )
