#!/usr/bin/env python3
"""Runs whisper-bench and whisper-cli unchanged with CUDA graphs, without graphs, and on cgtree, and writes one JSON.

usage: compare.py --bin DIR --model FILE --out FILE [OPTION...]

whisper-cli transcribes chirps and noise, greedily and with five beams. Exits with 1 if a program
fails, or if the modes do not agree on the text.
"""

import argparse
import pathlib
import re
import sys
import wave

try:
    import numpy
except ImportError:  # --help does not need it
    numpy = None

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "common"))

import modes  # noqa: E402

RATE = 16000  # samples per second, as the program expects
TIMING = re.compile(r"(\w+) time =\s*([0-9.]+) ms\s*/\s*(\d+) runs")


def write_sound(file, seconds, seed):
    random = numpy.random.default_rng(seed)
    time = numpy.arange(seconds * RATE) / RATE
    pitch = 200 + 150 * numpy.sin(time * 1.7)
    sound = numpy.sin(2 * numpy.pi * numpy.cumsum(pitch) / RATE) * (0.5 + 0.5 * numpy.sin(time * 9))
    sound = 0.5 * sound + 0.05 * random.standard_normal(len(time))
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(numpy.clip(sound * 20000, -32767, 32767).astype("<i2").tobytes())


def parse_timings(_, stderr):
    """Returns milliseconds per run of each part, and the number of runs."""
    return {f"{name}_ms": round(float(ms) / int(runs), 3) for name, ms, runs in TIMING.findall(stderr)} | {
        f"{name}_runs": int(runs) for name, _, runs in TIMING.findall(stderr)}


def parse_text(stdout, stderr):
    return {**parse_timings(stdout, stderr), "text": stdout, "characters": len(stdout)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--bin", type=modes.absolute, required=True)
    parser.add_argument("--model", type=modes.absolute, required=True)
    parser.add_argument("--out", type=modes.absolute, required=True)
    parser.add_argument("--cuda_calls", type=modes.absolute, help="libcuda_calls.so")
    parser.add_argument("--modes", default=",".join(modes.MODES))
    parser.add_argument("--seconds", type=int, default=120, help="of sound")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("arguments", nargs="*", help="for both programs, behind --")
    options = parser.parse_args()
    if numpy is None:
        parser.error("NumPy is missing: pip install numpy")
    modes.end_by_exception()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    sound = options.out.with_suffix(".wav")
    write_sound(sound, options.seconds, options.seed)
    # No second try at another temperature, no timestamps, and no text of the previous window.
    cli = [options.bin / "whisper-cli", "-m", options.model, "-f", sound, "-l", "en", "-nf", "-nt", "-mc", 0,
           *options.arguments]
    programs = {
        "whisper-bench": ([options.bin / "whisper-bench", "-m", options.model, *options.arguments], parse_timings),
        "whisper-cli-greedy": ([*cli, "-bo", 1, "-bs", 1], parse_text),
        "whisper-cli-beams": ([*cli, "-bs", 5], parse_text),
    }
    return modes.compare_all(programs, options.out, options.cuda_calls, options.modes.split(","))


if __name__ == "__main__":
    sys.exit(main())
