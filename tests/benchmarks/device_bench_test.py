"""device_bench: its rows, the order of its counters, and launches without allocations."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import CountersTest, TimesTest, results_of, rows_of  # noqa: E402

HOST_ROWS = ["BM_VirtualCall", "BM_QueryStream", "BM_CaptureInfo", "BM_IsCapturing",
             "BM_RecordEvent", "BM_WaitEvent", "BM_WaitForStream", "BM_EmptyLaunch",
             "BM_TrivialLaunch", "BM_GraphLaunch/nodes:1", "BM_GraphLaunch/nodes:128"]
ALLOCATES = {"BM_WaitForStream"}  # the host device makes an event for each wait
DEVICE_ROWS = [f"BM_Device/nodes:{nodes}" for nodes in (1, 2, 3)]


def setUpModule():
    rows = rows_of(results_of("device_bench", "--samples=16"))
    HostTimesTest.rows = {name: row for name, row in rows.items() if name not in DEVICE_ROWS}
    DeviceTimesTest.rows = {name: row for name, row in rows.items() if name in DEVICE_ROWS}


class HostTimesTest(CountersTest, unittest.TestCase):
    EXPECTED = HOST_ROWS

    def test_no_call_allocates(self):
        for name, row in self.rows.items():
            with self.subTest(row=name):
                self.assertEqual(row["allocations"], 1 if name in ALLOCATES else 0)


class DeviceTimesTest(TimesTest, unittest.TestCase):
    EXPECTED = DEVICE_ROWS


if __name__ == "__main__":
    unittest.main()
