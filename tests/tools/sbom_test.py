"""tools/sbom.py lists each package of a folder with its hash and the code compiled into it."""

import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

HEADERS = {"fmt", "spdlog", "nlohmann-json"}


def run(*arguments):
    return subprocess.run([sys.executable, "tools/sbom.py", *arguments], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class SbomTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        with tarfile.open(self.folder / "cgtree-1.tar.gz", "w:gz") as sources:
            sources.addfile(tarfile.TarInfo("LICENSE"), io.BytesIO())
        with zipfile.ZipFile(self.folder / "host.whl", "w") as wheel:
            wheel.writestr("cgtree/_cgtree.abi3.so", b"\x7fELF and no runtime")

    def bill(self):
        done = run(self.folder)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        [path] = self.folder.glob("cgtree-*.cdx.json")
        return json.loads(path.read_text())

    def test_packages_have_their_hashes_and_what_is_in_their_binaries(self):
        made = self.bill()
        depends = {each["ref"]: set(each["dependsOn"]) for each in made["dependencies"]}
        self.assertEqual(depends, {"cgtree-1.tar.gz": set(), "host.whl": HEADERS,
                                   "cgtree": {"cgtree-1.tar.gz", "host.whl"}})
        for each in made["components"]:
            with self.subTest(name=each["name"]):
                if each["type"] == "file":
                    digest = hashlib.sha256((self.folder / each["name"]).read_bytes()).hexdigest()
                    self.assertEqual(each["hashes"], [{"alg": "SHA-256", "content": digest}])
                else:
                    self.assertRegex(each["version"], r"^\d+\.\d+\.\d+$")

    @unittest.skipUnless(pathlib.Path("/usr/local/cuda/include/cuda_runtime_api.h").exists(), "no CUDA toolkit here")
    def test_a_binary_for_gpus_has_cudas_runtime(self):
        with zipfile.ZipFile(self.folder / "gpu.whl", "w") as wheel:
            wheel.writestr("cgtree/_cgtree.abi3.so", b"\x7fELF /cudart.shm.%x")
        depends = {each["ref"]: set(each["dependsOn"]) for each in self.bill()["dependencies"]}
        self.assertEqual(depends["gpu.whl"], HEADERS | {"cuda-cudart", "cccl", "nvtx"})
        self.assertEqual(depends["host.whl"], HEADERS)

    def test_a_binary_with_llvms_cpp_library_says_so(self):
        with zipfile.ZipFile(self.folder / "zig.whl", "w") as wheel:
            wheel.writestr("cgtree/_cgtree.abi3.so", b"\x7fELF libc++abi: terminating")
        depends = {each["ref"]: set(each["dependsOn"]) for each in self.bill()["dependencies"]}
        self.assertEqual((depends["zig.whl"], depends["host.whl"]), (HEADERS | {"libc++"}, HEADERS))

    def test_the_same_packages_give_the_same_bill(self):
        first = self.bill()
        self.assertEqual(self.bill(), first)
        with zipfile.ZipFile(self.folder / "host.whl", "a") as wheel:
            wheel.writestr("more", "")
        self.assertNotEqual(self.bill()["serialNumber"], first["serialNumber"])

    def test_a_folder_without_packages_is_refused(self):
        with tempfile.TemporaryDirectory() as empty:
            done = run(empty)
        self.assertEqual(done.returncode, 1)
        self.assertIn("has no .tar.gz, .whl or .deb", done.stderr)
        self.assertEqual(run().returncode, 2)


if __name__ == "__main__":
    unittest.main()
